"""Transfers in order of issue, and when every port is free after them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from reshard_lab.boxes import Box
from reshard_lab.cluster import Cluster
from reshard_lab.planning.record import PlannedUnit, ScheduledDelivery, nics_of
from reshard_lab.resharding import UnitTask
from reshard_lab.strategies import (
    Chain,
    Delivery,
    Payload,
    Phase,
    Sends,
    chunk_count,
    make_phases,
    phases_s,
    receivers_of,
)
from reshard_lab.transfer import Transfer

Port = tuple[str, int]
"""``"tx"`` or ``"rx"`` and a NIC, or ``"device tx"`` or ``"device rx"`` and a device."""
_RANK = {"rx": 0, "tx": 1, "device tx": 2, "device rx": 3}
"""Which of the ports that are free last is named as what a delivery waits for."""


class RoutedDelivery(NamedTuple):
    """One delivery of a unit task, the ports it keeps busy, and the NICs it goes by."""

    delivery: Delivery
    ports: tuple[Port, ...]
    """The sender's own NIC first, if it sends through it."""
    sender_nic: int | None
    receiver_nics: tuple[int, ...]


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
        cluster: Cluster,
        strategy: str,
        chunks: int | str,
        overlap: bool,
        ordered: bool = True,
    ) -> None:
        self.cluster, self.strategy, self.chunks = cluster, strategy, chunks
        self.overlap, self.ordered = overlap, ordered
        self.transfers: list[Transfer] = []
        self.deliveries: list[ScheduledDelivery] = []
        self.stage = 0
        # By port: free from when on, the transfers complete by then, the unit task they are of.
        self.busy: dict[Port, tuple[float, tuple[int, ...], int]] = {}
        self.routed: dict[object, tuple[int, tuple[int, ...], list[RoutedDelivery]]] = {}
        self.routed_to: dict[object, RoutedDelivery] = {}
        self.times: dict[object, float] = {}

    def unit(
        self,
        tensor: int,
        number: int,
        index: int,
        unit: UnitTask,
        nic: int,
        cuts: dict[object, list[Box]],
    ) -> PlannedUnit:
        """Lower one whole unit task, sent through NIC ``nic``."""
        key = (unit.senders, unit.receivers, nic, tensor if self.strategy == "alpa" else 0)
        if key not in self.routed:
            self.routed[key] = self._route_unit(unit, nic, cuts)
        sender, copies, routed = self.routed[key]
        self.copy(index, unit, copies)
        timed = [
            self.deliver(tensor, index, unit, r, cuts.get(r.delivery.to.devices)) for r in routed
        ]
        start = min((d.start_s for d in timed), default=0.0)
        end = max((d.end_s for d in timed), default=start)
        return PlannedUnit(tensor, number, sender, start, end - start)

    def copy(self, index: int, unit: UnitTask, devices: Iterable[int]) -> None:
        """Local copies on ``devices``, which hold the box already."""
        for device in devices:
            self.emit(index, Payload(unit.box, None, unit.nbytes), (device,), 1, ())

    def deliver(
        self,
        tensor: int,
        index: int,
        unit: UnitTask,
        routed: RoutedDelivery,
        cuts: list[Box] | None = None,
    ) -> ScheduledDelivery:
        """Lower one delivery of the whole box."""
        delivery, ports, sender_nic, receiver_nics = routed
        sender, devices = delivery.sender, delivery.to.devices
        chunks = 1
        if self.strategy == "broadcast":
            chunks = chunk_count((sender, *devices), unit.nbytes, self.cluster, self.chunks)
        payload = Payload(unit.box, None, unit.nbytes)
        phases = make_phases(self.strategy, delivery, payload, chunks, cuts)
        start, after, last_port = self.wait(ports)
        end = start + self._duration(delivery, phases, unit.nbytes)
        why = self.why(index, start, last_port)
        self.occupy(ports, end, self._lower(index, sender, phases, after), index)
        self.deliveries.append(
            ScheduledDelivery(
                *(start, end, tensor, index, sender, devices),
                *(sender_nic, receiver_nics, unit.nbytes, why),
            )
        )
        return self.deliveries[-1]

    def wait(
        self, ports: Iterable[Port], always: bool = False
    ) -> tuple[float, tuple[int, ...], Port | None]:
        """When all ``ports`` are free, the transfers complete by then, and the last port to be.

        In a plan without an order nothing waits, unless ``always``.
        """
        at, after, last_port = 0.0, set[int](), None
        for port in ports if self.ordered or always else ():
            if port in self.busy:
                until, final, _ = self.busy[port]
                after.update(final)
                if until > at:
                    at, last_port = until, port
        return at, tuple(sorted(after)), last_port

    def why(self, index: int, start_s: float, port: Port | None, otherwise: str = "") -> str:
        """What a delivery of a unit task waits for: that ``port`` is free, or ``otherwise``."""
        if not self.ordered:
            return "does not wait: tasks share the NICs"
        if not start_s:
            return "starts at once"
        if port is None:
            return f"waits: {otherwise}"
        side, number = port
        where = f"device {number}" if side.startswith("device") else self.cluster.nic_text(number)
        task = self.busy[port][2]
        what = f"task {task}" if task != index else f"another part of task {task}"
        return f"waits: {where} busy with {what}"

    def occupy(
        self, ports: Iterable[Port], until: float, final: tuple[int, ...], index: int
    ) -> None:
        """A unit task keeps the ports busy until then, when ``final`` transfers are complete."""
        for port in ports:
            self.busy[port] = (until, final, index)

    def _route_unit(
        self, unit: UnitTask, nic: int, cuts: dict[object, list[Box]]
    ) -> tuple[int, tuple[int, ...], list[RoutedDelivery]]:
        """The sender, the devices that copy locally, and the deliveries to the others.

        Receivers on a host that holds the box are served inside it; all others by the sender.
        """
        sender = self.holder(unit, nic)
        if self.overlap:
            copies, served = self.served(unit, sender)
            return sender, copies, [self.route(s, served[s], cuts) for s in sorted(served)]
        if unit.receivers not in self.routed_to:
            self.routed_to[unit.receivers] = self.route(sender, unit.receivers, cuts)
        known = self.routed_to[unit.receivers]
        own = self.cluster.nic_of(sender)  # the ports differ by sender in its own NIC only
        ports = (("tx", own), *known.ports[1:])
        delivery = Delivery(sender, known.delivery.to)
        return sender, (), [RoutedDelivery(delivery, ports, own, known.receiver_nics)]

    def holder(self, unit: UnitTask, nic: int) -> int:
        """The device that sends a unit task through NIC ``nic``."""
        return next((d for d in unit.senders if self.cluster.nic_of(d) == nic), unit.senders[0])

    def served(self, unit: UnitTask, sender: int) -> tuple[tuple[int, ...], dict[int, list[int]]]:
        """Devices that copy locally, and by source the devices it serves."""
        host_of = self.cluster.host_of
        holding = {host_of(d): d for d in reversed(unit.senders)}
        held = set(unit.senders)
        served: dict[int, list[int]] = {}
        for d in unit.receivers:
            if d not in held:
                served.setdefault(holding.get(host_of(d), sender), []).append(d)
        return tuple(d for d in unit.receivers if d in held), served

    def route(
        self, sender: int, devices: Iterable[int], cuts: dict[object, list[Box]]
    ) -> RoutedDelivery:
        """The delivery from ``sender``, and the NICs (with ``overlap`` also devices) it uses."""
        to = receivers_of(tuple(devices), self.cluster, self.cluster.host_of(sender))
        delivery = Delivery(sender, to)
        strategy = self.strategy
        if strategy == "alpa":
            strategy = "local_allgather" if cuts.get(to.devices) else "send_recv"
        sizing = Payload(((0, 2**30),), None, 2**30)  # long enough that no part is empty
        ports = self.ports_of(sender, pairs_of(sender, make_phases(strategy, delivery, sizing)))
        return RoutedDelivery(delivery, ports, *nics_of(sender, to.devices, self.cluster))

    def ports_of(self, sender: int, pairs: Iterable[tuple[int, int]]) -> tuple[Port, ...]:
        """The NICs, with ``overlap`` also the devices, that hops between ``pairs`` keep busy."""
        ports: dict[Port, None] = {}
        for a, b in pairs:
            ports.update(dict.fromkeys(self.cluster.nic_ports(a, b)))
            if self.overlap:
                ports |= {("device tx", a): None, ("device rx", b): None}
        own = ("tx", self.cluster.nic_of(sender))
        return tuple(sorted(ports, key=lambda port: (port != own, _RANK[port[0]])))

    def _duration(self, delivery: Delivery, phases: list[Phase], nbytes: int) -> float:
        sender, to = delivery
        if self.strategy == "alpa":  # depends on the box
            return phases_s(sender, phases, self.cluster)
        key = (to.groups, to.home, nbytes, self.cluster.host_nic_Bps[self.cluster.host_of(sender)])
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
                last = [self.emit(unit, phase.payload, phase.path, phase.chunks, after)]
            elif isinstance(phase, Sends):
                for target, payload in phase.targets:
                    arrived[target] = self.emit(unit, payload, (sender, target), 1, after)
                    last = [arrived[target]]
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
        stage = self.stage
        at = {device: i for i, device in enumerate(devices)}
        return [
            self.emit(unit, part, devices[at[first] :] + devices[: at[first]], 1, after, stage)
            for first, part, after in parts
        ]

    def emit(
        self,
        unit: int,
        payload: Payload,
        path: tuple[int, ...],
        chunks: int,
        after: tuple[int, ...],
        stage: int | None = None,
    ) -> int:
        """Issue a transfer, in a stage of its own if none is given; returns its id."""
        number = len(self.transfers)
        stage = self.stage if stage is None else stage
        self.transfers.append(
            Transfer(
                *(number, unit, payload.box, payload.span, path, payload.nbytes),
                *(chunks, stage, after),
            )
        )
        self.stage = stage + 1
        return number


def pairs_of(sender: int, phases: list[Phase]) -> list[tuple[int, int]]:
    """(from, to) of everything that ``phases`` send."""
    pairs: list[tuple[int, int]] = []
    for phase in phases:
        if isinstance(phase, Sends):
            pairs += [(sender, target) for target, _ in phase.targets]
        else:
            path = phase.path if isinstance(phase, Chain) else (*phase.devices, phase.devices[0])
            pairs += pairwise(path)
    return pairs
