"""What the engine simulates: the hops of a plan on a cluster, whole or cut into their chunks."""

from dataclasses import dataclass

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.planning.hops import HopTable, Wait, Waits

_IDLE = 0.002
"""Share of its time, for each chunk of a transfer, up to which a port counts as never full."""


@dataclass(frozen=True, eq=False)
class HopLinks:
    """The links that the rows of a ``HopTable`` go over on a cluster; (rows,) columns."""

    tx_nic: np.ndarray
    """NIC that sends, numbered over all hosts; -1 inside a host."""
    rx_nic: np.ndarray
    chunks: np.ndarray
    latency_s: np.ndarray
    """Of every chunk."""
    rate_Bps: np.ndarray
    """With the links idle: the slower end counts."""
    chunk_s: np.ndarray
    """Seconds one chunk of equal chunks takes alone."""

    @property
    def crosses(self) -> np.ndarray:
        """Whether the hop leaves its host."""
        return self.tx_nic >= 0


def links_of(hops: HopTable, cluster: Cluster) -> HopLinks:
    """The links of ``hops``; raises for devices the cluster lacks."""
    source, destination = hops.source, hops.destination
    for devices in (source, destination):
        unknown = np.flatnonzero((devices < 0) | (devices >= cluster.size))
        if len(unknown):
            raise ReshardError(
                f"transfer {hops.transfer[unknown[0]]} uses device {devices[unknown[0]]}, but the "
                f"cluster has devices 0 to {cluster.size - 1}; simulate on a cluster as large as "
                "the plan's"
            )
    per = cluster.devices_per_host
    crosses = source // per != destination // per
    nic = np.array([cluster.nic_of(d) for d in range(cluster.size)])
    speed = np.repeat(np.array(cluster.host_nic_Bps), per)
    latency = np.where(crosses, cluster.nic_latency_s, cluster.intra_latency_s)
    latency = np.where(hops.copies, 0.0, latency)
    rate = np.where(crosses, np.minimum(speed[source], speed[destination]), cluster.intra_Bps)
    rate = np.where(hops.copies, np.inf, rate)
    chunks = np.array([t.chunks for t in hops.transfers], dtype=np.int64)[hops.transfer]
    return HopLinks(
        tx_nic=np.where(crosses, nic[source], -1),
        rx_nic=np.where(crosses, nic[destination], -1),
        chunks=chunks,
        latency_s=latency,
        rate_Bps=rate,
        chunk_s=latency + hops.nbytes / chunks / rate,
    )


@dataclass(frozen=True, eq=False)
class Flows:
    """Bytes on their way over one hop: a chunk of it, or all of them.

    A *fed* flow follows its feeder through a chain: it may start when the feeder's first chunk is
    through, is never ahead of it by more than a chunk, and ends a chunk after it at the earliest.
    The feeder of flow j is flow j - 1. Columns are arrays of shape (flows,).
    """

    row: np.ndarray
    """Row in the table of hops."""
    first_chunk: np.ndarray
    """The chunk it is; 0 where it is all of them."""
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
    """(ports,)"""
    fed: np.ndarray
    """Whether flow j - 1 is its feeder."""
    waits: np.ndarray
    """Number of flows to be complete, and feeders to be under way, before it starts."""
    waiting: tuple[list[int], list[int]]
    """(offsets, flows): ``flows[offsets[j]:offsets[j + 1]]`` wait for the end of flow j."""

    def __len__(self) -> int:
        return len(self.row)


def flows_of(
    hops: HopTable, links: HopLinks, cluster: Cluster, core_Bps: float, fluid: bool
) -> Flows:
    """Every chunk of every hop as a flow (a copy is one), or, ``fluid``, every hop as one.

    In ``fluid`` a hop is fed by the one before it; a chunk waits for the same chunk there.
    """
    count = np.where(hops.copies | fluid, 1, links.chunks)
    first = np.cumsum(count) - count
    row = np.repeat(np.arange(len(hops)), count)
    number = np.arange(len(row))
    chunk = number - first[row]
    complete = hops.waits.kind != Wait.CHAIN
    before, after = hops.waits.earlier[complete], hops.waits.later[complete]
    earlier, later = first[before] + count[before] - 1, first[after]
    ports = _ports_of(hops, links, cluster)
    if fluid:
        nbytes, work, first_chunk = hops.nbytes, links.chunks * links.chunk_s, links.chunk_s
        fed = hops.hop > 0
        if not hops.ordered:
            ports[_never_full(hops, links, ports, cluster)] = -1
    else:
        size = hops.nbytes[row]
        nbytes = (chunk + 1) * size // count[row] - chunk * size // count[row]
        work = first_chunk = links.latency_s[row] + nbytes / links.rate_Bps[row]
        fed = np.zeros(len(row), dtype=bool)
        next_chunk, onward = number[chunk > 0], number[hops.hop[row] > 0]
        earlier = np.concatenate((next_chunk - 1, onward - count[row[onward]], earlier))
        later = np.concatenate((next_chunk, onward, later))
    waits = Waits.of(len(row), earlier, later, np.zeros(len(later), dtype=np.int64))
    shared, capacity = _shared_ports(ports, cluster, core_Bps)
    return Flows(
        row=row,
        first_chunk=chunk,
        nbytes=nbytes,
        work_s=work,
        first_s=first_chunk,
        rate_Bps=links.rate_Bps[row],
        ports=[shared[r] for r in row.tolist()],
        capacity_Bps=capacity,
        fed=fed,
        waits=np.bincount(later, minlength=len(row)) + fed,
        waiting=(waits.offsets.tolist(), waits.later.tolist()),
    )


def _ports_of(hops: HopTable, links: HopLinks, cluster: Cluster) -> np.ndarray:
    """(hops, 2) the port each hop sends through and the one it arrives through; -1 = not shared.

    Under in-order issue a device port serves one hop at a time: only NICs can be shared.
    """
    nics = cluster.nics
    inside = ~hops.copies & (not hops.ordered)
    tx = np.where(inside, 2 * nics + hops.source, -1)
    rx = np.where(inside, 2 * nics + cluster.size + hops.destination, -1)
    tx = np.where(links.crosses, links.tx_nic, tx)
    return np.column_stack((tx, np.where(links.crosses, nics + links.rx_nic, rx)))


def _never_full(hops: HopTable, links: HopLinks, ports: np.ndarray, cluster: Cluster) -> np.ndarray:
    """(hops, 2) whether it is a device port that the NICs feeding it cannot fill.

    A hop inside a host moves at the pace of the last hop over a NIC before it in its chain. If
    it needs a share s of its port's time for all the time of that NIC, the port is never full
    while the shares, the largest of each NIC added up, are at most 1. They are held to less,
    because chunks that come in at once do get in each other's way: that is s chunks' time of
    all the transfer's at most.
    """
    row = np.arange(len(hops))
    feeder = np.maximum.accumulate(np.where(links.crosses, row, -1))
    has = (feeder >= row - hops.hop) & ~links.crosses
    feeder = np.where(has, feeder, 0)
    nic_Bps = np.repeat(np.array(cluster.host_nic_Bps), cluster.host_nics)
    nic = links.rx_nic[feeder]
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = nic_Bps[nic] / links.rate_Bps[feeder]
        share = np.where(has, spread * links.chunk_s / links.chunk_s[feeder], np.inf)
    share = np.where(np.isnan(share), np.inf, share)
    share = np.maximum(share, share / links.chunks / _IDLE)
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


def _shared_ports(
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
