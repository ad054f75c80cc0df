"""One sender to A hosts of B devices, followed piece by piece (section 3.1, figure 3).

What the pictures of the four strategies show: which bytes travel where at every moment, and which
a device holds by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning import plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.simulation.simulator import simulate
from reshard_lab.simulation.timeline import Timeline


class Piece(NamedTuple):
    """A chunk or part of a unit task on its way from one device to the next."""

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


class Moment(NamedTuple):
    """Where the bytes of a unit task are at one time."""

    at_s: float
    held: dict[int, tuple[tuple[int, int], ...]]
    """By device that sends or receives: the ranges of bytes it holds complete pieces of."""
    moving: tuple[Piece, ...]
    """Pieces under way."""


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
    ids = [[h * per + d for d in range(devices)] for h in range(1, hosts + 1)]
    src, dst = Layout(Mesh([0]), "R"), Layout(Mesh(ids), "R")
    task = ReshardingTask((nbytes,), "uint8", src, dst, cluster)
    made = plan(task, strategy, "naive", chunks=chunks)
    return simulate(made, "chunks", verify=False)  # just planned, and drawn again at every move


@lru_cache(maxsize=8)
def pieces(timeline: Timeline) -> tuple[Piece, ...]:
    """The transmissions of one unit task as pieces of it, in order of their start.

    Raises ReshardError for a plan of several unit tasks, of a tensor of several dimensions (whose
    boxes are no ranges of bytes), or of more than one tensor.
    """
    made = timeline.plan
    if len(made.units) != 1 or len(made.tasks[0].shape) != 1:
        raise ReshardError(
            f"only one unit task of a tensor of one dimension can be followed piece by piece, not "
            f"{len(made.units)} of shape {made.tasks[0].shape}; see simulation.one_sender"
        )
    itemsize = made.tasks[0].itemsize
    base = made.unit_tasks[0].box[0][0]
    found = []
    for row in timeline:
        t = made.transfers[row.transfer]
        start = (t.box[0][0] - base + (t.span[0] if t.span else 0)) * itemsize
        first, stop = (
            start + t.nbytes * chunk // t.chunks for chunk in (row.first_chunk, row.stop_chunk)
        )
        ends = row.source, row.destination, row.operation != "network"
        found.append((first, stop, *ends, row.start_s, row.end_s))
    number = {span: i for i, span in enumerate(sorted({(p[0], p[1]) for p in found}))}
    named = [Piece(number[p[0], p[1]], *p) for p in found]
    return tuple(sorted(named, key=lambda p: (p.start_s, p.end_s, p.destination, p.number)))


def moment(found: Sequence[Piece], at_s: float) -> Moment:
    """Where the bytes are ``at_s`` seconds after the start.

    Devices that send before they receive anything hold the whole unit task from the start.

    >>> way = [Piece(0, 0, 5, 0, 1, False, 0.0, 1.0), Piece(1, 5, 9, 0, 1, False, 1.0, 2.0)]
    >>> moment(way, 1.5).held
    {0: ((0, 9),), 1: ((0, 5),)}
    """
    nbytes = max((p.stop for p in found), default=0)
    targets = {p.destination for p in found}
    sources = sorted({p.source for p in found} - targets)
    held: dict[int, tuple[tuple[int, int], ...]] = dict.fromkeys(sources, ((0, nbytes),))
    arrived: dict[int, list[tuple[int, int]]] = {device: [] for device in sorted(targets)}
    for p in found:
        if p.end_s <= at_s:
            arrived[p.destination].append((p.first, p.stop))
    held |= {device: _merged(ranges) for device, ranges in arrived.items()}
    return Moment(at_s, held, tuple(p for p in found if p.start_s <= at_s < p.end_s))


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same bytes in as few ranges as possible."""
    made: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if made and first <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], stop)
        else:
            made.append((first, stop))
    return tuple(made)
