"""What a plan has the NICs carry: when, as a Gantt chart, and how much, host by host."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reshard_lab.boxes import box_text
from reshard_lab.errors import check_int, need
from reshard_lab.planning.record import PlanRecord, ScheduledDelivery
from reshard_lab.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd


class Idle(NamedTuple):
    """One side of a NIC that carries something."""

    nic: int
    side: str
    """``"tx"`` or ``"rx"``."""
    share: float
    """Part of the makespan in which nothing uses it."""


@dataclass(frozen=True, repr=False)
class Gantt:
    """When which NICs carry what, as the plan predicts it."""

    deliveries: tuple[ScheduledDelivery, ...]
    """In order of their start."""
    makespan_s: float
    lower_bound_s: float
    ordered: bool
    """False: deliveries overlap on a NIC, because tasks share it."""
    nics: tuple[str, ...]
    """What every NIC of the cluster is called."""
    boxes: tuple[str, ...]
    """Box of every unit task."""
    sizes: tuple[int, ...]
    """Bytes of every unit task."""

    @property
    def idle(self) -> tuple[Idle, ...]:
        """How much of the makespan every NIC that is used lies idle, each way."""
        spans: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for delivery in self.deliveries:
            for port in delivery.nic_ports:
                spans.setdefault(port, []).append((delivery.start_s, delivery.end_s))
        idle = []
        for port in sorted(spans):
            busy = until = 0.0
            for start, end in sorted(spans[port]):
                busy += max(0.0, end - max(start, until))
                until = max(until, end)
            idle.append(Idle(*port, max(0.0, 1 - busy / (self.makespan_s or 1.0))))
        return tuple(idle)

    def route_text(self, delivery: ScheduledDelivery) -> str:
        """By which NICs a delivery goes, in words."""
        if delivery.sender_nic is None:
            return f"inside the host of device {delivery.sender}"
        to = ", ".join(self.nics[nic] for nic in delivery.receiver_nics)
        return f"{self.nics[delivery.sender_nic]} -> {to}"

    def steps(self, limit: int = 50) -> list[str]:
        """The deliveries in order, each with what it waits for; at most ``limit`` of them."""
        check_int("limit", limit)
        lines = []
        for number, d in enumerate(self.deliveries[:limit], 1):
            part = " of it" if d.nbytes < self.sizes[d.task] else ""
            lines.append(
                f"{number}. {format_seconds(d.start_s)} to {format_seconds(d.end_s)}: "
                f"task {d.task} {self.boxes[d.task]}, {format_bytes(d.nbytes)}{part}, "
                f"{self.route_text(d)}; {d.why}"
            )
        if len(self.deliveries) > limit:
            lines.append(f"... and {len(self.deliveries) - limit} more")
        return lines

    def to_frame(self) -> pd.DataFrame:
        """The deliveries as a table."""
        frame = need("pandas", "notebooks", "a table").DataFrame(
            self.deliveries, columns=ScheduledDelivery._fields
        )
        return frame.drop(columns="receivers")

    def __repr__(self) -> str:
        nics = len({nic for delivery in self.deliveries for nic, _ in delivery.nic_ports})
        return (
            f"Gantt({len(self.deliveries)} deliveries over {nics} NICs in "
            f"{format_seconds(self.makespan_s)}, bound {format_seconds(self.lower_bound_s)})"
        )


def gantt(plan: PlanRecord) -> Gantt:
    """The Gantt record of ``plan``; local copies take no time and are left out."""
    cluster = plan.cluster
    return Gantt(
        deliveries=tuple(sorted(plan.deliveries, key=lambda d: d.start_s)),
        makespan_s=plan.makespan_s,
        lower_bound_s=plan.lower_bound_s,
        ordered=plan.ordered,
        nics=tuple(map(cluster.nic_text, range(cluster.nics))),
        boxes=tuple(box_text(unit.box) for unit in plan.unit_tasks),
        sizes=tuple(unit.nbytes for unit in plan.unit_tasks),
    )


class NicLoad(NamedTuple):
    """What one side of a NIC carries over a whole plan."""

    host: int
    nic: int
    """Numbered over all hosts."""
    side: str
    """``"tx"`` or ``"rx"``."""
    nbytes: int
    seconds: float
    """``nbytes`` at the NIC's full rate: no execution of the plan is faster than this."""


