"""The controls that describe a resharding task, and the task that their values describe."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_type
from reshard_lab.layout import RULES, Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning.explain import device_list
from reshard_lab.resharding import ReshardingTask, UnitTask, nic_hosts
from reshard_lab.task_text import mesh_axes, parse_mesh, parse_meshes, parse_shape
from reshard_lab.units import ITEMSIZE, format_bytes, format_seconds
from reshard_lab.widgets.controls import menu, text

MOST_DEVICES = 256
"""Devices of a mesh: more are not drawn, and would not follow a slider."""
MOST_HOSTS = 4096
"""Hosts that a cluster may get for device ids that lie far apart."""


def task_controls(task: ReshardingTask) -> dict[str, dict[str, Any]]:
    """Groups of controls that say ``task``, for ``task_of``."""
    check_type("task", task, ReshardingTask)
    tensor = {
        "shape": text("shape", ",".join(map(str, task.shape))),
        "dtype": menu("element type", list(ITEMSIZE), task.dtype),
    }
    groups = {"Tensor": tensor}
    meshes = _mesh_texts(task)
    ends = (("Source", "src", task.src), ("Destination", "dst", task.dst))
    for mesh, (heading, end, layout) in zip(meshes, ends, strict=True):
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

    A mesh given by its shape takes a host a row; the destination begins on the host after the
    source. ``cluster`` gives the links and the devices of a host, and gets more hosts where the
    meshes need them; without one, a host has as many devices as the longest row.
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


@lru_cache(maxsize=4)
def totals(task: ReshardingTask) -> dict[str, str]:
    """What moves, in all, for the line of numbers."""
    made = {"tensor": format_bytes(task.nbytes), "unit tasks": str(len(task.unit_tasks))}
    if task.cluster is not None:
        entering = sum(u.nbytes * len(nic_hosts(u, task.cluster)[1]) for u in task.unit_tasks)
        made["into hosts, each box once a host"] = format_bytes(entering)
        made["lower bound"] = format_seconds(task.lower_bound_s)
    return made


def devices_words(devices: Sequence[int]) -> str:
    """Devices in a sentence.

    >>> devices_words((4, 5)), devices_words((7,))
    ('devices 4,5', 'device 7')
    """
    return f"{'device' if len(devices) == 1 else 'devices'} {device_list(devices)}"


def unit_words(number: int, unit: UnitTask) -> str:
    """A unit task in a sentence."""
    words = f"Unit task {number}: {format_bytes(unit.nbytes)} of {devices_words(unit.senders)} to "
    words += devices_words(unit.receivers)
    local = sorted(set(unit.senders) & set(unit.receivers))
    if local:
        words += f"; {devices_words(local)} {'has' if len(local) == 1 else 'have'} it already"
    return f"{words}."


def _mesh_texts(task: ReshardingTask) -> list[str]:
    """The two meshes by their shapes where the controls' rule gives the same devices."""
    made = ["x".join(map(str, layout.mesh.shape)) for layout in (task.src, task.dst)]
    per = task.cluster.devices_per_host if task.cluster else task.src.mesh.shape[-1]
    first = 0
    for i, layout in enumerate((task.src, task.dst)):
        if parse_mesh(made[i], first, per) != layout.mesh:
            made[i] = json.dumps(layout.mesh.array().tolist())
        first = max(layout.mesh.devices) // per + 1
    return made


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
