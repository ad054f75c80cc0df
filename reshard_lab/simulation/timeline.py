"""What a simulated plan did: the record of every transmission, and what can be read off it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reshard_lab.cluster import Cluster
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
    cause: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The row that each one had to wait for last; -1 = none."""
    held: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
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
    for direction, name in (("tx", "tx_nic"), ("rx", "rx_nic")):
        nics = column[name]
        order = np.lexsort((column["start_s"], nics))
        order = order[nics[order] >= 0]
        for rows in np.split(order, np.flatnonzero(np.diff(nics[order])) + 1):
            if not len(rows):
                continue
            nic = int(nics[rows[0]])
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
    hops = zip(*(record.columns[name].tolist() for name in ("transfer", "hop")), strict=True)
    times = zip(*(record.columns[name].tolist() for name in ("start_s", "end_s")), strict=True)
    spans: dict[tuple[int, int], tuple[float, float]] = {}
    for hop, (start, end) in zip(hops, times, strict=True):
        first, last = spans.get(hop, (start, end))
        spans[hop] = min(first, start), max(last, end)
    changes: dict[int, list[tuple[float, int]]] = {}
    for staged in record.plan.staged_ends():
        start, end = spans[staged.transfer, staged.hop]
        changes.setdefault(staged.device, []).extend(
            ((start, staged.nbytes), (end, -staged.nbytes))
        )
    return {device: _levels(changes[device]) for device in sorted(changes)}


def _levels(changes: list[tuple[float, int]]) -> Staging:
    times, amounts = np.array(sorted(changes)).T
    distinct, first = np.unique(times, return_index=True)
    level = np.cumsum(amounts)[np.append(first[1:], len(times)) - 1]
    return Staging(tuple(distinct.tolist()), tuple(int(n) for n in level))
