"""A timeline as a Chrome trace (Trace Event Format), which Perfetto opens."""

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reshard_lab.boxes import box_text
from reshard_lab.errors import write_text
from reshard_lab.simulation.timeline import TimelineRecord, Transmission


class _Track(NamedTuple):
    """A row of the picture; further ones are made where its slices would overlap."""

    host: int
    kind: int
    """0 = NIC, 1 = device."""
    number: int
    receives: int

    @property
    def label(self) -> str:
        what, does = ("NIC", "device")[self.kind], ("sends", "receives")[self.receives]
        return f"{what} {self.number} {does}"


_Slice = tuple[int, int, int]
"""Start and end in nanoseconds, and the index of the transmission."""


def chrome_trace(record: TimelineRecord, path: str | Path | None = None) -> str:
    """JSON text: a process a host, a thread each way a device and a NIC, an arrow a transmission.

    Times are microseconds, cut to nanoseconds so that slices that follow each other also do so
    in the file. Transmissions that share a port are drawn on several threads of it.
    """
    rows = list(record)
    tracks = defaultdict[_Track, list[_Slice]](list)
    for index, row in enumerate(rows):
        for track in _tracks_of(record, row):
            tracks[track].append((round(row.start_s * 1e9), round(row.end_s * 1e9), index))
    events: list[dict[str, Any]] = []
    for host in sorted({track.host for track in tracks}):
        events.append(metadata("process_name", host, 0, name=f"host {host}"))
        events.append(metadata("process_sort_index", host, 0, sort_index=host))
    tid = 0
    for track in sorted(tracks):
        for number, slices in enumerate(_apart(tracks[track])):
            tid += 1
            name = track.label if number == 0 else f"{track.label} ({number + 1})"
            events.append(metadata("thread_name", track.host, tid, name=name))
            events.append(metadata("thread_sort_index", track.host, tid, sort_index=tid))
            for slice_ in slices:
                events += _slice_events(record, rows[slice_[2]], slice_, track, tid)
    plan = {"plan": repr(record.plan), "resolution": record.resolution}
    return trace_text(events, path, otherData=plan)


def _tracks_of(record: TimelineRecord, row: Transmission) -> Iterator[_Track]:
    host_of = record.cluster.host_of
    source, destination = host_of(row.source), host_of(row.destination)
    yield _Track(source, 1, row.source, 0)
    if row.operation != "copy":
        yield _Track(destination, 1, row.destination, 1)
    if row.operation == "network":
        yield _Track(source, 0, row.tx_nic, 0)
        yield _Track(destination, 0, row.rx_nic, 1)


def _apart(slices: Iterable[_Slice]) -> list[list[_Slice]]:
    """The slices on as few rows as there are at once at most, without overlap on any."""
    rows: list[list[_Slice]] = []
    free: list[tuple[int, int]] = []
    for slice_ in sorted(slices):
        if free and free[0][0] <= slice_[0]:
            number = heapq.heappop(free)[1]
        else:
            number = len(rows)
            rows.append([])
        rows[number].append(slice_)
        heapq.heappush(free, (slice_[1], number))
    return rows


def _slice_events(
    record: TimelineRecord, row: Transmission, slice_: _Slice, track: _Track, tid: int
) -> Iterator[dict[str, Any]]:
    start, end, index = slice_
    place = {"pid": track.host, "tid": tid, "ts": start / 1000, "cat": row.operation}
    name = f"transfer {row.transfer}"
    transfer = record.plan.transfers[row.transfer]
    yield {
        "ph": "X",
        "name": name,
        **place,
        "dur": (end - start) / 1000,
        "args": {
            "from": row.source,
            "to": row.destination,
            "nbytes": row.nbytes,
            "chunks": f"{row.first_chunk}:{row.stop_chunk} of {transfer.chunks}",
            "hop": f"{row.hop + 1} of {max(len(transfer.path) - 1, 1)}",
            "task": row.task,
            "unit task": row.unit,
            "box": box_text(transfer.box),
        },
    }
    if row.operation != "copy" and track.kind == 1 and end > start:
        arrow = {"name": name, **place, "id": index}
        yield {"ph": "f", "bp": "e", **arrow} if track.receives else {"ph": "s", **arrow}


def metadata(kind: str, pid: int, tid: int | None = None, **args: Any) -> dict[str, Any]:
    """The event that names or sorts a process, or a thread of it."""
    place = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return {"ph": "M", "name": kind, **place, "args": args}


def trace_text(events: list[dict[str, Any]], path: str | Path | None, **other: Any) -> str:
    """``events`` as a trace file's text, also written to ``path`` if one is given."""
    text = json.dumps({"displayTimeUnit": "ms", **other, "traceEvents": events})
    if path is not None:
        write_text("trace", path, text)
    return text
