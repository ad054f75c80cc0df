"""Layouts as pictures and as text: the tensor cut up, and what every device holds (section 2)."""

import itertools
from collections.abc import Iterable, Sequence

from reshard_lab.boxes import box_text, box_volume, check_shape
from reshard_lab.errors import check_int, check_type
from reshard_lab.layout import Layout
from reshard_lab.plots import svg
from reshard_lab.plots.device_grid import (
    LEFT,
    Highlight,
    LayoutPanel,
    check_drawable,
    device_grid,
    devices_text,
    layout_panel,
    mesh_rows,
    mesh_words,
    shape_text,
    slices_of,
)
from reshard_lab.plots.plane import choose_axes, cut_up, plane
from reshard_lab.resharding import ReshardingTask
from reshard_lab.units import device_list, table

TEXT_WIDTH = 100
"""Columns that a mesh as text may take; wider ones are listed by slice."""
_TOP, _GAP = 74.0, 52.0
_PAGE = 1080.0  # panels wider than this together go below each other


def draw_layout(
    layout: Layout,
    shape: Iterable[int],
    title: str | None = None,
    axes: Sequence[int] | None = None,
) -> svg.Figure:
    """One layout as a figure; ``axes`` chooses the two dimensions drawn."""
    check_type("layout", layout, Layout)
    sizes = check_shape(shape)
    shown = layout_panel(title or layout_title(layout), layout, sizes)
    caption = f"A tensor of shape {shape_text(sizes)} under {layout_title(layout)}. {_LEGEND}"
    return svg.Figure(layout_svg(sizes, [shown], axes), caption, _alt([shown], sizes))


def draw_layouts(
    task: ReshardingTask, axes: Sequence[int] | None = None, highlight: int | None = None
) -> svg.Figure:
    """Source and destination of ``task`` side by side as a figure.

    axes:
        the two dimensions drawn.
    highlight:
        number of a unit task whose box, holders and receivers are outlined.
    """
    check_type("task", task, ReshardingTask)
    caption = (
        f"A tensor of shape {shape_text(task.shape)} before and after: "
        f"{layout_title(task.src)}, then {layout_title(task.dst)}. {_LEGEND}"
    )
    marks: list[Highlight | None] = [None, None]
    if highlight is not None:
        unit = task.unit_tasks[check_int("highlight", highlight, 0, len(task.unit_tasks) - 1)]
        box, senders, receivers = box_text(unit.box), unit.senders, unit.receivers
        caption += f" Outlined: unit task {highlight}, {box}."
        held = f"{box} outlined: {devices_text(senders)} may send it"
        does = {d: "has it already" if d in senders else "receives" for d in receivers}
        goes = f"{box} outlined: it goes to {devices_text(receivers)}"
        held_by = dict.fromkeys(senders, "may send")
        marks = [Highlight(unit.box, held_by, held), Highlight(unit.box, does, goes)]
    ends = (("Source", task.src), ("Destination", task.dst))
    shown = [
        layout_panel(f"{name}: {layout_title(layout)}", layout, task.shape, task.cluster, mark)
        for (name, layout), mark in zip(ends, marks, strict=True)
    ]
    return svg.Figure(layout_svg(task.shape, shown, axes), caption, _alt(shown, task.shape))


def layout_svg(
    shape: Iterable[int],
    panels: Sequence[LayoutPanel],
    axes: Sequence[int] | None = None,
    alt: str | None = None,
) -> str:
    """SVG of ``panels`` (one layout, or source and destination) of a tensor of ``shape``.

    Tensors of more than two dimensions show the plane of ``axes`` (default: the two that are cut
    most), the other dimensions at index 0, or where a marked box begins. Devices that hold the
    same slice share its colour.
    """
    sizes = check_shape(shape)
    for one in check_type("panels", panels, Sequence, "plots.layout_panel makes each"):
        check_type("each of panels", one, LayoutPanel, "plots.layout_panel makes one")
        check_drawable(f"'{one.title}'", len(one.boxes))
    chosen = choose_axes(sizes, (b for p in panels for b in p.boxes.values()), axes)
    drawn_panels = [_draw(p, sizes, chosen) for p in panels]
    across = sum(w for w, _, _ in drawn_panels) + _GAP * (len(drawn_panels) - 1) <= _PAGE
    parts: list[str] = []
    x = y = width = height = 0.0
    for index, (wide, high, drawn) in enumerate(drawn_panels):
        if index and across:
            parts.append(svg.arrow(x + 12, _TOP + 60, _GAP - 24))
            x += _GAP
        elif index:
            y, x = height + 16, 0.0
        parts.append(svg.moved(x, y, drawn))
        x += wide
        width, height = max(width, x), max(height, y + high)
    return svg.document(width, height, parts, alt or _alt(panels, sizes))


