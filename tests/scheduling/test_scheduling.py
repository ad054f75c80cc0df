"""The schedulers against the handed instances, and what `solve` accepts and reports."""

import itertools
import math
import sys
import time

import pytest

import reshard_lab as rl
from reshard_lab.scheduling import (
    METHODS,
    Assignment,
    Problem,
    Schedule,
    check,
    solve,
)
from reshard_lab.scheduling.problem import Budget
from reshard_lab.scheduling.schedule import certified
from support.reference_cases import read, tasks_of

CASES = read("schedules")
PROBLEMS = {case["name"]: Problem.from_tasks(tasks_of(case)) for case in CASES}
by_name = pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
UNSPLIT = [m for m in METHODS if m not in ("split", "concurrent")]


@pytest.fixture(scope="module", autouse=True)
def solvers_are_loaded():
    """Loading them counts towards a time limit; it is not what is tested here."""
    pytest.importorskip("scipy.optimize")
    pytest.importorskip("ortools.sat.python.cp_model")


def meet_pairwise(problem: Problem) -> bool:
    """Whether two receiver sets share a NIC without being equal."""
    sets = {frozenset(r) for r in problem.receivers}
    return any(a & b and a != b for a, b in itertools.combinations(sets, 2))


@by_name
@pytest.mark.parametrize("method", ["exact", "auto"])
def test_handed_optimum_is_found_and_proven(case, method):
    schedule = solve(PROBLEMS[case["name"]], method)
    optimum = case["expected"]["unsplit_optimum_bytes"]
    assert schedule.makespan == pytest.approx(optimum, rel=1e-9)
    assert schedule.lower_bound == pytest.approx(optimum, rel=1e-9)
    assert schedule.optimal == "unsplit"
    assert schedule.fluid_bound == pytest.approx(case["expected"]["fluid_bound_bytes"], rel=1e-9)
    assert schedule.unsplit_bound == pytest.approx(optimum, rel=1e-9)
    check(schedule)


@by_name
def test_handed_split_meets_the_fluid_bound(case):
    problem = PROBLEMS[case["name"]]
    fluid = case["expected"]["fluid_bound_bytes"]
    schedule = solve(problem, "split")
    assert schedule.lower_bound == pytest.approx(fluid, rel=1e-9)
    if meet_pairwise(problem):
        assert schedule.makespan <= 1.032 * fluid
    else:
        assert schedule.makespan == pytest.approx(fluid, rel=1e-6)
        assert schedule.optimal == "fluid"
    check(schedule)


@by_name
def test_handed_concurrent_is_within_a_tenth_of_the_largest_load(case):
    """The largest load of a NIC, the senders being balanced with whole tasks."""
    problem = PROBLEMS[case["name"]]
    schedule = solve(problem, "concurrent")
    load: dict[tuple[str, int], float] = {}
    for task, sender in enumerate(schedule.sender):
        for nic in [("tx", sender), *(("rx", r) for r in problem.receivers[task])]:
            load[nic] = load.get(nic, 0.0) + problem.durations[task]
    assert max(load.values()) * (1 - 1e-9) <= schedule.makespan <= 1.1 * max(load.values())
    assert {a.start for a in schedule.assignments} == {0.0}
    check(schedule)


@by_name
@pytest.mark.parametrize(("method", "key"), [("naive", "naive"), ("load_balance", "lpt")])
def test_handed_baselines_are_reproduced(case, method, key):
    schedule = solve(PROBLEMS[case["name"]], method)
    assert schedule.makespan == pytest.approx(case["baselines_bytes"][key], rel=1e-12)
    check(schedule)


@pytest.mark.parametrize("method", ["dfs", "greedy", "ensemble"])
@pytest.mark.parametrize("name", list(PROBLEMS)[:16:3])
def test_searches_are_schedules_no_better_than_the_optimum(method, name):
    schedule = solve(PROBLEMS[name], method, time_limit_s=0.2)
    optimum = next(c for c in CASES if c["name"] == name)["expected"]["unsplit_optimum_bytes"]
    assert schedule.makespan >= optimum * (1 - 1e-9)
    assert schedule.lower_bound <= optimum * (1 + 1e-9)
    if schedule.optimal:
        assert schedule.makespan == pytest.approx(optimum, rel=1e-9)
    check(schedule)


