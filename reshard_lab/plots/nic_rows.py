"""Rows of NICs over time: bars numbered by unit task, few enough to draw, and the lower bound."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from reshard_lab.plots import svg
from reshard_lab.plots.time_axis import SIZE, TimeScale
from reshard_lab.units import format_seconds

MOST_BARS = 256
"""More bars than this are drawn with neighbours run together."""
MIXED = -1
"""Task of a run of short bars of several tasks."""
_ROW, _GAP, _WIDE, _TOP = 22.0, 6.0, 620.0, 34.0
_LANES = 5
_MOMENT = "#D55E00"


class TaskSpan(NamedTuple):
    """When a NIC carries a unit task, in seconds."""

    start: float
    end: float
    task: int


class NicRows(NamedTuple):
    """What is drawn of one plan or timeline."""

    rows: Mapping[str, list[TaskSpan]]
    """By name, from top to bottom."""
    idle: Mapping[str, float]
    """By name, the share of the whole time in which nothing happens."""
    end_s: float
    bound_s: float
    inside: bool
    """Whether some things happen inside hosts, on no row."""
    how: str
    """``"predicted"`` or ``"simulated"``."""
    carries: str
    """What the rows carry."""

    @property
    def alt(self) -> str:
        """The picture in words."""
        text = f"{len(self.rows)} NIC sides over time carry {self.carries}; {self.how} "
        text += f"{format_seconds(self.end_s)}, lower bound {format_seconds(self.bound_s)}"
        shares = [f"{name}: {share:.0%} idle" for name, share in list(self.idle.items())[:8]]
        return ". ".join([text, *shares]) + ("." if len(self.idle) <= 8 else ", and so on.")


def row_name(nic: str, side: str) -> str:
    """What stands left of a row; ``side`` is ``"tx"`` or ``"rx"``."""
    return f"{nic} {'sends' if side == 'tx' else 'receives'}"


def nic_rows_svg(plans: Mapping[str, NicRows], alt: str, moment_s: float | None = None) -> str:
    """SVG of ``plans``, by title (none for ``""``), on one time axis.

    At ``moment_s`` bars under way have a thick outline, and those to come are empty.
    """
    left = 12 + svg.widest((name for plan in plans.values() for name in plan.rows), SIZE) + 8
    longest = max(max(plan.end_s, plan.bound_s) for plan in plans.values()) or 1.0
    scale = TimeScale(left, _WIDE, longest)
    parts: list[str] = []
    y, any_joined = 0.0, False
    for title, plan in plans.items():
        if title:
            parts.append(svg.label(12, y + 16, title, 12, font_weight="bold"))
            y += 18
        most = min(MOST_BARS, 2 * MOST_BARS // len(plans))
        bars, coarse = joined(list(plan.rows.values()), longest, most)
        any_joined = any_joined or coarse
        rows, bottom = _rows(plan, bars, scale, y + _TOP, moment_s)
        if moment_s is not None:  # under the bars, and clear of the words above them
            x = scale.x(min(moment_s, longest))
            parts.append(svg.line(x, y + _TOP - 4, x, bottom, stroke=_MOMENT, stroke_width=2.5))
        parts += [*rows, *_bound_and_end(plan, scale, y + _TOP, bottom)]
        y = bottom + (12 if title else 0)
    parts += scale.axis(y)
    notes = ["neighbouring short bars are run together; grey: of several unit tasks"] * any_joined
    if any(plan.inside for plan in plans.values()):
        notes.append("what happens inside hosts uses no NIC and is not drawn")
    for words in notes:
        parts.append(svg.label(left, y + 54, words, SIZE, font_style="italic"))
        y += 16
    width = scale.right + 10 + svg.text_width("100% idle", SIZE) + 12
    return svg.document(width, y + 44, parts, alt)


def _rows(
    plan: NicRows, bars: list[list[TaskSpan]], scale: TimeScale, y: float, moment_s: float | None
) -> tuple[list[str], float]:
    """The rows of one plan from ``y`` down, overlapping bars in lanes, and where they end."""
    parts: list[str] = []
    bound = scale.x(plan.bound_s)
    for name, spans in zip(plan.rows, bars, strict=True):
        parts.append(svg.label(scale.left - 8, y + 0.7 * _ROW, name, SIZE, "end"))
        lanes, count = _lanes(spans)
        high = _ROW / max(1, count)
        for span, lane in zip(spans, lanes, strict=True):
            parts += _bar(span, scale, y + lane * high, high, moment_s, bound)
        share = f"{plan.idle[name]:.0%} idle"
        parts.append(svg.label(scale.right + 10, y + 0.7 * _ROW, share, SIZE))
        y += _ROW + _GAP
    if not plan.rows:
        parts.append(svg.label(scale.left, y + 14, "nothing crosses the network", SIZE))
        y += _ROW
    return parts, y


def _bound_and_end(plan: NicRows, scale: TimeScale, top: float, bottom: float) -> list[str]:
    bound, end, y = scale.x(plan.bound_s), scale.x(plan.end_s), top - 12
    dashes = {"stroke_dasharray": "5 3", "stroke_width": "1.5"}
    parts = [svg.line(bound, top - 8, bound, bottom + 4, **dashes)]
    parts.append(svg.line(end, top - 8, end, bottom + 4))
    words = f"bound {format_seconds(plan.bound_s)}"
    wide = svg.text_width(words, SIZE)
    # Words stand left of their line, or right of it where there is no room.
    at, anchor = (bound - 3, "end") if bound - wide - 3 >= 0 else (bound + 3, "start")
    parts.append(svg.label(at, y, words, SIZE, anchor))
    if plan.end_s > plan.bound_s * (1 + 1e-9):
        words = f"end {format_seconds(plan.end_s)}"
        wide += svg.text_width(words, SIZE) + 12
        at, anchor = (end - 3, "end") if end - bound > wide else (end + 3, "start")
        parts.append(svg.label(at, y, words, SIZE, anchor))
    return parts


def joined(
    rows: Sequence[list[TaskSpan]], longest: float, most: int = MOST_BARS
) -> tuple[list[list[TaskSpan]], bool]:
    """The rows with neighbouring bars joined until few enough, and whether that was needed.

    So are bars that overlap, where more than ``_LANES`` do so at once.
    """
    least = 0.0

    def near(last: TaskSpan, span: TaskSpan) -> bool:
        touches = abs(span.start - last.end) <= least or span.start == last.end
        short = max(last.end - last.start, span.end - span.start) < least
        return touches and (last.task == span.task or short)

    def overlap(last: TaskSpan, span: TaskSpan) -> bool:
        return span.start < last.end

    exact = [_run_together(row, near) for row in rows]
    fewer = [row if _lanes(row)[1] <= _LANES else _run_together(row, overlap) for row in exact]
    while sum(map(len, fewer)) > most and least < longest:
        least = 2 * least or longest / 4096
        fewer = [_run_together(row, near) for row in fewer]
    return fewer, fewer != exact


def _run_together(
    row: list[TaskSpan], belong: Callable[[TaskSpan, TaskSpan], bool]
) -> list[TaskSpan]:
    """The bars of a row, those that ``belong`` to the one before as one with it."""
    spans: list[TaskSpan] = []
    for span in sorted(row):
        if spans and belong(spans[-1], span):
            start, end, task = spans[-1]
            spans[-1] = TaskSpan(start, max(end, span.end), task if task == span.task else MIXED)
        else:
            spans.append(span)
    return spans


def _lanes(spans: Sequence[TaskSpan]) -> tuple[list[int], int]:
    """The lane of every bar, so that none overlap in one lane, and how many lanes there are."""
    ends: list[float] = []
    lanes = []
    for span in spans:
        lane = next((i for i, until in enumerate(ends) if until <= span.start), len(ends))
        ends[lane : lane + 1] = [span.end]
        lanes.append(lane)
    return lanes, len(ends)


def _bar(
    span: TaskSpan, scale: TimeScale, top: float, high: float, moment_s: float | None, bound: float
) -> list[str]:
    """A bar; its number keeps clear of the upright line at ``bound``, where there is room."""
    x = scale.x(span.start)
    wide = scale.x(span.end) - x
    words, index = (str(span.task), span.task) if span.task != MIXED else ("several", 0)
    sizes = (s for s in (SIZE, 9, 7) if s <= high - 2 and svg.text_width(words, s) + 2 < wide)
    size = next(sizes, 0)
    middle, centre = _beside(x, wide, svg.text_width(words, size), bound), top + high / 2
    if moment_s is not None and span.start > moment_s:
        dots = {"stroke_dasharray": "2 2", "stroke_opacity": "0.7"}
        parts = [svg.rect(x, top, wide, high, fill=svg.PAPER, stroke=svg.INK, **dots)]
        label = svg.label(middle, centre + 0.36 * size, words if size else "", size, "middle")
        return [*parts, label]
    if span.task == MIXED:
        parts = [svg.rect(x, top, wide, high, fill="#dddddd", stroke=svg.INK)]
    else:
        parts = [svg.cell(x, top, wide, high, index)]
    if moment_s is not None and moment_s < span.end:
        parts.append(svg.inner_outline(x, top, wide, high, min(3.0, wide / 2)))
    return parts + (svg.centred(middle, centre, words, size, index) if size else [])


def _beside(x: float, wide: float, words: float, line: float) -> float:
    """Middle of a number in its bar; beside the line at ``line`` if it would stand on it."""
    middle, away = x + wide / 2, words / 2 + 4
    if words and abs(middle - line) < away:
        for moved in (line + away, line - away):
            if x + words / 2 + 1 <= moved <= x + wide - words / 2 - 1:
                return moved
    return middle
