"""The paper's rules (sections 3.2 and 5.3.1), faithfully; ``dfs`` has a module of its own."""

from __future__ import annotations

import numpy as np

from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.problem import Problem

_DRAWS = 100
"""Random orders tried for each set of the randomized greedy search."""
_PACE = 5e5
"""Tasks looked at a second, well below what a slow machine does."""


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
    work = budget.steps(_PACE)
    while left:
        best: dict[int, int] = {}
        sets_left = max(1.0, len(left) / max(1, _most_at_once(left, sends, takes)))
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
        if takes[i] & taking:
            continue
        free = sends[i] & ~sending
        if not free:
            continue
        choices = [s for s in range(free.bit_length()) if free >> s & 1]
        source = choices[0] if len(choices) == 1 else choices[int(rng.integers(len(choices)))]
        taken[i] = source
        sending |= 1 << source
        taking |= takes[i]
    return taken


def _most_at_once(left: list[int], sends: list[int], takes: list[int]) -> int:
    """At most so many of the tasks fit into one set: the fewer of the senders and receivers."""
    senders = receivers = 0
    for i in left:
        senders |= sends[i]
        receivers |= takes[i]
    return min(senders.bit_count(), receivers.bit_count())
