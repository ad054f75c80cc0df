"""A device mesh drawn: which device stands where (section 2)."""

from __future__ import annotations

from reshard_lab.errors import ReshardError, check_type
from reshard_lab.mesh import Mesh
from reshard_lab.planning.explain import device_list
from reshard_lab.plots import svg
from reshard_lab.plots.devices import mesh_rows, mesh_words, row_room
from reshard_lab.plots.layouts import MOST, times

_WIDE, _HIGH, _ACROSS, _LEFT = 40.0, 30.0, 16, 70.0
_COLOR = 1


def draw_mesh(mesh: Mesh) -> svg.Figure:
    """``mesh`` as a figure: rows along its last axis, named by the place on the other axes."""
    if check_type("mesh", mesh, Mesh).size > MOST:
        raise ReshardError(
            f"a picture shows up to {MOST} devices, but the mesh has {mesh.size}; draw a smaller "
            "mesh"
        )
    rows = mesh_rows(mesh.shape, mesh.devices)
    left = max(_LEFT, row_room([name for name, _ in rows]))
    parts = [svg.label(12, 20, mesh_words(mesh.shape), 12)]
    y, right = 32.0, 0.0
    for name, members in rows:
        if name:
            parts.append(svg.label(left - 8, y + _HIGH / 2 + 4, f"row {name}", 11, "end"))
        for start in range(0, len(members), _ACROSS):
            x = left
            for device in members[start : start + _ACROSS]:
                parts.append(svg.cell(x, y, _WIDE, _HIGH, _COLOR))
                parts += svg.centred(x + _WIDE / 2, y + _HIGH / 2, str(device), 11, _COLOR)
                x += _WIDE
            right, y = max(right, x), y + _HIGH
        y += 4
    alt = "; ".join(
        f"row {name}: devices {', '.join(map(str, members))}" if name else device_list(members)
        for name, members in rows
    )
    width = max(right + 12, 24 + svg.text_width(mesh_words(mesh.shape)))
    words = f"A mesh of {times(mesh.shape)}, {mesh.size} device{'s' * (mesh.size > 1)}."
    alt = f"{words} {mesh_words(mesh.shape).capitalize()}. {alt}."
    return svg.figure(svg.document(width, y + 8, parts, alt), words, alt)
