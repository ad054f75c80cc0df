"""Layouts drawn: the tensor cut up, and what every device of the mesh holds (section 2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reshard_lab.boxes import Box, box_text, box_volume, check_shape
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.layout import Layout
from reshard_lab.planning.explain import device_list
from reshard_lab.plots import svg
from reshard_lab.plots.plane import Plane, choose_axes, cut_up, piece, plane
from reshard_lab.resharding import ReshardingTask

MOST = 256
"""Devices that one panel shows at most: beyond that nobody can read it."""
_LEFT, _TOP, _GAP = 60.0, 74.0, 52.0
_CARDS = (4, 16)  # meshes of up to 4 columns and 16 devices show each device's piece
_PAGE = 1080.0  # panels wider than this together go below each other
_CHIP, _CHIP_HIGH, _CHIPS = 34.0, 26.0, 16


class Panel(NamedTuple):
    """One layout to draw, as plain numbers."""

    title: str
    mesh: tuple[int, ...]
    """Shape of the mesh."""
    boxes: Mapping[int, Box]
    """``{device: box}`` in row-major order of the mesh."""
    hosts: Mapping[int, int] | None = None
    """``{device: host}``, where known."""


def panel(
    title: str, layout: Layout, shape: Iterable[int], cluster: Cluster | None = None
) -> Panel:
    """The panel of ``layout`` for a tensor of ``shape``."""
    devices = layout.mesh.devices
    hosts = None if cluster is None else {d: cluster.host_of(d) for d in devices}
    return Panel(title, layout.mesh.shape, layout.boxes(shape), hosts)


def draw_layout(
    layout: Layout,
    shape: Iterable[int],
    title: str | None = None,
    axes: Sequence[int] | None = None,
) -> svg.Figure:
    """One layout as a figure; ``axes`` chooses the two dimensions drawn."""
    sizes = check_shape(shape)
    shown = panel(title or _layout_title(layout), layout, sizes)
    alt = _alt([shown], sizes)
    caption = f"A tensor of shape {_times(sizes)} under {_layout_title(layout)}. {_LEGEND}"
    return svg.figure(layout_svg(sizes, [shown], axes, alt), caption, alt)


def draw_layouts(task: ReshardingTask, axes: Sequence[int] | None = None) -> svg.Figure:
    """Source and destination of ``task`` side by side as a figure."""
    ends = (("Source", task.src), ("Destination", task.dst))
    shown = [
        panel(f"{name}: {_layout_title(layout)}", layout, task.shape, task.cluster)
        for name, layout in ends
    ]
    alt = _alt(shown, task.shape)
    caption = (
        f"A tensor of shape {_times(task.shape)} before and after: "
        f"{_layout_title(task.src)}, then {_layout_title(task.dst)}. {_LEGEND}"
    )
    return svg.figure(layout_svg(task.shape, shown, axes, alt), caption, alt)


def layout_svg(
    shape: Iterable[int],
    panels: Sequence[Panel],
    axes: Sequence[int] | None = None,
    alt: str | None = None,
) -> str:
    """SVG of ``panels`` (one layout, or source and destination) of a tensor of ``shape``.

    Tensors of more than two dimensions show the plane of ``axes`` (default: the two that are cut
    most), the other dimensions at index 0. Devices that hold the same slice share its colour.
    """
    sizes = check_shape(shape)
    for one in panels:
        if len(one.boxes) > MOST:
            raise ReshardError(
                f"a picture shows up to {MOST} devices, but '{one.title}' has {len(one.boxes)}; "
                "draw a smaller mesh"
            )
    chosen = choose_axes(sizes, (b for p in panels for b in p.boxes.values()), axes)
    made = [_draw(p, sizes, chosen) for p in panels]
    across = sum(w for w, _, _ in made) + _GAP * (len(made) - 1) <= _PAGE
    parts: list[str] = []
    x = y = width = height = 0.0
    for index, (wide, high, drawn) in enumerate(made):
        if index and across:
            parts.append(svg.arrow(x + 12, _TOP + 60, _GAP - 24))
            x += _GAP
        elif index:
            y, x = height + 16, 0.0
        place = f"translate({svg.number(x)} {svg.number(y)})"
        parts.append(f'<g transform="{place}">{"".join(drawn)}</g>')
        x += wide
        width, height = max(width, x), max(height, y + high)
    return svg.document(width, height, parts, alt or _alt(panels, sizes))


_LEGEND = "Each distinct slice has a colour; devices that hold the same one are replicas."


def _draw(
    shown: Panel, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[float, float, list[str]]:
    """Width, height and parts of one panel."""
    slices = slices_of(shown.boxes)
    frame = plane(shape, axes, 250, 180, 44)
    named = [(box, device_list(devices)) for box, devices in slices.items()]
    parts = [svg.label(8, 22, shown.title, 14, font_weight="bold")]
    tensor, complete = cut_up(frame, _LEFT, _TOP, named, (12, 10, 9))
    parts += tensor
    bottom = _TOP + frame.height + 20
    hidden = [f"dim {d} = 0" for d in range(len(shape)) if d not in axes and shape[d] > 1]
    notes = ["drawn at " + ", ".join(hidden)] if hidden else []
    notes += [] if complete else ["some pieces are too small for their devices' numbers"]
    for words in notes:
        parts.append(svg.label(_LEFT, bottom, words, 11, fill=svg.GREY))
        bottom += 18
    parts.append(svg.label(8, bottom + 14, _mesh_words(shown), 12))
    wide, high, drawn = _devices(shown, slices, shape, axes, bottom + 24)
    texts = [svg.text_width(shown.title, 14) * 1.1, svg.text_width(_mesh_words(shown), 12)]
    texts.append(_LEFT + svg.widest(notes, 11))
    return max(wide, _LEFT + frame.width + 12, 12 + max(texts)), high, parts + drawn


def slices_of(boxes: Mapping[int, Box]) -> dict[Box, tuple[int, ...]]:
    """Distinct non-empty boxes in order of their first device, each with its devices."""
    found: dict[Box, tuple[int, ...]] = {}
    for device, box in boxes.items():
        if box_volume(box):
            found[box] = (*found.get(box, ()), device)
    return found


def _devices(
    shown: Panel,
    slices: Mapping[Box, tuple[int, ...]],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    top: float,
) -> tuple[float, float, list[str]]:
    """The mesh, a card or a chip a device; returns right edge, bottom edge and parts."""
    index = {box: i for i, box in enumerate(slices)}
    rows = _rows(shown)
    full = len(rows[0][1]) <= _CARDS[0] and len(shown.boxes) <= _CARDS[1]
    lines = {d: _box_lines(box) for d, box in shown.boxes.items()}
    frame = plane(shape, axes, 80, 64, 20)
    size = _CHIP, _CHIP_HIGH
    if full:
        longest = max(svg.widest(text, 10.5) for text in lines.values())
        tall = max(map(len, lines.values()))
        noted = len(slices) < len(shown.boxes)  # some device is a replica, or empty
        size = max(92.0, longest + 10, frame.width + 12), frame.height + 34 + 14 * (tall + noted)
    parts: list[str] = []
    y, right = top, 0.0
    for name, devices in rows:
        for line_start in range(0, len(devices), _CHIPS):
            x = _LEFT
            parts += _row_name(name if not line_start else "", shown, devices, y + size[1] / 2)
            for device in devices[line_start : line_start + _CHIPS]:
                box = shown.boxes[device]
                if full:
                    same = slices.get(box, (device,))
                    parts += _card(
                        frame, x, y, size, device, box, index.get(box), lines[device], same
                    )
                else:
                    parts += _chip(x, y, device, index.get(box))
                x += size[0] + (6 if full else 2)
            right, y = max(right, x), y + size[1] + (8 if full else 2)
        y += 0 if full else 4
    return right, y + 4, parts


def _card(
    frame: Plane,
    x: float,
    y: float,
    size: tuple[float, float],
    device: int,
    box: Box,
    index: int | None,
    lines: Sequence[str],
    same: Sequence[int],
) -> list[str]:
    """One device: its number, its piece inside the tensor, the box, and whose replica it is."""
    wide, high = size
    first = same[0] == device
    middle = x + wide / 2
    dashes = None if first else "5 3"
    parts = [svg.rect(x, y, wide, high, fill="none", stroke=svg.INK, rx=4, stroke_dasharray=dashes)]
    parts.append(svg.label(middle, y + 16, f"device {device}", 12, "middle", font_weight="bold"))
    parts += piece(frame, middle - frame.width / 2, y + 24, box, index or 0, elements=True)
    at = y + 24 + frame.height
    for words in lines:
        at += 14
        parts.append(svg.label(middle, at, words, 10.5, "middle"))
    note = _replicas(device, same, wide) if index is not None else "empty"
    return [*parts, svg.label(middle, at + 14, note, 10.5, "middle", font_style="italic")]


def _replicas(device: int, same: Sequence[int], room: float) -> str:
    """What a card says of the other devices that hold its slice, in ``room`` pixels."""
    if same[0] != device:
        return f"same as {same[0]}"
    if len(same) == 1:
        return ""
    words = f"also on {device_list(same[1:])}"
    return words if svg.text_width(words, 10.5) <= room - 4 else f"and {len(same) - 1} others"


def _chip(x: float, y: float, device: int, index: int | None) -> list[str]:
    """One device of a large mesh: its number on the colour of its slice, white if empty."""
    middle, centre = x + _CHIP / 2, y + _CHIP_HIGH / 2
    if index is not None:
        made = svg.cell(x, y, _CHIP, _CHIP_HIGH, index)
        return [made, *svg.centred(middle, centre, str(device), 10, index)]
    style = {"fill": svg.PAPER, "stroke": svg.INK, "stroke_dasharray": "3 2"}
    made = svg.rect(x, y, _CHIP, _CHIP_HIGH, **style)
    return [made, svg.label(middle, centre + 3.6, str(device), 10, "middle")]


def _rows(shown: Panel) -> list[tuple[str, tuple[int, ...]]]:
    """The mesh as rows along its last axis, each named by its place on the other axes."""
    devices, last = tuple(shown.boxes), shown.mesh[-1]
    places = itertools.product(*(range(n) for n in shown.mesh[:-1]))
    return [
        (",".join(map(str, place)), devices[i * last : (i + 1) * last])
        for i, place in enumerate(places)
    ]


def _row_name(name: str, shown: Panel, devices: Sequence[int], y: float) -> list[str]:
    """What stands left of a row: its place on the mesh, and its host where all share one."""
    if not name and len(shown.mesh) > 1:
        return []
    parts = [svg.label(_LEFT - 8, y, f"row {name}", 11, "end")] if name else []
    hosts = {shown.hosts[d] for d in devices} if shown.hosts else set()
    if len(hosts) == 1:
        parts.append(svg.label(_LEFT - 8, y + 14, f"host {hosts.pop()}", 11, "end", fill=svg.GREY))
    return parts


def _mesh_words(shown: Panel) -> str:
    """Which way the axes of the mesh run."""
    if len(shown.mesh) == 1:
        return "mesh axis 0 runs across"
    down = [str(a) for a in range(len(shown.mesh) - 1)]
    plural = "axis" if len(down) == 1 else "axes"
    return f"mesh {plural} {', '.join(down)} down, axis {len(down)} across"


def _box_lines(box: Box) -> list[str]:
    """The box as an index, on one line or one a dimension."""
    words = box_text(box)
    if svg.text_width(words, 10.5) <= 110:
        return [words]
    return [f"dim {d}: {lo}:{hi}" for d, (lo, hi) in enumerate(box)]


def _layout_title(layout: Layout) -> str:
    return f"{layout.spec} on a mesh of {_times(layout.mesh.shape)}"


def _times(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes)) if sizes else "()"


def _alt(panels: Sequence[Panel], shape: tuple[int, ...]) -> str:
    """The picture in words: which devices hold which box."""
    held = [
        f"{p.title}: "
        + "; ".join(
            f"{'device' if len(devices) == 1 else 'devices'} {device_list(devices)} "
            f"{'holds' if len(devices) == 1 else 'hold'} {box_text(box)}"
            for box, devices in slices_of(p.boxes).items()
        )
        for p in panels
    ]
    return f"Tensor of shape {_times(shape)}. " + ". ".join(held) + "."
