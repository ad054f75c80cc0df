"""The layout explorer, and the controls that describe a task there and in the plan explorer."""

import itertools
import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from reshard_lab.boxes import box_text
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, check_type
from reshard_lab.layout import RULES, Layout
from reshard_lab.mesh import Mesh
from reshard_lab.paper_cases import figure2
from reshard_lab.plots.device_grid import MOST_DEVICES, devices_text
from reshard_lab.plots.layouts import draw_layouts
from reshard_lab.plots.unit_tasks import bytes_into_hosts
from reshard_lab.resharding import ReshardingTask, UnitTask
from reshard_lab.task_text import mesh_axes, parse_mesh, parse_meshes, parse_shape
from reshard_lab.units import ITEMSIZE, device_list, format_bytes, format_seconds
from reshard_lab.widgets.controls import menu, slider, text
from reshard_lab.widgets.panel import Explorer, View

MOST_HOSTS = 4096
"""Hosts that a cluster may get for device ids that lie far apart."""


def layout_explorer(task: ReshardingTask | None = None, highlight: int = 0) -> Explorer:
    """Source and destination side by side; a chosen unit task stands out with its devices.

    task:
        what is shown first (default: task 1 of figure 2). Its cluster gives the links of all
        that follow.
    highlight:
        the unit task chosen first.

    The picture is ``plots.draw_layouts``. Controls: ``shape``, ``dtype``, ``src_mesh``,
    ``src_spec``, ``src_rule``, ``dst_mesh``, ``dst_spec``, ``dst_rule``, ``axes``, ``unit``.
    """
    start = figure2(1) if task is None else check_type("task", task, ReshardingTask)
    most = max(len(start.unit_tasks) - 1, 0)
    groups = task_controls(start)
    groups["Show"] = {
        "unit": slider("unit task", check_int("highlight", highlight, 0, most), 0, most),
        "axes": menu("dimensions drawn", _planes(len(start.shape)), (), "20em"),
    }

    def draw(unit: int, axes: tuple[int, ...], **described: str) -> View:
        task = task_of(start.cluster, **described)
        units, planes = task.unit_tasks, _planes(len(task.shape))
        number = min(unit, len(units) - 1) if units else None
        axes = axes if axes in [plane for _, plane in planes] else ()
        note = "The tensor is empty." if number is None else _unit_text(number, units[number])
        ends: dict[str, Any] = {"max": max(len(units) - 1, 0)}
        settings: dict[str, dict[str, Any]] = {"unit": ends, "axes": {"options": planes}}
        figure = draw_layouts(task, axes or None, number)
        return View(figure, *_table_and_facts(task), [note], settings)

    return Explorer("layout explorer", groups, draw)


@lru_cache(maxsize=4)
def _table_and_facts(task: ReshardingTask) -> tuple[list[tuple[object, ...]], dict[str, str]]:
    """The unit tasks and what they add up to; another one chosen changes nothing in either."""
    rows: list[tuple[object, ...]] = [("unit task", "box", "bytes", "from", "to")]
    rows += [
        (i, box_text(u.box), u.nbytes, device_list(u.senders), device_list(u.receivers))
        for i, u in enumerate(task.unit_tasks)
    ]
    facts = {"tensor": format_bytes(task.nbytes), "unit tasks": str(len(task.unit_tasks))}
    if task.cluster is not None:
        entering = bytes_into_hosts(task.unit_tasks, task.cluster)
        facts["into hosts, each box once a host"] = format_bytes(entering)
        facts["lower bound"] = format_seconds(task.lower_bound_s)
    return rows, facts


