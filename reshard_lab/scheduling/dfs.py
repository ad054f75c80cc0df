"""The paper's depth-first search over senders and orders (section 3.2)."""

from __future__ import annotations

from typing import NamedTuple

from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.problem import Problem

_PACE = 1e5
"""Choices looked at a second, well below what a slow machine does."""


class Searched(NamedTuple):
    """The best order and senders found, and whether everything was searched."""

    order: list[int]
    sender: list[int]
    complete: bool


class _State:
    """Tasks issued so far, and when every NIC is free after them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.free: dict[tuple[str, int], float] = {}
        self.ahead: dict[tuple[str, int], float] = {}
        for lasts, options, targets in zip(
            problem.durations, problem.senders, problem.receivers, strict=True
        ):
            nics = [("rx", r) for r in targets]
            nics += [("tx", options[0])] if targets and len(options) == 1 else []
            for nic in nics:
                self.ahead[nic] = self.ahead.get(nic, 0.0) + lasts
        self.issued: list[tuple[int, int]] = []
        self.undo: list[dict[tuple[str, int], tuple[float, float]]] = []

    def nics(self, task: int, sender: int) -> list[tuple[str, int]]:
        return [("tx", sender), *(("rx", r) for r in self.problem.receivers[task])]

    def start(self, task: int, sender: int) -> float:
        return max(self.free.get(nic, 0.0) for nic in self.nics(task, sender))

    def issue(self, task: int, sender: int) -> None:
        """Append a task: it starts as soon as all its NICs are free."""
        lasts = self.problem.durations[task]
        end = self.start(task, sender) + lasts
        fixed = len(self.problem.senders[task]) == 1
        before = {}
        for nic in self.nics(task, sender):
            before[nic] = self.free.get(nic, 0.0), self.ahead.get(nic, 0.0)
            self.free[nic] = end
            if nic[0] == "rx" or fixed:
                self.ahead[nic] = max(0.0, self.ahead.get(nic, 0.0) - lasts)
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


def dfs(problem: Problem, budget: Budget, order: list[int], sender: list[int]) -> Searched:
    """Search all senders and orders, from a first answer (``order``, ``sender``) to better ones.

    A branch is cut off when the load of some NIC shows that it cannot beat the best schedule
    so far. Complete for about 10 tasks; the best so far after the time limit.
    """
    state = _State(problem)
    moving = [i for i in range(len(problem)) if problem.receivers[i]]
    still = [i for i in range(len(problem)) if not problem.receivers[i]]
    for i in order:
        if problem.receivers[i]:
            state.issue(i, sender[i])
    best, found = state.bound(), list(state.issued)
    while state.issued:
        state.take_back()
    work = budget.steps(_PACE)
    open_choices = [_choices(state, moving)]
    while open_choices:
        if work <= 0 or budget.over:
            break
        if not open_choices[-1]:
            open_choices.pop()
            if state.issued:
                state.take_back()
            continue
        state.issue(*open_choices[-1].pop())
        work -= 1 + len(state.ahead) / 10
        if state.bound() >= best * (1 - 1e-12):
            state.take_back()
            continue
        if len(state.issued) == len(moving):
            best, found = state.bound(), list(state.issued)
            state.take_back()
            continue
        done = {i for i, _ in state.issued}
        open_choices.append(_choices(state, [i for i in moving if i not in done]))
        work -= len(open_choices[-1])
    chosen = dict(found)
    senders = [chosen.get(i, problem.senders[i][0]) for i in range(len(problem))]
    return Searched(still + [i for i, _ in found], senders, not open_choices)


def _choices(state: _State, left: list[int]) -> list[tuple[int, int]]:
    """Every next task and sender; tried from the end: earliest start first, longest first."""
    made = [(i, s) for i in left for s in state.problem.senders[i]]
    return sorted(
        made, key=lambda c: (-state.start(*c), state.problem.durations[c[0]], -c[0], -c[1])
    )
