"""One sender to A hosts of B devices over time: which part reaches whom when (figure 3)."""

from collections.abc import Sequence
from typing import NamedTuple

from reshard_lab.errors import check_type
from reshard_lab.plots import svg
from reshard_lab.plots.snapshot import LEFT, WIDE, device_boxes, snapshot_parts
from reshard_lab.plots.time_axis import TimeScale, instant
from reshard_lab.simulation import Timeline
from reshard_lab.simulation.timeline import MovingPart, moving_parts, snapshot
from reshard_lab.units import device_list, format_bytes, format_seconds

MOST_BARS = 256
"""More parts than this in all rows of receivers are drawn several to a bar."""
_MOST_IN_ROW, _FEW_IN_ROW = 24, 16  # parts, and bars of several, whose numbers fit
_ROW, _GAP, _SIZE, _HOST_GAP = 16.0, 2.0, 10, 7.0
NAMES = {
    "send_recv": "send/recv",
    "local_allgather": "send/recv + local all-gather",
    "global_allgather": "send/recv + global all-gather",
    "broadcast": "broadcast",
}


class PartBar(NamedTuple):
    """What one row shows between two times: one part, or several that follow each other."""

    start_s: float
    end_s: float
    first: int
    last: int
    """Numbers of the first and the last part in it, in order of time."""
    look: int
    """Number of its colour."""
    inside: bool
    """Whether all of it stays within a host."""


DeviceRow = tuple[int, bool, list[PartBar]]
"""A device, whether its row shows what it sends, and its bars."""


def draw_strategy(
    timeline: Timeline, at_s: float | None = None, until_s: float | None = None
) -> svg.Figure:
    """A simulated unit task (see ``simulation.one_sender``) as a figure: devices against time.

    at_s:
        a moment in seconds, shown as a line and, above, as what each device holds by then.
    until_s:
        where the time axis ends, to compare pictures; the end of the task, unless given.
    """
    check_type("timeline", timeline, Timeline, "simulation.one_sender makes one")
    moving = moving_parts(timeline)
    end, bound = timeline.duration_s, timeline.plan.lower_bound_s
    for what, time_s in (("at_s", at_s), ("until_s", until_s)):
        if time_s is not None:
            instant(what, time_s)
    scale = TimeScale(LEFT, WIDE, max(end, bound, until_s or 0.0, at_s or 0.0) or 1.0)
    rows, per = _rows(moving)
    words = _reading(moving) + _thin(rows, scale)
    name = NAMES.get(timeline.plan.strategy, timeline.plan.strategy)
    caption = (
        f"{name}: {format_seconds(end)} simulated; one copy through one NIC takes "
        f"{format_seconds(bound)} (dashed). {words}"
    )
    if at_s is not None:
        caption += f" Above: what each device holds after {format_seconds(at_s)}."
    if per > 1:
        words += f" They are many: a bar runs from the first to the last of up to {per} of them."
    alt = _alt(name, timeline, moving, at_s)
    parts, y = _parts(timeline, moving, at_s, scale, rows)
    lines, y = svg.note(LEFT, y, words, WIDE)
    return svg.Figure(svg.document(_RIGHT + 4, y + 12, parts + lines, alt), caption, alt)


def _parts(
    timeline: Timeline,
    moving: Sequence[MovingPart],
    at_s: float | None,
    scale: TimeScale,
    rows: Sequence[DeviceRow],
) -> tuple[list[str], float]:
    """The snapshot at ``at_s``, the rows and their axis, and where they end."""
    cluster = timeline.cluster
    boxes, high = device_boxes(cluster, moving)  # raises where there are too many to read
    parts = [] if at_s is None else snapshot_parts(cluster, boxes, snapshot(moving, at_s))
    top = 42.0 if at_s is None else high + 70
    y, host = top, -1
    bars: list[str] = []
    for device, sends, row in rows:
        if cluster.host_of(device) != host:
            y += _HOST_GAP if host >= 0 else 0
            host = cluster.host_of(device)
        name = f"host {host}, device {device} {'sends' if sends else 'takes in'}"
        bars.append(svg.label(LEFT - 8, y + 0.75 * _ROW, name, _SIZE, "end"))
        bars.append(svg.line(LEFT, y + _ROW, LEFT + WIDE, y + _ROW, **_FAINT))
        bars += _bars(row, y, scale)
        y += _ROW + _GAP
    if at_s is not None:  # under the bars and their numbers
        x, words = scale.x(at_s), f"now {format_seconds(at_s)}"
        half = svg.text_width(words, _SIZE) / 2
        middle = min(max(x, LEFT + half), _RIGHT - half)
        parts.append(svg.line(x, top - 34, x, y + 6, stroke="#D55E00", stroke_width=1.8))
        parts.append(svg.label(middle, top - 38, words, _SIZE, "middle"))
    return [*parts, *bars, *_axis(timeline, top, y + 2, scale)], y + 44


_RIGHT = LEFT + WIDE + 28  # a number of three signs fits between the axis and here
_THIN = 3.0
"""Bars narrower than this look like lines."""
_FAINT = {"stroke_width": 0.5, "stroke_opacity": 0.35}


