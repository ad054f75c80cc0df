"""What a scheduler answers: assignments, how good they are known to be, and a check of them."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.scheduling.problem import Problem, ports

_SAME = 1e-9
"""Relative difference below which two times, or shares of a task, count as equal."""


class Assignment(NamedTuple):
    """A task on its NICs, or ``share`` of it, sent without a break to ``receivers``."""

    task: int
    sender: int
    """A NIC that may send the task; in a relayed schedule also one that received this part."""
    start: float
    end: float
    share: float
    """Part of the task that is sent (1.0 = all of it)."""
    first: float = 0.0
    """Where in the task the share begins, 0 to 1: it carries ``first`` to ``first + share``."""
    receivers: tuple[int, ...] = ()
    """The NICs that take it in; () = all receivers of the task."""


class Sharing(NamedTuple):
    """How unordered tasks share the NICs over time."""

    flows: tuple[tuple[int, ...], ...]
    """Tasks with one sender and the same receivers, flow by flow."""
    times: tuple[float, ...]
    """Instants at which rates change, from 0 to the makespan."""
    rates: tuple[tuple[float, ...], ...]
    """For every interval between two instants and every flow: the part of a NIC's speed that
    each unfinished task of the flow gets."""


@dataclass(frozen=True)
class Schedule:
    """Who sends each task, and when, with a certificate."""

    method: str
    problem: Problem
    assignments: tuple[Assignment, ...]
    """In order of issue."""
    lower_bound: float
    """The bound that applies to the method: of whole tasks, or of any schedule at all for
    ``split`` and ``concurrent``."""
    optimal: str | None
    """``"unsplit"``: proven that no schedule of whole tasks is shorter; ``"fluid"``: of a split
    or shared schedule, proven that no schedule at all is; None: not proven."""
    notes: tuple[str, ...] = ()
    """How the result came about and what was left out, one sentence each."""
    sharing: Sharing | None = None
    """For ``concurrent``: the rates behind the predicted ends."""

    @cached_property
    def makespan(self) -> float:
        """End of the last task, in the unit of the problem's durations."""
        return span(self.assignments)

    @property
    def fluid_bound(self) -> float:
        """What no schedule can beat, split or not."""
        return self.problem.fluid_bound

    @property
    def unsplit_bound(self) -> float:
        """What no schedule of whole tasks can beat, as far as this method found out."""
        return max(self.problem.unsplit_bound, self.lower_bound)

    @property
    def gap(self) -> float:
        """Makespan over ``lower_bound``, less 1 (0 = it meets the bound)."""
        return self.makespan / self.lower_bound - 1 if self.lower_bound else 0.0

    @cached_property
    def sender(self) -> tuple[int, ...]:
        """The sender of every task (of its largest share, where a task is split)."""
        shares: list[dict[int, float]] = [{} for _ in range(len(self.problem))]
        for a in self.assignments:
            if a.sender in self.problem.senders[a.task]:
                shares[a.task][a.sender] = shares[a.task].get(a.sender, 0.0) + a.share
        return tuple(max(by, key=by.__getitem__) for by in shares)

    @cached_property
    def start(self) -> tuple[float, ...]:
        """The start of every task (of its first share, where a task is split)."""
        first = [math.inf] * len(self.problem)
        for a in self.assignments:
            first[a.task] = min(a.start, first[a.task])
        return tuple(first)

    def __repr__(self) -> str:
        proof = f"{self.optimal}-optimal" if self.optimal else f"gap {self.gap:.2%}"
        return (
            f"Schedule({self.method}: {len(self.problem)} tasks, makespan {self.makespan:.6g}, "
            f"bound {self.lower_bound:.6g}, {proof})"
        )


SHARED_OUT = ("split", "concurrent")
"""Methods that do not keep to whole tasks sent one after another."""


def with_idle(problem: Problem, moving: Iterable[Assignment]) -> list[Assignment]:
    """``moving`` by start, after the tasks that move nothing: at 0, from their lowest sender."""
    idle = [Assignment(i, problem.senders[i][0], 0.0, 0.0, 1.0) for i in problem.idle]
    return idle + sorted(moving, key=lambda a: a.start)


def span(assignments: Iterable[Assignment]) -> float:
    """End of the last assignment."""
    return max((a.end for a in assignments), default=0.0)


def meets(makespan: float, bound: float) -> bool:
    """Whether ``makespan`` is no more than ``bound``, but for rounding."""
    return makespan <= bound * (1 + _SAME)


def certified(
    method: str,
    problem: Problem,
    assignments: Sequence[Assignment],
    bound: float,
    proof: str | None,
    notes: Iterable[str] = (),
    sharing: Sharing | None = None,
) -> Schedule:
    """The schedule of all tasks, with ``proof`` that it is optimal if it meets the ``bound``.

    A bound above the schedule but for rounding is a mistake of this package, and raises.
    """
    length = span(assignments)
    if bound > length * (1 + 1e-6):
        raise ReshardError(
            f"the lower bound {bound:g} exceeds a schedule of length {length:g}: one of them is "
            "wrong, a mistake of this package; please report the problem"
        )
    optimal = proof if meets(length, bound) else None
    lower = min(bound, length)
    return Schedule(method, problem, tuple(assignments), lower, optimal, tuple(notes), sharing)


