"""The paper's schedulers (sections 3.2 and 5.3.1), faithfully."""

from __future__ import annotations

from functools import reduce
from operator import or_

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


class _State:
    """Tasks issued so far, and when every NIC is free after them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.free: dict[tuple[str, int], float] = {}
        self.ahead: dict[tuple[str, int], float] = {}
        """Time that tasks still to be issued take on a NIC whatever is chosen."""
        for duration, options, receivers in zip(
            problem.durations, problem.senders, problem.receivers, strict=True
        ):
            fixed = [("tx", options[0])] if receivers and len(options) == 1 else []
            for nic in [*(("rx", r) for r in receivers), *fixed]:
                self.ahead[nic] = self.ahead.get(nic, 0.0) + duration
        self.issued: list[tuple[int, int]] = []
        self.undo: list[dict[tuple[str, int], tuple[float, float]]] = []

    def start(self, task: int, sender: int) -> float:
        return max(self.free.get(n, 0.0) for n in ports(sender, self.problem.receivers[task]))

    def issue(self, task: int, sender: int) -> None:
        """Append a task: it starts as soon as all its NICs are free."""
        duration = self.problem.durations[task]
        end = self.start(task, sender) + duration
        fixed = len(self.problem.senders[task]) == 1
        before = {}
        for nic in ports(sender, self.problem.receivers[task]):
            before[nic] = self.free.get(nic, 0.0), self.ahead.get(nic, 0.0)
            self.free[nic] = end
            if nic[0] == "rx" or fixed:
                self.ahead[nic] = max(0.0, self.ahead.get(nic, 0.0) - duration)
        self.issued.append((task, sender))
        self.undo.append(before)

    def take_back(self) -> None:
        for nic, (free, ahead) in self.undo.pop().items():
            self.free[nic], self.ahead[nic] = free, ahead
        self.issued.pop()

    def bound(self) -> float:
        """Load per host: what a NIC has done, with its waits, and still has to do."""
        done = max(self.free.values(), default=0.0)
        return max(done, max((self.free.get(n, 0.0) + a for n, a in self.ahead.items()), default=0))

    def choices(self) -> list[tuple[int, int]]:
        """Every next task and sender; tried from the end: earliest start first, longest first."""
        done = {i for i, _ in self.issued}
        return sorted(
            (
                (i, s)
                for i, options in enumerate(self.problem.senders)
                if self.problem.receivers[i] and i not in done
                for s in options
            ),
            key=lambda c: (-self.start(*c), self.problem.durations[c[0]], -c[0], -c[1]),
        )


def dfs(
    problem: Problem, budget: Budget, order: list[int], sender: list[int]
) -> tuple[list[int], list[int], bool]:
    """Order and senders, searching all from (``order``, ``sender``) on, and whether all were seen.

    A branch is cut off when the load of some NIC shows that it cannot beat the best schedule
    so far. Complete for about 10 tasks; the best so far after the time limit.
    """
    state = _State(problem)
    idle = [i for i in range(len(problem)) if not problem.receivers[i]]
    for i in order:
        if problem.receivers[i]:
            state.issue(i, sender[i])
    best, issued = state.bound(), list(state.issued)
    while state.issued:
        state.take_back()
    work = budget.steps(_DFS_PACE)
    open_choices = [state.choices()]
    while open_choices and work > 0 and not budget.over:
        if not open_choices[-1]:
            open_choices.pop()
            if state.issued:
                state.take_back()
            continue
        state.issue(*open_choices[-1].pop())
        work -= 1 + len(state.ahead) / 10
        bound = state.bound()
        if bound < best * (1 - 1e-12):
            if len(state.issued) < len(problem) - len(idle):
                open_choices.append(state.choices())
                work -= len(open_choices[-1])
                continue
            best, issued = bound, list(state.issued)
        state.take_back()
    chosen = dict(issued)
    senders = [chosen.get(i, options[0]) for i, options in enumerate(problem.senders)]
    return idle + [i for i, _ in issued], senders, not open_choices