def test_dfs_finds_what_load_balance_misses():
    """Suite case 5: twice the optimum naively, 1.5 times by load alone."""
    problem = PROBLEMS["2x4:S1RR->2x4:S0RR"]
    times = {m: solve(problem, m).makespan for m in ("naive", "load_balance", "dfs")}
    assert times["naive"] == 2 * times["dfs"]
    assert times["load_balance"] == 1.5 * times["dfs"]
    assert solve(problem, "dfs").optimal == "unsplit"


def test_ensemble_is_the_better_of_the_two():
    for name in ("2x4:S1RR->2x4:S0RR", "3x8:S0S1R->4x8:S01RR", "2x8:RS1S0->2x8:RS0S1"):
        best = solve(PROBLEMS[name], "ensemble", time_limit_s=0.4)
        parts = [solve(PROBLEMS[name], m, time_limit_s=0.2) for m in ("dfs", "greedy")]
        assert best.makespan == min(p.makespan for p in parts)


def test_replicas_on_h_hosts_to_h_plus_1():
    """R -> S0 from H to H + 1 hosts: whole tasks take 2, shares take (H + 1)/H."""
    for hosts in (1, 2, 3, 5, 8):
        problem = Problem(
            [1.0] * (hosts + 1),
            [range(hosts)] * (hosts + 1),
            [(hosts + r,) for r in range(hosts + 1)],
        )
        assert solve(problem).makespan == 2
        split = solve(problem, "split")
        assert split.makespan == pytest.approx((hosts + 1) / hosts, rel=1e-9)
        assert split.optimal == "fluid"
        check(split)


def test_bounds_are_kept_apart():
    """Three tasks of 2 from two senders: 3 fluid, 4 whole."""
    problem = Problem([2.0] * 3, [(0, 1)] * 3, [(2,), (3,), (4,)])
    assert (problem.fluid_bound, problem.unsplit_bound) == (3.0, 4.0)
    schedule = solve(problem, "exact")
    assert (schedule.fluid_bound, schedule.unsplit_bound, schedule.lower_bound) == (3.0, 4.0, 4.0)
    assert schedule.gap == 0.0
    split = solve(problem, "split")
    assert (split.fluid_bound, split.unsplit_bound, split.lower_bound) == (3.0, 4.0, 3.0)
    naive = solve(problem, "naive")
    assert (naive.makespan, naive.lower_bound, naive.optimal, naive.gap) == (6.0, 4.0, None, 0.5)
    assert repr(naive) == "Schedule(naive: 3 tasks, makespan 6, bound 4, gap 50.00%)"
    assert repr(split) == "Schedule(split: 3 tasks, makespan 3, bound 3, fluid-optimal)"


def test_the_longest_task_is_a_bound():
    problem = Problem([5.0, 1.0], [(0, 1), (0, 1)], [(2,), (3,)])
    assert (problem.fluid_bound, problem.unsplit_bound) == (5.0, 5.0)
    problem = Problem([4.0], [(0, 1)], [(2,)])
    assert solve(problem).optimal == "unsplit"


def test_equal_tasks_are_grouped_never_fused():
    problem = Problem([1.0] * 5, [(0,), (0,), (0, 1), (0,), (0,)], [(2,), (3,), (2,), (2,), (2,)])
    assert [(g.duration, g.senders, g.receivers, g.tasks) for g in problem.groups] == [
        (1.0, (0,), (2,), (0, 3, 4)),
        (1.0, (0,), (3,), (1,)),
        (1.0, (0, 1), (2,), (2,)),
    ]
    assert sorted(a.task for a in solve(problem).assignments) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_problems(method):
    empty = solve(Problem([], [], []), method)
    assert (empty.makespan, empty.lower_bound, empty.assignments) == (0.0, 0.0, ())
    assert empty.optimal == {"split": "fluid", "concurrent": None}.get(method, "unsplit")
    one = solve(Problem([3.0], [(1, 0)], [(2, 3)]), method)
    assert (one.makespan, one.start) == (3.0, (0.0,))
    assert one.sender in ((0,), (1,))
    nothing = solve(Problem([0.0, 2.0, 0.0], [(0,), (0,), (1,)], [(1,), (), ()]), method)
    assert nothing.makespan == 0.0
    assert sorted(a.task for a in nothing.assignments) == [0, 1, 2]
    mixed = solve(Problem([0.0, 1.0, 5.0], [(0,), (0,), (0,)], [(1,), (1,), ()]), method)
    assert mixed.makespan == 1.0
    for schedule in (empty, one, nothing, mixed):
        check(schedule)


