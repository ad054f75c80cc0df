"""The devices of a mesh drawn one by one: a card with its piece of the tensor, or a chip."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reshard_lab.boxes import Box, box_text, box_volume
from reshard_lab.cluster import Cluster
from reshard_lab.errors import check_type
from reshard_lab.layout import Layout
from reshard_lab.planning.explain import device_list
from reshard_lab.plots import svg
from reshard_lab.plots.plane import Plane, outline, piece, plane

LEFT = 60.0
"""Pixels left of the devices, for the names of rows."""
_CARDS = (4, 16)  # meshes of up to 4 columns and 16 devices show each device's piece
_CHIP, _CHIP_HIGH, _CHIPS = 34.0, 26.0, 16
_THICK = 4.0


class Mark(NamedTuple):
    """A box to point at, and the devices that have to do with it."""

    box: Box
    devices: Mapping[int, str]
    """``{device: what it does, in a word or two}``."""
    words: str
    """A sentence for below the tensor."""


class Panel(NamedTuple):
    """One layout to draw, as plain numbers."""

    title: str
    mesh: tuple[int, ...]
    """Shape of the mesh."""
    boxes: Mapping[int, Box]
    """``{device: box}`` in row-major order of the mesh."""
    hosts: Mapping[int, int] | None = None
    """``{device: host}``, where known."""
    mark: Mark | None = None


def panel(
    title: str,
    layout: Layout,
    shape: Iterable[int],
    cluster: Cluster | None = None,
    mark: Mark | None = None,
) -> Panel:
    """The panel of ``layout`` for a tensor of ``shape``."""
    devices = check_type("layout", layout, Layout).mesh.devices
    hosts = None if cluster is None else {d: cluster.host_of(d) for d in devices}
    return Panel(title, layout.mesh.shape, layout.boxes(shape), hosts, mark)


def slices_of(boxes: Mapping[int, Box]) -> dict[Box, tuple[int, ...]]:
    """Distinct non-empty boxes in order of their first device, each with its devices."""
    found: dict[Box, tuple[int, ...]] = {}
    for device, box in boxes.items():
        if box_volume(box):
            found[box] = (*found.get(box, ()), device)
    return found


def devices(
    shown: Panel, slices: Mapping[Box, tuple[int, ...]], frame: Plane, top: float
) -> tuple[float, float, list[str]]:
    """The mesh from ``top`` down, a card or a chip a device; right edge, bottom edge and parts.

    frame:
        says which plane of the tensor cards show.
    """
    index = {box: i for i, box in enumerate(slices)}
    rows = mesh_rows(shown.mesh, tuple(shown.boxes))
    full = len(rows[0][1]) <= _CARDS[0] and len(shown.boxes) <= _CARDS[1]
    lines = {d: _box_lines(box) for d, box in shown.boxes.items()}
    small = plane(frame.shape, frame.axes, 80, 64, 20, frame.at)
    size = _CHIP, _CHIP_HIGH
    if full:
        longest = max(svg.widest(text, 10.5) for text in lines.values())
        tall = max(map(len, lines.values()))
        noted = len(slices) < len(shown.boxes)  # some device is a replica, or empty
        more = noted + (shown.mark is not None)
        size = max(92.0, longest + 10, small.width + 12), small.height + 34 + 14 * (tall + more)
    parts: list[str] = []
    left = max(LEFT, row_room([name for name, _ in rows]))
    y, right = top, 0.0
    for name, members in rows:
        for line_start in range(0, len(members), _CHIPS):
            x = left
            at = y + size[1] / 2
            parts += _row_name(name if not line_start else "", shown, members, left - 8, at)
            for device in members[line_start : line_start + _CHIPS]:
                if full:
                    parts += _card(shown, small, x, y, size, device, slices, index, lines[device])
                else:
                    found = index.get(shown.boxes[device])
                    parts += chip(x, y, device, found, _marked(shown, device) != "")
                x += size[0] + (6 if full else 2)
            right, y = max(right, x), y + size[1] + (8 if full else 2)
        y += 0 if full else 4
    return right, y + 4, parts


def chip(x: float, y: float, device: int, index: int | None, marked: bool = False) -> list[str]:
    """A device as its number on the colour of its slice, white if empty."""
    middle, centre = x + _CHIP / 2, y + _CHIP_HIGH / 2
    parts = []
    if index is not None:
        parts = [svg.cell(x, y, _CHIP, _CHIP_HIGH, index)]
        parts += svg.centred(middle, centre, str(device), 10, index)
    else:
        style = {"fill": svg.PAPER, "stroke": svg.INK, "stroke_dasharray": "3 2"}
        parts = [svg.rect(x, y, _CHIP, _CHIP_HIGH, **style)]
        parts.append(svg.label(middle, centre + 3.6, str(device), 10, "middle"))
    if marked:
        inside = x + _THICK / 2, y + _THICK / 2, _CHIP - _THICK, _CHIP_HIGH - _THICK
        parts.append(svg.rect(*inside, fill="none", stroke=svg.INK, stroke_width=_THICK))
    return parts


def mesh_rows(mesh: Sequence[int], members: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """A mesh as rows along its last axis, each named by its place on the other axes.

    >>> mesh_rows((2, 2), (4, 5, 6, 7))
    [('0', (4, 5)), ('1', (6, 7))]
    """
    last = mesh[-1]
    places = itertools.product(*(range(n) for n in mesh[:-1]))
    return [
        (",".join(map(str, place)), tuple(members[i * last : (i + 1) * last]))
        for i, place in enumerate(places)
    ]


def row_room(names: Iterable[str]) -> float:
    """Pixels that the names of rows need to the left of the devices."""
    return svg.widest((f"row {name}" for name in names), 11) + 8


def mesh_words(mesh: Sequence[int]) -> str:
    """Which way the axes of a mesh run."""
    if len(mesh) == 1:
        return "mesh axis 0 runs across"
    down = [str(a) for a in range(len(mesh) - 1)]
    plural = "axis" if len(down) == 1 else "axes"
    return f"mesh {plural} {', '.join(down)} down, axis {len(down)} across"


def _card(
    shown: Panel,
    frame: Plane,
    x: float,
    y: float,
    size: tuple[float, float],
    device: int,
    slices: Mapping[Box, tuple[int, ...]],
    index: Mapping[Box, int],
    lines: Sequence[str],
) -> list[str]:
    """One device: its number, its piece inside the tensor, the box, and whose replica it is."""
    box = shown.boxes[device]
    same = slices.get(box, (device,))
    does = _marked(shown, device)
    dashes = None if same[0] == device else "5 3"
    style: dict[str, Any] = {"stroke_dasharray": dashes, "stroke_width": _THICK if does else None}
    parts = [svg.rect(x, y, *size, fill="none", stroke=svg.INK, rx=4, **style)]
    middle = x + size[0] / 2
    left = middle - frame.width / 2
    parts.append(svg.label(middle, y + 16, f"device {device}", 12, "middle", font_weight="bold"))
    parts += piece(frame, left, y + 24, box, index.get(box, 0), elements=True)
    if does and shown.mark:
        parts.append(outline(frame, left, y + 24, shown.mark.box, 2))
    at = y + 24 + frame.height
    for words in lines:
        at += 14
        parts.append(svg.label(middle, at, words, 10.5, "middle"))
    notes = [_replicas(device, same, size[0]) if box in index else "empty", does]
    for words, look in zip(notes, ({"font_style": "italic"}, {"font_weight": "bold"}), strict=True):
        if words:
            at += 14
            parts.append(svg.label(middle, at, words, 10.5, "middle", **look))
    return parts


def _marked(shown: Panel, device: int) -> str:
    """What ``device`` does with the marked box; empty if nothing."""
    return shown.mark.devices.get(device, "") if shown.mark else ""


def _replicas(device: int, same: Sequence[int], room: float) -> str:
    """What a card says of the other devices that hold its slice, in ``room`` pixels."""
    if same[0] != device:
        return f"same as {same[0]}"
    if len(same) == 1:
        return ""
    words = f"also on {device_list(same[1:])}"
    return words if svg.text_width(words, 10.5) <= room - 4 else f"and {len(same) - 1} others"


def _row_name(name: str, shown: Panel, members: Sequence[int], x: float, y: float) -> list[str]:
    """What ends at ``x``, left of a row: its place on the mesh, and its host if all share one."""
    if not name and len(shown.mesh) > 1:
        return []
    parts = [svg.label(x, y, f"row {name}", 11, "end")] if name else []
    hosts = {shown.hosts[d] for d in members} if shown.hosts else set()
    if len(hosts) == 1:
        parts.append(svg.label(x, y + 14, f"host {hosts.pop()}", 11, "end", fill=svg.GREY))
    return parts


def _box_lines(box: Box) -> list[str]:
    """The box as an index, on one line or one a dimension."""
    words = box_text(box)
    if svg.text_width(words, 10.5) <= 110:
        return [words]
    return [f"dim {d}: {lo}:{hi}" for d, (lo, hi) in enumerate(box)]
