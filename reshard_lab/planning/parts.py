"""Unit tasks sent in parts: shares of several senders, relays, several NICs a host.

A part is a row-major range of a unit task's box. It goes down a chain of devices like a whole
box, through all devices that need it. With several NICs a host, and where hosts relay, it goes
through *gateway devices* instead: the chain visits one device a host, near the NIC it enters
through, and when a host has all parts, its devices all-gather them inside. So the other devices
are free to use the other NICs meanwhile, and a device that relays is not held up by passing on
inside.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from reshard_lab.boxes import box_volume
from reshard_lab.planning.builder import Builder
from reshard_lab.planning.record import PlannedUnit
from reshard_lab.scheduling import Assignment, Schedule
from reshard_lab.scheduling.concurrent import shared_ends
from reshard_lab.scheduling.problem import TaskPart
from reshard_lab.strategies.phases import Chain, Delivery, Payload, Ring, chain_of
from reshard_lab.strategies.timing import phases_s

_GRAINS = 512
"""Cuts fall on whole rows (of the most dimensions possible) where a part has so many of them."""
_SAME_CUT = 1e-9


class Arrival(NamedTuple):
    """Elements of a unit task that a transfer brings to a device."""

    first: int
    stop: int
    transfer: int
    at_s: float
    device: int


class Fragment(NamedTuple):
    """Elements of a unit task that one chain carries."""

    first: int
    stop: int
    source: int
    wait: tuple[Arrival, ...]
    """What brings them to the source, if it relays them."""


class Parts:
    """Lowers the assignments of one schedule, in order of their start.

    gateways:
        whether chains visit one device a host only.
    """

    def __init__(
        self, builder: Builder, parts: Sequence[TaskPart], schedule: Schedule, gateways: bool
    ) -> None:
        self.builder, self.cluster, self.parts = builder, builder.cluster, parts
        self.units, self.gateways = [unit for *_, unit in builder.units], gateways
        self.assignments = sorted(schedule.assignments, key=lambda a: a.start)
        ends: list[set[float]] = [set() for _ in parts]
        for a in self.assignments:
            ends[a.task].update((a.first, a.first + a.share))
        self.cuts = [
            _cut_points(x, p.elements, self._grains(p)) for x, p in zip(ends, parts, strict=True)
        ]
        self.arrived: dict[tuple[int, int], list[Arrival]] = {}  # by unit task and host
        self.gathers: list[tuple[float, int, int]] = []  # (ready, unit task, host)
        self.sent: dict[int, Counter[int]] = {}  # elements by unit task and sender

    def lower(self) -> tuple[PlannedUnit, ...]:
        """Emit everything; returns the unit tasks with their times."""
        builder = self.builder
        ends = {} if builder.ordered else self._shared_ends()
        for a in self.assignments:
            index = self.parts[a.task].unit
            if index not in self.sent:
                self.sent[index] = Counter()
                copies, served, _ = builder.inside(self.units[index])
                builder.copy(index, copies)
                for source in sorted(served):
                    routed = builder.route(source, served[source])
                    builder.deliver(index, routed, ends.get((index, source)))
            for fragment in self._fragments(a):
                self._send(a, fragment, ends.get(a.task))
        self._gather(math.inf)
        senders = {
            index: max(sent, key=lambda d: (sent[d], -d), default=self.units[index].senders[0])
            for index, sent in self.sent.items()
        }
        return builder.planned(senders)

    def _grains(self, part: TaskPart) -> int:
        """Elements that cuts of a part are multiples of."""
        rows = 1
        for lo, hi in reversed(self.units[part.unit].box):
            if part.elements < rows * (hi - lo) * _GRAINS:
                break
            rows *= hi - lo
        return rows

    def _fragments(self, a: Assignment) -> list[Fragment]:
        """What an assignment sends; what a relay sends on is cut where it arrived in parts."""
        part = self.parts[a.task]
        first, stop = (part.first + self.cuts[a.task][x] for x in (a.first, a.first + a.share))
        if not part.receivers or first >= stop:
            return []
        if a.sender in part.senders:
            source = self.builder.holder(self.units[part.unit], a.sender)
            return [Fragment(first, stop, source, ())]
        source = self._visits(part.unit, (a.sender,))[-1]
        return [
            Fragment(max(first, b.first), min(stop, b.stop), source, (b,))
            for b in sorted(self.arrived[part.unit, self.cluster.host_of(source)])
            if b.device == source and b.first < stop and first < b.stop
        ]

    def _visits(self, index: int, nics: Iterable[int]) -> list[int]:
        """The devices that a chain visits to bring a unit task to the hosts of ``nics``."""
        devices: list[int] = []
        for nic in nics:
            near = self._group(index, self.cluster.host_of_nic(nic))
            if self.gateways:
                near = [d for d in near if self.cluster.nic_of(d) == nic][:1]
            devices += near
        return devices

    def _group(self, index: int, host: int) -> list[int]:
        """The devices of ``host`` that need a unit task."""
        return [d for d in self.units[index].receivers if self.cluster.host_of(d) == host]

    def _payload(self, index: int, first: int, stop: int) -> Payload:
        box, nbytes = self.units[index][:2]
        elements = box_volume(box)
        span = None if stop - first == elements else (first, stop)
        return Payload(box, span, (stop - first) * (nbytes // elements))

    def _chain(self, a: Assignment, fragment: Fragment) -> Chain:
        part, (first, stop, source, _) = self.parts[a.task], fragment
        path = (source, *self._visits(part.unit, a.receivers or part.receivers))
        chunks = self.builder.chunks
        if isinstance(chunks, int):  # chunks as long as those of the whole part
            chunks = -(-chunks * (stop - first) // part.elements)
        return chain_of(path, self._payload(part.unit, first, stop), self.cluster, chunks)

    def _send(self, a: Assignment, fragment: Fragment, shared_end: float | None) -> None:
        """One chain, when its ports are free and its data is there."""
        builder, part = self.builder, self.parts[a.task]
        index, (first, stop, source, wait) = part.unit, fragment
        chain = self._chain(a, fragment)
        delivery = Delivery(source, chain.path[1:])
        routed = builder.routed_by(delivery, pairwise(chain.path))
        ports = routed.ports
        nics = tuple(port for port in ports if port[0] in ("tx", "rx"))
        data = max((b.at_s for b in wait), default=0.0), f"its data reaches device {source}"
        self._gather(builder.start(index, ports, *data)[0])
        start, why = builder.start(index, ports, *data)
        end = start + phases_s(source, [chain], self.cluster)
        if shared_end is not None:
            start, end = 0.0, shared_end
        after = tuple(sorted({*builder.after(nics), *(b.transfer for b in wait)}))
        number = builder.emit(index, chain, after)
        if builder.ordered:
            builder.occupy(ports, end, (), index)
            builder.occupy(nics, end, (number,), index)
        builder.record(index, start, end, why, routed, chain.payload.nbytes)
        if a.sender in part.senders:
            self.sent[index][source] += stop - first
        for device in delivery.devices if self.gateways else ():
            host = self.cluster.host_of(device)
            arrived = self.arrived.setdefault((index, host), [])
            arrived.append(Arrival(first, stop, number, end, device))
            if sum(b.stop - b.first for b in arrived) == box_volume(self.units[index].box):
                heapq.heappush(self.gathers, (max(b.at_s for b in arrived), index, host))

    def _gather(self, until: float) -> None:
        """Emit the gathers inside hosts that are ready by then."""
        builder = self.builder
        while self.gathers and self.gathers[0][0] <= until:
            ready, index, host = heapq.heappop(self.gathers)
            group = tuple(self._group(index, host))
            if len(group) == 1:
                continue
            parts, elements = [], Counter[int]()
            for b in sorted(self.arrived[index, host]):
                parts.append((b.device, self._payload(index, b.first, b.stop), (b.transfer,)))
                elements[b.device] += b.stop - b.first
            sizes = tuple(self._payload(index, 0, n) if (n := elements[d]) else None for d in group)
            ring = Ring(group, sizes)
            routed = builder.routed_by(Delivery(group[0], group), pairwise(ring.cycle))
            data = "the last of its parts reaches the host"
            start, why = builder.start(index, routed.ports, ready, data, always=True)
            end = start + phases_s(group[0], [ring], self.cluster)
            builder.ring(index, group, parts)
            builder.occupy(routed.ports, end, (), index)
            builder.record(index, start, end, why, routed, self.units[index].nbytes)

    def _shared_ends(self) -> dict[object, float]:
        """Predicted ends without an order: of a task, and inside hosts by (unit task, source)."""
        chains: dict[object, Chain] = {
            a.task: self._chain(a, fragment)
            for a in self.assignments
            for fragment in self._fragments(a)
        }
        for index in dict.fromkeys(self.parts[a.task].unit for a in self.assignments):
            whole, chunks = self.builder.whole_payload(index), self.builder.chunks
            for source, devices in self.builder.inside(self.units[index])[1].items():
                chains[index, source] = chain_of((source, *devices), whole, self.cluster, chunks)
        return shared_ends(chains, self.cluster)


def _cut_points(ends: Iterable[float], elements: int, grain: int) -> dict[float, int]:
    """The element that each end of a share falls on, a multiple of ``grain``.

    Ends that differ by rounding alone fall on the same one.
    """
    points: dict[float, int] = {}
    before = 0.0
    for x in sorted(ends):
        if x - before > _SAME_CUT:
            before = x
        at = min(elements, round(before * elements / grain) * grain)
        points[x] = elements if x >= 1 - _SAME_CUT else at
    return points
