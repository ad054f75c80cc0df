"""What a simulated plan did: the record of every transmission, and what can be read off it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.units import format_seconds


class Transmission(NamedTuple):
    """One row of a timeline: a chunk of a hop, or all chunks of it."""

    operation: str
    """``"network"`` (over NICs), ``"inside"`` (within a host) or ``"copy"`` (within a device)."""
    task: int
    """Index of the tensor in ``Plan.tasks``."""
    unit: int
    """Index of the unit task in ``Plan.units``."""
    transfer: int
    hop: int
    first_chunk: int
    stop_chunk: int
    """One past the last chunk."""
    source: int
    destination: int
    tx_nic: int
    """NIC that sends, numbered over all hosts; -1 where none takes part."""
    rx_nic: int
    start_s: float
    """Its latency starts here."""
    end_s: float
    nbytes: int


@dataclass(frozen=True, eq=False, repr=False)
class TimelineRecord:
    """Every transmission of a simulated plan: what ``Timeline`` holds."""

    plan: Plan
    cluster: Cluster
    """What it was simulated on."""
    resolution: str
    """``"chunks"`` (a row a chunk) or ``"fluid"`` (a row a hop)."""
    columns: Mapping[str, np.ndarray]
    """The fields of ``Transmission`` as arrays."""
    alone_s: np.ndarray
    """Seconds each row would take with its ports to itself."""
    cause: np.ndarray
    """The row that each one had to wait for last; -1 = none."""
    held: np.ndarray
    """Whether a row ended a chunk after the hop before it did, its data coming in no sooner."""

    @property
    def duration_s(self) -> float:
        """From the start of the plan to the end of its last transmission."""
        return float(self.columns["end_s"].max(initial=0.0))

    def __len__(self) -> int:
        return len(self.columns["start_s"])

    def __iter__(self) -> Iterator[Transmission]:
        columns = [self.columns[name].tolist() for name in Transmission._fields]
        return map(Transmission._make, zip(*columns, strict=True))

    def __repr__(self) -> str:
        return (
            f"Timeline({len(self)} transmissions in {format_seconds(self.duration_s)}, "
            f"{self.resolution})"
        )


class NicUse(NamedTuple):
    """What one NIC did in one direction."""

    host: int
    nic: int
    direction: str
    """``"tx"`` or ``"rx"``."""
    nbytes: int
    busy_s: float
    """Time with at least one transmission under way."""
    idle_s: float
    """The rest of the plan's duration."""
    utilisation: float
    """Bytes carried over what the NIC could have carried in the plan's duration."""


def nic_use(record: TimelineRecord) -> tuple[NicUse, ...]:
    """Bytes, busy and idle time of every NIC that carries something, in each direction."""
    column, duration = record.columns, record.duration_s
    uses = []
    for direction in ("tx", "rx"):
        nics = column[f"{direction}_nic"]
        for nic in np.unique(nics[nics >= 0]).tolist():
            rows = np.flatnonzero(nics == nic)
            rows = rows[np.argsort(column["start_s"][rows], kind="stable")]
            start, end = column["start_s"][rows], column["end_s"][rows]
            covered = np.concatenate(([0.0], np.maximum.accumulate(end)[:-1]))
            busy = float(np.maximum(end - np.maximum(start, covered), 0.0).sum())
            nbytes = int(column["nbytes"][rows].sum())
            host = record.cluster.host_of_nic(nic)
            could = record.cluster.host_nic_Bps[host] * duration
            utilisation = nbytes / could if could else 0.0
            idle = max(duration - busy, 0.0)
            uses.append(NicUse(host, nic, direction, nbytes, busy, idle, utilisation))
    return tuple(sorted(uses))


class PathStep(NamedTuple):
    """A part of the critical path: one hop under way. The steps follow without a gap."""

    operation: str
    transfer: int
    hop: int
    source: int
    destination: int
    start_s: float
    end_s: float
    waits: str
    """Why it did not start sooner."""


