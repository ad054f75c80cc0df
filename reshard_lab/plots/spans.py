"""Rows of bars over time, numbered by unit task, few enough to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reshard_lab.plots import svg
from reshard_lab.plots.time_axis import SIZE, TimeScale

MOST_BARS = 256
"""More bars than this are drawn with neighbours run together."""
ROW, GAP = 22.0, 6.0
_LANES = 5
MIXED = -1
"""Task of a run of short bars of several tasks."""


class Span(NamedTuple):
    """A stretch of time that a unit task takes."""

    start: float
    end: float
    task: int


def joined(
    rows: Sequence[list[Span]], longest: float, most: int = MOST_BARS
) -> tuple[list[list[Span]], bool]:
    """The rows with neighbouring bars run together until there are few enough to draw.

    So are bars that overlap, where more than ``_LANES`` do so at once. Also returns whether that
    was needed: bars of one task that touch are one in any case.
    """
    least = 0.0
    exact = [_join(row, least) for row in rows]
    made = [row if _lanes(row)[1] <= _LANES else _union(row) for row in exact]
    while sum(map(len, made)) > most and least < longest:
        least = 2 * least or longest / 4096
        made = [_join(row, least) for row in made]
    return made, made != exact


def _join(row: list[Span], least: float) -> list[Span]:
    """Bars of one task that touch are one; so are neighbours shorter than ``least``."""
    made: list[Span] = []
    for span in sorted(row):
        if made:
            before = made[-1]
            touches = abs(span.start - before.end) <= least or span.start == before.end
            same = before.task == span.task
            short = max(before.end - before.start, span.end - span.start) < least
            if touches and (same or short):
                task = span.task if same else MIXED
                made[-1] = Span(before.start, max(before.end, span.end), task)
                continue
        made.append(span)
    return made


def _lanes(spans: Sequence[Span]) -> tuple[list[int], int]:
    """The lane of every bar, so that none overlap in one lane, and how many lanes there are."""
    ends: list[float] = []
    placed = []
    for span in spans:
        lane = next((i for i, until in enumerate(ends) if until <= span.start), len(ends))
        ends[lane : lane + 1] = [span.end]
        placed.append(lane)
    return placed, len(ends)


def _union(spans: Sequence[Span]) -> list[Span]:
    """Bars that overlap as one."""
    made: list[Span] = []
    for span in sorted(spans):
        if made and span.start < made[-1].end:
            before = made[-1]
            task = span.task if span.task == before.task else MIXED
            made[-1] = Span(before.start, max(before.end, span.end), task)
        else:
            made.append(span)
    return made


def bars(
    spans: Sequence[Span],
    scale: TimeScale,
    y: float,
    moment_s: float | None = None,
    clear: float | None = None,
) -> list[str]:
    """One row; bars that overlap, as without an order, lie under each other.

    At ``moment_s`` bars under way have a thick outline, and those to come are empty. Numbers keep
    clear of an upright line at ``clear``, where a bar has room.
    """
    lanes, count = _lanes(spans)
    high = ROW / max(1, count)
    parts: list[str] = []
    for span, lane in zip(spans, lanes, strict=True):
        parts += _bar(span, scale, y + lane * high, high, moment_s, clear)
    return parts


def _bar(
    span: Span,
    scale: TimeScale,
    top: float,
    high: float,
    moment_s: float | None,
    clear: float | None,
) -> list[str]:
    x = scale.x(span.start)
    wide = scale.x(span.end) - x
    words, index = (str(span.task), span.task) if span.task != MIXED else ("several", 0)
    sizes = [s for s in (SIZE, 9, 7) if s <= high - 2 and svg.text_width(words, s) + 2 < wide]
    size = sizes[0] if sizes else 0
    middle, centre = _beside(x, wide, svg.text_width(words, size), clear), top + high / 2
    if moment_s is not None and span.start > moment_s:
        look: dict[str, Any] = {"stroke_dasharray": "2 2", "stroke_opacity": 0.7}
        parts = [svg.rect(x, top, wide, high, fill=svg.PAPER, stroke=svg.INK, **look)]
        words = words if size else ""
        return [*parts, svg.label(middle, centre + 0.36 * size, words, size, "middle")]
    if span.task == MIXED:
        parts = [svg.rect(x, top, wide, high, fill="#dddddd", stroke=svg.INK)]
    else:
        parts = [svg.cell(x, top, wide, high, index)]
    if moment_s is not None and moment_s < span.end:
        line = min(3.0, wide / 2)
        inside = x + line / 2, top + line / 2, wide - line, high - line
        parts.append(svg.rect(*inside, fill="none", stroke=svg.INK, stroke_width=line))
    return parts + (svg.centred(middle, centre, words, size, index) if size else [])


def _beside(x: float, wide: float, words: float, clear: float | None) -> float:
    """Middle of a number in its bar; beside the line at ``clear`` if it would stand on it."""
    middle, away = x + wide / 2, words / 2 + 4
    if clear is None or not words or abs(middle - clear) >= away:
        return middle
    for moved in (clear + away, clear - away):
        if x + words / 2 + 1 <= moved <= x + wide - words / 2 - 1:
            return moved
    return middle
