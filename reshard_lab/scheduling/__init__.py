"""Who sends each unit task, and in which order (section 3.2)."""

from __future__ import annotations

from reshard_lab.errors import choose
from reshard_lab.scheduling.baselines import load_balance, naive
from reshard_lab.scheduling.problem import Assignment, Problem, Schedule, list_schedule

__all__ = ["METHODS", "Assignment", "Problem", "Schedule", "list_schedule", "solve"]

METHODS = ("naive", "load_balance", "auto")


def solve(
    problem: Problem, method: str = "auto", time_limit_s: float = 2.0, seed: int = 0
) -> Schedule:
    """A schedule of ``problem`` with its lower bound, in the unit of the problem's durations."""
    name = choose("scheduling method", method, METHODS)
    rule = naive if name == "naive" else load_balance
    order, sender = rule(problem)
    assignments = tuple(list_schedule(problem, order, sender))
    makespan = max((a.end for a in assignments), default=0.0)
    bound = problem.lower_bound
    optimal = "fluid" if makespan <= bound * (1 + 1e-9) else None
    return Schedule(name, problem, assignments, bound, optimal)
