"""Predicted, simulated and measured side by side, as SVG that is drawn fast enough to explore.

The static figures of experiments are drawn by ``plots.bars``; the looks are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from reshard_lab.errors import ReshardError
from reshard_lab.plots import svg
from reshard_lab.plots.axis import round_steps
from reshard_lab.plots.measurements import Bar, Table, case_of, read, records, where
from reshard_lab.plots.note import note
from reshard_lab.plots.palette import look
from reshard_lab.units import format_seconds

_AXES = {"bandwidth": "effective bandwidth (Gbit/s)", "time": "time"}
_HATCHES = {"": 0, "//": 1, "\\\\": 2, "--": 3, "xx": 4, "++": 4, "..": 5, "oo": 5}
_HIGH, _TOP, _LEFT, _SIZE, _MOST_WIDE = 240.0, 16.0, 74.0, 11, 960.0
_FAR = 2  # times the highest bar: bounds beyond that are not drawn
MOST_SAID = 16
"""As many bars are told one by one to those who do not see them."""
MOST_BARS = 256
"""More bars than this are not drawn: choose some cases or methods."""


def draw_measured(table: Table, what: str = "bandwidth", title: str = "") -> svg.Figure:
    """Measured bars with the spread of their runs, what was predicted and simulated, the bound.

    table:
        rows as ``experiments.compare`` makes them and data/results/ keeps them, with columns that
        say where they were measured (or such rows as dictionaries); or measurements.
    what:
        ``"bandwidth"`` (of the tensor, section 5) or ``"time"``.

    Raises ReshardError for rows that were not measured, or do not say where.
    """
    rows = records(table)
    found = read(rows, what)
    if len(found) > MOST_BARS:
        raise ReshardError(
            f"a picture shows up to {MOST_BARS} bars, not {len(found)}; choose cases or methods"
        )
    label = where(rows)
    name = title or f"Measured{' beside predicted' * any(b.predicted is not None for b in found)}"
    axis = case_of(rows[0]).axis
    alt = _alt(found, what, axis, label)
    drawn = _svg(found, what, name, axis, label, alt)
    caption = f"{name}. Bars: median; whiskers: the fastest and the slowest run."
    return svg.figure(drawn, caption, alt, _rows(found, what, axis))


def fill_index(series: str, position: int) -> int:
    """The look of a method (``palette``) as a number of ``svg.cell``."""
    chosen = look(series, position)
    return svg.COLORS.index(chosen.color) + len(svg.COLORS) * _HATCHES[chosen.hatch]


def _svg(found: Sequence[Bar], what: str, title: str, axis: str, label: str, alt: str) -> str:
    series = list(dict.fromkeys(bar.series for bar in found))
    groups = list(dict.fromkeys((bar.panel, bar.group) for bar in found))
    most = max(max(b.high, b.predicted or 0.0, b.simulated or 0.0) for b in found) or 1.0
    bounds = [b.bound for b in found if b.bound is not None and b.bound < _FAR * most]
    most = max([most, *bounds])
    signs = {
        "predicted": any(b.predicted is not None for b in found),
        "simulated": any(b.simulated is not None for b in found),
        "bound": bool(bounds),
    }
    parts, y = _legend(series, title, signs)
    bottom, scale = y + _TOP + _HIGH, _HIGH / most
    wide = min(34.0, max(9.0, (_MOST_WIDE / len(groups) - 16) / len(series)))
    step = max(wide * len(series) + 16, svg.widest((g for _, g in groups), _SIZE) + 8)
    right = _LEFT + step * len(groups)
    parts += _value_axis(what, most, bottom, scale, right)
    for i, key in enumerate(groups):
        x = _LEFT + i * step + (step - wide * len(series)) / 2
        parts.append(svg.label(_LEFT + (i + 0.5) * step, bottom + 17, key[1], _SIZE, "middle"))
        inside = [bar for bar in found if (bar.panel, bar.group) == key]
        for bar in inside:
            position = series.index(bar.series)
            index = fill_index(bar.series, position)
            parts += _draw(bar, x + position * wide, wide, bottom, scale, index)
        parts += _bound(inside, x - 5, x + wide * len(series) + 5, bottom, scale)
    y = bottom + 22
    parts += _panels(groups, step, y)
    y += 14 if any(panel for panel, _ in groups) else -4
    parts.append(svg.label((_LEFT + right) / 2, y + 16, axis, _SIZE, "middle"))
    width = max(right + 20, 640.0)
    lines, y = note(12, y + 20, label, width - 24)
    return svg.document(width, y + 12, parts + lines, alt)


def _bound(
    inside: Sequence[Bar], left: float, right: float, bottom: float, scale: float
) -> list[str]:
    """A line over one group at its bound, where that lies within the picture."""
    heights = [bar.bound * scale for bar in inside if bar.bound is not None]
    if not heights or max(heights) > _HIGH + 0.1:
        return []
    y = bottom - max(heights)
    return [svg.line(left, y, right, y, stroke_dasharray="5 3", stroke_width=1.5)]


def _value_axis(what: str, most: float, bottom: float, scale: float, right: float) -> list[str]:
    parts = [svg.line(_LEFT, bottom, right, bottom), svg.line(_LEFT, bottom, _LEFT, bottom - _HIGH)]
    for value in round_steps(most, 6):
        y = bottom - value * scale
        words = format_seconds(value) if what == "time" else svg.number(value)
        parts.append(svg.label(_LEFT - 7, y + 4, words, _SIZE, "end"))
        parts.append(svg.line(_LEFT - 4, y, _LEFT, y))
        if value:
            parts.append(svg.line(_LEFT, y, right, y, stroke_width=0.5, stroke_opacity=0.25))
    x, y = 14.0, bottom - _HIGH / 2
    turn = f"rotate(-90 {svg.number(x)} {svg.number(y)})"
    return [*parts, svg.label(x, y, _AXES[what], _SIZE, "middle", transform=turn)]


def _draw(bar: Bar, x: float, wide: float, bottom: float, scale: float, index: int) -> list[str]:
    """A bar, its whisker, a diamond for what was predicted and a cross for what was simulated."""
    middle = x + wide / 2
    high = bar.value * scale
    parts = [svg.cell(x, bottom - high, wide, high, index)]
    parts.append(_whisker(middle, bottom - bar.low * scale, bottom - bar.high * scale))
    reach = min(4.0, 0.2 * wide)
    if bar.predicted is not None:
        parts.append(_diamond(x + 0.26 * wide, bottom - bar.predicted * scale, reach))
    if bar.simulated is not None:
        parts.append(_cross(x + 0.76 * wide, bottom - bar.simulated * scale, reach))
    return parts


def _whisker(x: float, low: float, high: float) -> str:
    return _path(f"M{_at(x - 3, low)}h6M{_at(x, low)}L{_at(x, high)}M{_at(x - 3, high)}h6")


def _diamond(x: float, y: float, reach: float = 4.0) -> str:
    n, back = svg.number(reach), svg.number(-reach)
    return _path(f"M{_at(x - reach, y)}l{n} {back} {n} {n} {back} {n}z", fill=svg.PAPER)


def _cross(x: float, y: float, reach: float = 4.0) -> str:
    half = 0.75 * reach
    n, back = svg.number(2 * half), svg.number(-2 * half)
    return _path(f"M{_at(x - half, y - half)}l{n} {n}m0 {back}l{back} {n}", stroke_width=1.3)


def _path(shape: str, **style: object) -> str:
    return f"<path{svg.attributes(d=shape, **{'fill': 'none', 'stroke': svg.INK, **style})}/>"


def _at(x: float, y: float) -> str:
    return f"{svg.number(x)} {svg.number(y)}"


def _legend(
    series: Sequence[str], title: str, signs: Mapping[str, bool]
) -> tuple[list[str], float]:
    """The title and what every sign means, and the height they take.

    signs: which of ``"predicted"``, ``"simulated"`` and ``"bound"`` there are.
    """
    parts = [svg.label(12, 18, title, 12, font_weight="bold")]
    entries: list[tuple[str, list[str]]] = []
    for i, name in enumerate(series):
        entries.append((name, [svg.cell(0, -9, 16, 11, fill_index(name, i))]))
    if signs["predicted"]:
        entries.append(("predicted", [_diamond(8, -4)]))
    if signs["simulated"]:
        entries.append(("simulated", [_cross(8, -4)]))
    entries.append(("fastest to slowest run", [_whisker(8, 1, -9)]))
    if signs["bound"]:
        dashes = svg.line(0, -4, 17, -4, stroke_dasharray="5 3", stroke_width=1.5)
        entries.append(("bound", [dashes]))
    x, y = 12.0, 38.0
    for name, drawn in entries:
        wide = 22 + svg.text_width(name, _SIZE) + 12
        if x + wide > 640:
            x, y = 12.0, y + 18
        place = f"translate({svg.number(x)} {svg.number(y)})"
        parts.append(f'<g transform="{place}">{"".join(drawn)}</g>')
        parts.append(svg.label(x + 22, y, name, _SIZE))
        x += wide
    return parts, y


def _panels(groups: Sequence[tuple[str, str]], step: float, y: float) -> list[str]:
    """The names of panels under their groups, with a line over each."""
    parts: list[str] = []
    numbered = itertools.groupby(enumerate(groups), lambda item: item[1][0])
    for name, items in numbered:
        places = [i for i, _ in items]
        if name:
            left, right = _LEFT + places[0] * step + 6, _LEFT + (places[-1] + 1) * step - 6
            parts.append(svg.line(left, y, right, y, stroke_width=0.7))
            parts.append(svg.label((left + right) / 2, y + 14, name, _SIZE, "middle"))
    return parts


def value_text(value: float, what: str) -> str:
    """A value of the axis with its unit."""
    return format_seconds(value) if what == "time" else f"{value:.3g} Gbit/s"


def _case(bar: Bar) -> str:
    return f"{bar.panel}, {bar.group}" if bar.panel else bar.group


def _alt(found: Sequence[Bar], what: str, axis: str, label: str) -> str:
    """Every bar where there are few, else the ends of every method; the table has them all."""
    if len(found) <= MOST_SAID:
        lines = [
            f"{_case(b)}, {b.series}: measured {value_text(b.value, what)}"
            + ("" if b.predicted is None else f", predicted {value_text(b.predicted, what)}")
            for b in found
        ]
    else:
        lines = [
            f"{name}: measured {_ends([b for b in found if b.series == name], what)}"
            for name in dict.fromkeys(b.series for b in found)
        ]
    return f"Bars of {_AXES[what]} by {axis} and method. {'; '.join(lines)}. {label}"


def _ends(bars: Sequence[Bar], what: str) -> str:
    """The lowest and the highest of ``bars``, and in which case."""
    low, high = min(bars, key=lambda b: b.value), max(bars, key=lambda b: b.value)
    ends = [f"{value_text(b.value, what)} ({_case(b)})" for b in (low, high)]
    return " to ".join(dict.fromkeys(ends))


def _rows(found: Sequence[Bar], what: str, axis: str) -> list[tuple[str, ...]]:
    """What each bar shows, as text; what is unknown of all of them has no column."""
    names = ["measured", "fastest run", "slowest run", "predicted", "simulated", "bound"]
    if what == "bandwidth":
        values = [(b.value, b.high, b.low, b.predicted, b.simulated, b.bound) for b in found]
        names = [f"{name} (Gbit/s)" for name in names]
    else:
        values = [(b.value, b.low, b.high, b.predicted, b.simulated, b.bound) for b in found]
    known = [i for i in range(len(names)) if any(row[i] is not None for row in values)]

    def text(value: float | None) -> str:
        if value is None:
            return ""
        return format_seconds(value) if what == "time" else f"{value:.3g}"

    rows = [(axis, "method", *(names[i] for i in known))]
    for bar, row in zip(found, values, strict=True):
        rows.append((_case(bar), bar.series, *(text(row[i]) for i in known)))
    return rows