def check(schedule: Schedule) -> None:
    """Raise ReshardError unless ``schedule`` can be carried out and delivers every task.

    No NIC sends two tasks at once or receives two at once; senders are allowed ones, or NICs that
    have received the part before; nothing is sent faster than a NIC's speed; every receiver gets
    every task whole and once. For ``concurrent``: the rates never exceed a NIC's speed and the
    tasks are complete when they are said to be. Nothing here is shared with the schedulers: it
    reads the problem and the answer only.
    """
    slack = _SAME * schedule.makespan
    for a in schedule.assignments:
        _check_one(schedule, a, slack)
    if schedule.sharing is None:
        _check_exclusive(schedule, slack)
    else:
        _check_rates(schedule, schedule.sharing, slack)
    _check_delivered(schedule, slack)


def _receivers(schedule: Schedule, a: Assignment) -> tuple[int, ...]:
    return a.receivers or schedule.problem.receivers[a.task]


def _check_one(schedule: Schedule, a: Assignment, slack: float) -> None:
    problem = schedule.problem
    if not 0 <= a.task < len(problem):
        raise ReshardError(f"{a} is of no task; the problem has {len(problem)}")
    duration = problem.durations[a.task] if problem.receivers[a.task] else 0.0
    inside = a.share > 0 and a.first >= 0 and a.first + a.share <= 1 + _SAME
    if not (0 <= a.start <= a.end and inside):
        raise ReshardError(f"{a} ends before it starts, or carries no part of its task")
    if a.end - a.start < a.share * duration - slack:
        raise ReshardError(f"{a} is faster than a NIC: the whole task lasts {duration}")
    if not set(_receivers(schedule, a)) <= set(problem.receivers[a.task]):
        raise ReshardError(f"{a} goes to a NIC that does not need the task")


def _check_exclusive(schedule: Schedule, slack: float) -> None:
    busy: dict[tuple[str, int], list[Assignment]] = {}
    for a in schedule.assignments:
        if _receivers(schedule, a) and a.end - a.start > slack:
            for nic in ports(a.sender, _receivers(schedule, a)):
                busy.setdefault(nic, []).append(a)
    for nic, spans in busy.items():
        spans.sort(key=lambda a: a.start)
        for first, second in itertools.pairwise(spans):
            if second.start < first.end - slack:
                raise ReshardError(f"{nic[0]} of NIC {nic[1]} is busy twice: {first} and {second}")


def _check_delivered(schedule: Schedule, slack: float) -> None:
    problem = schedule.problem
    arrived: dict[tuple[int, int], list[Assignment]] = {}
    listed = {a.task for a in schedule.assignments}
    for a in schedule.assignments:
        for r in _receivers(schedule, a):
            arrived.setdefault((a.task, r), []).append(a)
    for task, receivers in enumerate(problem.receivers):
        if task not in listed:
            raise ReshardError(f"task {task} is not in the schedule")
        for r in receivers:
            got = sorted(arrived.get((task, r), []), key=lambda a: a.first)
            at = 0.0
            for a in got:
                if abs(a.first - at) > _SAME:
                    raise ReshardError(
                        f"NIC {r} gets task {task} up to {at}, then from {a.first} on"
                    )
                at = a.first + a.share
            if abs(at - 1) > _SAME:
                raise ReshardError(f"NIC {r} gets task {task} up to {at} only")
    for a in schedule.assignments:
        if a.sender not in problem.senders[a.task]:
            _check_relay(a, arrived.get((a.task, a.sender), []), slack)


def _check_relay(a: Assignment, got: list[Assignment], slack: float) -> None:
    at = a.first
    for b in sorted(got, key=lambda b: b.first):
        if b.end <= a.start + slack and b.first <= at + _SAME:
            at = max(at, b.first + b.share)
    if at < a.first + a.share - _SAME:
        raise ReshardError(f"{a} leaves a NIC that is no sender and has not received it by then")


def _check_rates(schedule: Schedule, sharing: Sharing, slack: float) -> None:
    problem = schedule.problem
    by_task = {a.task: a for a in schedule.assignments}
    flow_of = {i: f for f, tasks in enumerate(sharing.flows) for i in tasks}
    got = dict.fromkeys(flow_of, 0.0)
    for start, end, rates in zip(sharing.times, sharing.times[1:], sharing.rates, strict=False):
        used: dict[tuple[str, int], float] = {}
        for i, f in flow_of.items():
            if by_task[i].end <= start + slack:
                continue
            got[i] += rates[f] * (min(end, by_task[i].end) - start)
            for nic in ports(by_task[i].sender, problem.receivers[i]):
                used[nic] = used.get(nic, 0.0) + rates[f]
        for nic, total in used.items():
            if total > 1 + _SAME:
                raise ReshardError(
                    f"{nic[0]} of NIC {nic[1]} is used {total} times over from {start} on"
                )
    for i, duration in enumerate(problem.durations):
        if problem.receivers[i] and abs(got.get(i, 0.0) - duration) > slack:
            raise ReshardError(f"task {i} lasts {duration}, but gets {got.get(i, 0.0)}")
