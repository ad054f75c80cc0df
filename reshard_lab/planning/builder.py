"""Transfers in order of issue, and when every port is free after them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from reshard_lab.planning.record import NICs, PlannedUnit, ScheduledDelivery, nics_of
from reshard_lab.resharding import ReshardingTask, UnitTask, need_cluster
from reshard_lab.strategies.phases import (
    Chain,
    Delivery,
    Payload,
    Phase,
    Sends,
    alpa_slices,
    delivery_of,
    make_phases,
)
from reshard_lab.strategies.timing import phases_s
from reshard_lab.transfer import Transfer

Port = tuple[str, int]
"""``"tx"`` or ``"rx"`` and a NIC, or ``"device tx"`` or ``"device rx"`` and a device."""
Ports = tuple[Port, ...]
_RANK = {"rx": 0, "tx": 1, "device tx": 2, "device rx": 3}
"""Which of the ports that are free last is named as what a delivery waits for."""


class RoutedDelivery(NamedTuple):
    """One delivery of a unit task, the ports it keeps busy, and the NICs it goes by."""

    delivery: Delivery
    ports: Ports
    """NICs, where meshes overlap also devices; the sender's own NIC first, if it is used."""
    nics: NICs


class Builder:
    """Lowers deliveries to transfers, one after another.

    overlap:
        whether source and destination meshes share hosts; then devices count as ports too.
    chunks:
        of a broadcast, or ``"auto"``.
    ordered:
        False: nothing waits for a port to be free.
    """

    def __init__(
        self,
        tasks: Sequence[ReshardingTask],
        strategy: str,
        chunks: int | str,
        overlap: bool,
        ordered: bool = True,
    ) -> None:
        self.cluster, self.strategy, self.chunks = need_cluster(tasks), strategy, chunks
        self.overlap, self.ordered = overlap, ordered
        self.units = [
            (t, u, unit) for t, task in enumerate(tasks) for u, unit in enumerate(task.unit_tasks)
        ]
        alpa = strategy == "alpa"
        self.cuts = [alpa_slices(task, self.cluster) if alpa else {} for task in tasks]
        self.transfers: list[Transfer] = []
        self.deliveries: list[ScheduledDelivery] = []
        self.stage = 0
        # By port: free from when on, the transfers complete by then, the unit task they are of.
        self.busy: dict[Port, tuple[float, tuple[int, ...], int]] = {}
        self.routed: dict[object, tuple[int, list[int], list[RoutedDelivery]]] = {}
        self.routed_to: dict[object, RoutedDelivery] = {}
        self.times: dict[object, float] = {}

    def planned(self, senders: Mapping[int, int]) -> tuple[PlannedUnit, ...]:
        """Every unit task, when it has been lowered: its sender and the time it takes."""
        times: dict[int, tuple[float, float]] = {}
        for d in self.deliveries:
            start, end = times.get(d.task, (d.start_s, d.end_s))
            times[d.task] = min(start, d.start_s), max(end, d.end_s)
        spans = [times.get(i, (0.0, 0.0)) for i in range(len(self.units))]
        return tuple(
            PlannedUnit(t, u, senders[i], start, end - start)
            for i, ((t, u, _), (start, end)) in enumerate(zip(self.units, spans, strict=True))
        )

    def unit(self, index: int, nic: int) -> int:
        """Lower one whole unit task, sent through NIC ``nic``; returns its sender."""
        tensor, _, unit = self.units[index]
        key = (unit.senders, unit.receivers, nic, tensor if self.strategy == "alpa" else 0)
        if key not in self.routed:
            self.routed[key] = self._route_unit(tensor, unit, nic)
        sender, copies, routed = self.routed[key]
        self.copy(index, copies)
        for r in routed:
            self.deliver(index, r)
        return sender

    def copy(self, index: int, devices: Iterable[int]) -> None:
        """Local copies on ``devices``, which hold the box already."""
        for device in devices:
            self.emit(index, Chain((device,), self.whole_payload(index)))

    def whole_payload(self, index: int) -> Payload:
        """All of a unit task."""
        unit = self.units[index][2]
        return Payload(unit.box, None, unit.nbytes)

    def deliver(self, index: int, routed: RoutedDelivery, end: float | None = None) -> None:
        """Lower one delivery of the whole box; ``end``: when, if not after its time alone."""
        delivery, ports, _ = routed
        cuts = self.cuts[self.units[index][0]].get(delivery.devices)
        whole = self.whole_payload(index)
        phases = make_phases(self.strategy, delivery, whole, self.cluster, self.chunks, cuts)
        start, why = self.start(index, ports)
        alone = start + self._duration(delivery, phases, whole.nbytes)
        final = self._lower(index, delivery.sender, phases, self.after(ports))
        self.occupy(ports, alone, final, index)
        end = alone if end is None else end
        self.record(index, start, end, why, routed, whole.nbytes)

    def record(
        self, index: int, start: float, end: float, why: str, routed: RoutedDelivery, nbytes: int
    ) -> None:
        """Note when a delivery happens."""
        tensor, (delivery, _, nics) = self.units[index][0], routed
        self.deliveries.append(
            ScheduledDelivery(start, end, tensor, index, *delivery[:2], *nics, nbytes, why)
        )

    def start(
        self, index: int, ports: Ports, ready: float = 0.0, data: str = "", always: bool = False
    ) -> tuple[float, str]:
        """When something of a unit task can start, and what it waits for, in words.

        That is when all ``ports`` are free and its ``data`` is ready. In a plan without an order
        nothing waits for ports, unless ``always``.
        """
        at, last = ready, None
        for port in ports if self.ordered or always else ():
            if port in self.busy and self.busy[port][0] > at:
                at, last = self.busy[port][0], port
        if not self.ordered:
            return at, "does not wait: tasks share the NICs"
        if not at:
            return at, "starts at once"
        if last is None:
            return at, f"waits: {data}"
        side, number = last
        where = f"device {number}" if side.startswith("device") else self.cluster.nic_text(number)
        task = self.busy[last][2]
        what = f"task {task}" if task != index else f"another part of task {task}"
        return at, f"waits: {where} busy with {what}"

    def after(self, ports: Ports) -> tuple[int, ...]:
        """The transfers that are complete when all ``ports`` are free."""
        final = set[int]()
        for port in ports if self.ordered else ():
            if port in self.busy:
                final.update(self.busy[port][1])
        return tuple(sorted(final))

    def occupy(self, ports: Ports, until: float, final: tuple[int, ...], index: int) -> None:
        """A unit task keeps the ports busy until then, when ``final`` transfers are complete."""
        self.busy.update(dict.fromkeys(ports, (until, final, index)))

    def _route_unit(
        self, tensor: int, unit: UnitTask, nic: int
    ) -> tuple[int, list[int], list[RoutedDelivery]]:
        """The sender, the devices that copy locally, and the deliveries to the others.

        Receivers on a host that holds the box are served inside it; all others by the sender.
        """
        sender = self.holder(unit, nic)
        if self.overlap:
            copies, served, others = self.inside(unit)
            if others:
                served.setdefault(sender, []).extend(others)
            return sender, copies, [self.route(s, served[s], tensor) for s in sorted(served)]
        if unit.receivers not in self.routed_to:
            self.routed_to[unit.receivers] = self.route(sender, unit.receivers, tensor)
        delivery, ports, (_, entered) = self.routed_to[unit.receivers]
        own = self.cluster.nic_of(sender)  # the ports differ by sender in its own NIC only
        delivery = Delivery(sender, *delivery[1:])
        return sender, [], [RoutedDelivery(delivery, (("tx", own), *ports[1:]), (own, entered))]

    def holder(self, unit: UnitTask, nic: int) -> int:
        """The device that sends a unit task through NIC ``nic``."""
        return next((d for d in unit.senders if self.cluster.nic_of(d) == nic), unit.senders[0])

    def inside(self, unit: UnitTask) -> tuple[list[int], dict[int, list[int]], list[int]]:
        """Devices that copy locally, by source those it serves on its host, and all others."""
        host_of = self.cluster.host_of
        holding = {host_of(d): d for d in reversed(unit.senders)}
        held = set(unit.senders)
        copies, others = [], []
        served: dict[int, list[int]] = {}
        for d in unit.receivers:
            if d in held:
                copies.append(d)
            elif host_of(d) in holding:
                served.setdefault(holding[host_of(d)], []).append(d)
            else:
                others.append(d)
        return copies, served, others

    def route(self, sender: int, devices: Iterable[int], tensor: int = 0) -> RoutedDelivery:
        """The delivery from ``sender`` to ``devices`` under the strategy."""
        delivery = delivery_of(sender, devices, self.cluster)
        strategy = self.strategy
        if strategy == "alpa":
            strategy = "local_allgather" if delivery.devices in self.cuts[tensor] else "send_recv"
        sizing = Payload(((0, 2**30),), None, 2**30)  # long enough that no part is empty
        pairs: list[tuple[int, int]] = []
        for phase in make_phases(strategy, delivery, sizing, self.cluster, 1):
            if isinstance(phase, Sends):
                pairs += [(sender, target) for target, _ in phase.targets]
            else:
                pairs += pairwise(phase.path if isinstance(phase, Chain) else phase.cycle)
        return self.routed_by(delivery, pairs)

    def routed_by(self, delivery: Delivery, pairs: Iterable[tuple[int, int]]) -> RoutedDelivery:
        """A delivery by hops between ``pairs`` of devices."""
        sender, devices, _ = delivery
        ports: dict[Port, None] = {}
        for a, b in pairs:
            ports.update(dict.fromkeys(self.cluster.nic_ports(a, b)))
            if self.overlap:
                ports |= {("device tx", a): None, ("device rx", b): None}
        own = ("tx", self.cluster.nic_of(sender))
        ranked = tuple(sorted(ports, key=lambda port: (port != own, _RANK[port[0]])))
        return RoutedDelivery(delivery, ranked, nics_of(sender, devices, self.cluster))

    def _duration(self, delivery: Delivery, phases: list[Phase], nbytes: int) -> float:
        sender, devices, groups = delivery
        if self.strategy == "alpa":  # depends on the box
            return phases_s(sender, phases, self.cluster)
        home = self.cluster.host_of(sender)
        inside, rate = self.cluster.host_of(devices[0]) == home, self.cluster.host_nic_Bps[home]
        key = (groups, inside, nbytes, rate)
        if key not in self.times:
            self.times[key] = phases_s(sender, phases, self.cluster)
        return self.times[key]

    def _lower(
        self, unit: int, sender: int, phases: list[Phase], after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Emit the transfers of ``phases``; returns those whose completion completes them all."""
        last: list[int] = []
        arrived: dict[int, int] = {}
        rings: list[int] = []
        for phase in phases:
            if isinstance(phase, Chain):
                last = [self.emit(unit, phase, after)]
            elif isinstance(phase, Sends):
                for target, payload in phase.targets:
                    chain = Chain((sender, target), payload)
                    last = [self.emit(unit, chain, after)]
                    arrived[target] = last[0]
                    after = ()  # the sender's later sends follow in its lane
            else:  # every part waits for the last send and its own
                parts = [
                    (device, part, tuple(sorted({arrived[device], *last})))
                    for device, part in zip(phase.devices, phase.parts, strict=True)
                    if part is not None
                ]
                rings += self.ring(unit, phase.devices, parts)
            after = ()
        return (*rings, *last)

    def ring(
        self,
        unit: int,
        devices: tuple[int, ...],
        parts: Iterable[tuple[int, Payload, tuple[int, ...]]],
    ) -> list[int]:
        """Chains around ``devices``, all in one stage, of (first device, payload, wait for)."""
        stage, at = self.stage, {device: i for i, device in enumerate(devices)}
        return [
            self.emit(unit, Chain(devices[at[d] :] + devices[: at[d]], part), after, stage)
            for d, part, after in parts
        ]

    def emit(
        self, unit: int, chain: Chain, after: tuple[int, ...] = (), stage: int | None = None
    ) -> int:
        """Issue a transfer, in a stage of its own if none is given; returns its id."""
        number = len(self.transfers)
        stage = self.stage if stage is None else stage
        path, (box, span, nbytes), chunks = chain
        self.transfers.append(Transfer(number, unit, box, span, path, nbytes, chunks, stage, after))
        self.stage = stage + 1
        return number
