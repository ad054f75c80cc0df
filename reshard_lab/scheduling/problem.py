"""The scheduling problem of section 3.2 at NIC level, and how long a search may take.

With one NIC a host, a unit task is one task between hosts. With several, it is cut into as many
parts as there are NICs that can take it in (section 3.1 leaves this to future work): each part
goes from one sending NIC to one NIC of every receiving host, and the devices of the host then
all-gather the parts among themselves. A device uses the NIC near it, so a part enters a host at a
device that needs it.
"""

from __future__ import annotations

import importlib
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshard_lab.bounds import fluid_bound, unsplit_bound
from reshard_lab.boxes import box_volume, cut
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_number, must_be
from reshard_lab.resharding import ReshardingTask, UnitTask, need_cluster, nic_hosts, tasks_of


class TaskPart(NamedTuple):
    """A unit task, or one of the parts it is cut into, as a task of the scheduling problem."""

    unit: int
    """Index of the unit task among those of all tasks."""
    first: int
    """First of its elements, in row-major order of the unit task's box."""
    stop: int
    nbytes: int
    senders: tuple[int, ...]
    """NICs near a device that holds it."""
    receivers: tuple[int, ...]
    """One NIC of every host that must take it in."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.stop - self.first


class Group(NamedTuple):
    """Tasks of equal duration, senders and receivers."""

    duration: float
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    tasks: tuple[int, ...]


@dataclass(frozen=True, init=False)
class Problem:
    """Unit tasks at NIC level (equations 1 to 4).

    Task ``i`` lasts ``durations[i]`` (seconds, or any one unit), is sent by one of
    ``senders[i]`` and must reach all of ``receivers[i]``. A NIC sends one task and receives one
    task at a time. A task without receivers moves nothing and takes no time on any NIC.

    >>> Problem(durations=[1.0, 2.0], senders=[(0, 1), (0,)], receivers=[(2,), (3,)]).fluid_bound
    2.0
    """

    durations: tuple[float, ...]
    senders: tuple[tuple[int, ...], ...]
    receivers: tuple[tuple[int, ...], ...]

    def __init__(
        self,
        durations: Iterable[float],
        senders: Iterable[Iterable[int]],
        receivers: Iterable[Iterable[int]],
    ) -> None:
        seconds = tuple(_duration(i, d) for i, d in enumerate(durations))
        allowed = tuple(_nics(f"senders of task {i}", s) for i, s in enumerate(senders))
        targets = tuple(_nics(f"receivers of task {i}", r) for i, r in enumerate(receivers))
        if not len(seconds) == len(allowed) == len(targets):
            raise ReshardError(
                f"{len(seconds)} durations, {len(allowed)} senders and {len(targets)} receivers "
                "given; give one of each a task"
            )
        if math.isinf(sum(seconds)):
            raise ReshardError("the durations are too long to be added up; use a larger unit")
        if () in allowed:
            raise ReshardError(
                f"task {allowed.index(())} has no sender; name at least one NIC that holds it"
            )
        vars(self).update(durations=seconds, senders=allowed, receivers=targets)

    @classmethod
    def from_tasks(cls, tasks: Iterable[ReshardingTask]) -> Problem:
        """The unit tasks of ``tasks``, in order, boxes that stay local included.

        Durations are seconds: bytes over NIC bandwidth (where hosts differ, of the slowest
        receiver, or of the fastest sender if that is slower still). With one NIC a host, NICs are
        hosts, and there is one task for every unit task; with several, one for every part of it.
        """
        tasks = tasks_of(tasks)
        return cls.from_parts(task_parts(tasks), need_cluster(tasks))

    @classmethod
    def from_parts(cls, parts: Sequence[TaskPart], cluster: Cluster) -> Problem:
        """One task a part, of its duration on ``cluster``."""
        return cls(
            [_part_s(p, cluster) for p in parts],
            [p.senders for p in parts],
            [p.receivers for p in parts],
        )

    def __len__(self) -> int:
        return len(self.durations)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The tasks that move something; those equal in all respects grouped, never fused."""
        alike: dict[tuple[float, tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for i, key in enumerate(zip(self.durations, self.senders, self.receivers, strict=True)):
            if key[0] > 0 and key[2]:
                alike.setdefault(key, []).append(i)
        return tuple(Group(*key, tuple(tasks)) for key, tasks in alike.items())

    @cached_property
    def idle(self) -> tuple[int, ...]:
        """The tasks that move nothing: of no length or without receivers."""
        return tuple(i for i, d in enumerate(self.durations) if not (d and self.receivers[i]))

    @cached_property
    def fluid_bound(self) -> float:
        """What no schedule can beat, tasks shared out among senders at will."""
        return fluid_bound(self.durations, self.senders, self.receivers)

    @cached_property
    def unsplit_bound(self) -> float:
        """What no schedule of whole tasks can beat: the fluid bound and what granularity adds."""
        return unsplit_bound((g.duration for g in self.groups), self.fluid_bound)

    @cached_property
    def receivers_overlap(self) -> bool:
        """Whether two receiver sets share a NIC without being equal."""
        owner: dict[int, tuple[int, ...]] = {}
        return any(
            owner.setdefault(r, g.receivers) != g.receivers
            for g in self.groups
            for r in g.receivers
        )


def _duration(task: int, value: float) -> float:
    what = f"duration of task {task}"
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        raise must_be(what, "a number", value) from None
    return check_number(what, value, 0, expected="finite and at least 0")


def _nics(what: str, values: Iterable[int]) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise must_be(what, "a list of NIC numbers", values)
    nics = []
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
            raise must_be(what, "NIC numbers of at least 0", value)
        nics.append(value.__index__())
    if len(set(nics)) < len(nics):
        raise ReshardError(f"{what} repeat a NIC: {nics}")
    return tuple(sorted(nics))


def ports(sender: int, receivers: Iterable[int]) -> list[tuple[str, int]]:
    """What a task keeps busy: its sender's NIC one way, its receivers' the other."""
    return [("tx", sender), *(("rx", r) for r in receivers)]


def one_nic_a_host(cluster: Cluster) -> bool:
    """Whether NICs and hosts are one to one."""
    return cluster.nics == cluster.hosts


def task_parts(tasks: Sequence[ReshardingTask], cut_up: bool = True) -> list[TaskPart]:
    """The parts of all unit tasks, in order; boxes that stay local are parts without receivers.

    With several NICs a host a unit task is cut into parts of like size: as many as the most NICs
    that one host can take it in with, but no more than there are NICs to send it from. On every
    host a part enters through the NIC with the least to take in so far. Where ``cut_up`` is
    false, tasks stay whole, and enter through the NICs of all devices that need them.
    """
    cluster = need_cluster(tasks)
    units = [(unit, task.itemsize) for task in tasks for unit in task.unit_tasks]
    if one_nic_a_host(cluster):  # numbered as the hosts are, and no task is cut
        return [
            TaskPart(index, 0, box_volume(unit.box), unit.nbytes, *nic_hosts(unit, cluster))
            for index, (unit, _) in enumerate(units)
        ]
    load: Counter[int] = Counter()
    nics: dict[tuple[object, ...], tuple[tuple[int, ...], list[list[int]]]] = {}
    parts = []
    for index, (unit, itemsize) in enumerate(units):
        if unit[2:] not in nics:
            nics[unit[2:]] = _nics_of(unit, cluster)
        senders, entries = nics[unit[2:]]
        volume = box_volume(unit.box)
        if not cut_up:
            every = tuple(sorted(nic for entry in entries for nic in entry))
            parts.append(TaskPart(index, 0, volume, unit.nbytes, senders, every))
            continue
        count = min(max(map(len, entries), default=1), len(senders), volume)
        for first, stop in cut(0, volume, count, "balanced"):
            nbytes = (stop - first) * itemsize
            through = tuple(min(entry, key=lambda n: (load[n], n)) for entry in entries)
            load.update(dict.fromkeys(through, nbytes))
            parts.append(TaskPart(index, first, stop, nbytes, senders, through))
    return parts


def _nics_of(unit: UnitTask, cluster: Cluster) -> tuple[tuple[int, ...], list[list[int]]]:
    """NICs near a holder, ascending; for every host that must take the box in, those it can use."""
    senders = sorted({cluster.nic_of(d) for d in unit.senders})
    entries: dict[int, list[int]] = {host: [] for host in nic_hosts(unit, cluster)[1]}
    for device in unit.receivers:
        nics, nic = entries.get(cluster.host_of(device)), cluster.nic_of(device)
        if nics is not None and nic not in nics:
            nics.append(nic)
    return tuple(senders), list(entries.values())


def _part_s(part: TaskPart, cluster: Cluster) -> float:
    """Seconds through its NICs: the slowest receiver, the fastest sender."""
    if cluster.uniform or not part.receivers:
        return part.nbytes / cluster.nic_Bps
    sends, takes = (
        [cluster.host_nic_Bps[cluster.host_of_nic(nic)] for nic in nics]
        for nics in (part.senders, part.receivers)
    )
    return part.nbytes / min(*takes, max(sends))


class Budget:
    """How long a search may go on, from now: by the clock, and by counted work.

    Searches stop after a number of steps that follows from the time limit at a pace any machine
    keeps, so that one seed gives one schedule. The clock is there for machines that do not; it
    counts processor time of this thread: what else a machine does must not change the schedule.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = check_number(
            "time_limit_s", limit_s, 0, finite=False, expected="seconds of at least 0"
        )
        self.ends = time.thread_time() + self.limit_s

    @property
    def left_s(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(0.0, self.ends - time.thread_time())

    @property
    def over(self) -> bool:
        """Whether the limit has passed."""
        return time.thread_time() >= self.ends

    def load(self, module: str) -> None:
        """Import a solver; what that takes is not taken from the time."""
        before = time.thread_time()
        importlib.import_module(module)
        self.ends += time.thread_time() - before

    def part(self, share: float) -> Budget:
        """``share`` of the work, by whenever the limit itself ends."""
        part = Budget(self.limit_s * share)
        part.ends = self.ends
        return part

    def slot(self, share: float) -> Budget:
        """``share`` of the time that is left, for solvers that only look at the clock."""
        return Budget(self.left_s * share)

    def steps(self, a_second: float) -> float:
        """Steps of work the limit stands for at a pace of ``a_second``."""
        return self.limit_s * a_second
