"""One sender to A hosts of B devices, followed part by part (section 3.1, figure 3).

What the pictures of the four strategies show: which bytes travel where at every moment, and which
a device holds by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int
from reshard_lab.paper_cases import one_sender_task
from reshard_lab.planning import plan
from reshard_lab.simulation.simulator import Timeline, simulate


class MovingPart(NamedTuple):
    """A chunk or other part of a unit task on its way from one device to the next."""

    number: int
    """Distinct ranges of bytes are numbered in order of their first byte."""
    first: int
    stop: int
    """Bytes ``first`` to ``stop - 1`` of the unit task."""
    source: int
    destination: int
    inside: bool
    """Whether it stays within a host."""
    start_s: float
    end_s: float


class Snapshot(NamedTuple):
    """Where the bytes of a unit task are at one time."""

    at_s: float
    held: dict[int, tuple[tuple[int, int], ...]]
    """By device that sends or receives: the ranges of bytes it holds."""
    moving: tuple[MovingPart, ...]
    """Those under way."""


def one_sender(
    strategy: str, nbytes: int, hosts: int, devices: int, cluster: Cluster, chunks: int = 100
) -> Timeline:
    """Simulate one unit task of ``nbytes`` from device 0 to A = ``hosts`` of B = ``devices``.

    The receivers are the first B devices of hosts 1 to A of ``cluster``: the setting of
    ``strategies.closed_form_s``.

    >>> cluster = Cluster(3, 2, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)
    >>> one_sender("local_allgather", 1_000_000, 2, 2, cluster).duration_s
    2.0
    """
    check_int("nbytes", nbytes, 1), check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    per = cluster.devices_per_host
    if devices > per or hosts >= cluster.hosts:
        raise ReshardError(
            f"a sender and {hosts} hosts of {devices} devices were asked, but the cluster has "
            f"{cluster.hosts} hosts of {per}; use a larger cluster"
        )
    task = one_sender_task((nbytes,), hosts, devices, cluster)
    planned = plan(task, strategy, "naive", chunks=chunks)
    return simulate(planned, "chunks", verify=False)  # just planned, and drawn again at every move


@lru_cache(maxsize=8)
def moving_parts(timeline: Timeline) -> tuple[MovingPart, ...]:
    """The transmissions of one unit task as moving parts of it, in order of their start.

    Raises ReshardError for a plan of several unit tasks, of a tensor of several dimensions (whose
    boxes are no ranges of bytes), or of more than one tensor.
    """
    carried = timeline.plan
    if len(carried.units) != 1 or len(carried.tasks[0].shape) != 1:
        raise ReshardError(
            f"only one unit task of a tensor of one dimension can be followed piece by piece, not "
            f"{len(carried.units)} of shape {carried.tasks[0].shape}; see simulation.one_sender"
        )
    itemsize = carried.tasks[0].itemsize
    base = carried.unit_tasks[0].box[0][0]
    spans = []
    for row in timeline:
        t = carried.transfers[row.transfer]
        start = (t.box[0][0] - base + (t.span[0] if t.span else 0)) * itemsize
        first, stop = (
            start + t.nbytes * chunk // t.chunks for chunk in (row.first_chunk, row.stop_chunk)
        )
        ends = row.source, row.destination, row.operation != "network"
        spans.append((first, stop, *ends, row.start_s, row.end_s))
    number = {span: i for i, span in enumerate(sorted({p[:2] for p in spans}))}
    parts = [MovingPart(number[p[:2]], *p) for p in spans]
    return tuple(sorted(parts, key=lambda p: (p.start_s, p.end_s, p.destination, p.number)))


def snapshot(parts: Sequence[MovingPart], at_s: float) -> Snapshot:
    """Where the bytes are ``at_s`` seconds after the start.

    Devices that send before they receive anything hold the whole unit task from the start.

    >>> first = MovingPart(0, 0, 5, 0, 1, False, 0.0, 1.0)
    >>> second = MovingPart(1, 5, 9, 0, 1, False, 1.0, 2.0)
    >>> snapshot([first, second], 1.5).held
    {0: ((0, 9),), 1: ((0, 5),)}
    """
    nbytes = max((p.stop for p in parts), default=0)
    targets = {p.destination for p in parts}
    sources = sorted({p.source for p in parts} - targets)
    held: dict[int, tuple[tuple[int, int], ...]] = dict.fromkeys(sources, ((0, nbytes),))
    arrived: dict[int, list[tuple[int, int]]] = {device: [] for device in sorted(targets)}
    for p in parts:
        if p.end_s <= at_s:
            arrived[p.destination].append((p.first, p.stop))
    held |= {device: _merged(ranges) for device, ranges in arrived.items()}
    return Snapshot(at_s, held, tuple(p for p in parts if p.start_s <= at_s < p.end_s))


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same bytes in as few ranges as possible."""
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((first, stop))
    return tuple(merged)