def layout_title(layout: Layout) -> str:
    """A layout in words."""
    return f"{layout.spec} on a mesh of {shape_text(layout.mesh.shape)}"


_LEGEND = "Each distinct slice has a colour; devices that hold the same one are replicas."


def _draw(
    shown: LayoutPanel, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[float, float, list[str]]:
    """Width, height and parts of one panel."""
    slices = slices_of(shown.boxes)
    marked = shown.highlight.box if shown.highlight else None
    frame = plane(shape, axes, 250, 180, 44, tuple(lo for lo, _ in marked or ()))
    named = [(box, device_list(devices)) for box, devices in slices.items()]
    tensor, complete = cut_up(frame, LEFT, _TOP, named, marked)
    parts = [svg.label(8, 22, shown.title, 14, font_weight="bold"), *tensor]
    bottom = _TOP + frame.height + 20
    hidden = [f"dim {d} = {frame.at[d]}" for d, n in enumerate(shape) if d not in axes and n > 1]
    notes = [shown.highlight.words] if shown.highlight else []
    notes += ["drawn at " + ", ".join(hidden)] if hidden else []
    notes += [] if complete else ["some pieces are too small for their devices' numbers"]
    for words in notes:
        parts.append(svg.label(LEFT, bottom, words, 11, fill=svg.GREY))
        bottom += 18
    mesh = mesh_words(shown.mesh)
    parts.append(svg.label(8, bottom + 14, mesh, 12))
    wide, high, drawn = device_grid(shown, slices, frame, bottom + 24)
    texts = [svg.text_width(shown.title, 14) * 1.1, svg.text_width(mesh, 12)]
    texts.append(LEFT + svg.widest(notes, 11))
    return max(wide, LEFT + frame.width + 12, 12 + max(texts)), high, parts + drawn


def _alt(panels: Sequence[LayoutPanel], shape: tuple[int, ...]) -> str:
    held = []
    for p in panels:
        slices, empty = slices_of(p.boxes), slices_of(p.boxes, empty=True)
        words = [
            f"{devices_text(ds)} {'holds' if len(ds) == 1 else 'hold'} "
            f"{'' if box in slices else 'nothing, '}{box_text(box)}"
            for box, ds in (slices | empty).items()
        ]
        words += [p.highlight.words] if p.highlight else []
        held.append(f"{p.title}: " + "; ".join(words))
    return f"Tensor of shape {shape_text(shape)}. " + ". ".join(held) + "."


def mesh_text(shown: LayoutPanel) -> str:
    """The mesh of a layout as a grid, in each cell a device and the box it holds.

    >>> print(mesh_text(LayoutPanel("S0 on 2", (2,), {0: ((0, 2),), 1: ((2, 4),)})))
    S0 on 2
      +----------+----------+
      | 0  [0:2] | 1  [2:4] |
      +----------+----------+
    """
    devices = tuple(shown.boxes)
    digits = max(len(str(d)) for d in devices)
    cells = {
        d: f"{d:>{digits}}  {box_text(b) if box_volume(b) else 'empty'}"
        for d, b in shown.boxes.items()
    }
    wide = max(map(len, cells.values()))
    rows = {row: shown.host(row) for _, row in mesh_rows(shown.mesh, devices)}
    margin = "  " + " " * max(len(host) + 2 if host else 0 for host in rows.values())
    if len(margin) + shown.mesh[-1] * (wide + 3) + 1 > TEXT_WIDTH or len(rows) > 32:
        slices = slices_of(shown.boxes).items()
        by_slice = [(f"  {box_text(b)}", f"devices {device_list(ds)}") for b, ds in slices]
        empty = [d for d, box in shown.boxes.items() if not box_volume(box)]
        by_slice += [("  empty", f"devices {device_list(empty)}")] if empty else []
        return "\n".join([shown.title, *table(by_slice)])
    rule = margin + "+" + ("-" * (wide + 2) + "+") * shown.mesh[-1]
    lines = [shown.title, rule]
    for row, host in rows.items():
        body = "|".join(f" {cells[d]:<{wide}} " for d in row)
        lines += [f"{'  ' + host:<{len(margin)}}|{body}|", rule]
    return "\n".join(lines)


def side_by_side(left: str, right: str) -> str:
    """Two blocks of text next to each other, or below each other where that is too wide."""
    one, two = left.splitlines(), right.splitlines()
    wide = max(map(len, one)) + 6
    if wide + max(map(len, two)) > TEXT_WIDTH:
        return f"{left}\n\n{right}"
    pairs = itertools.zip_longest(one, two, fillvalue="")
    return "\n".join(f"{a:<{wide}}{b}".rstrip() for a, b in pairs)
