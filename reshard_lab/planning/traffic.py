"""What a plan sends from host to host, and which NIC has most to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reshard_lab.errors import need
from reshard_lab.planning.record import PlanRecord
from reshard_lab.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd


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
    source, destination, nbytes = (c[moves] for c in (hops.source, hops.destination, hops.nbytes))
    sides: Counter[tuple[int, str]] = Counter()
    between: Counter[tuple[int, int]] = Counter()
    for (a, b), carried in _sums(np.stack((source, destination)), nbytes):
        ends = cluster.host_of(a), cluster.host_of(b)
        between[ends] += carried
        if ends[0] != ends[1]:
            sides[cluster.nic_of(a), "tx"] += carried
            sides[cluster.nic_of(b), "rx"] += carried
    loads = []
    for (nic, side), carried in sides.items():
        host = cluster.host_of_nic(nic)
        loads.append(NicLoad(host, nic, side, carried, carried / cluster.host_nic_Bps[host]))
    taking_part = {
        cluster.host_of(device)
        for task in plan.tasks
        for mesh in (task.src.mesh, task.dst.mesh)
        for device in mesh.devices
    }
    return Traffic(
        tuple(sorted(taking_part)),
        {ends: between[ends] for ends in sorted(between) if between[ends]},
        tuple(sorted(loads)),
        plan.makespan_s,
    )


def _sums(keys: np.ndarray, amounts: np.ndarray) -> Iterator[tuple[tuple[int, int], int]]:
    """The distinct columns of ``keys`` (2, rows), each with the sum of its ``amounts``."""
    distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
    total = np.zeros(distinct.shape[1], dtype=np.int64)
    np.add.at(total, inverse.ravel(), amounts)
    for key, amount in zip(distinct.T.tolist(), total.tolist(), strict=True):
        yield tuple(key), amount