HARD = Problem(
    durations=[2.0, 2.0, 3.0, 3.0, 2.0, 1.0, 4.0, 2.0, 5.0, 3.0],
    senders=[(0, 1), (1, 2), (0, 2), (0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (2,)],
    receivers=[(3, 4), (4, 5), (3, 5), (3,), (4,), (5,), (6, 3), (6, 4), (6,), (5, 6)],
)
"""Ten tasks whose receiver sets overlap; no stage before CP-SAT proves all such problems."""


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_one_schedule(method):
    for problem in (HARD, PROBLEMS["4x4:RS01R->8x4:S0RR"]):
        first, again = (solve(problem, method, time_limit_s=2.0, seed=5) for _ in range(2))
        assert first.assignments == again.assignments
        assert (first.lower_bound, first.optimal) == (again.lower_bound, again.optimal)


def test_seeds_differ():
    problem = PROBLEMS["3x8:S0S1R->4x8:S01RR"]
    schedules = {solve(problem, "greedy", time_limit_s=0.2, seed=s).assignments for s in range(3)}
    assert len(schedules) == 3


def uneven(tasks: int) -> Problem:
    """A problem with no two tasks alike that no stage proves at once."""
    return Problem(
        [1 + (i * 0.618033988749895) % 1 for i in range(tasks)],
        [((i * 7) % 5, 5 + (i * 3) % 4) for i in range(tasks)],
        [(10 + i % 7, 20 + (i * 5) % 6) for i in range(tasks)],
    )


def test_without_ortools_the_gap_is_reported(monkeypatch):
    """No CP-SAT stage: said so, and the bound and gap stay true."""
    monkeypatch.setitem(sys.modules, "ortools", None)
    schedule = solve(uneven(40), time_limit_s=0.5)
    assert any(
        "CP-SAT stage was left out: ortools is not installed" in note
        and "pip install 'reshard-lab[solve]'" in note
        for note in schedule.notes
    )
    assert schedule.optimal is None
    assert schedule.gap > 0
    assert schedule.lower_bound < schedule.makespan
    check(schedule)
    assert solve(PROBLEMS["4x4:RS01R->8x4:S0RR"]).optimal == "unsplit"  # proven without it


def test_split_says_why_tasks_stay_whole():
    problem = Problem([1.0] * 3, [(0, 1)] * 3, [(2,), (3,), (4,)])
    assert "no task was cut: 6 choices are too many" in solve(problem, "split", 1e-4).notes[0]
    assert solve(problem, "split").notes == ("tasks shared out among senders in phases",)
    both = Problem([1.0, 1.0], [(0,), (1,)], [(1, 2), (0, 2)])
    assert solve(both, "split").notes == ("no task had to be cut",)


def test_no_time_still_gives_a_schedule():
    for method in METHODS:
        check(solve(uneven(60), method, time_limit_s=0.0))


def test_a_search_says_that_the_limit_ended_it(monkeypatch):
    clock = itertools.count(0, 0.5)
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    assert any("ended the search" in note for note in solve(uneven(40), time_limit_s=2.0).notes)


@pytest.mark.parametrize("method", METHODS)
def test_a_search_may_have_no_limit(method):
    check(solve(uneven(6), method, time_limit_s=math.inf))


@pytest.mark.parametrize("small", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("method", METHODS)
def test_tiny_tasks_beside_large_ones_are_not_lost(method, small):
    problem = Problem([1.0, 1.0, 1.0, small], [(0, 1)] * 3 + [(0,)], [(2,), (3,), (4,), (2,)])
    schedule = solve(problem, method)
    check(schedule)
    assert {a.task for a in schedule.assignments} == {0, 1, 2, 3}
    assert schedule.makespan >= problem.fluid_bound * (1 - 1e-9)


def test_budgets_of_stages_end_with_the_whole(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "thread_time", lambda: now)
    whole = Budget(10.0)
    part = whole.part(0.1)
    assert (part.limit_s, part.ends, part.steps(100)) == (1.0, 10.0, 100.0)
    now = 9.0
    slot = whole.slot(0.5)  # half of the second that is left
    assert (slot.limit_s, slot.ends, part.over) == (0.5, 9.5, False)
    now = 11.0
    assert (slot.left_s, part.over) == (0.0, True)


def built(*rows: tuple, method: str = "split", problem: Problem | None = None) -> Schedule:
    problem = problem or Problem([4.0, 2.0], [(0, 1), (0,)], [(2, 3), (2,)])
    return Schedule(method, problem, tuple(Assignment(*row) for row in rows), 6.0, None)


def test_checker_accepts_a_relayed_schedule():
    check(
        built(
            (0, 1, 0.0, 4.0, 1.0, 0.0, (2,)),
            (0, 2, 4.0, 8.0, 1.0, 0.0, (3,)),
            (1, 0, 4.0, 6.0, 1.0),
        )
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(0, 0, 0, 4, 1.0)], "task 1 is not in the schedule"),
        ([(0, 1, 0, 4, 1.0), (1, 0, 3, 5, 1.0)], "rx of NIC 2 is busy twice"),
        ([(0, 0, 0, 4, 1.0), (1, 0, 4, 5, 1.0)], "faster than a NIC"),
        ([(0, 0, 0, 2, 0.5), (1, 0, 4, 6, 1.0)], "NIC 2 gets task 0 up to 0.5 only"),
        ([(0, 0, 0, 2, 0.5, 0.5), (1, 0, 4, 6, 1.0)], "gets task 0 up to 0.0, then from 0.5 on"),
        (
            [(0, 0, 0, 4, 1.0), (0, 1, 4, 8, 1.0), (1, 0, 8, 10, 1.0)],
            "gets task 0 up to 1.0, then from 0.0 on",
        ),
        ([(0, 0, 0, 4, 1.0, 0.0, (2, 7)), (1, 0, 4, 6, 1.0)], "a NIC that does not need the task"),
        ([(0, 1, 0, 4, 1.0), (1, 1, 4, 6, 1.0)], "no sender and has not received it by then"),
        (
            [(0, 1, 0, 4, 1.0, 0.0, (2,)), (0, 2, 3, 7, 1.0, 0.0, (3,)), (1, 0, 4, 6, 1.0)],
            "has not received it by then",
        ),
        ([(0, 1, 4, 0, 1.0), (1, 0, 4, 6, 1.0)], "ends before it starts"),
        ([(2, 1, 0, 4, 1.0), (1, 0, 4, 6, 1.0)], "is of no task"),
        ([(0, 0, 0, 4, 1.0, -0.1), (1, 0, 4, 6, 1.0)], "carries no part of its task"),
        ([(0, 0, 0, 4, 1.0), (1, 0, 4, 6, 1.0), (1, 0, 6, 7, 0.0)], "carries no part of its task"),
        ([(0, 0, 0, 4, 1.0), (1, 0, 4, 6, 1.0), (1, 0, 6, 8, 0.6, 0.5)], "carries no part"),
    ],
)
def test_checker_refuses(rows, words):
    with pytest.raises(rl.ReshardError, match=words):
        check(built(*rows))