def _planes(ndim: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The choices of two dimensions."""
    pairs = itertools.combinations(range(ndim), 2) if ndim > 2 else ()
    return (("those cut most", ()), *((f"{a} down, {b} across", (a, b)) for a, b in pairs))


def task_controls(task: ReshardingTask) -> dict[str, dict[str, Any]]:
    """Groups of controls that say ``task``, for ``task_of``."""
    check_type("task", task, ReshardingTask)
    shape = text("shape", ",".join(map(str, task.shape)))
    groups = {"Tensor": {"shape": shape, "dtype": menu("element type", list(ITEMSIZE), task.dtype)}}
    ends = (("Source", "src", task.src), ("Destination", "dst", task.dst))
    for mesh, (heading, end, layout) in zip(_mesh_texts(task), ends, strict=True):
        groups[heading] = {
            f"{end}_mesh": text("mesh", mesh),
            f"{end}_spec": text("spec", str(layout.spec)),
            f"{end}_rule": menu("uneven sizes", RULES, layout.rule),
        }
    return groups


@lru_cache(maxsize=4)  # a slider that chooses among a great many unit tasks would make them anew
def task_of(
    cluster: Cluster | None,
    shape: str,
    dtype: str,
    src_mesh: str,
    src_spec: str,
    src_rule: str,
    dst_mesh: str,
    dst_spec: str,
    dst_rule: str,
) -> ReshardingTask:
    """The task that the controls describe.

    A mesh given by its shape takes a host a row, the destination after the source. ``cluster``
    gets more hosts where they are needed; without one, a host has the devices of the longest row.
    """
    names = "source mesh", "destination mesh"
    for what, mesh in zip(names, (src_mesh, dst_mesh), strict=True):
        count = math.prod(mesh_axes(mesh, what))
        if count > MOST_DEVICES:
            raise ReshardError(
                f"an explorer takes up to {MOST_DEVICES} devices, but the {what} has "
                f"{count}; give a smaller mesh, or plan without an explorer"
            )
    per = cluster.devices_per_host if cluster else None
    src, dst, per = parse_meshes(src_mesh, dst_mesh, names, per)
    return ReshardingTask(
        parse_shape(shape),
        dtype,
        _layout("source", src, src_spec, src_rule),
        _layout("destination", dst, dst_spec, dst_rule),
        _large_enough(cluster, per, [src, dst]),
    )


def _layout(end: str, mesh: Mesh, spec: str, rule: str) -> Layout:
    try:
        return Layout(mesh, spec, rule)
    except ReshardError as error:
        raise ReshardError(f"{end}: {error}") from None


def _unit_text(number: int, unit: UnitTask) -> str:
    words = f"Unit task {number}: {format_bytes(unit.nbytes)} of {devices_text(unit.senders)} to "
    words += devices_text(unit.receivers)
    local = sorted(set(unit.senders) & set(unit.receivers))
    if local:
        words += f"; {devices_text(local)} {'has' if len(local) == 1 else 'have'} it already"
    return f"{words}."


def _mesh_texts(task: ReshardingTask) -> list[str]:
    """The two meshes by their shapes where the controls' rule gives the same devices."""
    texts = ["x".join(map(str, layout.mesh.shape)) for layout in (task.src, task.dst)]
    per = task.cluster.devices_per_host if task.cluster else task.src.mesh.shape[-1]
    first = 0
    for i, layout in enumerate((task.src, task.dst)):
        if parse_mesh(texts[i], first, per) != layout.mesh:
            texts[i] = json.dumps(layout.mesh.array().tolist())
        first = max(layout.mesh.devices) // per + 1
    return texts


def _large_enough(cluster: Cluster | None, per: int, meshes: Sequence[Mesh]) -> Cluster:
    """``cluster``, or one with links as default, with hosts for all devices."""
    last = [max(mesh.devices) for mesh in meshes]
    hosts = max(last) // per + 1
    if cluster is not None and (hosts <= cluster.hosts or not cluster.uniform):
        return cluster
    if hosts > MOST_HOSTS:
        far = next(device for device in last if device // per >= MOST_HOSTS)
        raise ReshardError(
            f"an explorer takes up to {MOST_HOSTS} hosts, but device {far} is on host {far // per} "
            f"with {per} a host; give smaller device ids, or plan without an explorer"
        )
    if cluster is None:
        return Cluster(hosts, per)
    return Cluster(**{**cluster.to_dict(), "hosts": hosts})
