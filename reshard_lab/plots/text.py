"""Meshes and unit tasks as plain text, for terminals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from reshard_lab.boxes import Box, box_text, box_volume, intersect
from reshard_lab.cluster import Cluster
from reshard_lab.planning.explain import device_list, table
from reshard_lab.plots.device_grid import LayoutPanel, slices_of
from reshard_lab.resharding import ReshardingTask, UnitTask, nic_hosts
from reshard_lab.units import format_bytes

WIDTH = 100
"""Columns that a drawn mesh may take; wider ones are listed by slice."""


def mesh_text(shown: LayoutPanel) -> str:
    """The mesh of a layout as a grid, in each cell a device and the box it holds.

    >>> print(mesh_text(LayoutPanel("S0 on 2", (2,), {0: ((0, 2),), 1: ((2, 4),)})))
    S0 on 2
      +----------+----------+
      | 0  [0:2] | 1  [2:4] |
      +----------+----------+
    """
    last = shown.mesh[-1]
    devices = tuple(shown.boxes)
    digits = max(len(str(d)) for d in devices)
    cells = [f"{d:>{digits}}  {_box(shown.boxes[d])}" for d in devices]
    wide = max(map(len, cells))
    rows = [list(range(i, i + last)) for i in range(0, len(devices), last)]
    heads = [_head(shown, [devices[i] for i in row]) for row in rows]
    margin = "  " + " " * max(map(len, heads))
    if len(margin) + last * (wide + 3) + 1 > WIDTH or len(rows) > 32:
        return "\n".join([shown.title, *_by_slice(shown.boxes)])
    rule = margin + "+" + ("-" * (wide + 2) + "+") * last
    lines = [shown.title, rule]
    for head, row in zip(heads, rows, strict=True):
        body = "|".join(f" {cells[i]:<{wide}} " for i in row)
        lines += [f"{'  ' + head:<{len(margin)}}|{body}|", rule]
    return "\n".join(lines)


def unit_tasks_text(
    task: ReshardingTask, whole_slices: bool = False, limit: int | None = None
) -> str:
    """The unit tasks of ``task``, numbered, and what they add up to."""
    units = task.whole_slice_tasks if whole_slices else task.unit_tasks
    shown = units if limit is None else units[:limit]
    needed = task.dst.boxes(task.shape)
    rows = [("task", "box", "elements", "bytes", "from", "", "to")]
    rows += [
        (
            str(i),
            box_text(u.box),
            str(box_volume(u.box)),
            format_bytes(u.nbytes),
            device_list(u.senders),
            "->",
            _receivers(u, needed),
        )
        for i, u in enumerate(shown)
    ]
    what = "source slice, sent whole"
    if not whole_slices:
        what = "intersection of a source slice and a destination slice"
    plural = "unit task" if len(units) == 1 else "unit tasks"
    article = "a" if whole_slices else "an"
    lines = [f"{len(units)} {plural}, one {article} {what}", *table(rows)]
    if len(units) > len(shown):
        lines.append(f"... and {len(units) - len(shown)} more")
    return "\n".join([*lines, "", *totals_text(task, units, needed)])


def totals_text(
    task: ReshardingTask, units: Sequence[UnitTask], needed: Mapping[int, Box]
) -> list[str]:
    """What ``units`` move in all: the tensor, and what arrives at devices and at hosts."""
    elements = box_volume(tuple((0, n) for n in task.shape))
    lines = [f"tensor: {elements} elements, {format_bytes(task.nbytes)}"]
    arriving = sum(u.nbytes * len(set(u.receivers) - set(u.senders)) for u in units)
    use = sum(_use(u, d, needed) for u in units for d in set(u.receivers) - set(u.senders))
    spare = f", of which {format_bytes(arriving - use)} not needed" if arriving > use else ""
    lines.append(f"to devices that do not hold it yet: {format_bytes(arriving)}{spare}")
    if task.cluster is not None:
        entering = sum(u.nbytes * len(_hosts(u, task.cluster)) for u in units)
        lines.append(f"into hosts, each box once a host: {format_bytes(entering)}")
    return lines


def _hosts(unit: UnitTask, cluster: Cluster) -> tuple[int, ...]:
    return nic_hosts(unit, cluster)[1]


def _use(unit: UnitTask, device: int, needed: Mapping[int, Box]) -> int:
    """Bytes of the unit task that ``device`` needs."""
    common = intersect(unit.box, needed[device])
    return unit.nbytes * box_volume(common) // box_volume(unit.box) if common else 0


def _receivers(unit: UnitTask, needed: Mapping[int, Box]) -> str:
    words = device_list(unit.receivers)
    local = sorted(set(unit.receivers) & set(unit.senders))
    if local:
        words += f"  ({device_list(local)} already {'hold' if len(local) > 1 else 'holds'} it)"
    uses = {_use(unit, d, needed) for d in unit.receivers}
    if uses != {unit.nbytes}:
        low, high = format_bytes(min(uses)), format_bytes(max(uses))
        words += f"  (of it needed: {low})" if low == high else f"  (of it needed: {low} to {high})"
    return words


def _box(box: Box) -> str:
    return box_text(box) if box_volume(box) else "empty"


def _by_slice(boxes: Mapping[int, Box]) -> list[str]:
    rows = [
        (f"  {box_text(b)}", f"devices {device_list(ds)}") for b, ds in slices_of(boxes).items()
    ]
    empty = [d for d, box in boxes.items() if not box_volume(box)]
    return table([*rows, *([("  empty", f"devices {device_list(empty)}")] if empty else [])])


def _head(shown: LayoutPanel, devices: Sequence[int]) -> str:
    """Left of a row of the grid: its host, where the whole row is on one."""
    hosts = {shown.hosts[d] for d in devices} if shown.hosts else set()
    return f"host {hosts.pop()}  " if len(hosts) == 1 else ""


def side_by_side(left: str, right: str, gap: int = 6) -> str:
    """Two blocks of text next to each other, or below each other where that is too wide."""
    one, two = left.splitlines(), right.splitlines()
    wide = max(map(len, one))
    if wide + gap + max(map(len, two)) > WIDTH:
        return f"{left}\n\n{right}"
    pairs = itertools.zip_longest(one, two, fillvalue="")
    return "\n".join(f"{a:<{wide + gap}}{b}".rstrip() for a, b in pairs)