def test_checker_looks_at_rates():
    import dataclasses

    problem = Problem([2.0, 2.0], [(0,), (0,)], [(1,), (2,)])
    good = solve(problem, "concurrent")
    check(good)
    assert good.sharing.rates == ((0.5, 0.5),)
    greedy = good.sharing._replace(rates=((0.6, 0.6),))
    with pytest.raises(rl.ReshardError, match=r"tx of NIC 0 is used 1.2 times over"):
        check(dataclasses.replace(good, sharing=greedy))
    idle = good.sharing._replace(rates=((0.5, 0.25),))
    with pytest.raises(rl.ReshardError, match=r"task 1 lasts 2.0, but gets 1.0"):
        check(dataclasses.replace(good, sharing=idle))


def test_a_bound_above_a_schedule_is_a_mistake_that_is_told():
    def bound(claimed: float) -> float:
        problem, assignments = Problem([2.0], [(0,)], [(1,)]), [Assignment(0, 0, 0.0, 2.0, 1.0)]
        return certified("naive", problem, assignments, claimed, "unsplit").lower_bound

    assert bound(2.0 * (1 + 1e-9)) == 2.0
    assert bound(1.5) == 1.5
    with pytest.raises(rl.ReshardError, match=r"lower bound 2\.5 exceeds a schedule of length 2"):
        bound(2.5)
