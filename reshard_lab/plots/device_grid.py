"""Meshes drawn device by device: as numbers, or each with its piece of the tensor."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reshard_lab.boxes import Box, box_text, box_volume
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_type
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.plots import svg
from reshard_lab.plots.plane import Plane, outline, piece, plane
from reshard_lab.units import device_list

LEFT = 60.0
"""Pixels left of the devices, for the names of rows."""
_CARDS = (4, 16)  # meshes of up to 4 columns and 16 devices show each device's piece
_CHIP, _CHIP_HIGH, _CHIPS = 34.0, 26.0, 16
_CELL, _CELL_HIGH, _MESH_LEFT, _COLOR = 40.0, 30.0, 70.0, 1
_THICK = 4.0
MOST_DEVICES = 256
"""Devices that one panel shows at most: beyond that nobody can read it."""


class Highlight(NamedTuple):
    """A box to point at, and the devices that have to do with it."""

    box: Box
    devices: Mapping[int, str]
    """``{device: what it does, in a word or two}``."""
    words: str
    """A sentence for below the tensor."""


class LayoutPanel(NamedTuple):
    """One layout to draw, as plain numbers."""

    title: str
    mesh: tuple[int, ...]
    """Shape of the mesh."""
    boxes: Mapping[int, Box]
    """``{device: box}`` in row-major order of the mesh."""
    hosts: Mapping[int, int] | None = None
    """``{device: host}``, where known."""
    highlight: Highlight | None = None

    def does(self, device: int) -> str:
        """What ``device`` does with the highlighted box; empty if nothing."""
        return self.highlight.devices.get(device, "") if self.highlight else ""

    def host(self, devices: Iterable[int]) -> str:
        """The host of ``devices`` in words; empty if they are on several, or it is not known."""
        hosts = {self.hosts[d] for d in devices} if self.hosts else set()
        return f"host {hosts.pop()}" if len(hosts) == 1 else ""


def layout_panel(
    title: str,
    layout: Layout,
    shape: Iterable[int],
    cluster: Cluster | None = None,
    highlight: Highlight | None = None,
) -> LayoutPanel:
    """The panel of ``layout`` for a tensor of ``shape``."""
    devices = check_type("layout", layout, Layout).mesh.devices
    hosts = None if cluster is None else {d: cluster.host_of(d) for d in devices}
    return LayoutPanel(title, layout.mesh.shape, layout.boxes(shape), hosts, highlight)


def check_drawable(what: str, devices: int) -> None:
    """Raise ReshardError where nobody could read so many devices."""
    if devices > MOST_DEVICES:
        raise ReshardError(
            f"a picture shows up to {MOST_DEVICES} devices, but {what} has {devices}; "
            "draw a smaller mesh"
        )


def draw_mesh(mesh: Mesh) -> svg.Figure:
    """``mesh`` as a figure: rows along its last axis, named by the position on the other axes."""
    check_drawable("the mesh", check_type("mesh", mesh, Mesh).size)
    rows = mesh_rows(mesh.shape, mesh.devices)
    left = max(_MESH_LEFT, row_room([name for name, _ in rows]))
    axes = mesh_words(mesh.shape)
    parts = [svg.label(12, 20, axes, 12)]
    y, right = 32.0, 0.0
    for name, row in rows:
        if name:
            parts.append(svg.label(left - 8, y + _CELL_HIGH / 2 + 4, f"row {name}", 11, "end"))
        for start in range(0, len(row), _CHIPS):
            x = left
            for device in row[start : start + _CHIPS]:
                parts += numbered_cell(x, y, _CELL, _CELL_HIGH, device, 11, _COLOR)
                x += _CELL
            right, y = max(right, x), y + _CELL_HIGH
        y += 4
    alt = "; ".join(
        f"row {name}: devices {', '.join(map(str, row))}" if name else device_list(row)
        for name, row in rows
    )
    width = max(right + 12, 24 + svg.text_width(axes))
    words = f"A mesh of {shape_text(mesh.shape)}, {mesh.size} device{'s' * (mesh.size > 1)}."
    alt = f"{words} {axes.capitalize()}. {alt}."
    return svg.Figure(svg.document(width, y + 8, parts, alt), words, alt)


def slices_of(boxes: Mapping[int, Box], empty: bool = False) -> dict[Box, tuple[int, ...]]:
    """Distinct boxes, empty or not, in order of their first device, each with its devices."""
    slices: dict[Box, tuple[int, ...]] = {}
    for device, box in boxes.items():
        if empty != (box_volume(box) > 0):
            slices[box] = (*slices.get(box, ()), device)
    return slices


def device_grid(
    shown: LayoutPanel, slices: Mapping[Box, tuple[int, ...]], frame: Plane, top: float
) -> tuple[float, float, list[str]]:
    """The mesh from ``top`` down, cards in the plane of ``frame``; right, bottom and parts."""
    index = {box: i for i, box in enumerate(slices)}
    rows = mesh_rows(shown.mesh, tuple(shown.boxes))
    full = len(rows[0][1]) <= _CARDS[0] and len(shown.boxes) <= _CARDS[1]
    lines = {}  # a box on one line, or on one a dimension
    for d, box in shown.boxes.items():
        each = [f"dim {i}: {lo}:{hi}" for i, (lo, hi) in enumerate(box)]
        lines[d] = [box_text(box)] if svg.text_width(box_text(box), 10.5) <= 110 else each
    small = plane(frame.shape, frame.axes, 80, 64, 20, frame.at)
    size = _CHIP, _CHIP_HIGH
    if full:
        longest = max(svg.widest(text, 10.5) for text in lines.values())
        tall = max(map(len, lines.values()))
        noted = len(slices) < len(shown.boxes)  # some device is a replica, or empty
        more = noted + (shown.highlight is not None)
        size = max(92.0, longest + 10, small.width + 12), small.height + 34 + 14 * (tall + more)
    parts: list[str] = []
    left = max(LEFT, row_room([name for name, _ in rows]))
    y, right = top, 0.0
    for name, row in rows:
        for line_start in range(0, len(row), _CHIPS):
            x, middle = left, y + size[1] / 2
            if not line_start or len(shown.mesh) == 1:
                words = f"row {name}" if name else ""
                parts.append(svg.label(x - 8, middle, words, 11, "end"))
                host = shown.host(row)
                parts.append(svg.label(x - 8, middle + 14, host, 11, "end", fill=svg.GREY))
            for device in row[line_start : line_start + _CHIPS]:
                if full:
                    parts += _card(shown, small, x, y, size, device, slices, index, lines[device])
                else:
                    parts += numbered_cell(x, y, *size, device, 10, index.get(shown.boxes[device]))
                    if shown.does(device):
                        parts.append(svg.inner_outline(x, y, *size, _THICK))
                x += size[0] + (6 if full else 2)
            right, y = max(right, x), y + size[1] + (8 if full else 2)
        y += 0 if full else 4
    return right, y + 4, parts


def numbered_cell(
    x: float, y: float, width: float, height: float, device: int, size: float, index: int | None
) -> list[str]:
    """A device as its number on the colour of its slice; white and dashed without one."""
    middle, centre = x + width / 2, y + height / 2
    if index is None:
        style = {"fill": svg.PAPER, "stroke": svg.INK, "stroke_dasharray": "3 2"}
        number = svg.label(middle, centre + 0.36 * size, str(device), size, "middle")
        return [svg.rect(x, y, width, height, **style), number]
    cell = svg.cell(x, y, width, height, index)
    return [cell, *svg.centred(middle, centre, str(device), size, index)]


def mesh_rows(mesh: Sequence[int], devices: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """A mesh as rows along its last axis, each named by its position on the other axes.

    >>> mesh_rows((2, 2), (4, 5, 6, 7))
    [('0', (4, 5)), ('1', (6, 7))]
    """
    last = mesh[-1]
    positions = itertools.product(*(range(n) for n in mesh[:-1]))
    return [
        (",".join(map(str, position)), tuple(devices[i * last : (i + 1) * last]))
        for i, position in enumerate(positions)
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
    shown: LayoutPanel,
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
    does = shown.does(device)
    dashes = None if same[0] == device else "5 3"
    style: dict[str, Any] = {"stroke_dasharray": dashes, "stroke_width": _THICK if does else None}
    parts = [svg.rect(x, y, *size, fill="none", stroke=svg.INK, rx=4, **style)]
    middle = x + size[0] / 2
    left = middle - frame.width / 2
    parts.append(svg.label(middle, y + 16, f"device {device}", 12, "middle", font_weight="bold"))
    parts += piece(frame, left, y + 24, box, index.get(box, 0))
    if does and shown.highlight:
        parts.append(outline(frame, left, y + 24, shown.highlight.box, 2))
    at = y + 24 + frame.height
    for words in lines:
        at += 14
        parts.append(svg.label(middle, at, words, 10.5, "middle"))
    replicas = "empty" if box not in index else ""
    if same[0] != device:
        replicas = f"same as {same[0]}"
    elif len(same) > 1:
        replicas = f"also on {device_list(same[1:])}"
        if svg.text_width(replicas, 10.5) > size[0] - 4:
            replicas = f"and {len(same) - 1} others"
    for words, look in ((replicas, {"font_style": "italic"}), (does, {"font_weight": "bold"})):
        if words:
            at += 14
            parts.append(svg.label(middle, at, words, 10.5, "middle", **look))
    return parts


def shape_text(sizes: Sequence[int]) -> str:
    """Sizes as people write them.

    >>> shape_text((4, 8)), shape_text(())
    ('4×8', '()')
    """
    return "×".join(map(str, sizes)) if sizes else "()"


def devices_text(devices: Sequence[int]) -> str:
    """Devices in a sentence.

    >>> devices_text((4, 5)), devices_text((7,))
    ('devices 4,5', 'device 7')
    """
    return f"{'device' if len(devices) == 1 else 'devices'} {device_list(devices)}"
