"""The paper's two deterministic rules (sections 3.2 and 5.3.1)."""

from __future__ import annotations

from reshard_lab.scheduling.problem import Problem


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