def _rows(moving: Sequence[MovingPart]) -> tuple[list[DeviceRow], int]:
    """The rows, those of devices that only send first, and how many parts a bar stands for."""
    takes: dict[int, list[MovingPart]] = {}
    sends: dict[int, list[MovingPart]] = {}
    for p in moving:
        takes.setdefault(p.destination, []).append(p)
        sends.setdefault(p.source, []).append(p)
    longest = max((len(row) for row in takes.values()), default=0)
    per = max(1, len(moving) // MOST_BARS)
    if longest > _MOST_IN_ROW:
        per = max(per, -(-longest // _FEW_IN_ROW))
    gap = max((p.end_s - p.start_s for p in moving), default=0.0)
    while True:
        bars = {device: _part_bars(row, per, gap) for device, row in takes.items()}
        if sum(map(len, bars.values())) <= MOST_BARS or per >= longest:
            break
        per += 1
    only = sorted(sends.keys() - takes.keys())
    rows = [(d, True, _part_bars(sends[d], per, gap)) for d in only]
    return [*rows, *((d, False, bars[d]) for d in sorted(bars))], per


def _part_bars(row: Sequence[MovingPart], per: int, gap_s: float) -> list[PartBar]:
    """A row's parts by time, ``per`` numbers to a bar, not across gaps of over ``gap_s``."""
    runs: list[list[MovingPart]] = []
    for p in row:
        before = runs[-1][-1] if runs and per > 1 else None
        near = before is not None and p.start_s - before.end_s <= gap_s
        if before is not None and near and before.number // per == p.number // per:
            runs[-1].append(p)
        else:
            runs.append([p])
    bars = []
    for run in runs:
        first, last = run[0], run[-1]
        ends = first.start_s, last.end_s, first.number, last.number
        bars.append(PartBar(*ends, first.number // per, all(p.inside for p in run)))
    return bars


def _bars(bars: Sequence[PartBar], y: float, scale: TimeScale) -> list[str]:
    """One row; numbers stand in their bars, or beside those that are too short."""
    groups: list[list[PartBar]] = []  # those that look like one line share their numbers
    for bar in bars:
        if groups and scale.x(bar.end_s) - scale.x(groups[-1][0].start_s) < 1.5:
            groups[-1].append(bar)
        else:
            groups.append([bar])
    parts, free = [], scale.left
    for i, group in enumerate(groups):
        first, last = group[0], group[-1]
        x = scale.x(first.start_s)
        wide = max(1.5, scale.x(last.end_s) - x)
        parts += [svg.cell(x, y, wide, _ROW, bar.look) for bar in group]
        if len(group) > 1:
            words = device_list({n for bar in group for n in (bar.first, bar.last)})
        else:
            words = str(first.first) if first.first == first.last else f"{first.first}–{first.last}"
        needed = svg.text_width(words, _SIZE) + 1
        after = scale.x(groups[i + 1][0].start_s) if i + 1 < len(groups) else _RIGHT
        base = y + _ROW / 2 + 0.36 * _SIZE
        if needed <= wide:
            parts += svg.centred(x + wide / 2, y + _ROW / 2, words, _SIZE, first.look)
        elif x + wide + needed <= after:
            parts.append(svg.label(x + wide + 2, base, words, _SIZE))
        elif i + 1 == len(groups) and free <= x - needed - 2:
            parts.append(svg.label(x - 2, base, words, _SIZE, "end"))
        free = x + wide
    return parts


def _axis(timeline: Timeline, top: float, y: float, scale: TimeScale) -> list[str]:
    """The time axis, and the bound and the end as lines through all rows."""
    parts = scale.axis(y)
    marks = [("one copy", timeline.plan.lower_bound_s, 1.5, {"stroke_dasharray": "5 3"})]
    marks.append(("end", timeline.duration_s, 1.0, {}))
    taken = 0.0
    for name, at_s, thick, style in marks:
        words = f"{name} {format_seconds(at_s)}"
        x, wide = scale.x(at_s), svg.text_width(words, _SIZE)
        parts.append(svg.line(x, top - 6, x, y + 4, stroke_width=thick, **style))
        left = min(x - wide / 2, _RIGHT - wide)
        parts.append(svg.label(left, top - (10 if left >= taken else 22), words, _SIZE))
        taken = left + wide + 8
    return parts


def _reading(moving: Sequence[MovingPart]) -> str:
    total = len({p.number for p in moving})
    nbytes = max((p.stop for p in moving), default=0)
    if total == 1:
        return f"Each bar is the whole {format_bytes(nbytes)} (number 0)."
    each = {p.stop - p.first for p in moving}
    about = "about " if len(each) > 1 else ""
    return f"Numbers are the {total} pieces of {about}{format_bytes(max(each))} each."


def _thin(rows: Sequence[DeviceRow], scale: TimeScale) -> str:
    """What the thin lines are, if there are any and all are of one kind: within a host."""
    shown = [bar for _, _, bars in rows for bar in bars]
    thin = [bar for bar in shown if scale.x(bar.end_s) - scale.x(bar.start_s) < _THIN]
    if not thin or not all(bar.inside for bar in thin):
        return ""
    longest = max(bar.end_s - bar.start_s for bar in thin)
    time = f"within {format_seconds(longest)}" if longest else "in no time"
    return f" A thin line: what arrives over a link inside the host, {time}."


def _alt(name: str, timeline: Timeline, moving: Sequence[MovingPart], at_s: float | None) -> str:
    if not moving:
        return "Nothing moves."
    receivers = sorted({p.destination for p in moving})
    hosts = len({timeline.cluster.host_of(d) for d in receivers})
    text = (
        f"{name} over time: from device {moving[0].source} to {len(receivers)} devices "
        f"on {hosts} {'host' if hosts == 1 else 'hosts'}, done after "
        f"{format_seconds(timeline.duration_s)}."
    )
    last = {d: max(p.end_s for p in moving if p.destination == d) for d in receivers}
    lines = [f"Device {d} has all after {format_seconds(last[d])}." for d in receivers[:8]]
    if at_s is not None:
        lines.append(f"Marked moment: {format_seconds(at_s)}.")
    return " ".join([text, *lines])
