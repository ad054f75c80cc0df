"""Grouped bars in the manner of the paper's figures 5 and 6, with whiskers and marks, as SVG."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from reshard_lab.plots import svg
from reshard_lab.plots.time_axis import round_steps
from reshard_lab.units import format_seconds

ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PINK = range(7)
"""Colours by their place in ``svg.COLORS``; a hatch is a multiple of 7 (see ``svg.hatch``)."""
METHODS = {
    # the paper's
    "send_recv": ORANGE,
    "local_allgather": YELLOW + 7 * 4,
    "global_allgather": PINK + 7 * 5,
    "alpa": SKY + 7 * 1,
    "broadcast": GREEN + 7 * 2,
    "naive": PINK,
    "load_balance": ORANGE + 7 * 1,
    "ensemble": GREEN + 7 * 2,  # the same plans as "broadcast"
    "overlap": SKY + 7 * 4,
    "eager_1f1b": PINK + 7 * 1,
    "ours": BLUE + 7 * 5,
    "signal": YELLOW + 7 * 3,
    # further ones
    "auto": VERMILION + 7 * 3,
    "split": YELLOW + 7 * 5,
    "concurrent": BLUE + 7 * 4,
}
"""Index of colour and hatch (``svg.cell``) by name of the method, the same in all charts; within a
figure of the paper no two share a colour, or a hatch."""
_OTHERS = tuple(i + 7 * hatch for i, hatch in enumerate((0, 1, 2, 4, 5, 3, 4)))
_HIGH, _TOP, _LEFT, _SIZE, _MOST_WIDE = 240.0, 16.0, 74.0, 11, 960.0


def method_fill(method: str, position: int) -> int:
    """Index of ``method``; a series that is no method takes one by its ``position``."""
    return METHODS.get(method, _OTHERS[position % len(_OTHERS)])


class ChartBar(NamedTuple):
    """One bar: a case of one method. What is unknown is None."""

    panel: str
    group: str
    method: str
    value: float
    low: float | None = None
    high: float | None = None
    """Ends of the whisker."""
    predicted: float | None = None
    """Where a diamond stands."""
    simulated: float | None = None
    """Where a cross stands."""
    bound: float | None = None
    """Height of a line over the group, which no bar can pass."""

    @property
    def case(self) -> str:
        """Panel and group in words."""
        return f"{self.panel}, {self.group}" if self.panel else self.group


class ChartLabels(NamedTuple):
    """The words around the bars."""

    title: str
    groups: str
    """Name of the x axis."""
    values: str
    """Name of the y axis, with its unit."""
    note: str
    """Where values come from; below the picture."""
    bound: str = "bound"
    in_seconds: bool = False
    """Whether values are times, and have their unit with each."""


def bar_chart_svg(bars: Sequence[ChartBar], labels: ChartLabels, alt: str) -> str:
    """SVG of ``bars`` in groups, panel by panel, all in order of appearance."""
    methods = list(dict.fromkeys(bar.method for bar in bars))
    groups = list(dict.fromkeys((bar.panel, bar.group) for bar in bars))
    heights = [v for b in bars for v in (b.value, b.high, b.predicted, b.simulated, b.bound) if v]
    longest = max(heights, default=1.0)
    parts, y = _legend(bars, methods, labels)
    bottom, scale = y + _TOP + _HIGH, _HIGH / longest
    wide = min(34.0, max(9.0, (_MOST_WIDE / len(groups) - 16) / len(methods)))
    step = max(wide * len(methods) + 16, svg.widest((g for _, g in groups), _SIZE) + 8)
    right = _LEFT + step * len(groups)
    parts += _value_axis(labels, longest, bottom, scale, right)
    for i, key in enumerate(groups):
        x = _LEFT + i * step + (step - wide * len(methods)) / 2
        parts.append(svg.label(_LEFT + (i + 0.5) * step, bottom + 17, key[1], _SIZE, "middle"))
        inside = [bar for bar in bars if (bar.panel, bar.group) == key]
        for bar in inside:
            position = methods.index(bar.method)
            index = method_fill(bar.method, position)
            parts += _bar(bar, x + position * wide, wide, bottom, scale, index)
        bounds = [bar.bound for bar in inside if bar.bound is not None]
        if bounds:
            y = bottom - max(bounds) * scale
            parts.append(_bound(x - 5, x + wide * len(methods) + 5, y))
    y = bottom + 22
    for name, items in itertools.groupby(enumerate(groups), lambda item: item[1][0]):
        if name:  # of a panel: under its groups, with a line over it
            first, *more = (i for i, _ in items)
            ends = _LEFT + first * step + 6, _LEFT + (first + len(more) + 1) * step - 6
            parts.append(svg.line(ends[0], y, ends[1], y, stroke_width=0.7))
            parts.append(svg.label(sum(ends) / 2, y + 14, name, _SIZE, "middle"))
    y += 14 if any(panel for panel, _ in groups) else -4
    parts.append(svg.label((_LEFT + right) / 2, y + 16, labels.groups, _SIZE, "middle"))
    width = max(right + 20, 640.0, 24 + svg.text_width(labels.title) * 1.1)
    lines, y = svg.note(12, y + 20, labels.note, width - 24)
    return svg.document(width, y + 12, parts + lines, alt)


def _value_axis(
    labels: ChartLabels, longest: float, bottom: float, scale: float, right: float
) -> list[str]:
    parts = [svg.line(_LEFT, bottom, right, bottom), svg.line(_LEFT, bottom, _LEFT, bottom - _HIGH)]
    for value in round_steps(longest, 6):
        y = bottom - value * scale
        words = format_seconds(value) if labels.in_seconds else svg.number(value)
        parts.append(svg.label(_LEFT - 7, y + 4, words, _SIZE, "end"))
        parts.append(svg.line(_LEFT - 4, y, _LEFT, y))
        if value:
            parts.append(svg.line(_LEFT, y, right, y, stroke_width=0.5, stroke_opacity=0.25))
    x, y = 14.0, bottom - _HIGH / 2
    turn = svg.upright(x, y)
    return [*parts, svg.label(x, y, labels.values, _SIZE, "middle", transform=turn)]


def _bar(
    bar: ChartBar, x: float, wide: float, bottom: float, scale: float, index: int
) -> list[str]:
    """A bar with its whisker and marks, as far as they are known."""
    high = bar.value * scale
    parts = [svg.cell(x, bottom - high, wide, high, index)]
    if bar.low is not None and bar.high is not None:
        parts.append(_whisker(x + wide / 2, bottom - bar.low * scale, bottom - bar.high * scale))
    reach = min(4.0, 0.2 * wide)
    if bar.predicted is not None:
        parts.append(_diamond(x + 0.26 * wide, bottom - bar.predicted * scale, reach))
    if bar.simulated is not None:
        parts.append(_cross(x + 0.76 * wide, bottom - bar.simulated * scale, reach))
    return parts


def _bound(left: float, right: float, y: float) -> str:
    return svg.line(left, y, right, y, stroke_dasharray="5 3", stroke_width=1.5)


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
    return svg.path(shape, **{"fill": "none", "stroke": svg.INK, **style})


def _at(x: float, y: float) -> str:
    return f"{svg.number(x)} {svg.number(y)}"


def _legend(
    bars: Sequence[ChartBar], methods: Sequence[str], labels: ChartLabels
) -> tuple[list[str], float]:
    """The title and what every sign means, and the height they take."""
    signs = {name: svg.cell(0, -9, 16, 11, method_fill(name, i)) for i, name in enumerate(methods)}
    if any(bar.predicted is not None for bar in bars):
        signs["predicted"] = _diamond(8, -4)
    if any(bar.simulated is not None for bar in bars):
        signs["simulated"] = _cross(8, -4)
    if any(bar.low is not None for bar in bars):
        signs["fastest to slowest run"] = _whisker(8, 1, -9)
    if any(bar.bound is not None for bar in bars):
        signs[labels.bound] = _bound(0, 17, -4)
    parts = [svg.label(12, 18, labels.title, 12, font_weight="bold")]
    x, y = 12.0, 38.0
    for name, drawn in signs.items():
        wide = 22 + svg.text_width(name, _SIZE) + 12
        if x + wide > 640:
            x, y = 12.0, y + 18
        parts.append(svg.moved(x, y, [drawn]))
        parts.append(svg.label(x + 22, y, name, _SIZE))
        x += wide
    return parts, y
