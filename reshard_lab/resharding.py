"""Cross-mesh resharding: a tensor, two layouts, and the unit tasks between them (appendix B)."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from reshard_lab.bounds import fluid_bound
from reshard_lab.boxes import Box, box_volume, check_shape
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_type, must_be, short
from reshard_lab.layout import Grid, Layout
from reshard_lab.units import ITEMSIZE, dtype_name, format_bytes

_MOST_BYTES = 2**63 - 1


class UnitTask(NamedTuple):
    """One box of the tensor, the devices that hold it and the devices that need it."""

    box: Box
    nbytes: int
    senders: tuple[int, ...]
    """Devices whose source piece holds the box, ascending."""
    receivers: tuple[int, ...]
    """Devices whose destination piece holds the box, ascending; some may hold it already."""


@dataclass(frozen=True, init=False, repr=False)
class ReshardingTask:
    """Move one tensor from layout ``src`` to layout ``dst`` (section 2).

    >>> from reshard_lab import Mesh
    >>> a, b = Mesh([[0, 1], [2, 3]]), Mesh([[4, 5], [6, 7]])
    >>> task = ReshardingTask((4, 4), "float32", Layout(a, "S01R"), Layout(b, "S0R"))
    >>> task.unit_tasks[0]
    UnitTask(box=((0, 1), (0, 4)), nbytes=16, senders=(0,), receivers=(4, 5))
    """

    shape: tuple[int, ...]
    dtype: str
    src: Layout
    dst: Layout
    cluster: Cluster | None

    def __init__(
        self,
        shape: Iterable[int],
        dtype: object,
        src: Layout,
        dst: Layout,
        cluster: Cluster | None = None,
    ) -> None:
        sizes = check_shape(shape)
        name = dtype_name(dtype)
        if math.prod(sizes) * ITEMSIZE[name] > _MOST_BYTES:
            raise ReshardError(
                f"a tensor of shape {sizes} and dtype {name} has more than 2^63 - 1 bytes"
            )
        for what, layout in (("src", src), ("dst", dst)):
            if not isinstance(layout, Layout):
                raise must_be(what, "a Layout such as Layout(mesh, 'S0R')", layout)
            layout.check(sizes, f"{what} spec")
            if layout.rule == "even":
                layout.boxes(sizes)  # raises if a dimension does not divide
            if cluster is not None:
                check_type("cluster", cluster, Cluster).check(layout.mesh, f"{what} mesh")
        vars(self).update(shape=sizes, dtype=name, src=src, dst=dst, cluster=cluster)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return ITEMSIZE[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.itemsize

    @cached_property
    def unit_tasks(self) -> tuple[UnitTask, ...]:
        """Every non-empty intersection of a distinct source slice and a distinct destination slice.

        In order of the destination slice (mesh position of its first device), then of the source
        slice likewise. Boxes that stay local are included.
        """
        source, target = self.src.grid(self.shape), self.dst.grid(self.shape)
        from_devices, from_first = _holders(source, self.src.mesh.devices)
        to_devices, to_first = _holders(target, self.dst.mesh.devices)
        src_index = np.zeros(1, dtype=np.int64)
        dst_index = np.zeros(1, dtype=np.int64)
        edges: list[np.ndarray] = []
        for have, need in zip(source.intervals, target.intervals, strict=True):
            i, j, lo, hi = _overlaps(have, need)
            repeat = len(i)
            src_index = (src_index[:, None] * len(have) + i).ravel()
            dst_index = (dst_index[:, None] * len(need) + j).ravel()
            edges = [np.repeat(e, repeat) for e in edges]
            tiles = len(src_index) // repeat if repeat else 0
            edges += [np.tile(lo, tiles), np.tile(hi, tiles)]
        order = np.lexsort((from_first[src_index], to_first[dst_index]))
        ends = [e[order].tolist() for e in edges]
        volume = np.full(len(order), self.itemsize, dtype=np.int64)
        for lo, hi in zip(edges[::2], edges[1::2], strict=True):
            volume *= (hi - lo)[order]
        pairs = [zip(lo, hi, strict=True) for lo, hi in zip(ends[::2], ends[1::2], strict=True)]
        boxes = zip(*pairs, strict=True) if pairs else [()] * len(order)
        columns = volume.tolist(), src_index[order].tolist(), dst_index[order].tolist()
        return tuple(
            UnitTask(box, nbytes, from_devices[i], to_devices[j])
            for box, nbytes, i, j in zip(boxes, *columns, strict=True)
        )

    @cached_property
    def whole_slice_tasks(self) -> tuple[UnitTask, ...]:
        """The text's other reading of appendix B, for teaching: one task a distinct source slice.

        The slice goes whole to every device that needs any part of it, so where source and
        destination slices differ this sends bytes that nobody needs.
        """
        needed: dict[tuple[int, ...], set[int]] = {}
        for unit in self.unit_tasks:
            needed.setdefault(unit.senders, set()).update(unit.receivers)
        return tuple(
            UnitTask(box, box_volume(box) * self.itemsize, senders, tuple(sorted(needed[senders])))
            for box, senders in self.src.slices(self.shape).items()
            if senders in needed
        )

    @cached_property
    def lower_bound_s(self) -> float:
        """Seconds no plan can beat: NIC traffic alone, latency left out (design: fluid bound)."""
        return lower_bound_s([self])

    def __repr__(self) -> str:
        src, dst = (
            f"'{layout.spec}' on {'x'.join(map(str, layout.mesh.shape))}"
            for layout in (self.src, self.dst)
        )
        size = format_bytes(self.nbytes)
        return f"ReshardingTask(shape={self.shape}, dtype={self.dtype!r}, {src} -> {dst}, {size})"


def tasks_of(given: object) -> tuple[ReshardingTask, ...]:
    """One task, or several, as a tuple; raises for anything else."""
    listed = (given,) if isinstance(given, ReshardingTask) else given
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes)):
        raise ReshardError(f"expected a ReshardingTask or a list of them, not {short(given)}")
    return tuple(listed)


def need_cluster(tasks: Iterable[ReshardingTask]) -> Cluster:
    """The one cluster of all ``tasks``; raises if one has none or they differ."""
    cluster: Cluster | None = None
    for task in tasks:
        if not isinstance(task, ReshardingTask):
            raise ReshardError(f"expected a ReshardingTask, not {short(task)}")
        if task.cluster is None:
            raise ReshardError(
                f"{task!r} has no cluster; give one: ReshardingTask(..., cluster=Cluster(...))"
            )
        if task.cluster != (cluster or task.cluster):
            raise ReshardError(
                "tasks of one plan share one cluster, but these differ: "
                f"{cluster!r}, {task.cluster!r}"
            )
        cluster = task.cluster
    if cluster is None:
        raise ReshardError("no task given; give at least one ReshardingTask")
    return cluster


def nic_hosts(unit: UnitTask, cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Hosts that may send the box, and hosts that must take it in through a NIC, ascending.

    A host that holds the box serves its own devices without a NIC.
    """
    per = cluster.devices_per_host
    senders = {d // per for d in unit.senders}
    receivers = {d // per for d in unit.receivers} - senders
    return tuple(sorted(senders)), tuple(sorted(receivers))


def lower_bound_s(tasks: Iterable[ReshardingTask]) -> float:
    """Fluid lower bound in seconds of several tasks together (see ``bounds.fluid_bound``)."""
    tasks = tuple(tasks)
    cluster = need_cluster(tasks)
    rates = [r * n for r, n in zip(cluster.host_nic_Bps, cluster.host_nics, strict=True)]
    units = [u for task in tasks for u in task.unit_tasks]
    hosts = {u[2:]: nic_hosts(u, cluster) for u in {u[2:]: u for u in units}.values()}
    # In time on a host of the fastest NICs (of finite speed); others get less done in it.
    fastest = max((r for r in rates if r < math.inf), default=math.inf)
    speed: dict[Hashable, float] | None = None
    if not cluster.uniform:
        speed = {host: rate / fastest for host, rate in enumerate(rates)}
    senders, receivers = ([hosts[u[2:]][end] for u in units] for end in (0, 1))
    return fluid_bound([u.nbytes / fastest for u in units], senders, receivers, speed)


def _holders(grid: Grid, devices: tuple[int, ...]) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """By slice: its devices ascending, and the mesh position of its first device."""
    held = np.flatnonzero(grid.slice_of >= 0)
    slices = grid.slice_of[held]
    order = np.argsort(slices, kind="stable")
    values, starts = np.unique(slices[order], return_index=True)
    groups = np.split(held[order], starts[1:]) if len(values) else []
    first = np.array([g[0] for g in groups], dtype=np.int64)
    return [tuple(sorted(devices[i] for i in g.tolist())) for g in groups], first


def _overlaps(
    have: tuple[tuple[int, int], ...], need: tuple[tuple[int, int], ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Indices (have, need) and edges of every non-empty overlap of two sorted cuts."""
    a = np.array(have, dtype=np.int64).reshape(-1, 2)
    b = np.array(need, dtype=np.int64).reshape(-1, 2)
    first = np.searchsorted(a[:, 1], b[:, 0], side="right")
    last = np.searchsorted(a[:, 0], b[:, 1], side="left")
    counts = np.maximum(last - first, 0)
    j = np.repeat(np.arange(len(b)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    i = np.repeat(first, counts) + offset
    return i, j, np.maximum(a[i, 0], b[j, 0]), np.minimum(a[i, 1], b[j, 1])
