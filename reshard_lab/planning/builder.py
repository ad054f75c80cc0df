"""Transfers in order of issue, and when every port is free after them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from reshard_lab.boxes import Box
from reshard_lab.cluster import Cluster
from reshard_lab.planning.chunks import chunk_count
from reshard_lab.planning.record import PlannedUnit, Stretch
from reshard_lab.resharding import UnitTask
from reshard_lab.strategies import (
    Chain,
    Delivery,
    Payload,
    Phase,
    Receivers,
    Ring,
    Sends,
    make_phases,
    phases_s,
    receivers_of,
)
from reshard_lab.transfer import Transfer

Port = tuple[str, int]
"""``"tx"`` or ``"rx"`` and a NIC, or ``"device tx"`` or ``"device rx"`` and a device."""


class Job(NamedTuple):
    """One delivery of a unit task and the ports it keeps busy."""

    way: Delivery
    ports: tuple[Port, ...]


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
        self.cluster = cluster
        self.strategy = strategy
        self.chunks = chunks
        self.overlap = overlap
        self.ordered = ordered
        self.transfers: list[Transfer] = []
        self.stretches: list[Stretch] = []
        self.stage = 0
        self.free: dict[Port, tuple[float, tuple[int, ...]]] = {}
        self.ways: dict[object, tuple[int, tuple[int, ...], list[Job]]] = {}
        self.receivers: dict[object, tuple[Receivers, tuple[Port, ...]]] = {}
        self.times: dict[object, float] = {}

    def unit(
        self,
        task: int,
        number: int,
        index: int,
        unit: UnitTask,
        nic: int,
        cuts: dict[object, list[Box]],
    ) -> PlannedUnit:
        """Lower one whole unit task, sent through NIC ``nic``."""
        key = (unit.senders, unit.receivers, nic, task if self.strategy == "alpa" else 0)
        if key not in self.ways:
            self.ways[key] = self._ways(unit, nic, cuts)
        sender, copies, jobs = self.ways[key]
        self.copy(index, unit, copies)
        starts, ends = [], []
        for job in jobs:
            start, end, _ = self.deliver(index, unit, job, cuts.get(job.way.to.devices))
            starts.append(start)
            ends.append(end)
        start = min(starts, default=0.0)
        return PlannedUnit(task, number, sender, start, max(ends, default=start) - start)

    def copy(self, index: int, unit: UnitTask, devices: Iterable[int]) -> None:
        """Local copies on ``devices``, which hold the box already."""
        whole_box = Payload(unit.box, None, unit.nbytes)
        for device in devices:
            self.emit(index, whole_box, (device,), 1, ())

    def deliver(
        self, index: int, unit: UnitTask, job: Job, cuts: list[Box] | None = None
    ) -> tuple[float, float, tuple[int, ...]]:
        """Lower one delivery of the whole box: its start, its end, and its last transfers."""
        way, ports = job
        chunks = self._chunks((way.sender, *way.to.devices), unit.nbytes)
        phases = make_phases(self.strategy, way, Payload(unit.box, None, unit.nbytes), chunks, cuts)
        lasts = self._duration(way, phases, unit.nbytes)
        start, after = self.wait(ports)
        final = self._lower(index, way.sender, phases, after)
        self.occupy(ports, start + lasts, final)
        self.stretches.append(
            Stretch(index, way.sender, way.to.devices, unit.nbytes, start, start + lasts)
        )
        return start, start + lasts, final

    def wait(self, ports: Iterable[Port]) -> tuple[float, tuple[int, ...]]:
        """When all ``ports`` are free, and the transfers that must be complete by then."""
        if not self.ordered:
            return 0.0, ()
        before = [self.free[p] for p in ports if p in self.free]
        after = {i for _, final in before for i in final}
        return max((at for at, _ in before), default=0.0), tuple(sorted(after))

    def free_at(self, ports: Iterable[Port]) -> float:
        """When the last of ``ports`` is free."""
        return max((self.free[p][0] for p in ports if p in self.free), default=0.0)

    def occupy(self, ports: Iterable[Port], until: float, final: tuple[int, ...]) -> None:
        """The ports are busy until then, when the transfers ``final`` are complete."""
        for p in ports:
            self.free[p] = (until, final)

    def _chunks(self, path: tuple[int, ...], nbytes: int) -> int:
        if self.strategy != "broadcast" or isinstance(self.chunks, int):
            return self.chunks if isinstance(self.chunks, int) else 1
        return chunk_count(path, nbytes, self.cluster, self.chunks)

    def _ways(
        self, unit: UnitTask, nic: int, cuts: dict[object, list[Box]]
    ) -> tuple[int, tuple[int, ...], list[Job]]:
        """The sender, the devices that copy locally, and the deliveries of the others.

        Receivers on a host that holds the box are served inside it; all others by the sender.
        """
        sender = self.holder(unit, nic)
        if not self.overlap:
            return sender, (), [self._job(sender, unit.receivers, cuts)]
        copies, served = self.served(unit, sender)
        jobs = [
            self._job(source, tuple(devices), cuts) for source, devices in sorted(served.items())
        ]
        return sender, copies, jobs

    def holder(self, unit: UnitTask, nic: int) -> int:
        """The device that sends a unit task through NIC ``nic``."""
        return next((d for d in unit.senders if self.cluster.nic_of(d) == nic), unit.senders[0])

    def served(self, unit: UnitTask, sender: int) -> tuple[tuple[int, ...], dict[int, list[int]]]:
        """Devices that copy locally, and by source the devices it serves."""
        host_of = self.cluster.host_of
        holding: dict[int, int] = {}
        for d in unit.senders:
            holding.setdefault(host_of(d), d)
        held = set(unit.senders)
        served: dict[int, list[int]] = {}
        for d in unit.receivers:
            if d not in held:
                served.setdefault(holding.get(host_of(d), sender), []).append(d)
        return tuple(d for d in unit.receivers if d in held), served

    def _job(self, sender: int, devices: tuple[int, ...], cuts: dict[object, list[Box]]) -> Job:
        """The delivery, and the NICs (where meshes share hosts also the devices) it keeps busy."""
        if self.overlap:
            to = receivers_of(devices, self.cluster, self.cluster.host_of(sender))
            way = Delivery(sender, to)
            return Job(way, self._ports(way, bool(cuts.get(to.devices))))
        if devices not in self.receivers:
            to = receivers_of(devices, self.cluster)
            self.receivers[devices] = to, self._ports(Delivery(sender, to))
        to, ports = self.receivers[devices]
        # From another sender the ports differ in the sender's own NIC only, the last one.
        return Job(Delivery(sender, to), (*ports[:-1], ("tx", self.cluster.nic_of(sender))))

    def local_job(self, sender: int, devices: tuple[int, ...]) -> Job:
        """A delivery inside one host."""
        way = Delivery(sender, receivers_of(devices, self.cluster, self.cluster.host_of(sender)))
        return Job(way, self._ports(way))

    def _ports(self, way: Delivery, gathers: bool = False) -> tuple[Port, ...]:
        sizing = Payload(((0, 2**30),), None, 2**30)  # long enough that no part is empty
        alpa = "local_allgather" if gathers else "send_recv"
        phases = make_phases(alpa if self.strategy == "alpa" else self.strategy, way, sizing)
        ports = self.ports_of(hops_of(way.sender, phases))
        own = ("tx", self.cluster.nic_of(way.sender))
        return (*sorted(ports - {own}), *({own} & ports))

    def ports_of(self, hops: Iterable[tuple[int, int]]) -> set[Port]:
        """The NICs, and where meshes share hosts the devices, that hops keep busy."""
        ports: set[Port] = set()
        for a, b in hops:
            ports.update(self.cluster.nic_ports(a, b))
            if self.overlap:
                ports |= {("device tx", a), ("device rx", b)}
        return ports

    def _duration(self, way: Delivery, phases: list[Phase], nbytes: int) -> float:
        if self.strategy == "alpa":  # depends on the box
            return phases_s(way.sender, phases, self.cluster)
        speed = self.cluster.host_nic_Bps[self.cluster.host_of(way.sender)]
        key = (way.to.groups, way.to.home, nbytes, speed)
        if key not in self.times:
            self.times[key] = phases_s(way.sender, phases, self.cluster)
        return self.times[key]

    def _lower(
        self, unit: int, sender: int, phases: list[Phase], after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Emit the transfers of ``phases``; returns those whose completion completes them all."""
        last: int | None = None
        arrived: dict[int, int] = {}
        rings: list[int] = []
        for phase in phases:
            if isinstance(phase, Chain):
                last = self.emit(unit, phase.payload, phase.path, phase.chunks, after)
            elif isinstance(phase, Sends):
                for target, payload in phase.targets:
                    last = arrived[target] = self.emit(unit, payload, (sender, target), 1, after)
                    after = ()  # the sender's later sends follow in its lane
            else:
                rings += self._ring(unit, phase, arrived, last)
            after = ()
        return (*rings, *(() if last is None else (last,)))

    def _ring(self, unit: int, ring: Ring, arrived: dict[int, int], last: int | None) -> list[int]:
        """One chain for each part, all in one stage; each waits for the last send and its own."""
        parts = []
        for device, part in zip(ring.devices, ring.parts, strict=True):
            if part is not None:
                own = arrived[device]
                wait = (own,) if last is None or last == own else tuple(sorted((own, last)))
                parts.append((device, part, wait))
        return self.ring(unit, ring.devices, parts)

    def ring(
        self,
        unit: int,
        devices: tuple[int, ...],
        parts: Iterable[tuple[int, Payload, tuple[int, ...]]],
    ) -> list[int]:
        """Chains around ``devices``, all in one stage, of (first device, payload, wait for)."""
        stage, n = self.stage, len(devices)
        at = {device: i for i, device in enumerate(devices)}
        made = []
        for device, part, wait in parts:
            path = tuple(devices[(at[device] + j) % n] for j in range(n))
            made.append(self.emit(unit, part, path, 1, wait, stage))
        return made

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
        at = self.stage if stage is None else stage
        self.transfers.append(
            Transfer(
                number, unit, payload.box, payload.span, path, payload.nbytes, chunks, at, after
            )
        )
        self.stage = at + 1
        return number


def hops_of(sender: int, phases: list[Phase]) -> list[tuple[int, int]]:
    """(from, to) of everything that ``phases`` send."""
    hops: list[tuple[int, int]] = []
    for phase in phases:
        if isinstance(phase, Sends):
            hops += [(sender, target) for target, _ in phase.targets]
        else:
            path = phase.path if isinstance(phase, Chain) else (*phase.devices, phase.devices[0])
            hops += itertools.pairwise(path)
    return hops
