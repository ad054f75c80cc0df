"""Plans over time: a row for each side of each NIC, with the lower bound as a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reshard_lab.errors import ReshardError, check_type, short
from reshard_lab.planning.gantt import Gantt
from reshard_lab.plots import svg
from reshard_lab.plots.spans import GAP, MOST_BARS, ROW, Span, bars, joined
from reshard_lab.plots.time_axis import SIZE, TimeScale, instant
from reshard_lab.units import format_seconds

_WIDE, _TOP = 620.0, 34.0


class Chart(NamedTuple):
    """What is drawn of one plan or timeline, as plain numbers."""

    rows: Mapping[str, list[Span]]
    """By name, from top to bottom."""
    idle: Mapping[str, float]
    """By name, the share of the whole time in which nothing happens."""
    end_s: float
    bound_s: float
    inside: bool
    """Whether some things happen inside hosts, on no row."""


def gantt(chart: Gantt, caption: str | None = None) -> svg.Figure:
    """``chart`` (see ``Plan.gantt``) as a figure; its table is ``chart.to_frame()``."""
    check_type("chart", chart, Gantt, _HOW)
    words = caption or (
        f"Predicted {format_seconds(chart.makespan_s)}; lower bound "
        f"{format_seconds(chart.lower_bound_s)} (dashed). {_LEGEND}"
    )
    return svg.figure(gantt_svg(chart), words, _alt(chart))


def gantts(
    charts: Mapping[str, Gantt], moment_s: float | None = None, caption: str | None = None
) -> svg.Figure:
    """Several plans by name, one below the other on one time axis, as a figure.

    moment_s:
        a time that is marked: bars under way then have a thick outline, those to come are empty.
    """
    check_type("charts", charts, Mapping, "give them as {name: plan.gantt()}")
    if not charts:
        raise ReshardError("no plan to draw; give at least one, as {name: plan.gantt()}")
    charts = {
        str(name): check_type(f"chart {short(name)}", chart, Gantt, _HOW)
        for name, chart in charts.items()
    }
    if moment_s is not None:
        instant("moment_s", moment_s)
    words = caption or (
        "On one time axis, each with its lower bound (dashed): "
        + "; ".join(f"{name}, {format_seconds(c.makespan_s)}" for name, c in charts.items())
        + f". {_LEGEND}"
    )
    if moment_s is not None:
        moment = format_seconds(moment_s)
        words += f" At {moment} (the upright line): thick, under way; dotted, still to come."
    alt = " ".join(f"{name}: {_alt(c)}" for name, c in charts.items())
    if moment_s is not None:
        alt += f" {format_seconds(moment_s)} is marked."
    drawn = rows_svg({name: chart_of(c) for name, c in charts.items()}, alt, moment_s)
    return svg.figure(drawn, words, alt)


def gantt_svg(chart: Gantt) -> str:
    """SVG of ``chart``: time to the right, senders above receivers."""
    check_type("chart", chart, Gantt, _HOW)
    return rows_svg({"": chart_of(chart)}, _alt(chart))


def chart_of(chart: Gantt) -> Chart:
    """The rows of a Gantt record: NIC sides that send by NIC, then those that receive."""
    found: dict[tuple[str, int], list[Span]] = {}
    for bar in chart.bars:
        if bar.sender_nic is not None:
            span = Span(bar.start_s, bar.end_s, bar.task)
            for key in [("tx", bar.sender_nic), *(("rx", nic) for nic in bar.receiver_nics)]:
                found.setdefault(key, []).append(span)
    order = sorted(found, key=lambda k: (k[0] == "rx", k[1]))
    rows = {row_name(chart.nics[nic], side): found[side, nic] for side, nic in order}
    idle = {row_name(chart.nics[i.nic], i.side): i.share for i in chart.idle}
    inside = any(bar.sender_nic is None for bar in chart.bars)
    return Chart(rows, idle, chart.makespan_s, chart.lower_bound_s, inside)


def row_name(nic: str, side: str) -> str:
    """What stands left of a row."""
    return f"{nic} {'sends' if side == 'tx' else 'receives'}"


def rows_svg(charts: Mapping[str, Chart], alt: str, moment_s: float | None = None) -> str:
    """SVG of charts, by title (none for ``""``), on one time axis."""
    names = [name for chart in charts.values() for name in chart.rows]
    left = 12 + svg.widest(names, SIZE) + 8
    longest = max(max(c.end_s, c.bound_s) for c in charts.values()) or 1.0
    scale = TimeScale(left, _WIDE, longest)
    parts: list[str] = []
    y, joins = 0.0, False
    for title, chart in charts.items():
        if title:
            parts.append(svg.label(12, y + 16, title, 12, font_weight="bold"))
            y += 18
        most = min(MOST_BARS, 2 * MOST_BARS // len(charts))
        drawn, coarse = joined(list(chart.rows.values()), longest, most)
        joins = joins or coarse
        rows, bottom = _rows(chart, drawn, scale, y + _TOP, moment_s)
        if moment_s is not None:  # under the bars, and clear of the words above them
            x = scale.x(min(moment_s, longest))
            parts.append(svg.line(x, y + _TOP - 4, x, bottom, stroke=_MOMENT, stroke_width=2.5))
        parts += [*rows, *_lines(chart, scale, y + _TOP, bottom)]
        y = bottom + (12 if title else 0)
    parts += scale.axis(y)
    notes = _notes(joins, any(chart.inside for chart in charts.values()))
    for words in notes:
        parts.append(svg.label(left, y + 54, words, SIZE, font_style="italic"))
        y += 16
    width = scale.right + 10 + svg.text_width("100% idle", SIZE) + 12
    return svg.document(width, y + 44, parts, alt)


_LEGEND = (
    "A bar is a unit task on a NIC, numbered; "
    "the share of the time in which the NIC lies idle stands at the right."
)
_MOMENT = "#D55E00"
_HOW = "plan.gantt() makes one"


def _rows(
    chart: Chart, drawn: list[list[Span]], scale: TimeScale, y: float, moment_s: float | None
) -> tuple[list[str], float]:
    """The rows of one chart from ``y`` down, and where they end."""
    parts: list[str] = []
    for name, spans in zip(chart.rows, drawn, strict=True):
        parts.append(svg.label(scale.left - 8, y + 0.7 * ROW, name, SIZE, "end"))
        parts += bars(spans, scale, y, moment_s, scale.x(chart.bound_s))
        share = f"{chart.idle[name]:.0%} idle"
        parts.append(svg.label(scale.right + 10, y + 0.7 * ROW, share, SIZE))
        y += ROW + GAP
    if not chart.rows:
        parts.append(svg.label(scale.left, y + 14, "nothing crosses the network", SIZE))
        y += ROW
    return parts, y


def _lines(chart: Chart, scale: TimeScale, top: float, bottom: float) -> list[str]:
    """The bound and the makespan as lines through the rows."""
    bound, end = scale.x(chart.bound_s), scale.x(chart.end_s)
    dashes = {"stroke_dasharray": "5 3", "stroke_width": "1.5"}
    parts = [svg.line(bound, top - 8, bound, bottom + 4, **dashes)]
    parts.append(svg.line(end, top - 8, end, bottom + 4))
    bound_words = f"bound {format_seconds(chart.bound_s)}"
    end_words = f"end {format_seconds(chart.end_s)}"
    apart = svg.text_width(bound_words, SIZE) + svg.text_width(end_words, SIZE) + 12
    anchor = "end" if end - bound > apart else "start"
    # The bound's words stand left of its line, or right of it where there is no room.
    if bound - svg.text_width(bound_words, SIZE) - 3 >= 0:
        parts.append(svg.label(bound - 3, top - 12, bound_words, SIZE, "end"))
    else:
        parts.append(svg.label(bound + 3, top - 12, bound_words, SIZE))
    if chart.end_s > chart.bound_s * (1 + 1e-9):
        parts.append(
            svg.label(end + (3 if anchor == "start" else -3), top - 12, end_words, SIZE, anchor)
        )
    return parts


def _notes(joins: bool, inside: bool) -> list[str]:
    made = []
    if joins:
        made.append("neighbouring short bars are run together; grey: of several unit tasks")
    if inside:
        made.append("what happens inside hosts uses no NIC and is not drawn")
    return made


def _alt(chart: Gantt) -> str:
    rows = chart_of(chart).rows
    order = "in the order of the plan" if chart.ordered else "side by side, sharing the NICs"
    text = (
        f"{len(rows)} NIC sides over time carry {len({b.task for b in chart.bars})} unit tasks "
        f"{order}; predicted {format_seconds(chart.makespan_s)}, "
        f"lower bound {format_seconds(chart.lower_bound_s)}"
    )
    shares = [f"{row_name(chart.nics[i.nic], i.side)}: {i.share:.0%} idle" for i in chart.idle[:8]]
    return ". ".join([text, *shares]) + ("." if len(chart.idle) <= 8 else ", and so on.")
