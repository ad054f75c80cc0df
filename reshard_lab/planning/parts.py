"""Unit tasks sent in parts: shares of several senders, relays, several NICs a host.

A part is a row-major range of a unit task's box. It goes down a chain of devices like a whole
box, through all devices that need it. With several NICs a host, and where hosts relay, it goes
through *gateway devices* instead: the chain visits one device a host, near the NIC it enters
through, and when a host has all parts, its devices all-gather them inside. So the other devices
are free to use the other NICs meanwhile, and a device that relays is not held up by passing on
inside.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from reshard_lab.boxes import box_volume
from reshard_lab.cluster import Cluster
from reshard_lab.planning.builder import Builder
from reshard_lab.planning.chains import Port, chunk_count, shared_ends
from reshard_lab.planning.record import PlannedUnit, ScheduledDelivery, nics_of
from reshard_lab.resharding import ReshardingTask
from reshard_lab.scheduling import Assignment, Schedule
from reshard_lab.scheduling.problem import TaskPart, one_nic_a_host
from reshard_lab.strategies import Chain, Payload, Ring, phases_s

_GRAINS = 512
"""Cuts fall on whole rows (of the most dimensions possible) where a piece has so many of them."""
_SAME_CUT = 1e-9


class Arrival(NamedTuple):
    """Elements of a unit task that a transfer brings to a device."""

    first: int
    stop: int
    transfer: int
    at_s: float


class Parts:
    """Lowers the assignments of one schedule, in order of their start."""

    def __init__(
        self,
        builder: Builder,
        tasks: Sequence[ReshardingTask],
        pieces: Sequence[TaskPart],
        schedule: Schedule,
    ) -> None:
        self.builder, self.cluster = builder, builder.cluster
        self.pieces, self.schedule = pieces, schedule
        self.gateways = uses_gateways(self.cluster, pieces, schedule)
        self.units = [
            (t, u, unit) for t, task in enumerate(tasks) for u, unit in enumerate(task.unit_tasks)
        ]
        self.itemsize = [task.itemsize for task in tasks]
        self.cuts = _cut_points(
            schedule, [p.elements for p in pieces], [self._grains(p) for p in pieces]
        )
        self.arrived: dict[tuple[int, int], list[Arrival]] = {}
        self.spans: dict[int, tuple[float, float]] = {}
        self.sent: dict[int, Counter[int]] = {}
        self.taken_in: dict[tuple[int, int], list[tuple[int, Arrival]]] = {}
        self.gathers: list[tuple[float, int, int]] = []
        self.local_ends: dict[tuple[int, int], float] = {}

    def lower(self) -> list[PlannedUnit]:
        """Emit everything; returns the unit tasks with their times."""
        ordered = sorted(self.schedule.assignments, key=lambda a: a.start)
        ends = {} if self.builder.ordered else self._share(ordered)
        for a in ordered:
            self._local(self.pieces[a.task].unit, a.sender)
            for first, stop, source, wait in self._loads(a):
                self._send(a, first, stop, source, wait, ends.get(a.task))
        self._gather(float("inf"))
        return [self._planned(index) for index in range(len(self.units))]

    def _grains(self, piece: TaskPart) -> int:
        """Elements that cuts of a piece are multiples of."""
        rows = 1
        for lo, hi in reversed(self.units[piece.unit][2].box):
            if piece.elements < rows * (hi - lo) * _GRAINS:
                break
            rows *= hi - lo
        return rows

    def _local(self, index: int, nic: int) -> None:
        """The first time a unit task comes up: what happens inside the hosts that hold it."""
        if index in self.sent:
            return
        self.sent[index] = Counter()
        unit = self.units[index][2]
        builder = self.builder
        copies, served = builder.served(unit, builder.holder(unit, nic))
        builder.copy(index, unit, copies)
        for source, devices in sorted(served.items()):
            here = self._here(source, devices)
            if here:
                routed = builder.route(source, here, {})
                timed = builder.deliver(self.units[index][0], index, unit, routed)
                if not builder.ordered:
                    timed = timed._replace(end_s=self.local_ends[index, source])
                    builder.deliveries[-1] = timed
                self._note(index, timed.start_s, timed.end_s)

    def _loads(self, a: Assignment) -> list[tuple[int, int, int, tuple[Arrival, ...]]]:
        """(first, stop, source, arrivals to wait for) of what an assignment sends, in elements.

        A relay sends on what it has received, so its load is cut where its arrivals are.
        """
        piece = self.pieces[a.task]
        unit = self.units[piece.unit][2]
        if not piece.receivers:
            return []
        first, stop = (piece.first + self.cuts[a.task][x] for x in _ends(a))
        if first >= stop:
            return []
        if a.sender in piece.senders:
            return [(first, stop, self.builder.holder(unit, a.sender), ())]
        source = self._visits(piece.unit, (a.sender,))[0][-1]
        return [
            (max(first, b.first), min(stop, b.stop), source, (b,))
            for b in sorted(self.arrived[piece.unit, source])
            if b.first < stop and first < b.stop
        ]

    def _visits(self, index: int, nics: Iterable[int]) -> list[list[int]]:
        """For every receiving NIC, the devices that a chain visits there."""
        unit = self.units[index][2]
        made = []
        for nic in nics:
            host = self.cluster.host_of_nic(nic)
            near = [d for d in unit.receivers if self.cluster.host_of(d) == host]
            if self.gateways:
                near = [d for d in near if self.cluster.nic_of(d) == nic][:1]
            made.append(near)
        return made

    def _chain(self, a: Assignment, first: int, stop: int, source: int) -> Chain:
        piece = self.pieces[a.task]
        task, _, unit = self.units[piece.unit]
        visits = self._visits(piece.unit, a.receivers or piece.receivers)
        path = (source, *(d for near in visits for d in near))
        whole = (first, stop) == (0, box_volume(unit.box))
        nbytes = (stop - first) * self.itemsize[task]
        payload = Payload(unit.box, None if whole else (first, stop), nbytes)
        chunks = self.builder.chunks
        if isinstance(chunks, int):  # chunks as long as those of the whole piece
            chunks = -(-chunks * (stop - first) // piece.elements)
        return Chain(path, payload, chunk_count(path, nbytes, self.cluster, chunks))

    def _send(
        self,
        a: Assignment,
        first: int,
        stop: int,
        source: int,
        wait: tuple[Arrival, ...],
        shared_end: float | None,
    ) -> None:
        """One chain, when its ports are free and its data is there."""
        builder, index = self.builder, self.pieces[a.task].unit
        chain = self._chain(a, first, stop, source)
        receivers = chain.path[1:]
        nics, devices = self._ports(chain.path)
        ready = max((b.at_s for b in wait), default=0.0)
        self._gather(max(ready, builder.wait((*nics, *devices))[0]))
        free, after, _ = builder.wait(nics)
        free, _, last_port = builder.wait((*nics, *devices))
        start = max(ready, free)
        end = start + phases_s(source, [chain], self.cluster)
        if shared_end is not None:
            start, end = 0.0, shared_end
        why = builder.why(
            index, start, last_port if free == start else None, f"its data reaches device {source}"
        )
        waits = tuple(sorted({*after, *(b.transfer for b in wait)}))
        number = builder.emit(index, chain.payload, chain.path, chain.chunks, waits)
        if builder.ordered:
            builder.occupy(nics, end, (number,), index)
            builder.occupy(devices, end, (), index)
        self._record(index, source, receivers, chain.payload.nbytes, start, end, why)
        if a.sender in self.pieces[a.task].senders:
            self.sent[index][source] += stop - first
        arrival = Arrival(first, stop, number, end)
        for device in receivers:
            self.arrived.setdefault((index, device), []).append(arrival)
            if self.gateways:
                self._take_in(index, device, arrival)

    def _ports(self, path: tuple[int, ...]) -> tuple[list[Port], list[Port]]:
        ports = self.builder.ports_of(path[0], pairwise(path))
        nics = [p for p in ports if not p[0].startswith("device")]
        return nics, [p for p in ports if p[0].startswith("device")]

    def _record(
        self,
        index: int,
        sender: int,
        receivers: tuple[int, ...],
        nbytes: int,
        start: float,
        end: float,
        why: str,
    ) -> None:
        nics = nics_of(sender, receivers, self.cluster)
        self.builder.deliveries.append(
            ScheduledDelivery(
                *(start, end, self.units[index][0], index, sender, receivers),
                *(*nics, nbytes, why),
            )
        )
        self._note(index, start, end)

    def _note(self, index: int, start: float, end: float) -> None:
        first, last = self.spans.get(index, (start, end))
        self.spans[index] = min(first, start), max(last, end)

    def _planned(self, index: int) -> PlannedUnit:
        task, number, unit = self.units[index]
        start, end = self.spans.get(index, (0.0, 0.0))
        counts = self.sent[index]
        sender = max(counts, key=lambda d: (counts[d], -d)) if counts else unit.senders[0]
        return PlannedUnit(task, number, sender, start, end - start)

    def _take_in(self, index: int, device: int, arrival: Arrival) -> None:
        """Note what a host has of a unit task; when it has all, its devices can gather it."""
        host = self.cluster.host_of(device)
        parts = self.taken_in.setdefault((index, host), [])
        parts.append((device, arrival))
        have = sum(b.stop - b.first for _, b in parts)
        if have == box_volume(self.units[index][2].box):
            ready = max(b.at_s for _, b in parts)
            heapq.heappush(self.gathers, (ready, index, host))

    def _gather(self, until: float) -> None:
        """Emit the gathers inside hosts that are ready by then."""
        builder = self.builder
        while self.gathers and self.gathers[0][0] <= until:
            ready, index, host = heapq.heappop(self.gathers)
            task, _, unit = self.units[index]
            group = tuple(d for d in unit.receivers if self.cluster.host_of(d) == host)
            if len(group) == 1:
                continue
            parts, nbytes = [], Counter[int]()
            for device, b in sorted(self.taken_in[index, host], key=lambda p: p[1]):
                size = (b.stop - b.first) * self.itemsize[task]
                whole = b.stop - b.first == box_volume(unit.box)
                payload = Payload(unit.box, None if whole else (b.first, b.stop), size)
                parts.append((device, payload, (b.transfer,)))
                nbytes[device] += size
            sizes = tuple(Payload(unit.box, None, nbytes[d]) if nbytes[d] else None for d in group)
            ports = self._ports((*group, group[0]))[1]
            free, _, last_port = builder.free(ports)
            start = max(ready, free)
            end = start + phases_s(group[0], [Ring(group, sizes)], self.cluster)
            why = builder.why(
                index,
                start,
                last_port if free > ready else None,
                "the last of its parts reaches the host",
            )
            builder.ring(index, group, parts)
            builder.occupy(ports, end, (), index)
            self._record(index, group[0], group, unit.nbytes, start, end, why)

    def _share(self, assignments: Sequence[Assignment]) -> dict[int, float]:
        """Predicted ends without an order, by task; what is delivered inside hosts takes part."""
        chains: dict[int | tuple[int, int], Chain] = {
            a.task: self._chain(a, first, stop, source)
            for a in assignments
            for first, stop, source, _ in self._loads(a)
        }
        local = self._local_chains(assignments)
        ends = shared_ends({**chains, **local}, self.cluster)
        self.local_ends = {key: ends[key] for key in local}
        return {a.task: ends[a.task] for a in assignments if a.task in chains}

    def _local_chains(self, assignments: Sequence[Assignment]) -> dict[tuple[int, int], Chain]:
        """Deliveries inside hosts, by unit task and source."""
        made = {}
        for index, nic in {self.pieces[a.task].unit: a.sender for a in assignments}.items():
            unit = self.units[index][2]
            _, served = self.builder.served(unit, self.builder.holder(unit, nic))
            for source, devices in served.items():
                here = self._here(source, devices)
                if here:
                    path = (source, *here)
                    chunks = chunk_count(path, unit.nbytes, self.cluster, self.builder.chunks)
                    payload = Payload(unit.box, None, unit.nbytes)
                    made[index, source] = Chain(path, payload, chunks)
        return made

    def _here(self, source: int, devices: Iterable[int]) -> tuple[int, ...]:
        """Those of ``devices`` that are on the host of ``source``."""
        host = self.cluster.host_of(source)
        return tuple(d for d in devices if self.cluster.host_of(d) == host)


def uses_gateways(cluster: Cluster, pieces: Sequence[TaskPart], schedule: Schedule) -> bool:
    """Whether chains visit one device a host only."""
    relayed = any(a.sender not in pieces[a.task].senders for a in schedule.assignments)
    return relayed or not one_nic_a_host(cluster)


def _ends(a: Assignment) -> tuple[float, float]:
    return a.first, a.first + a.share


def _cut_points(
    schedule: Schedule, elements: Sequence[int], grains: Sequence[int]
) -> list[dict[float, int]]:
    """For every task, the element that each end of a share falls on, a multiple of its grain.

    Ends that differ by rounding alone fall on the same one.
    """
    ends: list[set[float]] = [set() for _ in elements]
    for a in schedule.assignments:
        ends[a.task].update(_ends(a))
    made = []
    for found, count, grain in zip(ends, elements, grains, strict=True):
        points: dict[float, int] = {}
        before = 0.0
        for x in sorted(found):
            if x - before > _SAME_CUT:
                before = x
            at = count if x >= 1 - _SAME_CUT else min(count, round(before * count / grain) * grain)
            points[x] = at
        made.append(points)
    return made
