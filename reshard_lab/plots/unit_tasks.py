"""Unit tasks as pictures and as text: boxes, who holds and who needs each (appendix B)."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from reshard_lab.boxes import Box, box_text, box_volume, intersect
from reshard_lab.cluster import Cluster
from reshard_lab.errors import check_bool, check_int, check_type
from reshard_lab.plots import svg
from reshard_lab.plots.device_grid import numbered_cell, slices_of
from reshard_lab.plots.plane import Plane, choose_axes, piece, plane
from reshard_lab.resharding import ReshardingTask, UnitTask, nic_hosts
from reshard_lab.units import device_list, format_bytes, table

_ROW, _HEAD, _CHIP, _SIZE = 58.0, 34.0, 26.0, 11
_CHIPS = 8  # longer lists of devices are written in words


def draw_unit_tasks(
    task: ReshardingTask,
    whole_slices: bool = False,
    limit: int = 16,
    axes: Sequence[int] | None = None,
    highlight: int | None = None,
) -> svg.Figure:
    """The unit tasks of ``task`` as a figure, at most ``limit`` of them.

    whole_slices:
        show the text's reading instead, in which a source slice travels whole.
    highlight:
        number of the unit task that is outlined; it is among those shown.
    """
    check_type("task", task, ReshardingTask)
    units = task.whole_slice_tasks if check_bool("whole_slices", whole_slices) else task.unit_tasks
    shown = _shown(len(units), limit, highlight)
    alt = _alt(units, shown, highlight)
    reading = "whole source slices" if whole_slices else "intersections of slices"
    caption = (
        f"{_count(units)} ({reading}) from {task.src.spec} to {task.dst.spec}. "
        "A device wears the colour of its own slice: "
        "on the left of the source, on the right of the destination."
    )
    if highlight is not None:
        caption += f" Outlined: unit task {highlight}."
    return svg.Figure(_svg(task, units, shown, axes, highlight, alt), caption, alt)


def _svg(
    task: ReshardingTask,
    units: Sequence[UnitTask],
    shown: range,
    axes: Sequence[int] | None,
    highlight: int | None,
    alt: str,
) -> str:
    """A row a unit task; a last column says how much of the box is needed, where not all is."""
    frame = plane(
        task.shape, choose_axes(task.shape, (u.box for u in units), axes), 84, _ROW - 10, 12
    )
    dst_boxes = task.dst.boxes(task.shape)
    sources, targets = _colors(task.src.boxes(task.shape)), _colors(dst_boxes)
    needs = {i: _needed(units[i], dst_boxes) for i in shown}
    needs = {i: f"{n} each" if n and " to " not in n else n for i, n in needs.items()}
    heads = ["unit task", "", "box", "size", "from", "", "to"]
    rows = [[_words(name, bold=True) for name in heads + ["needed there"] * any(needs.values())]]
    for i in shown:
        unit = units[i]
        row = [
            _words(str(i)),
            _map(frame, unit.box, sources.get(unit.senders[0], 0)),
            _words(box_text(unit.box)),
            _words(format_bytes(unit.nbytes)),
            _chips(unit.senders, sources, ()),
            _Cell(30, lambda x, y: [svg.arrow(x, y, 30)]),
            _chips(unit.receivers, targets, unit.senders),
        ]
        rows.append([*row, _words(needs[i] or "all")] if any(needs.values()) else row)
    width, height, parts = _table(rows)
    if highlight is not None:
        top = _HEAD + (highlight - shown.start) * _ROW + 2
        style = {"fill": "none", "stroke": svg.INK}
        parts.append(svg.rect(6, top, width - 12, _ROW - 4, stroke_width=3, **style))
    notes = []
    if shown.start:
        notes.append(f"unit tasks {shown.start} to {shown.stop - 1} of {len(units)}")
    elif len(units) > len(shown):
        notes.append(f"... and {len(units) - len(shown)} more")
    if any(set(units[i].senders) & set(units[i].receivers) for i in shown):
        notes.append("dashed, or local: holds the box already, so nothing is sent")
    for words in notes:
        parts.append(svg.label(12, height + 10, words, _SIZE, font_style="italic"))
        height += 20
    width = max(width, 24 + svg.widest(notes, _SIZE))
    return svg.document(width, height, parts, alt)


def _shown(count: int, limit: int, highlight: int | None) -> range:
    """Which of ``count`` unit tasks have a row: the first, or the last up to ``highlight``."""
    if highlight is None:
        return range(min(count, check_int("limit", limit)))
    most = check_int("limit", limit, 1)
    first = max(0, check_int("highlight", highlight, 0, count - 1) - most + 1)
    return range(first, min(count, first + most))


class _Cell(NamedTuple):
    """Something of a known width that can be drawn from ``(left edge, middle line)``."""

    width: float
    draw: Callable[[float, float], list[str]]


def _table(rows: Sequence[Sequence[_Cell]]) -> tuple[float, float, list[str]]:
    parts: list[str] = []
    x = 12.0
    for column in zip(*rows, strict=True):
        for i, one in enumerate(column):
            parts += one.draw(x, _HEAD / 2 if i == 0 else _HEAD + (i - 0.5) * _ROW)
        x += max(one.width for one in column) + 18
    for i in range(len(rows) - 1):
        y = _HEAD + i * _ROW
        parts.append(svg.line(6, y, x - 12, y, stroke_width=0.5, stroke_opacity=0.4))
    return x - 6, _HEAD + (len(rows) - 1) * _ROW + 6, parts


def _words(words: str, bold: bool = False) -> _Cell:
    style = {"font_weight": "bold"} if bold else {}
    wide = svg.text_width(words, _SIZE) * (1.08 if bold else 1)
    return _Cell(wide, lambda x, y: [svg.label(x, y + 4, words, _SIZE, **style)])


def _map(frame: Plane, box: Box, index: int) -> _Cell:
    up = frame.height / 2
    return _Cell(frame.width, lambda x, y: piece(frame, x, y - up, box, index))


def _chips(devices: Sequence[int], colors: Mapping[int, int], held: Sequence[int]) -> _Cell:
    """The devices one by one in their colours, or in words where they are many."""
    if len(devices) > _CHIPS:
        local = len(set(devices) & set(held))
        tail = f", {local} local" if local else ""
        return _words(f"{device_list(devices)} ({len(devices)} devices{tail})")
    wide = max(_CHIP, *(svg.text_width(str(d), _SIZE) + 8 for d in devices))

    def draw(x: float, y: float) -> list[str]:
        parts: list[str] = []
        for i, device in enumerate(devices):
            left, index = x + i * (wide + 3), colors.get(device, 0)
            if device in held:
                style = {"fill": svg.PAPER, "stroke": svg.INK, "stroke_dasharray": "3 2"}
                parts.append(svg.rect(left, y - 12, wide, 24, **style))
                parts.append(svg.label(left + wide / 2, y + 4, str(device), _SIZE, "middle"))
            else:
                parts += numbered_cell(left, y - 12, wide, 24, device, _SIZE, index)
        return parts

    return _Cell(len(devices) * (wide + 3) - 3, draw)


def _colors(boxes: Mapping[int, Box]) -> dict[int, int]:
    """``{device: the number of its slice}``."""
    return {d: i for i, devices in enumerate(slices_of(boxes).values()) for d in devices}


def _count(units: Sequence[UnitTask]) -> str:
    return f"{len(units)} unit task{'s' * (len(units) != 1)}"


def _needed(unit: UnitTask, dst_boxes: Mapping[int, Box]) -> str:
    """How much of the box its receivers need, in words; empty if all of it."""
    sizes = {_needed_bytes(unit, device, dst_boxes) for device in unit.receivers}
    if sizes == {unit.nbytes}:
        return ""
    return " to ".join(dict.fromkeys(format_bytes(size) for size in (min(sizes), max(sizes))))


def _needed_bytes(unit: UnitTask, device: int, dst_boxes: Mapping[int, Box]) -> int:
    common = intersect(unit.box, dst_boxes[device])
    return 0 if common is None else unit.nbytes * box_volume(common) // box_volume(unit.box)


def _alt(units: Sequence[UnitTask], shown: range, highlight: int | None) -> str:
    words = [
        f"Unit task {i}{' (outlined)' if i == highlight else ''}: {box_text(units[i].box)}, "
        f"{format_bytes(units[i].nbytes)}, from "
        f"{device_list(units[i].senders)} to {device_list(units[i].receivers)}."
        for i in shown
    ]
    if len(units) > len(shown):
        words.append(f"And {len(units) - len(shown)} more.")
    return " ".join(words) or "No unit tasks: the tensor is empty."


def unit_tasks_text(
    task: ReshardingTask, whole_slices: bool = False, limit: int | None = None
) -> str:
    """The unit tasks of ``task``, numbered, and what they add up to."""
    units = task.whole_slice_tasks if whole_slices else task.unit_tasks
    shown = units if limit is None else units[:limit]
    needed = task.dst.boxes(task.shape)
    rows = [("task", "box", "elements", "bytes", "from", "", "to")]
    for i, u in enumerate(shown):
        size = str(box_volume(u.box)), format_bytes(u.nbytes)
        ends = device_list(u.senders), "->", _receivers_text(u, needed)
        rows.append((str(i), box_text(u.box), *size, *ends))
    cut = "an intersection of a source slice and a destination slice"
    what = "a source slice, sent whole" if whole_slices else cut
    lines = [f"{_count(units)}, one {what}", *table(rows)]
    if len(units) > len(shown):
        lines.append(f"... and {len(units) - len(shown)} more")
    elements = box_volume(tuple((0, n) for n in task.shape))
    arriving = [(u, set(u.receivers) - set(u.senders)) for u in units]
    nbytes = sum(u.nbytes * len(devices) for u, devices in arriving)
    use = sum(_needed_bytes(u, d, needed) for u, devices in arriving for d in devices)
    spare = f", of which {format_bytes(nbytes - use)} not needed" if nbytes > use else ""
    lines += ["", f"tensor: {elements} elements, {format_bytes(task.nbytes)}"]
    lines.append(f"to devices that do not hold it yet: {format_bytes(nbytes)}{spare}")
    if task.cluster is not None:
        entering = format_bytes(bytes_into_hosts(units, task.cluster))
        lines.append(f"into hosts, each box once a host: {entering}")
    return "\n".join(lines)


def bytes_into_hosts(units: Sequence[UnitTask], cluster: Cluster) -> int:
    """What enters hosts over their NICs where each gets every box that it needs once."""
    return sum(unit.nbytes * len(nic_hosts(unit, cluster)[1]) for unit in units)


def _receivers_text(unit: UnitTask, needed: Mapping[int, Box]) -> str:
    words = device_list(unit.receivers)
    local = sorted(set(unit.receivers) & set(unit.senders))
    if local:
        words += f"  ({device_list(local)} already {'hold' if len(local) > 1 else 'holds'} it)"
    needs = _needed(unit, needed)
    return f"{words}  (of it needed: {needs})" if needs else words
