"""What a scheduler answers: assignments, and what is known about how good they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.scheduling.problem import Problem

SAME = 1e-9
"""Relative difference below which two times count as equal."""


class Assignment(NamedTuple):
    """One stretch of one task on its NICs: ``share`` of it, from ``sender`` to ``receivers``."""

    task: int
    sender: int
    """A NIC that may send the task; in a relayed schedule also one that received this part."""
    start: float
    end: float
    share: float
    """Part of the task that this stretch carries (1.0 = all of it)."""
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
        return max((a.end for a in self.assignments), default=0.0)

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
        """The start of every task (of its first stretch, where a task is split)."""
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


def idle_assignments(problem: Problem) -> list[Assignment]:
    """The tasks that move nothing: all at time 0, from their lowest sender."""
    return [Assignment(i, problem.senders[i][0], 0.0, 0.0, 1.0) for i in problem.idle]


def span(assignments: Iterable[Assignment]) -> float:
    """End of the last assignment."""
    return max((a.end for a in assignments), default=0.0)


def true_bound(assignments: Iterable[Assignment], bound: float) -> float:
    """``bound`` without rounding above the schedule; raises if it is truly above (a bug here)."""
    length = span(assignments)
    if bound > length * (1 + 1e-6):
        raise ReshardError(
            f"the lower bound {bound:g} exceeds a schedule of length {length:g}: one of them is "
            "wrong, a mistake of this package; please report the problem"
        )
    return min(bound, length)


def meets(makespan: float, bound: float) -> bool:
    """Whether ``makespan`` is no more than ``bound``, but for rounding."""
    return makespan <= bound * (1 + SAME)
