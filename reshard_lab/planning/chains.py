"""Chains of devices: how many chunks they carry, and when those end that run side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import TypeVar

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int
from reshard_lab.scheduling.concurrent import EqualFlows, share_ports
from reshard_lab.scheduling.problem import Budget
from reshard_lab.strategies import Chain

Port = tuple[str, int]
"""``"tx"`` or ``"rx"`` and a NIC, or ``"device tx"`` or ``"device rx"`` and a device."""
Key = TypeVar("Key", bound=Hashable)

MOST_CHUNKS = 1024
"""Most chunks that ``"auto"`` takes."""
_WORK_S = 2.0
"""Work put into shared ends, as a time limit of ``scheduling.concurrent``."""


def check_chunks(chunks: object) -> int | str:
    """``chunks`` if it is a whole number of at least 1 or ``"auto"``, else raise."""
    if isinstance(chunks, str):
        if chunks == "auto":
            return chunks
        raise ReshardError(f"chunks must be a whole number of at least 1 or 'auto', not {chunks!r}")
    return check_int("chunks", chunks, 1)


def chunk_count(path: tuple[int, ...], nbytes: int, cluster: Cluster, chunks: int | str) -> int:
    """Chunks for ``nbytes`` down the chain ``path``: as asked, never more than bytes.

    ``"auto"`` takes the number that makes the chain shortest. If hop i has latency a_i and takes
    t_i for all bytes, K chunks take the sum of a_i + t_i/K and (K - 1) times the largest of them,
    which is convex in K. With one NIC hop to each of A hosts, K* = sqrt((A - 1)·t/a).
    """
    if isinstance(chunks, int):
        return max(1, min(chunks, nbytes))
    hops = Counter(
        (cluster.link_latency_s(a, b), nbytes / cluster.link_Bps(a, b)) for a, b in pairwise(path)
    )

    def seconds(k: int) -> float:
        fill = sum(count * (a + t / k) for (a, t), count in hops.items())
        return fill + (k - 1) * max(a + t / k for a, t in hops)

    low, high = 1, max(1, min(MOST_CHUNKS, nbytes))
    while low < high:
        middle = (low + high) // 2
        if seconds(middle + 1) < seconds(middle) * (1 - 1e-12):
            low = middle + 1
        else:
            high = middle
    return low


def shared_ends(chains: Mapping[Key, Chain], cluster: Cluster) -> dict[Key, float]:
    """Seconds at which each of ``chains`` ends, all starting at 0 and sharing their ports.

    Max-min fair. A chain at full speed moves one chunk after another over its slowest hop, and
    keeps the ports of its other hops busy for part of that time. The last chunk's way down the
    rest of the chain is slowed down as the whole chain is.
    """
    flows: list[EqualFlows] = []
    fill: list[float] = []
    for number, chain in enumerate(chains.values()):
        part = chain.payload.nbytes / chain.chunks
        hops = [(a, b, cluster.hop_s(a, b, part)) for a, b in pairwise(chain.path)]
        slowest = max(time for _, _, time in hops)
        fill.append(0.0)
        if not slowest:  # links of no latency and infinite speed
            continue
        uses = tuple(
            (port, busy / slowest) for a, b, _ in hops for port, busy in _ports(a, b, part, cluster)
        )
        work = chain.chunks * slowest
        flows.append(EqualFlows(uses, ((work, number),)))
        fill[number] = (sum(time for _, _, time in hops) - slowest) / work
    ends = share_ports(flows, Budget(_WORK_S)).ends
    return {key: ends.get(i, 0.0) * (1 + fill[i]) for i, key in enumerate(chains)}


def _ports(
    source: int, destination: int, nbytes: float, cluster: Cluster
) -> tuple[tuple[Port, float], ...]:
    """The ports a hop goes through, and how long a message of ``nbytes`` needs each alone.

    Two NICs between hosts, each at its own speed; two device ports inside one, or none where
    links have no limit.
    """
    a, b = cluster.host_of(source), cluster.host_of(destination)
    if a == b and math.isinf(cluster.intra_Bps):
        return ()  # a port that nothing keeps busy is shared by any number
    if a == b:
        busy = cluster.hop_s(source, destination, nbytes)
        return (("device tx", source), busy), (("device rx", destination), busy)
    sends, takes = (cluster.nic_latency_s + nbytes / cluster.host_nic_Bps[h] for h in (a, b))
    return (("tx", cluster.nic_of(source)), sends), (("rx", cluster.nic_of(destination)), takes)