def critical_path(record: TimelineRecord) -> tuple[PathStep, ...]:
    """From time 0 to the end of the last transmission.

    Backwards: a transmission is on the path from when the last thing it waited for was there. In
    ``fluid``, a hop held to the pace of the one before it is on the path for its last chunk only.
    Neighbouring chunks of one hop are one step.
    """
    if not len(record):
        return ()
    column = record.columns
    start, end = column["start_s"], column["end_s"]
    steps: list[PathStep] = []
    row = int(np.argmax(end))
    until = float(end[row])
    while row >= 0:
        if record.held[row] and until == end[row]:
            since, before = float(end[row - 1]), row - 1
            why = "its data comes in chunk by chunk"
        else:
            since, before = float(start[row]), int(record.cause[row])
            why = _reason(record, row, before)
        transfer, hop, source, destination = (
            int(column[name][row]) for name in ("transfer", "hop", "source", "destination")
        )
        last = until
        if steps and (steps[-1].transfer, steps[-1].hop) == (transfer, hop):
            last = steps.pop().end_s
        operation = str(column["operation"][row])
        steps.append(PathStep(operation, transfer, hop, source, destination, since, last, why))
        row, until = before, since
    return tuple(steps[::-1])


def _reason(record: TimelineRecord, row: int, before: int) -> str:
    if before < 0:
        return "starts at once"
    column = record.columns
    transfer, other = int(column["transfer"][row]), int(column["transfer"][before])
    if transfer == other:
        if column["hop"][row] == column["hop"][before]:
            return "the chunk before it is on the way"
        return f"its data comes in from device {int(column['source'][before])}"
    if other in record.plan.transfers[transfer].after and column["hop"][row] == 0:
        return f"transfer {other} has to be complete"
    if column["source"][row] == column["source"][before]:
        return f"device {int(column['source'][row])} is sending transfer {other}"
    return f"device {int(column['destination'][row])} is taking in transfer {other}"


class Staging(NamedTuple):
    """Bytes one device stages: ``nbytes[i]`` from ``times_s[i]`` on, nothing before."""

    times_s: tuple[float, ...]
    nbytes: tuple[int, ...]

    @property
    def peak_nbytes(self) -> int:
        """The most that is staged at once."""
        return max(self.nbytes, default=0)


def staging(record: TimelineRecord) -> dict[int, Staging]:
    """``{device: Staging}`` for every device that stages scattered data on the way.

    An end of a hop holds its buffers from the hop's first byte to its last.
    """
    column = record.columns
    first = np.flatnonzero(column["first_chunk"] == 0)
    hops = zip(column["transfer"][first].tolist(), column["hop"][first].tolist(), strict=True)
    starts = np.minimum.reduceat(column["start_s"], first).tolist()
    ends = np.maximum.reduceat(column["end_s"], first).tolist()
    spans = dict(zip(hops, zip(starts, ends, strict=True), strict=True))
    changes = defaultdict[int, list[tuple[float, int]]](list)
    for staged in record.plan.staged_ends():
        start, end = spans[staged.transfer, staged.hop]
        changes[staged.device] += [(start, staged.nbytes), (end, -staged.nbytes)]
    staged_by = {}
    for device in sorted(changes):
        times, amounts = np.array(sorted(changes[device])).T
        distinct, first = np.unique(times, return_index=True)
        level = np.cumsum(amounts)[np.append(first[1:], len(times)) - 1]
        staged_by[device] = Staging(tuple(distinct.tolist()), tuple(int(n) for n in level))
    return staged_by


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

    held: dict[int, tuple[tuple[int, int], ...]]
    """By device that sends or receives: the ranges of bytes it holds."""
    moving: tuple[MovingPart, ...]
    """Those under way."""


@lru_cache(maxsize=8)
def moving_parts(record: TimelineRecord) -> tuple[MovingPart, ...]:
    """The transmissions of one unit task as moving parts of it, in order of their start.

    Raises ReshardError for a plan of several unit tasks, of a tensor of several dimensions (whose
    boxes are no ranges of bytes), or of more than one tensor.
    """
    carried = record.plan
    if len(carried.units) != 1 or len(carried.tasks[0].shape) != 1:
        raise ReshardError(
            f"only one unit task of a tensor of one dimension can be followed piece by piece, not "
            f"{len(carried.units)} of shape {carried.tasks[0].shape}; see simulation.one_sender"
        )
    itemsize = carried.tasks[0].itemsize
    base = carried.unit_tasks[0].box[0][0]
    spans = []
    for row in record:
        t = carried.transfers[row.transfer]
        start = (t.box[0][0] - base + (t.span[0] if t.span else 0)) * itemsize
        first = start + t.nbytes * row.first_chunk // t.chunks
        stop = start + t.nbytes * row.stop_chunk // t.chunks
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
    return Snapshot(held, tuple(p for p in parts if p.start_s <= at_s < p.end_s))


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same bytes in as few ranges as possible."""
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((first, stop))
    return tuple(merged)
