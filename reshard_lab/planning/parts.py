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
from reshard_lab.planning.builder import Builder, Port
from reshard_lab.planning.record import PlannedUnit, ScheduledDelivery, nics_of
from reshard_lab.resharding import ReshardingTask
from reshard_lab.scheduling import Assignment, Schedule
from reshard_lab.scheduling.concurrent import shared_ends
from reshard_lab.scheduling.problem import TaskPart, one_nic_a_host
from reshard_lab.strategies import Chain, Payload, Ring, chunk_count, phases_s

_GRAINS = 512
"""Cuts fall on whole rows (of the most dimensions possible) where a part has so many of them."""
_SAME_CUT = 1e-9


class Arrival(NamedTuple):
    """Elements of a unit task that a transfer brings to a device."""

    first: int
    stop: int
    transfer: int
    at_s: float


class Fragment(NamedTuple):
    """Elements of a unit task that one chain carries."""

    first: int
    stop: int
    source: int
    wait: tuple[Arrival, ...]
    """What brings them to the source, if it relays them."""


class Parts:
    """Lowers the assignments of one schedule, in order of their start."""

    def __init__(
        self,
        builder: Builder,
        tasks: Sequence[ReshardingTask],
        parts: Sequence[TaskPart],
        schedule: Schedule,
    ) -> None:
        self.builder, self.cluster, self.parts = builder, builder.cluster, parts
        self.gateways = uses_gateways(self.cluster, parts, schedule)
        self.assignments = sorted(schedule.assignments, key=lambda a: a.start)
        self.units = [
            (t, u, unit) for t, task in enumerate(tasks) for u, unit in enumerate(task.unit_tasks)
        ]
        self.itemsize = [task.itemsize for task in tasks]
        self.cuts = _cut_points(
            schedule, [p.elements for p in parts], [self._grains(p) for p in parts]
        )
        self.arrived: dict[tuple[int, int], list[Arrival]] = {}  # by unit task and device
        self.taken_in: dict[tuple[int, int], list[tuple[int, Arrival]]] = {}  # and by host
        self.gathers: list[tuple[float, int, int]] = []  # (ready, unit task, host)
        self.sent: dict[int, Counter[int]] = {}  # elements by unit task and sender

    def lower(self) -> list[PlannedUnit]:
        """Emit everything; returns the unit tasks with their times."""
        ends = {} if self.builder.ordered else self._shared_ends()
        for a in self.assignments:
            if self.parts[a.task].unit not in self.sent:
                self._deliver_inside(self.parts[a.task].unit, a.sender, ends)
            for fragment in self._fragments(a):
                self._send(a, fragment, ends.get(a.task))
        self._gather(float("inf"))
        timed: dict[int, list[ScheduledDelivery]] = {}
        for delivery in self.builder.deliveries:
            timed.setdefault(delivery.task, []).append(delivery)
        return [self._planned(index, timed.get(index, [])) for index in range(len(self.units))]

    def _planned(self, index: int, timed: list[ScheduledDelivery]) -> PlannedUnit:
        task, number, unit = self.units[index]
        start = min((d.start_s for d in timed), default=0.0)
        end = max((d.end_s for d in timed), default=0.0)
        counts = self.sent[index]
        sender = max(counts, key=lambda d: (counts[d], -d)) if counts else unit.senders[0]
        return PlannedUnit(task, number, sender, start, end - start)

    def _grains(self, part: TaskPart) -> int:
        """Elements that cuts of a part are multiples of."""
        rows = 1
        for lo, hi in reversed(self.units[part.unit][2].box):
            if part.elements < rows * (hi - lo) * _GRAINS:
                break
            rows *= hi - lo
        return rows

    def _inside(self, index: int, nic: int) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
        """Devices that copy locally, and by source the devices that it serves on its own host."""
        unit, host_of = self.units[index][2], self.cluster.host_of
        copies, served = self.builder.served(unit, self.builder.holder(unit, nic))
        here = {s: tuple(d for d in served[s] if host_of(d) == host_of(s)) for s in served}
        return copies, {source: devices for source, devices in here.items() if devices}

    def _deliver_inside(self, index: int, nic: int, ends: dict[object, float]) -> None:
        """The first time a unit task comes up: what happens inside the hosts that hold it."""
        self.sent[index] = Counter()
        tensor, _, unit = self.units[index]
        copies, served = self._inside(index, nic)
        self.builder.copy(index, unit, copies)
        for source in sorted(served):
            routed = self.builder.route(source, served[source], {})
            timed = self.builder.deliver(tensor, index, unit, routed)
            if not self.builder.ordered:
                self.builder.deliveries[-1] = timed._replace(end_s=ends[index, source])

    def _fragments(self, a: Assignment) -> list[Fragment]:
        """What an assignment sends; what a relay sends on is cut where it arrived in parts."""
        part = self.parts[a.task]
        first, stop = (part.first + self.cuts[a.task][x] for x in (a.first, a.first + a.share))
        if not part.receivers or first >= stop:
            return []
        if a.sender in part.senders:
            source = self.builder.holder(self.units[part.unit][2], a.sender)
            return [Fragment(first, stop, source, ())]
        source = self._visits(part.unit, (a.sender,))[-1]
        return [
            Fragment(max(first, b.first), min(stop, b.stop), source, (b,))
            for b in sorted(self.arrived[part.unit, source])
            if b.first < stop and first < b.stop
        ]

    def _visits(self, index: int, nics: Iterable[int]) -> list[int]:
        """The devices that a chain visits to bring a unit task to the hosts of ``nics``."""
        devices: list[int] = []
        for nic in nics:
            host = self.cluster.host_of_nic(nic)
            near = [d for d in self.units[index][2].receivers if self.cluster.host_of(d) == host]
            if self.gateways:
                near = [d for d in near if self.cluster.nic_of(d) == nic][:1]
            devices += near
        return devices

    def _payload(self, index: int, first: int, stop: int) -> Payload:
        tensor, _, unit = self.units[index]
        span = None if stop - first == box_volume(unit.box) else (first, stop)
        return Payload(unit.box, span, (stop - first) * self.itemsize[tensor])

    def _chain(self, a: Assignment, fragment: Fragment) -> Chain:
        part = self.parts[a.task]
        path = (fragment.source, *self._visits(part.unit, a.receivers or part.receivers))
        payload = self._payload(part.unit, fragment.first, fragment.stop)
        chunks = self.builder.chunks
        if isinstance(chunks, int):  # chunks as long as those of the whole part
            chunks = -(-chunks * (fragment.stop - fragment.first) // part.elements)
        return Chain(path, payload, chunk_count(path, payload.nbytes, self.cluster, chunks))

    def _send(self, a: Assignment, fragment: Fragment, shared_end: float | None) -> None:
        """One chain, when its ports are free and its data is there."""
        builder, index = self.builder, self.parts[a.task].unit
        chain = self._chain(a, fragment)
        source, receivers = chain.path[0], chain.path[1:]
        nics, devices = self._ports(chain.path)
        ready = max((b.at_s for b in fragment.wait), default=0.0)
        self._gather(max(ready, builder.wait((*nics, *devices))[0]))
        free, _, last_port = builder.wait((*nics, *devices))
        start = max(ready, free)
        end = start + phases_s(source, [chain], self.cluster)
        if shared_end is not None:
            start, end = 0.0, shared_end
        blocked = last_port if free == start else None
        why = builder.why(index, start, blocked, f"its data reaches device {source}")
        after = {*builder.wait(nics)[1], *(b.transfer for b in fragment.wait)}
        number = builder.emit(index, chain.payload, chain.path, chain.chunks, tuple(sorted(after)))
        if builder.ordered:
            builder.occupy(nics, end, (number,), index)
            builder.occupy(devices, end, (), index)
        self._schedule(start, end, index, source, receivers, chain.payload.nbytes, why)
        if a.sender in self.parts[a.task].senders:
            self.sent[index][source] += fragment.stop - fragment.first
        arrival = Arrival(fragment.first, fragment.stop, number, end)
        for device in receivers:
            self.arrived.setdefault((index, device), []).append(arrival)
            if self.gateways:
                self._take_in(index, device, arrival)

    def _ports(self, path: tuple[int, ...]) -> tuple[list[Port], list[Port]]:
        """The NICs, and the devices, that hops along ``path`` keep busy."""
        ports = self.builder.ports_of(path[0], pairwise(path))
        nics = [p for p in ports if not p[0].startswith("device")]
        return nics, [p for p in ports if p[0].startswith("device")]

    def _schedule(
        self,
        start: float,
        end: float,
        index: int,
        sender: int,
        receivers: tuple[int, ...],
        nbytes: int,
        why: str,
    ) -> None:
        tensor, nics = self.units[index][0], nics_of(sender, receivers, self.cluster)
        self.builder.deliveries.append(
            ScheduledDelivery(start, end, tensor, index, sender, receivers, *nics, nbytes, why)
        )

    def _take_in(self, index: int, device: int, arrival: Arrival) -> None:
        """Note what a host has of a unit task; when it has all, its devices can gather it."""
        host = self.cluster.host_of(device)
        parts = self.taken_in.setdefault((index, host), [])
        parts.append((device, arrival))
        if sum(b.stop - b.first for _, b in parts) == box_volume(self.units[index][2].box):
            heapq.heappush(self.gathers, (max(b.at_s for _, b in parts), index, host))

    def _gather(self, until: float) -> None:
        """Emit the gathers inside hosts that are ready by then."""
        builder = self.builder
        while self.gathers and self.gathers[0][0] <= until:
            ready, index, host = heapq.heappop(self.gathers)
            unit = self.units[index][2]
            group = tuple(d for d in unit.receivers if self.cluster.host_of(d) == host)
            if len(group) == 1:
                continue
            parts, nbytes = [], Counter[int]()
            for device, b in sorted(self.taken_in[index, host], key=lambda p: p[1]):
                payload = self._payload(index, b.first, b.stop)
                parts.append((device, payload, (b.transfer,)))
                nbytes[device] += payload.nbytes
            sizes = tuple(Payload(unit.box, None, nbytes[d]) if nbytes[d] else None for d in group)
            ports = self._ports((*group, group[0]))[1]
            free, _, last_port = builder.wait(ports, always=True)
            start = max(ready, free)
            end = start + phases_s(group[0], [Ring(group, sizes)], self.cluster)
            blocked = last_port if free > ready else None
            why = builder.why(index, start, blocked, "the last of its parts reaches the host")
            builder.ring(index, group, parts)
            builder.occupy(ports, end, (), index)
            self._schedule(start, end, index, group[0], group, unit.nbytes, why)

    def _shared_ends(self) -> dict[object, float]:
        """Predicted ends without an order: of a task, and inside hosts by (unit task, source)."""
        chains: dict[object, Chain] = {
            a.task: self._chain(a, fragment)
            for a in self.assignments
            for fragment in self._fragments(a)
        }
        for index, nic in {self.parts[a.task].unit: a.sender for a in self.assignments}.items():
            unit = self.units[index][2]
            for source, devices in self._inside(index, nic)[1].items():
                path = (source, *devices)
                chunks = chunk_count(path, unit.nbytes, self.cluster, self.builder.chunks)
                payload = Payload(unit.box, None, unit.nbytes)
                chains[index, source] = Chain(path, payload, chunks)
        return shared_ends(chains, self.cluster)


def uses_gateways(cluster: Cluster, parts: Sequence[TaskPart], schedule: Schedule) -> bool:
    """Whether chains visit one device a host only."""
    relayed = any(a.sender not in parts[a.task].senders for a in schedule.assignments)
    return relayed or not one_nic_a_host(cluster)


def _cut_points(
    schedule: Schedule, elements: Sequence[int], grains: Sequence[int]
) -> list[dict[float, int]]:
    """For every task, the element that each end of a share falls on, a multiple of its grain.

    Ends that differ by rounding alone fall on the same one.
    """
    ends: list[set[float]] = [set() for _ in elements]
    for a in schedule.assignments:
        ends[a.task].update((a.first, a.first + a.share))
    cuts: list[dict[float, int]] = []
    for shares, count, grain in zip(ends, elements, grains, strict=True):
        points: dict[float, int] = {}
        before = 0.0
        for x in sorted(shares):
            if x - before > _SAME_CUT:
                before = x
            at = count if x >= 1 - _SAME_CUT else min(count, round(before * count / grain) * grain)
            points[x] = at
        cuts.append(points)
    return cuts
