"""No order at all: every task at once, NICs shared max-min fairly.

The baseline that any order has to beat. The completion is a prediction under ideal sharing (what
well-behaved flows tend to), and it may be below the best schedule of whole tasks one by one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from reshard_lab.max_min import PortTable, max_min, port_table
from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.problem import Group, Problem
from reshard_lab.scheduling.schedule import (
    Assignment,
    Schedule,
    Sharing,
    idle_assignments,
    true_bound,
)
from reshard_lab.scheduling.senders import balanced_equal, longest_first

_PACE = 1e7
"""Uses of a port by a flow looked at a second, well below what a slow machine does."""


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
    bound = true_bound(made, problem.fluid_bound)
    return Schedule("concurrent", problem, tuple(made), bound, None, tuple(notes), shared.sharing)


def _largest_load(dealt: Sequence[Group]) -> float:
    load: dict[tuple[str, int], float] = {}
    for g in dealt:
        for nic in [("tx", g.senders[0]), *(("rx", r) for r in g.receivers)]:
            load[nic] = load.get(nic, 0.0) + g.duration * len(g.tasks)
    return max(load.values(), default=0.0)


class Flow(NamedTuple):
    """Jobs that use the same ports alike and start together."""

    uses: tuple[tuple[Hashable, float], ...]
    """Ports, and the part of each that a job at full speed takes."""
    jobs: tuple[tuple[float, int], ...]
    """(seconds at full speed, number) of each."""


class Shared(NamedTuple):
    """What becomes of flows that share ports."""

    sharing: Sharing
    ends: dict[int, float]
    """By number of the job."""
    every: int
    """Rates were worked out anew at every so many ends."""


def _share(dealt: Sequence[Group], budget: Budget) -> Shared:
    found: dict[tuple[int, tuple[int, ...]], list[tuple[float, int]]] = {}
    for g in dealt:
        found.setdefault((g.senders[0], g.receivers), []).extend((g.duration, i) for i in g.tasks)
    return share_ports(
        [
            Flow(((("tx", s), 1.0), *((("rx", r), 1.0) for r in to)), tuple(jobs))
            for (s, to), jobs in found.items()
        ],
        budget,
    )


def share_ports(given: Sequence[Flow], budget: Budget) -> Shared:
    """Max-min fair rates over time and the end of every job, all starting at 0.

    All jobs of a flow run at one rate, so they end from short to long. Rates are worked out anew
    whenever jobs end; less often where that would not fit the time limit: in between the
    unfinished jobs keep their rates, which stay possible.
    """
    flows = [sorted(flow.jobs, reverse=True) for flow in given]
    names = tuple(tuple(i for _, i in jobs) for jobs in flows)
    table = port_table([flow.uses for flow in given])
    uses = np.array([len(flow.uses) for flow in given])
    left = np.array([len(jobs) for jobs in flows], dtype=np.int64)
    goal = np.array([jobs[-1][0] for jobs in flows])
    done = np.zeros(len(flows))  # what each unfinished job of a flow has got so far
    rate = done
    now, times, rates = 0.0, [], []
    ends: dict[int, float] = {}
    ahead = sum(len({lasts for lasts, _ in jobs}) for jobs in flows)
    work = budget.steps(_PACE)
    every, since = 1, 1
    while left.any():
        if since >= every:
            rate = _rates(table, left)
            # The work of filling up port by port: a look at every use a level, until it is full.
            level = np.unique(rate[left > 0].round(12), return_inverse=True)[1]
            effort = int(uses[left > 0] @ (level + 2))
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
            jobs = flows[f]
            while jobs and jobs[-1][0] <= goal[f]:
                ends[jobs.pop()[1]] = now
            left[f] = len(jobs)
            goal[f] = jobs[-1][0] if jobs else np.inf
            ahead -= 1
            since += 1
    return Shared(Sharing(names, (*times, now), tuple(rates)), ends, every)


def _rates(table: PortTable, jobs: np.ndarray) -> np.ndarray:
    """The max-min fair rate of each of the ``jobs`` of every flow, as parts of full speed."""
    rate = np.zeros(len(jobs))
    moves = jobs > 0
    weight = table.weight[moves] * jobs[moves, None]
    rate[moves] = max_min(table.ports[moves], table.capacity, np.ones(moves.sum()), weight=weight)
    return rate
