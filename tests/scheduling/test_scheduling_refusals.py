"""Problems, options and schedules that scheduling refuses."""

import math
import re
from functools import partial

from reshard_lab.scheduling import Problem, solve
from support.refusals import bad_calls, check_refusal


def solve_one(**options):
    return solve(Problem([1.0], [(0,)], [(1,)]), **options)


def add_up(durations):
    n = len(durations)
    return Problem(durations, [(0,)] * n, [(i + 1,) for i in range(n)])


REFUSALS = {
    "Problem": [
        (lambda: Problem([1.0], [()], [(1,)]), "task 0 has no sender; name at least one NIC"),
        (
            lambda: Problem([math.nan], [(0,)], [(1,)]),
            "duration of task 0 must be finite and at least 0",
        ),
        (lambda: Problem([math.inf], [(0,)], [(1,)]), "must be finite"),
        (lambda: Problem([-1.0], [(0,)], [(1,)]), "must be finite and at least 0, not -1.0"),
        (lambda: Problem(["x"], [(0,)], [(1,)]), "duration of task 0 must be a number, not 'x'"),
        (
            lambda: Problem([1.0, 1.0], [(0,)], [(1,)]),
            "2 durations, 1 senders and 1 receivers given",
        ),
        (
            lambda: Problem([1.0], [(-1,)], [(1,)]),
            "senders of task 0 must be NIC numbers of at least 0, not -1",
        ),
        (lambda: Problem([1.0], [(0,)], [(1.5,)]), "receivers of task 0 must be NIC numbers"),
        (lambda: Problem([1.0], [(0, 0)], [(1,)]), "senders of task 0 repeat a NIC"),
        (
            lambda: Problem([1.0], ["01"], [(1,)]),
            "senders of task 0 must be a list of NIC numbers",
        ),
        (lambda: add_up([1e308] * 5), re.compile("too long to be added up|must be a number")),
        (lambda: add_up([10**400]), re.compile("too long to be added up|must be a number")),
        (lambda: Problem.from_tasks(1.5), "or a list of them, not 1.5"),
    ],
    "solve": [
        (
            partial(solve_one, method="exakt"),
            re.compile("unknown scheduling method 'exakt'.*did you mean 'exact'"),
        ),
        (
            partial(solve_one, time_limit_s=-1),
            "time_limit_s must be seconds of at least 0, not -1",
        ),
        (partial(solve_one, time_limit_s=math.nan), "time_limit_s must be seconds"),
        (partial(solve_one, time_limit_s="2s"), "time_limit_s must be seconds"),
        (partial(solve_one, seed=1.5), "seed must be a whole number"),
        (partial(solve_one, seed=-1), "seed must be at least 0"),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)
