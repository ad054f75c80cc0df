"""Pipelines over time: a row a stage and a row a link, several of them on one time axis."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, check_choice, check_int, short
from reshard_lab.pipelining.ops import NAMES
from reshard_lab.pipelining.timeline import Event
from reshard_lab.plots import svg
from reshard_lab.plots.time_axis import LEFT, SIZE, TimeScale
from reshard_lab.units import format_seconds

MOST_BARS = 20_000
"""More ops and transfers than this are not drawn: a bar would be a small part of a pixel."""
MOST_NUMBERS = 256
"""More microbatch numbers than this are left out: those of the links first."""
LOOKS = {
    "forward": 1,  # index of colour and hatch: see svg.fill and svg.hatch
    "backward": 7,
    "input gradient": 2 * 7 + 3,
    "weight gradient": 5 * 7 + 2,
    "activation": 6,
    "gradient": 3 * 7 + 5,
}
"""How a kind of event looks; no two share a colour."""
_LEGEND = {
    **{words: f"{letter}: {words}" for letter, words in NAMES.items()},
    "activation": "activation sent on",
    "gradient": "gradient sent back",
}
_WIDE, _STAGE, _LINK, _GAP = 660.0, 22.0, 15.0, 4.0
_FONTS = {_STAGE: 10.0, _LINK: 9.0}
_MARGIN = 1.5
_ROWS = re.compile(r"stage \d{1,9}|link \d{1,9}>\d{1,9}")


class DrawnPipeline(NamedTuple):
    """One pipeline to draw: what every picture of it needs."""

    name: str
    events: tuple[Event, ...]
    end_s: float
    shares: str
    """Where the time went, in words."""
    record: Any
    """What was given."""

    @property
    def rows(self) -> list[str]:
        """The stages, then the links by sender and receiver."""
        return sorted({event.row for event in self.events}, key=_row_order)


def read_pipelines(given: Any) -> list[DrawnPipeline]:
    """What ``given`` shows: a timeline, the events of a run, or several of either by name."""
    named = given if isinstance(given, Mapping) else {"": given}
    if not named:
        raise ReshardError("there is no pipeline to draw; give a timeline, or several by name")
    return [_read(str(name), record) for name, record in named.items()]


def _read(name: str, record: Any) -> DrawnPipeline:
    events = getattr(record, "events", record)
    if isinstance(events, str) or not isinstance(events, Sequence):
        raise ReshardError(
            f"{type(record).__name__} {short(record)} is no pipeline over time; give what "
            "pipeline.simulate returns, or a list of Events"
        )
    if len(events) > MOST_BARS:
        raise ReshardError(
            f"pipeline {name!r} has {len(events)} ops and transfers, but a picture shows "
            f"{MOST_BARS} at most; draw fewer microbatches, or write a trace (to_chrome_trace)"
        )
    drawn = tuple(map(_event, events))
    if not any(event.row.startswith("stage") for event in drawn):
        raise ReshardError(f"pipeline {name!r} has no op of any stage; there is nothing to draw")
    end = max(event.end_s for event in drawn)
    return DrawnPipeline(name, drawn, end, _shares(record, drawn, end), record)


def _event(given: Any) -> Event:
    """``given`` if it can be drawn: on a row that there is, of a known kind, at finite times."""
    try:
        event = Event(*given)
        times = math.isfinite(event.end_s) and 0 <= event.start_s <= event.end_s
    except (TypeError, ValueError, OverflowError):
        raise ReshardError(
            f"{short(given)} is no event; give Event({', '.join(Event._fields)})"
        ) from None
    check_choice("kind of event", event.what, LOOKS)
    check_int("microbatch of an event", event.microbatch)
    if not isinstance(event.row, str) or not _ROWS.fullmatch(event.row):
        raise ReshardError(
            f"an event stands on row {short(event.row)}; rows are 'stage 0' and 'link 0>1'"
        )
    if not isinstance(event.op, str) or not times:
        raise ReshardError(
            f"event {short(event.op)} on {event.row}, from {event.start_s} s to {event.end_s} s, "
            "cannot be drawn; an event has an op such as 'F0', starts at 0 s or later, and ends at "
            "a finite time, not before its start"
        )
    return event


def _shares(record: Any, events: Sequence[Event], end_s: float) -> str:
    if hasattr(record, "bubble_share"):
        exposed = record.exposed_communication_share
        return f"bubble {record.bubble_share:.1%}, exposed communication {exposed:.1%}"
    stages = {event.row for event in events if event.row.startswith("stage")}
    idle = sum(_idle(events, row, end_s) for row in stages) / len(stages)
    return f"stages idle {idle:.1%}"


def _idle(events: Iterable[Event], row: str, end_s: float) -> float:
    """Share of the time in which nothing runs on ``row``, whose events do not overlap."""
    busy = sum(event.end_s - event.start_s for event in events if event.row == row)
    return max(0.0, 1 - busy / end_s) if end_s else 1.0


def _row_order(row: str) -> tuple[bool, list[int]]:
    """Where a row stands: ``"stage 1"`` before ``"link 0>1"``, each by its numbers."""
    kind, _, numbers = row.partition(" ")
    return kind != "stage", [int(n) for n in numbers.split(">")]


def draw_pipeline(timeline: Any, caption: str | None = None, where: str = "") -> svg.Figure:
    """Every op and transfer of ``timeline`` over time; its table is ``timeline.to_frame()``.

    timeline:
        a PipelineTimeline, the ``Event`` rows of a run, or several by name, such as
        ``{"1F1B": a, "eager-1F1B": b}``, which share one time axis.
    where:
        of what was measured, over what and how: stands below the axis.

    >>> from reshard_lab import pipeline
    >>> one = pipeline.simulate(pipeline.schedule("1f1b", 2, 4), 1, 2, 0.5)
    >>> draw_pipeline(one)
    Figure('17 s; bubble 22.1%, exposed communication 7.4% of the time of all stages. ...')
    """
    drawn = read_pipelines(timeline)
    times = [
        f"{one.name}: " * bool(one.name)
        + f"{format_seconds(one.end_s)}; {one.shares} of the time of all stages"
        for one in drawn
    ]
    guide = "Numbers are microbatches; the idle share of each row stands at the right."
    left = max(LEFT, 12 + svg.widest((row for one in drawn for row in one.rows), SIZE) + 8)
    scale = TimeScale(left, _WIDE, max(one.end_s for one in drawn) or 1.0)
    numbered = _numbered(drawn)
    parts, y = _legend(drawn, scale)
    for one in drawn:
        panel, y = _panel(one, scale, y, numbered)
        parts += panel
    width = scale.right + 10 + svg.text_width("100% idle", SIZE) + 12
    parts += scale.axis(y)
    lines, y = svg.note(12, y + 36, where, width - 24)
    alt = _alt(drawn, where)
    words = caption or f"{'. '.join(times)}. {guide}"
    return svg.Figure(svg.document(width, y + 8, parts + lines, alt), words, alt)


def _legend(drawn: Sequence[DrawnPipeline], scale: TimeScale) -> tuple[list[str], float]:
    """A swatch a kind of event, and where the next row starts."""
    kinds = {event.what for one in drawn for event in one.events}
    parts, x, y = [], scale.left, 10.0
    for kind in LOOKS:
        if kind in kinds:
            words = _LEGEND[kind]
            wide = 18 + 6 + svg.text_width(words, SIZE) + 14
            if x + wide > scale.right + 80:
                x, y = scale.left, y + 20
            parts.append(svg.cell(x, y, 18, 13, LOOKS[kind]))
            parts.append(svg.label(x + 24, y + 11, words, SIZE))
            x += wide
    return parts, y + 22


def _numbered(drawn: Sequence[DrawnPipeline]) -> tuple[str, ...]:
    """Rows whose bars carry numbers: all, the stages, or none, as there are few enough."""
    stages = sum(event.row.startswith("stage") for one in drawn for event in one.events)
    total = sum(len(one.events) for one in drawn)
    return ("stage", "link") if total <= MOST_NUMBERS else ("stage",) * (stages <= MOST_NUMBERS)


def _panel(
    one: DrawnPipeline, scale: TimeScale, top: float, numbered: tuple[str, ...]
) -> tuple[list[str], float]:
    """One pipeline under its name, and where the next one starts."""
    y = top + 16
    head = svg.label(scale.left, y, one.name, 12, font_weight="bold")
    at = scale.left + (svg.text_width(one.name, 12) * 1.15 + 8) * bool(one.name)
    parts = [head, svg.label(at, y, f"{format_seconds(one.end_s)}; {one.shares}", SIZE)]
    first = y = y + 8
    bars: list[str] = []
    for row in one.rows:
        high = _STAGE if row.startswith("stage") else _LINK
        events = [event for event in one.events if event.row == row]
        middle = y + high / 2 + 4
        bars.append(svg.label(scale.left - 8, middle, row, SIZE, "end"))
        bars += _row(events, scale, y, high, row.split()[0] in numbered)
        idle = f"{_idle(events, row, one.end_s):.0%} idle"
        bars.append(svg.label(scale.right + 10, middle, idle, SIZE))
        y += high + _GAP
    end = scale.x(one.end_s)
    line = svg.line(end, first - 4, end, y, stroke_dasharray="5 3")
    return [*parts, *scale.grid(first, y), *bars, line], y + 6


def _row(
    events: Sequence[Event], scale: TimeScale, y: float, high: float, numbered: bool
) -> list[str]:
    """Bars of one row: a path for all those of a kind, so that many are few elements."""
    parts = []
    room = min(scale.x(e.end_s) - scale.x(e.start_s) for e in events) - _MARGIN
    lettered = high == _STAGE and svg.widest((e.op for e in events), _FONTS[high]) <= room
    for kind, look in LOOKS.items():
        bars = [event for event in events if event.what == kind]
        if not bars:
            continue
        boxes = [(scale.x(e.start_s), scale.x(e.end_s) - scale.x(e.start_s)) for e in bars]
        mean = sum(wide for _, wide in boxes) / len(boxes)
        outline = {"stroke": svg.INK, "stroke_width": 1 if mean > 4 else 0.4 if mean > 1 else 0}
        shape = "".join(_box(x, y, wide, high) for x, wide in boxes)
        parts.append(svg.path(shape, fill=svg.fill(look), **outline))
        if svg.hatch(look):
            parts.append(svg.path(shape, fill=svg.hatch(look)))
        if numbered:
            words = [event.op if lettered else event.op[1:] for event in bars]
            parts += _numbers(words, boxes, y, high, look)
    return parts


def _numbers(
    texts: Sequence[str], boxes: Sequence[tuple[float, float]], y: float, high: float, look: int
) -> list[str]:
    """What stands on bars with room for it, on plates where a hatch would cross."""
    size, ink = _FONTS[high], svg.ink_on(svg.fill(look))
    plates, labels = "", []
    for (x, wide), words in zip(boxes, texts, strict=True):
        room = svg.text_width(words, size)
        if room + _MARGIN <= wide:
            middle, centre = x + wide / 2, y + high / 2
            plates += _box(middle - room / 2, centre - (size + 1) / 2, room, size + 1)
            words_at = middle, centre + 0.36 * size
            labels.append(svg.label(*words_at, words, size, "middle", fill=ink))
    plated = plates and svg.hatch(look)
    return [svg.path(plates, fill=svg.fill(look)), *labels] if plated else labels


def _box(x: float, y: float, wide: float, high: float) -> str:
    n = svg.number
    return f"M{n(x)} {n(y)}h{n(wide)}v{n(high)}h{n(-wide)}z"


def _alt(drawn: Sequence[DrawnPipeline], where: str) -> str:
    texts = [f"{where}."] if where else []
    for one in drawn:
        rows = one.rows
        stages = [row for row in rows if row.startswith("stage")]
        idle = ", ".join(f"{r} {_idle(one.events, r, one.end_s):.0%}" for r in stages[:8])
        more = " and so on" * (len(stages) > 8)
        microbatches = len({event.microbatch for event in one.events})
        texts.append(
            f"{one.name or 'A pipeline'}: {len(stages)} stages and {len(rows) - len(stages)} links "
            f"over time carry {microbatches} microbatches in {format_seconds(one.end_s)}; "
            f"{one.shares}. Idle: {idle}{more}."
        )
    return " ".join(texts)
