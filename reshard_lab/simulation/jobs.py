"""What the engine works off: hops as they are, or cut into their chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.simulation.hops import Hops

_IDLE = 0.002
"""Share of its time, for each chunk of a transfer, up to which a port counts as never full."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """Transmissions with a size, the ports they need and what they wait for.

    A *fed* job follows its feeder through a chain: it may start when the feeder's first chunk is
    through, is never ahead of it by more than a chunk, and ends a chunk after it at the earliest.
    The feeder of job j is job j - 1.
    """

    row: np.ndarray
    """The hop the job is, or is a chunk of."""
    chunk: np.ndarray
    """The chunk it is; -1 = all of them."""
    nbytes: np.ndarray
    work_s: np.ndarray
    """Seconds alone on its ports."""
    first_s: np.ndarray
    """Seconds the first chunk takes alone."""
    rate_Bps: np.ndarray
    """Bytes a second of each port it takes at full speed."""
    ports: list[tuple[int, ...]]
    """Ports it may have to share, all of finite capacity."""
    capacity_Bps: np.ndarray
    """Of every port."""
    fed: np.ndarray
    """Whether job j - 1 is its feeder."""
    waits: np.ndarray
    """Number of jobs to be complete, and feeders to be under way, before it starts."""
    then: tuple[list[int], list[int]]
    """(first, jobs): ``jobs[first[j]:first[j + 1]]`` wait for the end of job j."""

    def __len__(self) -> int:
        return len(self.row)


def chunk_jobs(hops: Hops, cluster: Cluster, core_Bps: float) -> Jobs:
    """Every chunk of every hop is a job of its own (a copy is one job)."""
    count = np.where(hops.source == hops.destination, 1, hops.chunks)
    first = np.cumsum(count) - count
    row = np.repeat(np.arange(len(hops)), count)
    chunk = np.arange(len(row)) - first[row]
    nbytes = hops.nbytes[row]
    size = (chunk + 1) * nbytes // count[row] - chunk * nbytes // count[row]
    work = hops.latency_s[row] + size / hops.rate_Bps[row]
    number = np.arange(len(row))
    later, onward = number[chunk > 0], number[hops.hop[row] > 0]
    edges = [
        np.column_stack((later - 1, later)),
        np.column_stack((onward - count[row[onward]], onward)),
        np.column_stack(
            (first[hops.before[:, 0]] + count[hops.before[:, 0]] - 1, first[hops.before[:, 1]])
        ),
    ]
    ports, capacity = _ports(_numbered(hops, cluster), cluster, core_Bps)
    waits, then = _graph(np.concatenate(edges), len(row))
    return Jobs(
        row=row,
        chunk=chunk,
        nbytes=size,
        work_s=work,
        first_s=work,
        rate_Bps=hops.rate_Bps[row],
        ports=[ports[r] for r in row.tolist()],
        capacity_Bps=capacity,
        fed=np.zeros(len(row), dtype=bool),
        waits=waits,
        then=then,
    )


def fluid_jobs(hops: Hops, cluster: Cluster, core_Bps: float) -> Jobs:
    """Every hop is one job, fed by the hop before it."""
    fed = hops.hop > 0
    waits, then = _graph(hops.before, len(hops))
    numbered = _numbered(hops, cluster)
    if not hops.ordered:
        numbered[_never_full(hops, numbered, cluster)] = -1
    ports, capacity = _ports(numbered, cluster, core_Bps)
    return Jobs(
        row=np.arange(len(hops)),
        chunk=np.full(len(hops), -1),
        nbytes=hops.nbytes,
        work_s=hops.chunks * hops.chunk_s,
        first_s=hops.chunk_s,
        rate_Bps=hops.rate_Bps,
        ports=ports,
        capacity_Bps=capacity,
        fed=fed,
        waits=waits + fed,
        then=then,
    )


def _graph(edges: np.ndarray, count: int) -> tuple[np.ndarray, tuple[list[int], list[int]]]:
    """Number of edges into every job, and the jobs its own edges lead to."""
    order = np.argsort(edges[:, 0], kind="stable")
    first = np.searchsorted(edges[order, 0], np.arange(count + 1))
    waits = np.bincount(edges[:, 1], minlength=count)
    return waits, (first.tolist(), edges[order, 1].tolist())


def _numbered(hops: Hops, cluster: Cluster) -> np.ndarray:
    """(hops, 2) the port each hop sends through and the one it arrives through; -1 = not shared.

    Under in-order issue a device port serves one hop at a time: only NICs can be shared.
    """
    nics, devices = cluster.nics, cluster.size
    inside = (hops.source != hops.destination) & ~hops.ordered
    tx = np.where(inside, 2 * nics + hops.source, -1)
    rx = np.where(inside, 2 * nics + devices + hops.destination, -1)
    return np.column_stack(
        (
            np.where(hops.crosses, hops.tx_nic, tx),
            np.where(hops.crosses, nics + hops.rx_nic, rx),
        )
    )


def _never_full(hops: Hops, ports: np.ndarray, cluster: Cluster) -> np.ndarray:
    """(hops, 2) whether it is a device port that the NICs feeding it cannot fill.

    A hop inside a host moves at the pace of the last hop over a NIC before it in its chain. If
    it needs a share s of its port's time for all the time of that NIC, the port is never full
    while the shares, the largest of each NIC added up, are at most 1. They are held to less,
    because chunks that come in at once do get in each other's way: that is s chunks' time of
    all the transfer's at most.
    """
    row = np.arange(len(hops))
    feeder = np.maximum.accumulate(np.where(hops.crosses, row, -1))
    has = (feeder >= row - hops.hop) & ~hops.crosses
    feeder = np.where(has, feeder, 0)
    nic_Bps = np.repeat(np.array(cluster.host_nic_Bps), cluster.host_nics)
    nic = hops.rx_nic[feeder]
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = nic_Bps[nic] / hops.rate_Bps[feeder]
        share = np.where(has, spread * hops.chunk_s / hops.chunk_s[feeder], np.inf)
    share = np.where(np.isnan(share), np.inf, share)
    share = np.maximum(share, share / hops.chunks / _IDLE)
    device = ports >= 2 * cluster.nics
    full = np.zeros_like(device)
    for side in (0, 1):
        at = np.flatnonzero(device[:, side])
        keys = ports[at, side] * (cluster.nics + 1) + np.where(has[at], nic[at], cluster.nics)
        which, back = np.unique(keys, return_inverse=True)
        largest = np.zeros(len(which))
        np.maximum.at(largest, back, share[at])
        total = np.bincount(which // (cluster.nics + 1), weights=largest)
        full[at, side] = total[ports[at, side]] > 1
    return device & ~full


def _ports(
    numbered: np.ndarray, cluster: Cluster, core_Bps: float
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """The shared ports of every hop, numbered from 0, and their capacities."""
    if not len(numbered):
        return [], np.zeros(0)
    nics = np.repeat(np.array(cluster.host_nic_Bps), cluster.host_nics)
    inside = np.full(2 * cluster.size, cluster.intra_Bps)
    capacity = np.concatenate((nics, nics, inside, [core_Bps]))
    crosses = (numbered[:, :1] >= 0) & (numbered[:, :1] < len(nics))
    ports = np.column_stack((numbered, np.where(crosses, len(capacity) - 1, -1)))
    ports[~np.isfinite(capacity)[ports]] = -1  # -1 reads the core's entry, which changes nothing
    used, back = np.unique(ports, return_inverse=True)
    names = back.reshape(ports.shape) - int(used[0] == -1)
    sets, which = np.unique(names, axis=0, return_inverse=True)
    distinct = [tuple(p for p in row if p >= 0) for row in sets.tolist()]
    return [distinct[i] for i in which.ravel().tolist()], capacity[used[used >= 0]]
