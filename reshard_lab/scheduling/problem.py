"""The scheduling problem of section 3.2 and its answers, on plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshard_lab.bounds import fluid_bound
from reshard_lab.errors import ReshardError
from reshard_lab.resharding import ReshardingTask, need_cluster, nic_hosts


@dataclass(frozen=True, init=False)
class Problem:
    """Unit tasks at NIC level (equations 1 to 4).

    Task ``i`` lasts ``durations[i]`` (seconds, or any one unit), is sent by one of
    ``senders[i]`` and must reach all of ``receivers[i]``. A NIC sends one task and receives one
    task at a time. A task without receivers moves nothing and takes no time on any NIC.

    >>> Problem(durations=[1.0, 2.0], senders=[(0, 1), (0,)], receivers=[(2,), (3,)]).lower_bound
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
        lasts = tuple(_duration(i, d) for i, d in enumerate(durations))
        allowed = tuple(_nics(i, "senders", s) for i, s in enumerate(senders))
        targets = tuple(_nics(i, "receivers", r) for i, r in enumerate(receivers))
        if not len(lasts) == len(allowed) == len(targets):
            raise ReshardError(
                f"{len(lasts)} durations, {len(allowed)} senders and {len(targets)} receivers "
                "given; give one of each a task"
            )
        for i, options in enumerate(allowed):
            if not options:
                raise ReshardError(f"task {i} has no sender; name at least one NIC that holds it")
        object.__setattr__(self, "durations", lasts)
        object.__setattr__(self, "senders", allowed)
        object.__setattr__(self, "receivers", targets)

    @classmethod
    def from_tasks(cls, tasks: Iterable[ReshardingTask]) -> Problem:
        """One task for every unit task of ``tasks``, in order, boxes that stay local included.

        Durations are seconds: bytes over NIC bandwidth.
        """
        tasks = tuple(tasks)
        cluster = need_cluster(tasks)
        units = [u for task in tasks for u in task.unit_tasks]
        ends = [nic_hosts(u, cluster) for u in units]
        return cls(
            [u.nbytes / cluster.nic_Bps for u in units], [e[0] for e in ends], [e[1] for e in ends]
        )

    def __len__(self) -> int:
        return len(self.durations)

    @cached_property
    def lower_bound(self) -> float:
        """The fluid bound, in the unit of ``durations``."""
        return fluid_bound(self.durations, self.senders, self.receivers)


class Assignment(NamedTuple):
    """One stretch of one task on its NICs."""

    task: int
    sender: int
    start: float
    end: float
    share: float
    """Part of the task that this stretch carries (1.0 = all of it)."""


@dataclass(frozen=True)
class Schedule:
    """Who sends each task, and when."""

    method: str
    problem: Problem
    assignments: tuple[Assignment, ...]
    """In order of issue."""
    lower_bound: float
    optimal: str | None
    """``"unsplit"``: no schedule of whole tasks is shorter; ``"fluid"``: no schedule at all is."""

    @cached_property
    def makespan(self) -> float:
        """End of the last task, in the unit of the problem's durations."""
        return max((a.end for a in self.assignments), default=0.0)

    @cached_property
    def sender(self) -> tuple[int, ...]:
        """The sender of every task (of its largest share, where a task is split)."""
        best: dict[int, Assignment] = {}
        for a in self.assignments:
            if a.task not in best or a.share > best[a.task].share:
                best[a.task] = a
        return tuple(best[i].sender for i in range(len(self.problem)))

    @cached_property
    def start(self) -> tuple[float, ...]:
        """The start of every task (of its first stretch, where a task is split)."""
        first: dict[int, float] = {}
        for a in self.assignments:
            first[a.task] = min(a.start, first.get(a.task, math.inf))
        return tuple(first[i] for i in range(len(self.problem)))


def list_schedule(
    problem: Problem, order: Sequence[int], sender: Sequence[int]
) -> list[Assignment]:
    """Start the tasks in ``order``, each as soon as all its NICs are free after earlier tasks."""
    sends: dict[int, float] = {}
    takes: dict[int, float] = {}
    made = []
    for i in order:
        source, targets, lasts = sender[i], problem.receivers[i], problem.durations[i]
        if not targets:
            made.append(Assignment(i, source, 0.0, 0.0, 1.0))
            continue
        start = max(sends.get(source, 0.0), max(takes.get(r, 0.0) for r in targets))
        end = start + lasts
        sends[source] = end
        for r in targets:
            takes[r] = end
        made.append(Assignment(i, source, start, end, 1.0))
    return made


def _duration(task: int, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ReshardError(f"duration of task {task} must be a number, not {value!r}") from None
    if not (math.isfinite(number) and number >= 0):
        raise ReshardError(f"duration of task {task} must be finite and at least 0, not {value!r}")
    return number


def _nics(task: int, what: str, values: Iterable[int]) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ReshardError(f"{what} of task {task} must be a list of NIC numbers, not {values!r}")
    nics = []
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
            raise ReshardError(
                f"{what} of task {task} must be NIC numbers of at least 0, not {value!r}"
            )
        nics.append(value.__index__())
    if len(set(nics)) < len(nics):
        raise ReshardError(f"{what} of task {task} repeat a NIC: {nics}")
    return tuple(sorted(nics))
