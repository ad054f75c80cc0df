"""Grouped bars in the manner of the paper's figures 5 and 6, with matplotlib (static only)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, need
from reshard_lab.plots.palette import look
from reshard_lab.plots.svg import INK, Figure, figure

if TYPE_CHECKING:
    import pandas as pd

_STYLE = {
    "svg.hashsalt": "reshard_lab",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Columns(NamedTuple):
    """Which columns of a table become what."""

    group: str
    """A group of bars for each value, in order of appearance."""
    series: str
    """A bar of the group for each value, in order of appearance."""
    value: str
    """Height of the bar."""
    low: str | None = None
    high: str | None = None
    """Ends of the whisker, if any; both or neither."""
    mark: str | None = None
    """Where the marker stands, if any."""
    panel: str | None = None
    """A panel for each value; None = one panel."""
    cross: str | None = None
    """Where a second marker stands, if any."""
    bound: str | None = None
    """Height of a line over each group, which no bar can pass, if any."""


class Words(NamedTuple):
    """What stands around the bars."""

    title: str
    group: str | Mapping[str, str]
    """Label of the x axis, or one for each panel."""
    value: str
    """Label of the y axis, with its unit."""
    mark: str
    """What the marker is, for the legend; empty if there is none."""
    note: str
    """Backend, link, machine and where predictions come from; below the picture. Empty where its
    caption says so."""
    cross: str = ""
    bound: str = ""


def bars(frame: pd.DataFrame, columns: Columns, words: Words) -> Any:
    """A matplotlib figure of ``frame``: bars, with whiskers and a marker where columns say so.

    Series differ by colour and by hatch (``palette``). Draws with no display and no global state.
    """
    missing = [c for c in columns if c is not None and c not in frame.columns]
    if missing or not len(frame):
        raise ReshardError(
            f"the table to draw has {len(frame)} rows and no column {missing}; "
            f"its columns are {list(frame.columns)}"
            if missing
            else "the table to draw has no rows"
        )
    matplotlib = need("matplotlib", "notebooks", "a chart")
    canvas = need("matplotlib.figure", "notebooks", "a chart")
    panels = [("", frame)]
    if columns.panel is not None:
        panels = [(str(k), part) for k, part in frame.groupby(columns.panel, sort=False)]
    series = list(dict.fromkeys(frame[columns.series]))
    counts = [part[columns.group].nunique() for _, part in panels]
    with matplotlib.rc_context(_STYLE):
        width = max(7.0, 1.2 + sum(counts) * (0.35 + 0.16 * len(series)))
        made = canvas.Figure(figsize=(width, 4.2), layout="constrained")
        axes = made.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=counts)[0]
        for ax, (name, part) in zip(axes, panels, strict=True):
            _panel(ax, part, columns, words, series)
            ax.set_xlabel(words.group if isinstance(words.group, str) else words.group[name])
            if name:
                ax.set_title(name, fontsize=9)
        axes[0].set_ylim(bottom=0)  # of all panels; before the last is drawn it would cut that
        axes[0].set_ylabel(words.value)
        handles, labels = axes[0].get_legend_handles_labels()
        # The title is the legend's, so that the layout keeps the two apart.
        head = {"title": words.title, "title_fontproperties": {"weight": "bold", "size": 11}}
        place = {"loc": "outside upper center", "ncols": len(labels), "fontsize": 9}
        made.legend(handles, labels, frameon=False, **place, **head)
        if words.note:
            made.supxlabel(words.note, fontsize=9)
    return made


def _panel(
    ax: Any, frame: pd.DataFrame, columns: Columns, words: Words, series: Sequence[str]
) -> None:
    groups = list(dict.fromkeys(frame[columns.group]))
    wide = 0.8 / len(series)
    for i, name in enumerate(series):
        rows = frame[frame[columns.series] == name]
        x = [groups.index(g) + (i - (len(series) - 1) / 2) * wide for g in rows[columns.group]]
        value = rows[columns.value].to_numpy()
        fill = look(name, i)._asdict()
        ax.bar(x, value, wide, label=name, edgecolor=INK, linewidth=0.7, **fill)
        if columns.low is not None and columns.high is not None:
            reach = value - rows[columns.low].to_numpy(), rows[columns.high].to_numpy() - value
            ax.errorbar(x, value, yerr=reach, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        dot = {"markerfacecolor": "white", "markeredgecolor": INK, "linestyle": "none"}
        for column, marker, said, size in (
            (columns.mark, "D", words.mark, 5),
            (columns.cross, "x", words.cross, 4),
        ):
            if column is not None:
                label = said if i == 0 else None
                ax.plot(x, rows[column], marker, label=label, markersize=size, **dot)
    if columns.bound is not None:
        tops = frame.groupby(columns.group, sort=False)[columns.bound].max()
        at = [groups.index(g) for g in tops.index]
        left, right = ([x + side for x in at] for side in (-0.46, 0.46))
        ax.hlines(tops, left, right, INK, "--", label=words.bound, linewidth=1.2)
    ax.set_xticks(range(len(groups)), [str(g) for g in groups])
    ax.grid(axis="y", linewidth=0.4, alpha=0.5)
    ax.set_axisbelow(True)


def as_figure(made: Any, caption: str, alt: str, rows: Iterable[Iterable[str]] = ()) -> Figure:
    """A chart as a picture for a notebook, with its values; the same chart gives the same bytes."""
    matplotlib = need("matplotlib", "notebooks", "a chart")
    text = StringIO()
    with matplotlib.rc_context(_STYLE):
        made.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    return figure(drawn[drawn.index("<svg") :], caption, alt, rows)


def save(made: Any, stem: str | Path) -> tuple[Path, Path]:
    """Write a chart as ``stem.png`` and ``stem.svg``; the same chart gives the same bytes."""
    return write(made, f"{stem}.png"), write(made, f"{stem}.svg")


def write(made: Any, path: str | Path) -> Path:
    """Write a chart as the ending of ``path`` says, ``.png`` or ``.svg``."""
    matplotlib = need("matplotlib", "notebooks", "a chart")
    target = Path(path)
    vector = {"metadata": {"Date": None, "Creator": None}}
    how = (
        vector if target.suffix.lower() == ".svg" else {"dpi": 160, "metadata": {"Software": None}}
    )
    with matplotlib.rc_context(_STYLE):
        made.savefig(target, **how)
    return target
