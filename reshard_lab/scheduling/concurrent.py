"""No order at all: every task at once, NICs shared max-min fairly.

The baseline that any order has to beat. The completion is a prediction under ideal sharing (what
well-behaved flows tend to), and it may be below the best schedule of whole tasks one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.problem import Group, Problem
from reshard_lab.scheduling.schedule import (
    Assignment,
    Schedule,
    Sharing,
    idle_assignments,
    meets,
    span,
)
from reshard_lab.scheduling.senders import balanced_equal, longest_first

_PACE = 1e7
"""Uses of a NIC by a flow looked at a second, well below what a slow machine does."""


def concurrent(problem: Problem, budget: Budget) -> Schedule:
    """All tasks start at 0, from balanced senders; ends as predicted under max-min sharing."""
    equal = len({g.duration for g in problem.groups}) == 1
    dealt = balanced_equal(problem.groups) if equal else longest_first(problem.groups)
    shared = _share(dealt, budget)
    made = idle_assignments(problem)
    made += [Assignment(i, g.senders[0], 0.0, shared.ends[i], 1.0) for g in dealt for i in g.tasks]
    load = _largest_load(dealt)
    notes = [f"predicted under ideal max-min sharing; the largest load of a NIC is {load:.6g}"]
    if shared.every > 1:
        notes.append(
            f"to keep to {budget.limit_s:g} s, rates were worked out anew after every "
            f"{shared.every} ends of tasks only; what is freed in between lies idle"
        )
    bound = problem.fluid_bound
    optimal = "fluid" if meets(span(made), bound) else None
    bound = min(bound, span(made))
    return Schedule(
        "concurrent", problem, tuple(made), bound, optimal, tuple(notes), shared.sharing
    )


def _largest_load(dealt: Sequence[Group]) -> float:
    load: dict[tuple[str, int], float] = {}
    for g in dealt:
        for nic in [("tx", g.senders[0]), *(("rx", r) for r in g.receivers)]:
            load[nic] = load.get(nic, 0.0) + g.duration * len(g.tasks)
    return max(load.values(), default=0.0)


class _Shared(NamedTuple):
    sharing: Sharing
    ends: dict[int, float]
    every: int
    """Rates were worked out anew at every so many ends."""


def _share(dealt: Sequence[Group], budget: Budget) -> _Shared:
    """Rates over time and the end of every task.

    All tasks of a flow start together at one rate, so they end from short to long. Rates are
    worked out anew whenever tasks end; less often where that would not fit the time limit:
    in between the unfinished tasks keep their rates, which stay possible.
    """
    found: dict[tuple[int, tuple[int, ...]], list[tuple[float, int]]] = {}
    for g in dealt:
        found.setdefault((g.senders[0], g.receivers), []).extend((g.duration, i) for i in g.tasks)
    flows = [sorted(tasks, reverse=True) for tasks in found.values()]
    names = tuple(tuple(i for _, i in tasks) for tasks in flows)
    nics = Nics(list(found))
    left = np.array([len(tasks) for tasks in flows], dtype=np.int64)
    goal = np.array([tasks[-1][0] for tasks in flows])
    done = np.zeros(len(flows))  # what each unfinished task of a flow has got so far
    rate = done
    now, times, rates = 0.0, [], []
    ends: dict[int, float] = {}
    ahead = sum(len({lasts for lasts, _ in tasks}) for tasks in flows)
    work = budget.steps(_PACE)
    every, since = 1, 1
    while left.any():
        if since >= every:
            rate, effort = nics.max_min(left)
            times.append(now)
            rates.append(tuple(rate.tolist()))
            work -= effort
            every = max(every, math.ceil(ahead * effort / max(work, effort)))
            since = 0
        wait = np.full(len(flows), np.inf)
        np.divide(goal - done, rate, out=wait, where=left > 0)
        step = float(wait.min())
        now += step
        done += rate * step
        for f in np.flatnonzero(wait <= step * (1 + 1e-12)).tolist():
            tasks = flows[f]
            while tasks and tasks[-1][0] <= goal[f]:
                ends[tasks.pop()[1]] = now
            left[f] = len(tasks)
            goal[f] = tasks[-1][0] if tasks else np.inf
            ahead -= 1
            since += 1
    return _Shared(Sharing(names, (*times, now), tuple(rates)), ends, every)


class Nics:
    """Which flow (a sender and its receivers) uses which NICs; every NIC has speed 1."""

    def __init__(self, flows: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        index: dict[tuple[str, int], int] = {}
        pairs = [
            (index.setdefault(nic, len(index)), f)
            for f, (sender, receivers) in enumerate(flows)
            for nic in [("tx", sender), *(("rx", r) for r in receivers)]
        ]
        self.nic = np.array([nic for nic, _ in pairs], dtype=np.int64)
        self.flow = np.array([flow for _, flow in pairs], dtype=np.int64)
        self.count = len(index)

    def max_min(self, tasks: np.ndarray) -> tuple[np.ndarray, int]:
        """The max-min fair rate of each of the ``tasks`` of every flow, and the work it took.

        Progressive filling: the NIC with least room for each of its tasks fixes the rate of all
        tasks through it; repeat with what is left of the others.
        """
        rate = np.zeros(len(tasks))
        room = np.ones(self.count)
        moves = tasks[self.flow] > 0
        nic, flow = self.nic[moves], self.flow[moves]
        effort = len(self.nic)
        while len(nic):
            effort += len(nic)
            load = np.bincount(nic, tasks[flow], self.count)
            level = np.full(self.count, np.inf)
            np.divide(room, load, out=level, where=load > 0)
            least = level.min()
            fixed = np.zeros(len(tasks), dtype=bool)
            fixed[flow[level[nic] <= least * (1 + 1e-12)]] = True
            rate[fixed] = least
            leaves = fixed[flow]
            taken = np.bincount(nic[leaves], tasks[flow[leaves]], self.count)
            room = np.maximum(room - taken * least, 0.0)
            nic, flow = nic[~leaves], flow[~leaves]
        return rate, effort
