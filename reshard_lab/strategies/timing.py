"""How long the phases of a strategy take on idle links (section 3.1, figure 3).

With infinite bandwidth and no latency inside a host, no latency on NICs, one sender, A receiver
hosts of B devices each and t = bytes / NIC bandwidth, these give

=================  ===========================================  ==================
strategy           here (exact)                                 the paper writes
=================  ===========================================  ==================
send_recv          A·B·t                                        A·B·t
local_allgather    A·t                                          A·t
global_allgather   t + (n - 1)/n·t, n = A·B; t when A = 1       2t
broadcast          t + (A - 1)·t/K                              t + A·t/K
=================  ===========================================  ==================

Every message costs its link's latency and then its bytes over the link's bandwidth.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from reshard_lab.boxes import Box
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, check_int
from reshard_lab.strategies import phases as ph


class Formula(NamedTuple):
    """What the paper writes for a strategy."""

    words: str
    seconds: Callable[[float, int, int, int], float]
    """Of t, A, B and K."""


PAPER = {
    "send_recv": Formula("A·B·t", lambda t, a, b, k: a * b * t),
    "local_allgather": Formula("A·t", lambda t, a, b, k: a * t),
    "global_allgather": Formula("2t", lambda t, a, b, k: 2 * t),
    "broadcast": Formula("t + A·t/K", lambda t, a, b, k: t + a * t / k),
}
"""The strategies of section 3.1 and their times there; latency and links inside hosts are free."""


def phases_s(sender: int, phases: Sequence[ph.Phase], cluster: Cluster) -> float:
    """Seconds from the first byte of ``phases`` to the last.

    The sender works through its sends and chains in order; a ring starts when the sends before
    it are complete and runs beside the sends after it (they go to other hosts).
    """
    lane = end = 0.0
    for phase in phases:
        if isinstance(phase, ph.Ring):
            end = max(end, lane + ring_s(phase, cluster))
        elif isinstance(phase, ph.Chain):
            lane += chain_s(phase, cluster)
        else:
            lane += sum(cluster.hop_s(sender, r, p.nbytes) for r, p in phase.targets)
        end = max(end, lane)
    return end


def chain_s(chain: ph.Chain, cluster: Cluster) -> float:
    """Chunks through a chain of links: the sum of one chunk's hops + (K - 1) x the slowest hop.

    Every device has one port each way and every host is visited once, so the hops of a chain
    share nothing and K equal chunks form a flow shop of equal items.
    """
    nbytes = chain.payload.nbytes / chain.chunks
    hops = [cluster.hop_s(a, b, nbytes) for a, b in itertools.pairwise(chain.path)]
    return sum(hops) + (chain.chunks - 1) * max(hops, default=0.0)


def ring_s(ring: ph.Ring, cluster: Cluster) -> float:
    """A ring all-gather in which each device forwards parts in order of arrival.

    Link i (device i to i + 1) carries the parts of devices i, i - 1, ..., i + 2; each starts when
    it has arrived and the link is free.
    """
    hops = itertools.pairwise(ring.cycle)
    links = tuple((cluster.link_latency_s(a, b), cluster.link_Bps(a, b)) for a, b in hops)
    return _ring_s(tuple(p.nbytes if p else 0 for p in ring.parts), links)


@lru_cache(maxsize=4096)
def _ring_s(sizes: tuple[int, ...], links: tuple[tuple[float, float], ...]) -> float:
    n = len(sizes)
    nbytes = np.array(sizes, dtype=float)
    latency, rate = np.array(links).T
    free = np.zeros(n)  # when each link has finished the parts it carried so far
    arrived = np.zeros(n)  # when the part that link i carries next reached device i
    index = np.arange(n)
    for step in range(n - 1):
        part = (index - step) % n
        end = np.maximum(free, arrived) + latency + nbytes[part] / rate
        free = np.where(nbytes[part] > 0, end, free)
        arrived = np.roll(free, 1)
    return float(free.max())


def closed_form_s(
    strategy: str, nbytes: int, hosts: int, devices: int, cluster: Cluster, chunks: int = 100
) -> float:
    """Seconds one unit task of ``nbytes`` takes from one sender to ``hosts`` x ``devices``.

    The receivers sit on hosts of their own (A = ``hosts``, B = ``devices``), one chain or ring;
    so ``cluster``, whose speeds and latencies count, has at least ``hosts`` + 1 hosts; ReshardError
    if not. The limits are in the module's docstring.
    """
    check_choice("strategy", strategy, STRATEGIES)
    check_int("nbytes", nbytes, 1), check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    check_int("chunks", chunks, 1)
    if hosts >= cluster.hosts:
        raise ReshardError(
            f"{hosts} receiving hosts and the sender's need a cluster of {hosts + 1} hosts; this "
            f"one has {cluster.hosts}"
        )
    if devices > cluster.devices_per_host:
        raise ReshardError(
            f"{devices} devices a host asked, but the cluster has {cluster.devices_per_host}"
        )
    first = [host * cluster.devices_per_host for host in range(1, hosts + 1)]
    delivery = ph.delivery_of(0, [d + i for d in first for i in range(devices)], cluster)
    box: Box = ((0, nbytes),)
    cuts = ph.alpa_cuts(box, devices) if strategy == "alpa" and hosts == 1 else None
    payload = ph.Payload(box, None, nbytes)
    return phases_s(0, ph.make_phases(strategy, delivery, payload, cluster, chunks, cuts), cluster)


STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa", "signal")
