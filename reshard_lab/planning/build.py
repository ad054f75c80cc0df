"""From tasks to a plan: choose senders and order, lower every unit task, time it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from reshard_lab.boxes import Box
from reshard_lab.cluster import Cluster
from reshard_lab.errors import choose, whole
from reshard_lab.layout import Layout
from reshard_lab.planning.record import Plan, PlannedUnit
from reshard_lab.resharding import ReshardingTask, UnitTask, need_cluster
from reshard_lab.scheduling import METHODS, SHARED_OUT, Problem, Schedule, solve
from reshard_lab.strategies import (
    STRATEGIES,
    Chain,
    Delivery,
    Payload,
    Phase,
    Receivers,
    Ring,
    Sends,
    alpa_cuts,
    make_phases,
    phases_s,
    receivers_of,
)
from reshard_lab.transfer import Transfer
from reshard_lab.units import format_seconds

_AUTO = ("broadcast", "global_allgather", "local_allgather", "send_recv")


def plan(
    tasks: ReshardingTask | Iterable[ReshardingTask],
    strategy: str = "broadcast",
    scheduler: str = "auto",
    chunks: int = 100,
    seed: int = 0,
) -> Plan:
    """Plan one resharding, or several as one joint plan.

    strategy:
        ``send_recv``, ``local_allgather``, ``global_allgather``, ``broadcast`` (section 3.1),
        ``alpa``, ``signal`` (section 5) or ``auto`` (the shortest of the first four).
    scheduler:
        a method of ``scheduling.solve`` that keeps tasks whole (section 3.2).
    chunks:
        K, the chunks of a broadcast; never more than the payload's bytes.

    >>> from reshard_lab import Cluster, Layout, ReshardingTask
    >>> cluster = Cluster(hosts=4, devices_per_host=2)
    >>> src = Layout(cluster.mesh((2, 2)), "S0R")
    >>> dst = Layout(cluster.mesh((2, 2), first_host=2), "S0R")
    >>> plan(ReshardingTask((4, 4), "float32", src, dst, cluster)).transfers[0].path
    (0, 4, 5)
    """
    listed = (tasks,) if isinstance(tasks, ReshardingTask) else tuple(tasks)
    cluster = need_cluster(listed)
    choose("strategy", strategy, (*STRATEGIES, "auto"))
    choose("scheduler", scheduler, [m for m in METHODS if m not in SHARED_OUT])
    whole("chunks", chunks, 1)
    whole("seed", seed)
    schedule = solve(Problem.from_tasks(listed), scheduler, seed=seed)
    if strategy != "auto":
        return _build(listed, cluster, strategy, schedule, chunks, seed, ())
    made = [_build(listed, cluster, s, schedule, chunks, seed, ()) for s in _AUTO]
    best = min(made, key=lambda p: p.makespan_s)
    times = ", ".join(f"{p.strategy} {format_seconds(p.makespan_s)}" for p in made)
    note = f"strategy auto: {best.strategy} has the shortest predicted time ({times})"
    return _build(listed, cluster, best.strategy, schedule, chunks, seed, (note,))


class _Job(NamedTuple):
    """One delivery of a unit task and the ports it keeps busy."""

    way: Delivery
    ports: tuple[tuple[str, int], ...]


def _build(
    tasks: tuple[ReshardingTask, ...],
    cluster: Cluster,
    strategy: str,
    schedule: Schedule,
    chunks: int,
    seed: int,
    notes: tuple[str, ...],
) -> Plan:
    builder = _Builder(cluster, strategy, chunks, _hosts_overlap(tasks, cluster))
    where = [(t, u) for t, task in enumerate(tasks) for u in range(len(task.unit_tasks))]
    cuts = [_alpa_slices(task, cluster) if strategy == "alpa" else {} for task in tasks]
    units: dict[int, PlannedUnit] = {}
    for assignment in schedule.assignments:
        index = assignment.task
        t, u = where[index]
        unit = tasks[t].unit_tasks[u]
        units[index] = builder.unit(t, u, index, unit, assignment.sender, cuts[t])
    makespan = max((u.start_s + u.duration_s for u in units.values()), default=0.0)
    return Plan(
        tasks=tasks,
        strategy=strategy,
        scheduler=schedule.method,
        chunks=chunks,
        seed=seed,
        units=tuple(units[i] for i in range(len(where))),
        transfers=tuple(builder.transfers),
        makespan_s=makespan,
        optimal=schedule.optimal if strategy == "broadcast" and cluster.uniform else None,
        notes=notes,
    )


class _Builder:
    """Emits transfers in order of issue and keeps the time every port is free."""

    def __init__(self, cluster: Cluster, strategy: str, chunks: int, overlap: bool) -> None:
        self.cluster = cluster
        self.strategy = strategy
        self.chunks = chunks
        self.overlap = overlap
        self.transfers: list[Transfer] = []
        self.stage = 0
        self.free: dict[tuple[str, int], tuple[float, tuple[int, ...]]] = {}
        self.ways: dict[object, tuple[int, tuple[int, ...], list[_Job]]] = {}
        self.receivers: dict[object, tuple[Receivers, tuple[tuple[str, int], ...]]] = {}
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
        """Lower one unit task, sent through NIC ``nic``."""
        key = (unit.senders, unit.receivers, nic, task if self.strategy == "alpa" else 0)
        if key not in self.ways:
            self.ways[key] = self._ways(unit, nic, cuts)
        sender, copies, jobs = self.ways[key]
        whole_box = Payload(unit.box, None, unit.nbytes)
        for device in copies:
            self._emit(index, whole_box, (device,), 1, ())
        starts, ends = [], []
        for way, ports in jobs:
            phases = make_phases(
                self.strategy, way, whole_box, self.chunks, cuts.get(way.to.devices)
            )
            lasts = self._duration(way, phases, unit.nbytes)
            start = max((self.free[p][0] for p in ports if p in self.free), default=0.0)
            after = {i for p in ports if p in self.free for i in self.free[p][1]}
            final = self._lower(index, way.sender, phases, tuple(sorted(after)))
            for p in ports:
                self.free[p] = (start + lasts, final)
            starts.append(start)
            ends.append(start + lasts)
        start = min(starts, default=0.0)
        return PlannedUnit(task, number, sender, start, max(ends, default=start) - start)

    def _ways(
        self, unit: UnitTask, nic: int, cuts: dict[object, list[Box]]
    ) -> tuple[int, tuple[int, ...], list[_Job]]:
        """The sender, the devices that copy locally, and the deliveries of the others.

        Receivers on a host that holds the box are served inside it; all others by the sender.
        """
        host_of = self.cluster.host_of
        sender = next((d for d in unit.senders if self.cluster.nic_of(d) == nic), unit.senders[0])
        if not self.overlap:
            return sender, (), [self._job(sender, unit.receivers, cuts)]
        holding: dict[int, int] = {}
        for d in unit.senders:
            holding.setdefault(host_of(d), d)
        held = set(unit.senders)
        served: dict[int, list[int]] = {}
        for d in unit.receivers:
            if d not in held:
                served.setdefault(holding.get(host_of(d), sender), []).append(d)
        jobs = [
            self._job(source, tuple(devices), cuts) for source, devices in sorted(served.items())
        ]
        return sender, tuple(d for d in unit.receivers if d in held), jobs

    def _job(self, sender: int, devices: tuple[int, ...], cuts: dict[object, list[Box]]) -> _Job:
        """The delivery, and the NICs (where meshes share hosts also the devices) it keeps busy."""
        if self.overlap:
            to = receivers_of(devices, self.cluster, self.cluster.host_of(sender))
            way = Delivery(sender, to)
            return _Job(way, self._ports(way, bool(cuts.get(to.devices))))
        if devices not in self.receivers:
            to = receivers_of(devices, self.cluster)
            self.receivers[devices] = to, self._ports(Delivery(sender, to))
        to, ports = self.receivers[devices]
        # From another sender the ports differ in the sender's own NIC only, the last one.
        return _Job(Delivery(sender, to), (*ports[:-1], ("tx", self.cluster.nic_of(sender))))

    def _ports(self, way: Delivery, gathers: bool = False) -> tuple[tuple[str, int], ...]:
        sizing = Payload(((0, 2**30),), None, 2**30)  # long enough that no part is empty
        alpa = "local_allgather" if gathers else "send_recv"
        phases = make_phases(alpa if self.strategy == "alpa" else self.strategy, way, sizing)
        ports: set[tuple[str, int]] = set()
        for a, b in _hops(way.sender, phases):
            if self.cluster.host_of(a) != self.cluster.host_of(b):
                ports |= {("tx", self.cluster.nic_of(a)), ("rx", self.cluster.nic_of(b))}
            if self.overlap:
                ports |= {("device tx", a), ("device rx", b)}
        own = ("tx", self.cluster.nic_of(way.sender))
        return (*sorted(ports - {own}), *({own} & ports))

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
                last = self._emit(unit, phase.payload, phase.path, phase.chunks, after)
            elif isinstance(phase, Sends):
                for target, payload in phase.targets:
                    last = arrived[target] = self._emit(unit, payload, (sender, target), 1, after)
                    after = ()  # the sender's later sends follow in its lane
            else:
                rings += self._ring(unit, phase, arrived, last)
            after = ()
        return (*rings, *(() if last is None else (last,)))

    def _ring(self, unit: int, ring: Ring, arrived: dict[int, int], last: int | None) -> list[int]:
        """One chain for each part, all in one stage; each waits for the last send and its own."""
        stage, made = self.stage, []
        n = len(ring.devices)
        for i, part in enumerate(ring.parts):
            if part is not None:
                path = tuple(ring.devices[(i + j) % n] for j in range(n))
                own = arrived[ring.devices[i]]
                wait = (own,) if last is None or last == own else tuple(sorted((own, last)))
                made.append(self._emit(unit, part, path, 1, wait, stage))
        return made

    def _emit(
        self,
        unit: int,
        payload: Payload,
        path: tuple[int, ...],
        chunks: int,
        after: tuple[int, ...],
        stage: int | None = None,
    ) -> int:
        number = len(self.transfers)
        at = self.stage if stage is None else stage
        self.transfers.append(
            Transfer(
                number, unit, payload.box, payload.span, path, payload.nbytes, chunks, at, after
            )
        )
        self.stage = at + 1
        return number


def _hops(sender: int, phases: list[Phase]) -> list[tuple[int, int]]:
    hops: list[tuple[int, int]] = []
    for phase in phases:
        if isinstance(phase, Sends):
            hops += [(sender, target) for target, _ in phase.targets]
        else:
            path = phase.path if isinstance(phase, Chain) else (*phase.devices, phase.devices[0])
            hops += itertools.pairwise(path)
    return hops


def _hosts_overlap(tasks: tuple[ReshardingTask, ...], cluster: Cluster) -> bool:
    def hosts(layouts: list[Layout]) -> set[int]:
        return {cluster.host_of(d) for layout in layouts for d in layout.mesh.devices}

    return bool(hosts([t.src for t in tasks]) & hosts([t.dst for t in tasks]))


def _alpa_slices(task: ReshardingTask, cluster: Cluster) -> dict[object, list[Box]]:
    """Alpa's extra cuts by the holders of each destination slice; empty where it sends plainly.

    Its rule (section 5): at least as many pieces as hosts, each piece's replicas inside one host.
    """
    slices = task.dst.slices(task.shape)
    hosts = {cluster.host_of(d) for d in task.dst.mesh.devices}
    inside = all(len({cluster.host_of(d) for d in held}) == 1 for held in slices.values())
    replicated = all(len(held) > 1 for held in slices.values())
    if not (inside and replicated and len(slices) >= len(hosts)):
        return {}
    return {held: alpa_cuts(box, len(held)) for box, held in slices.items()}
