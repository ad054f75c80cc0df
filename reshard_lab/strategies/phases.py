"""How each strategy carries one unit task, as a few phases (section 3.1, figure 3).

A strategy turns one delivery (a sender, the receivers that need the box) into phases. Both the
transfers of a plan and the time of the task are read off the same phases.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

from reshard_lab.boxes import Box, Span, box_volume, cut, intersect
from reshard_lab.cluster import Cluster
from reshard_lab.resharding import ReshardingTask


class Payload(NamedTuple):
    """Part of a unit task: a box, or a row-major range of one."""

    box: Box
    span: Span | None
    nbytes: int


class Delivery(NamedTuple):
    """One box from one sender to the devices that need it from there."""

    sender: int
    devices: tuple[int, ...]
    """All receivers, host-major: the sender's own host first, then ascending."""
    groups: tuple[tuple[int, ...], ...] = ()
    """The same host by host, for strategies that treat each host alone."""


class Sends(NamedTuple):
    """Payloads sent one after another from the delivery's sender, each to one device."""

    targets: tuple[tuple[int, Payload], ...]


class Chain(NamedTuple):
    """One payload down a chain of devices in chunks."""

    path: tuple[int, ...]
    payload: Payload
    chunks: int = 1


class Ring(NamedTuple):
    """A ring all-gather: starts when the sends before it are complete."""

    devices: tuple[int, ...]
    parts: tuple[Payload | None, ...]
    """The part each device starts with (None: nothing)."""

    @property
    def cycle(self) -> tuple[int, ...]:
        """The devices all the way around, back to the first."""
        return (*self.devices, self.devices[0])


Phase = Sends | Chain | Ring


def delivery_of(sender: int, devices: Iterable[int], cluster: Cluster) -> Delivery:
    """The delivery from ``sender`` to ``devices``, grouped by host."""
    home = cluster.host_of(sender)
    hosts: dict[int, list[int]] = {}
    for device in sorted(devices):
        hosts.setdefault(cluster.host_of(device), []).append(device)
    groups = tuple(tuple(hosts[h]) for h in sorted(hosts, key=lambda h: (h != home, h)))
    return Delivery(sender, tuple(d for group in groups for d in group), groups)


MOST_CHUNKS = 1024
"""Most chunks that ``"auto"`` takes."""


def chunk_count(path: tuple[int, ...], nbytes: int, cluster: Cluster, chunks: int | str) -> int:
    """Chunks for ``nbytes`` down the chain ``path``: as asked, never more than bytes.

    ``"auto"`` takes the number that makes the chain shortest. If hop i has latency a_i and takes
    t_i for all bytes, K chunks take the sum of a_i + t_i/K and (K - 1) times the largest of them,
    which is convex in K. With one NIC hop to each of A hosts, K* = sqrt((A - 1)·t/a).
    """
    if isinstance(chunks, int):
        return max(1, min(chunks, nbytes))
    hops = Counter(
        (cluster.link_latency_s(a, b), nbytes / cluster.link_Bps(a, b))
        for a, b in itertools.pairwise(path)
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


def chain_of(path: tuple[int, ...], payload: Payload, cluster: Cluster, chunks: int | str) -> Chain:
    """``payload`` down ``path`` in as many chunks as ``chunk_count`` says."""
    return Chain(path, payload, chunk_count(path, payload.nbytes, cluster, chunks))


def make_phases(
    strategy: str,
    d: Delivery,
    whole: Payload,
    cluster: Cluster,
    chunks: int | str = 100,
    cuts: list[Box] | None = None,
) -> list[Phase]:
    """The phases of one delivery of ``whole`` under ``strategy``, and the time these take.

    For A receiver hosts of B devices, t being the time of one copy. ``chunks``: K of a broadcast.
    ``cuts``: Alpa's extra cuts of the slice, where its rule applies.
    """
    match strategy:
        case "broadcast":  # K chunks down one chain, host by host: t + (A - 1)·t/K
            return [chain_of((d.sender, *d.devices), whole, cluster, chunks)]
        case "local_allgather":  # one copy to each host in B parts, all-gathered inside: A·t
            rings = [_scatter_and_ring(group, _parts_of(whole, len(group))) for group in d.groups]
            return [phase for ring in rings for phase in ring]
        case "global_allgather":  # n = A·B parts, a ring over all after a barrier: t + (n - 1)/n·t
            return _scatter_and_ring(d.devices, _parts_of(whole, len(d.devices)))
        case "alpa" if cuts:  # a local all-gather over the cuts; else plain send/recv
            itemsize = whole.nbytes // box_volume(whole.box)
            fragments = [intersect(whole.box, c) for c in cuts]
            parts = [
                Payload(f, None, box_volume(f) * itemsize) if f is not None else None
                for f in fragments
            ]
            return _scatter_and_ring(d.devices, parts + [None] * (len(d.devices) - len(parts)))
        case "signal":  # one byte to each receiver: the data costs nothing, an upper bound
            whole = Payload(whole.box, None, 1)
    return [Sends(tuple((r, whole) for r in d.devices))]  # one after another: A·B·t


def _parts_of(whole: Payload, count: int) -> list[Payload | None]:
    """Cut a box into ``count`` row-major ranges that differ by at most one element."""
    volume = box_volume(whole.box)
    itemsize = whole.nbytes // volume
    return [
        Payload(whole.box, (lo, hi), (hi - lo) * itemsize) if hi > lo else None
        for lo, hi in cut(0, volume, count, "balanced")
    ]


def _scatter_and_ring(devices: tuple[int, ...], parts: list[Payload | None]) -> list[Phase]:
    """Send every device its part, then all-gather the parts over the devices."""
    sends = Sends(tuple((r, p) for r, p in zip(devices, parts, strict=True) if p is not None))
    return [sends] if len(devices) == 1 else [sends, Ring(devices, tuple(parts))]


def alpa_cuts(box: Box, replicas: int) -> list[Box]:
    """Alpa's extra cuts of a slice with ``replicas`` holders.

    Dimension by dimension the piece is cut by the gcd of the replicas left and its length.
    Returns the sub-boxes row-major; fewer than ``replicas`` if the lengths share no more factors.
    """
    boxes: list[Box] = [()]
    for lo, hi in box:
        share = gcd(replicas, hi - lo)
        replicas //= share
        boxes = [(*b, edge) for b in boxes for edge in cut(lo, hi, share, "balanced")]
    return boxes


def alpa_slices(task: ReshardingTask, cluster: Cluster) -> dict[tuple[int, ...], list[Box]]:
    """Alpa's extra cuts by the holders of each destination slice; empty where it sends plainly.

    Its rule (section 5): at least as many slices as hosts, each slice's replicas inside one host.
    """
    slices = task.dst.slices(task.shape)
    hosts = {cluster.host_of(d) for d in task.dst.mesh.devices}
    inside = all(len({cluster.host_of(d) for d in held}) == 1 for held in slices.values())
    replicated = all(len(held) > 1 for held in slices.values())
    if not (inside and replicated and len(slices) >= len(hosts)):
        return {}
    return {held: alpa_cuts(box, len(held)) for box, held in slices.items()}
