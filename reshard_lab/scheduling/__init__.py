"""Who sends each unit task, and in which order (section 3.2), with a certificate."""

from reshard_lab.errors import check_choice, check_int
from reshard_lab.scheduling.baselines import dfs, greedy, load_balance, naive
from reshard_lab.scheduling.concurrent import concurrent
from reshard_lab.scheduling.exact import Solved, exact
from reshard_lab.scheduling.list_scheduling import list_schedule
from reshard_lab.scheduling.problem import Budget, Group, Problem
from reshard_lab.scheduling.schedule import (
    SHARED_OUT,
    Assignment,
    Schedule,
    Sharing,
    certified,
    check,
    meets,
    span,
    with_idle,
)
from reshard_lab.scheduling.split import split

__all__ = [
    "METHODS",
    "SHARED_OUT",
    "Assignment",
    "Group",
    "Problem",
    "Schedule",
    "Sharing",
    "check",
    "list_schedule",
    "meets",
    "solve",
]

_OF_THE_PAPER = ("naive", "load_balance", "dfs", "greedy", "ensemble")
METHODS = (*_OF_THE_PAPER, "exact", "auto", *SHARED_OUT)


def solve(
    problem: Problem, method: str = "auto", time_limit_s: float = 2.0, seed: int = 0
) -> Schedule:
    """A schedule of ``problem`` with its lower bound, in the unit of the problem's durations.

    method:
        ``naive``, ``load_balance``, ``dfs``, ``greedy``, ``ensemble``: the paper's, the last
        being the better of the two before it. ``exact`` and ``auto``: the best schedule of whole
        tasks that the time allows, with proof where it is optimal. ``split``: tasks shared out
        among senders. ``concurrent``: no order at all, every task at once.
    time_limit_s:
        seconds of processor time a search may take; a first answer is always made.
    seed:
        of everything random. One seed, one schedule, on any machine that keeps the pace.

    >>> s = solve(Problem([2.0, 1.0, 1.0], [(0, 1)] * 3, [(2,), (3,), (4,)]))
    >>> s.makespan, s.lower_bound, s.optimal
    (2.0, 2.0, 'unsplit')
    """
    name = check_choice("scheduling method", method, METHODS)
    budget = Budget(time_limit_s)
    check_int("seed", seed)
    if name in SHARED_OUT:
        return split(problem, budget, seed) if name == "split" else concurrent(problem, budget)
    if name in ("exact", "auto"):
        assignments, bound, notes = exact(problem, budget, seed)
        assignments = with_idle(problem, assignments)
    else:
        assignments, bound, notes = _by_the_paper(problem, name, budget, seed)
    return certified(name, problem, assignments, bound, "unsplit", notes)


def _by_the_paper(problem: Problem, method: str, budget: Budget, seed: int) -> Solved:
    bound = problem.unsplit_bound
    if method in ("naive", "load_balance"):
        rule = naive if method == "naive" else load_balance
        return Solved(list_schedule(problem, *rule(problem)), bound, ())
    if method == "greedy":
        return Solved(list_schedule(problem, *greedy(problem, budget, seed)), bound, ())
    part = budget.part(0.5) if method == "ensemble" else budget
    order, sender, complete = dfs(problem, part, *load_balance(problem))
    searched = list_schedule(problem, order, sender)
    if complete:
        return Solved(searched, span(searched), ("dfs searched all orders and senders",))
    note = "dfs was cut off by its limit"
    if method == "ensemble":
        drawn = list_schedule(problem, *greedy(problem, budget.part(0.5), seed))
        if span(drawn) < span(searched):
            return Solved(drawn, bound, (note, "randomized greedy was better"))
    return Solved(searched, bound, (note,))
