"""How each strategy carries one unit task, as a few phases (section 3.1, figure 3).

A strategy turns one delivery (a sender, the receivers that need the box) into phases. Both the
transfers of a plan and the time of the task are read off the same phases.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from reshard_lab.boxes import Box, Span, box_volume, cut, intersect
from reshard_lab.cluster import Cluster


class Payload(NamedTuple):
    """Part of a unit task: a box, or a row-major range of one."""

    box: Box
    span: Span | None
    nbytes: int


class Receivers(NamedTuple):
    """The devices of one delivery, host by host."""

    devices: tuple[int, ...]
    """All of them, host-major."""
    groups: tuple[tuple[int, ...], ...]
    """The same by host: the sender's own host first, then ascending."""
    home: bool
    """Whether the first group is on the sender's own host."""


class Delivery(NamedTuple):
    """One box from one sender to the devices that need it from there."""

    sender: int
    to: Receivers


class Sends(NamedTuple):
    """Payloads sent one after another from the delivery's sender, each to one device."""

    targets: tuple[tuple[int, Payload], ...]


class Chain(NamedTuple):
    """One payload down a chain of devices in chunks."""

    path: tuple[int, ...]
    payload: Payload
    chunks: int


class Ring(NamedTuple):
    """A ring all-gather: starts when the sends before it are complete."""

    devices: tuple[int, ...]
    parts: tuple[Payload | None, ...]
    """The part each device starts with (None: nothing)."""


Phase = Sends | Chain | Ring


def receivers_of(devices: tuple[int, ...], cluster: Cluster, home: int = -1) -> Receivers:
    """Group ``devices`` by host, host ``home`` (the sender's, -1 = not among them) first."""
    hosts: dict[int, list[int]] = {}
    for device in sorted(devices):
        hosts.setdefault(cluster.host_of(device), []).append(device)
    order = sorted(hosts, key=lambda h: (h != home, h))
    groups = tuple(tuple(hosts[h]) for h in order)
    return Receivers(tuple(d for group in groups for d in group), groups, home in hosts)


def parts_of(whole: Payload, count: int) -> list[Payload | None]:
    """Cut a box into ``count`` row-major ranges that differ by at most one element."""
    volume = box_volume(whole.box)
    itemsize = whole.nbytes // volume
    return [
        Payload(whole.box, (lo, hi), (hi - lo) * itemsize) if hi > lo else None
        for lo, hi in cut(0, volume, count, "balanced")
    ]


def send_recv(d: Delivery, whole: Payload) -> list[Phase]:
    """The whole box to each receiver, one after another: A·B·t."""
    return [Sends(tuple((r, whole) for r in d.to.devices))]


def signal(d: Delivery, whole: Payload) -> list[Phase]:
    """One byte to each receiver: what remains when the data costs nothing (an upper bound)."""
    return send_recv(d, Payload(whole.box, None, 1))


def broadcast(d: Delivery, whole: Payload, chunks: int) -> list[Phase]:
    """K chunks down the chain sender, receivers host by host: t + (A - 1)·t/K."""
    return [Chain((d.sender, *d.to.devices), whole, max(1, min(chunks, whole.nbytes)))]


def local_allgather(d: Delivery, whole: Payload) -> list[Phase]:
    """Each receiver host gets one copy in B parts, then all-gathers it inside: A·t."""
    return [
        p for group in d.to.groups for p in scatter_and_ring(group, parts_of(whole, len(group)))
    ]


def global_allgather(d: Delivery, whole: Payload) -> list[Phase]:
    """n = A·B parts, one a receiver; after a barrier a ring over all receivers, host-major.

    t + (n - 1)/n·t; t when A = 1 (links inside a host being free).
    """
    return scatter_and_ring(d.to.devices, parts_of(whole, len(d.to.devices)))


def scatter_and_ring(devices: tuple[int, ...], parts: list[Payload | None]) -> list[Phase]:
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


def alpa(d: Delivery, whole: Payload, cuts: list[Box] | None) -> list[Phase]:
    """Alpa's rule: local all-gather over the extra ``cuts`` of the slice, else plain send/recv."""
    if not cuts:
        return send_recv(d, whole)
    itemsize = whole.nbytes // box_volume(whole.box)
    fragments = [intersect(whole.box, c) for c in cuts]
    parts = [
        Payload(f, None, box_volume(f) * itemsize) if f is not None else None for f in fragments
    ]
    return scatter_and_ring(d.to.devices, parts + [None] * (len(d.to.devices) - len(parts)))