@dataclass(frozen=True, repr=False)
class Traffic:
    """Bytes that the transfers of a plan carry, host by host."""

    hosts: tuple[int, ...]
    """Hosts that take part, ascending."""
    nbytes: dict[tuple[int, int], int]
    """``{(source host, destination host): bytes}``, those within a host too; no zeros."""
    loads: tuple[NicLoad, ...]
    """Every side of a NIC that carries something, by host, NIC and side."""
    makespan_s: float
    """The plan's predicted time."""

    @property
    def bottlenecks(self) -> tuple[NicLoad, ...]:
        """The sides of NICs that take longest at their full rate."""
        most = max((load.seconds for load in self.loads), default=0.0)
        return tuple(load for load in self.loads if load.seconds >= most * (1 - 1e-9))

    @property
    def crossing(self) -> int:
        """Bytes over the network in all."""
        return sum(n for (a, b), n in self.nbytes.items() if a != b)

    def sent(self, host: int) -> int:
        """Bytes that leave ``host`` for other hosts."""
        return sum(n for (a, b), n in self.nbytes.items() if a == host != b)

    def received(self, host: int) -> int:
        """Bytes that enter ``host`` from other hosts."""
        return sum(n for (a, b), n in self.nbytes.items() if b == host != a)

    def to_frame(self) -> pd.DataFrame:
        """One row a pair of hosts that take part: ``source``, ``destination``, ``nbytes``."""
        pandas = need("pandas", "notebooks", "a table")
        rows = [(a, b, self.nbytes.get((a, b), 0)) for a in self.hosts for b in self.hosts]
        return pandas.DataFrame(rows, columns=["source", "destination", "nbytes"])

    def __repr__(self) -> str:
        return (
            f"Traffic({format_bytes(self.crossing)} over the network between {len(self.hosts)} "
            f"hosts, predicted {format_seconds(self.makespan_s)})"
        )


def traffic(plan: PlanRecord) -> Traffic:
    """What ``plan`` sends from where to where, its chains hop by hop; copies are left out.

    >>> import reshard_lab as rl
    >>> cluster = rl.Cluster(hosts=3, devices_per_host=2)
    >>> src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(cluster.mesh((2, 2), first_host=1), "R")
    >>> task = rl.ReshardingTask((1000,), "int8", src, dst, cluster)
    >>> traffic(rl.plan(task, "send_recv")).nbytes
    {(0, 1): 2000, (0, 2): 2000}
    >>> traffic(rl.plan(task, "broadcast")).nbytes
    {(0, 1): 1000, (1, 1): 1000, (1, 2): 1000, (2, 2): 1000}
    """
    cluster = plan.cluster
    hops = plan.hops
    moves = ~hops.copies
    pairs, inverse = np.unique(
        np.stack((hops.source, hops.destination))[:, moves], axis=1, return_inverse=True
    )
    carried = np.zeros(pairs.shape[1], dtype=np.int64)
    np.add.at(carried, inverse.ravel(), hops.nbytes[moves])
    sides: Counter[tuple[int, str]] = Counter()
    between: Counter[tuple[int, int]] = Counter()
    for (a, b), nbytes in zip(pairs.T.tolist(), carried.tolist(), strict=True):
        between[cluster.host_of(a), cluster.host_of(b)] += nbytes
        for side, nic in cluster.nic_ports(a, b):
            sides[nic, side] += nbytes
    loads = []
    for (nic, side), nbytes in sides.items():
        host = cluster.host_of_nic(nic)
        loads.append(NicLoad(host, nic, side, nbytes, nbytes / cluster.host_nic_Bps[host]))
    meshes = [mesh for task in plan.tasks for mesh in (task.src.mesh, task.dst.mesh)]
    return Traffic(
        tuple(sorted({cluster.host_of(device) for mesh in meshes for device in mesh.devices})),
        {ends: between[ends] for ends in sorted(between) if between[ends]},
        tuple(sorted(loads)),
        plan.makespan_s,
    )
