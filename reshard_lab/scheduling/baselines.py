"""The paper's schedulers (sections 3.2 and 5.3.1), faithfully."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from reshard_lab.scheduling.problem import Budget, Problem, ports

_DRAWS = 100
"""Random orders tried for each set of the randomized greedy search."""
_GREEDY_PACE = 5e5
"""Tasks looked at a second, well below what a slow machine does."""
_DFS_PACE = 1e5
"""Choices looked at a second, likewise."""


def naive(problem: Problem) -> tuple[list[int], list[int]]:
    """Order and senders: tasks as listed, each from its lowest-indexed sender."""
    return list(range(len(problem))), [options[0] for options in problem.senders]


def load_balance(problem: Problem) -> tuple[list[int], list[int]]:
    """Order and senders: longest first, each to the least loaded of its senders (equation 4, LPT).

    The sort is stable; ties in load go to the lowest sender.
    """
    order = sorted(range(len(problem)), key=lambda i: -problem.durations[i])
    load = {s: 0.0 for options in problem.senders for s in options}
    sender = [0] * len(problem)
    for i in order:
        best = min(problem.senders[i], key=load.__getitem__)
        sender[i] = best
        if problem.receivers[i]:
            load[best] += problem.durations[i]
    return order, sender


def greedy(problem: Problem, budget: Budget, seed: int) -> tuple[list[int], list[int]]:
    """Order and senders: the paper's randomized greedy search.

    Draw a random order and take every task that overlaps with none taken, from a random free
    sender; append the largest such set of many draws; repeat until no task is left. Draws a
    set are cut down where all of them would not fit the time limit; one is always made.
    """
    rng = np.random.default_rng(seed)
    sends = [sum(1 << s for s in options) for options in problem.senders]
    takes = [sum(1 << r for r in targets) for targets in problem.receivers]
    left = [i for i in range(len(problem)) if takes[i]]
    order = [i for i in range(len(problem)) if not takes[i]]
    sender = [options[0] for options in problem.senders]
    work = budget.steps(_GREEDY_PACE)
    while left:
        best: dict[int, int] = {}
        senders, receivers = (reduce(or_, (bits[i] for i in left)) for bits in (sends, takes))
        most = min(senders.bit_count(), receivers.bit_count())  # that fit into one set
        sets_left = max(1.0, len(left) / most)
        draws = int(min(_DRAWS, work / (len(left) * sets_left / 2)))
        for draw in range(max(1, draws)):
            if draw and budget.over:
                break
            taken = _draw(rng, left, sends, takes)
            work -= len(left)
            if len(taken) > len(best):
                best = taken
        for i, source in best.items():
            sender[i] = source
        order += best
        left = [i for i in left if i not in best]
    return order, sender


def _draw(
    rng: np.random.Generator, left: list[int], sends: list[int], takes: list[int]
) -> dict[int, int]:
    """A maximal set of tasks that do not overlap, with their senders, in a random order."""
    taken: dict[int, int] = {}
    sending = taking = 0
    for at in rng.permutation(len(left)).tolist():
        i = left[at]
        free = sends[i] & ~sending
        if free and not takes[i] & taking:
            choices = [s for s in range(free.bit_length()) if free >> s & 1]
            at = int(rng.integers(len(choices))) if len(choices) > 1 else 0
            taken[i] = choices[at]
            sending |= 1 << choices[at]
            taking |= takes[i]
    return taken


class _Issued(NamedTuple):
    """Tasks issued so far, and when every NIC is free after them."""

    problem: Problem
    tasks: tuple[tuple[int, int], ...]
    """(task, sender) in order."""
    free: dict[tuple[str, int], float]
    ahead: dict[tuple[str, int], float]
    """Time that tasks still to be issued take on a NIC whatever is chosen."""

    def start(self, task: int, sender: int) -> float:
        return max(self.free.get(n, 0.0) for n in ports(sender, self.problem.receivers[task]))

    def issue(self, task: int, sender: int) -> _Issued:
        """Append a task: it starts as soon as all its NICs are free."""
        duration = self.problem.durations[task]
        end = self.start(task, sender) + duration
        free = self.free | dict.fromkeys(ports(sender, self.problem.receivers[task]), end)
        ahead = self.ahead | {
            nic: max(0.0, self.ahead[nic] - duration) for nic in _certain(self.problem, task)
        }
        return _Issued(self.problem, (*self.tasks, (task, sender)), free, ahead)

    def bound(self) -> float:
        """Load per host: what a NIC has done, with its waits, and still has to do."""
        done = max(self.free.values(), default=0.0)
        return max(done, max((self.free.get(n, 0.0) + a for n, a in self.ahead.items()), default=0))

    def choices(self) -> list[tuple[int, int]]:
        """Every next task and sender; tried from the end: earliest start first, longest first."""
        done = dict(self.tasks)
        return sorted(
            (
                (i, s)
                for i, options in enumerate(self.problem.senders)
                if self.problem.receivers[i] and i not in done
                for s in options
            ),
            key=lambda c: (-self.start(*c), self.problem.durations[c[0]], -c[0], -c[1]),
        )


def _certain(problem: Problem, task: int) -> list[tuple[str, int]]:
    """The NICs that a task takes whatever is chosen."""
    options = problem.senders[task]
    return ports(options[0], problem.receivers[task])[len(options) > 1 :]


def dfs(
    problem: Problem, budget: Budget, order: list[int], sender: list[int]
) -> tuple[list[int], list[int], bool]:
    """Order and senders, searching all from (``order``, ``sender``) on, and whether all were seen.

    A branch is cut off when the load of some NIC shows that it cannot beat the best schedule
    so far. Complete for about 10 tasks; the best so far after the time limit.
    """
    moving = [i for i in order if problem.receivers[i]]
    ahead: Counter[tuple[str, int]] = Counter()
    for i in sorted(moving):
        ahead.update(dict.fromkeys(_certain(problem, i), problem.durations[i]))
    best = start = _Issued(problem, (), {}, dict(ahead))
    for i in moving:
        best = best.issue(i, sender[i])
    shortest = best.bound()
    work = budget.steps(_DFS_PACE)
    branches = [(start, start.choices())]
    while branches and work > 0 and not budget.over:
        before, choices = branches[-1]
        if not choices:
            branches.pop()
            continue
        issued = before.issue(*choices.pop())
        work -= 1 + len(ahead) / 10
        bound = issued.bound()
        if bound >= shortest * (1 - 1e-12):
            continue
        if len(issued.tasks) < len(moving):
            branches.append((issued, issued.choices()))
            work -= len(branches[-1][1])
        else:
            best, shortest = issued, bound
    chosen = dict(best.tasks)
    idle = [i for i, receivers in enumerate(problem.receivers) if not receivers]
    senders = [chosen.get(i, options[0]) for i, options in enumerate(problem.senders)]
    return [*idle, *chosen], senders, not branches
