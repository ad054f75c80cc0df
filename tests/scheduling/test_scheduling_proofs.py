"""Independent truth for the schedulers: brute force, closed forms and random problems."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshard_lab.bounds import common_unit, fluid_bound, fractional_sender_load, unsplit_bound
from reshard_lab.max_min import port_table
from reshard_lab.scheduling import (
    METHODS,
    Problem,
    baselines,
    check,
    configurations,
    cpsat,
    solve,
)
from reshard_lab.scheduling.concurrent import _rates
from reshard_lab.scheduling.configurations import generate, slot_schedule
from reshard_lab.scheduling.exact import colour_edges
from reshard_lab.scheduling.list_scheduling import (
    GroupTable,
    dispatch,
    insert_widest,
    list_schedule,
)
from reshard_lab.scheduling.problem import Budget
from reshard_lab.scheduling.senders import (
    balanced_equal,
    least_largest_load,
    longest_first,
    receiver_classes,
    share_out,
)
from reshard_lab.scheduling.split import decompose

relaxed = settings(max_examples=60)


@pytest.fixture(scope="module", autouse=True)
def solvers_are_loaded():
    """Loading them counts towards a time limit; it is not what is tested here."""
    pytest.importorskip("scipy.optimize")
    pytest.importorskip("ortools.sat.python.cp_model")


def shortest(problem: Problem) -> float:
    """The least makespan of whole tasks, by every order and every choice of senders.

    Some order, each task starting as soon as its NICs are free, gives an optimal schedule: take
    any optimal one and start its tasks in order of their start, none later than there.
    """
    best = math.inf
    tasks = [i for i in range(len(problem)) if problem.receivers[i]]
    for order in itertools.permutations(tasks):
        for senders in itertools.product(*(problem.senders[i] for i in order)):
            free: Counter = Counter()
            for i, sender in zip(order, senders, strict=True):
                nics = [("tx", sender), *(("rx", r) for r in problem.receivers[i])]
                end = max(free[n] for n in nics) + problem.durations[i]
                for n in nics:
                    free[n] = end
            best = min(best, max(free.values(), default=0.0))
    return 0.0 if best is math.inf else best


def fluid_by_subsets(problem: Problem) -> float:
    """The fluid bound by Hall's condition: over all sets of senders, what only they may send."""
    moving = [i for i in range(len(problem)) if problem.receivers[i]]
    senders = sorted({s for i in moving for s in problem.senders[i]})
    best = 0.0
    for size in range(1, len(senders) + 1):
        for some in itertools.combinations(senders, size):
            inside = sum(problem.durations[i] for i in moving if set(problem.senders[i]) <= {*some})
            best = max(best, inside / size)
    for r in {r for i in moving for r in problem.receivers[i]}:
        best = max(best, sum(problem.durations[i] for i in moving if r in problem.receivers[i]))
    return best


@st.composite
def problems(draw, most: int = 5, nics: int = 4, lengths=None, overlap: bool = True) -> Problem:
    """Up to ``most`` tasks; receivers are other NICs than senders, in any sets or disjoint ones."""
    if lengths is None:
        lengths = st.one_of(st.integers(0, 6), st.floats(0.1, 5))
    count = draw(st.integers(0, most))
    some = st.lists(st.integers(0, nics - 1), min_size=1, max_size=3, unique=True)
    if overlap:
        takers = st.lists(st.integers(10, 9 + nics), max_size=3, unique=True)
    else:
        takers = st.sampled_from([(10,), (11, 12), (13,), (14, 15, 16), ()])
    each = st.tuples(lengths, some, takers)
    rows = draw(st.lists(each, min_size=count, max_size=count))
    return Problem([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


@settings(max_examples=150)
@given(problem=problems(most=4))
def test_exact_is_the_shortest_by_brute_force(problem):
    schedule = solve(problem, "exact")
    best = shortest(problem)
    check(schedule)
    assert schedule.makespan == pytest.approx(best, rel=1e-9)
    assert schedule.lower_bound == pytest.approx(best, rel=1e-9)
    assert schedule.optimal == "unsplit"


@settings(max_examples=60)
@given(problem=problems(most=5, nics=3, lengths=st.just(1.0)))
def test_exact_is_the_shortest_for_equal_sizes(problem):
    schedule = solve(problem, "exact")
    assert schedule.makespan == shortest(problem)
    assert schedule.optimal == "unsplit"
    check(schedule)


@settings(max_examples=60)
@given(problem=problems(most=4))
def test_dfs_searches_small_problems_through(problem):
    schedule = solve(problem, "dfs")
    assert schedule.makespan == pytest.approx(shortest(problem), rel=1e-12, abs=1e-12)
    assert schedule.optimal == "unsplit"


@relaxed
@given(problem=problems(most=12))
def test_fluid_bound_is_halls_condition(problem):
    assert problem.fluid_bound == pytest.approx(fluid_by_subsets(problem), rel=1e-9, abs=1e-12)


@relaxed
@given(problem=problems(most=4))
def test_unsplit_bound_never_exceeds_the_optimum(problem):
    assert problem.fluid_bound <= problem.unsplit_bound * (1 + 1e-12)
    assert problem.unsplit_bound <= shortest(problem) * (1 + 1e-12)


@relaxed
@given(problem=problems(most=30, nics=6), method=st.sampled_from(METHODS), seed=st.integers(0, 3))
def test_every_method_makes_a_schedule_within_its_bound(problem, method, seed):
    schedule = solve(problem, method, time_limit_s=0.1, seed=seed)
    check(schedule)
    assert schedule.lower_bound <= schedule.makespan * (1 + 1e-12)
    assert problem.fluid_bound <= schedule.makespan * (1 + 1e-9)
    if method not in ("split", "concurrent"):
        assert problem.unsplit_bound <= schedule.makespan * (1 + 1e-9)
        assert Counter(a.task for a in schedule.assignments) == Counter(range(len(problem)))
    if schedule.optimal:
        assert schedule.gap <= 1e-9


@relaxed
@given(problem=problems(most=20, nics=5))
def test_auto_is_never_worse_than_the_baselines(problem):
    best = solve(problem, "auto", time_limit_s=0.2).makespan
    for method in ("naive", "load_balance"):
        assert best <= solve(problem, method).makespan * (1 + 1e-9)


@relaxed
@given(problem=problems(most=15, overlap=False))
def test_split_meets_the_fluid_bound_where_receivers_are_equal_or_disjoint(problem):
    schedule = solve(problem, "split")
    assert schedule.makespan == pytest.approx(fluid_by_subsets(problem), rel=1e-6, abs=1e-12)
    assert schedule.optimal == "fluid"
    check(schedule)


@relaxed
@given(problem=problems(most=15))
def test_split_is_within_a_batch_of_the_fluid_bound(problem):
    """Senders and receivers being different NICs, relays always find room to send."""
    schedule = solve(problem, "split", time_limit_s=20.0)
    assert schedule.makespan <= (33 / 32) * (1 + 1e-6) * problem.fluid_bound
    check(schedule)


def test_split_counts_what_hosts_send_on_their_own_account():
    """Both ends of every task send and receive: relays cannot be had for nothing."""
    rng = random.Random(3)
    for _ in range(20):
        count = rng.randint(2, 8)
        sides = [rng.sample(range(5), 5) for _ in range(count)]
        problem = Problem(
            [rng.randint(1, 5) for _ in range(count)],
            [nics[:2] for nics in sides],
            [nics[2 : 3 + rng.randint(0, 2)] for nics in sides],
        )
        schedule = solve(problem, "split")
        check(schedule)
        assert schedule.makespan >= problem.fluid_bound * (1 - 1e-9)


@relaxed
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=60),
)
def test_edge_colouring_is_proper_and_uses_the_largest_degree(edges):
    check_colouring(edges)


def test_edge_colouring_of_dense_graphs():
    """Where most edges find no colour free at both ends, so that paths must be swapped."""
    for seed in range(10):
        rng = random.Random(seed)
        check_colouring([(rng.randrange(6), rng.randrange(6)) for _ in range(200)])
        every = [(a, b) for a in range(9) for b in range(9)] * 2
        check_colouring(rng.sample(every, len(every)))


def check_colouring(edges):
    colours = colour_edges(edges)
    degree = Counter([("u", u) for u, _ in edges] + [("v", v) for _, v in edges])
    assert set(colours) <= set(range(max(degree.values(), default=0)))
    for (a, x), (b, y) in itertools.combinations(zip(edges, colours, strict=True), 2):
        assert x != y or (a[0] != b[0] and a[1] != b[1])


@relaxed
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 4), st.integers(0, 4)), st.integers(1, 10**6), max_size=20
    )
)
def test_decomposition_serves_every_cell_in_the_least_time(cells):
    served: Counter = Counter()
    total = 0
    for ticks, pairs in decompose(cells):
        assert ticks > 0
        lefts, rights = [a for a, _ in pairs], [b for _, b in pairs]
        assert len(set(lefts)) == len(lefts) and len(set(rights)) == len(rights)
        served.update(dict.fromkeys(pairs, ticks))
        total += ticks
    rows, columns = Counter(), Counter()
    for (a, b), ticks in cells.items():
        rows[a] += ticks
        columns[b] += ticks
    assert total == max([*rows.values(), *columns.values()], default=0)
    assert served == cells


@relaxed
@given(problem=problems(most=10, lengths=st.just(2.0)))
def test_balanced_senders_of_equal_tasks_are_least(problem):
    """By brute force: no assignment has a smaller largest load."""
    moving = [i for i in range(len(problem)) if problem.receivers[i]]
    dealt = balanced_equal(problem.groups)
    assert sorted(t for g in dealt for t in g.tasks) == moving
    for g in dealt:
        assert all(g.senders[0] in problem.senders[t] for t in g.tasks)
    load = Counter({g.senders[0]: 0 for g in dealt})
    for g in dealt:
        load[g.senders[0]] += len(g.tasks)
    least = 0
    senders = sorted({s for i in moving for s in problem.senders[i]})
    for size in range(1, len(senders) + 1):  # Hall again: whole tasks round up
        for some in itertools.combinations(senders, size):
            inside = sum(set(problem.senders[i]) <= {*some} for i in moving)
            least = max(least, -(-inside // size))
    assert max(load.values(), default=0) == least


@relaxed
@given(problem=problems(most=6, nics=3, lengths=st.integers(1, 9)))
def test_least_largest_load_of_whole_tasks_is_least(problem):
    if not problem.groups:
        return
    bound, dealt = least_largest_load(problem.groups, 5.0)
    moving = [i for i in range(len(problem)) if problem.receivers[i]]
    best = math.inf
    for senders in itertools.product(*(problem.senders[i] for i in moving)):
        load: Counter = Counter()
        for i, s in zip(moving, senders, strict=True):
            load[s] += problem.durations[i]
        best = min(best, max(load.values()))
    assert bound <= best * (1 + 1e-9)
    assert bound == pytest.approx(best, rel=1e-5)
    load = Counter()
    for g in dealt:
        load[g.senders[0]] += g.duration * len(g.tasks)
    assert max(load.values()) == pytest.approx(best, rel=1e-9)
    assert sorted(t for g in dealt for t in g.tasks) == moving


@relaxed
@given(problem=problems(most=4, lengths=st.integers(1, 6)))
def test_configuration_bound_never_exceeds_the_optimum(problem):
    """And it is at least the load of every NIC."""
    if not problem.groups:
        return
    bound, _ = generate(problem.groups, dispatch(GroupTable(problem.groups)), Budget(5.0))
    assert bound <= shortest(problem) * (1 + 1e-12)
    incoming = [
        sum(d for d, to in zip(problem.durations, problem.receivers, strict=True) if r in to)
        for r in {r for to in problem.receivers for r in to}
    ]
    assert bound >= max(incoming) * (1 - 1e-6)


def test_configuration_bound_is_true_wherever_it_stops(monkeypatch):
    """Rounds whose heaviest configuration is priced above 1 are divided by it."""
    monkeypatch.setattr(configurations, "_packed", lambda groups, price: ())
    rng = random.Random(5)
    for _ in range(20):
        problem = Problem(
            [rng.randint(1, 6) for _ in range(4)],
            [rng.sample(range(3), rng.randint(1, 2)) for _ in range(4)],
            [rng.sample(range(10, 14), rng.randint(1, 3)) for _ in range(4)],
        )
        best = shortest(problem)
        for seconds in (0.0, 5.0):  # after one round, and to the end
            assert generate(problem.groups, [], Budget(seconds))[0] <= best * (1 + 1e-12)


@relaxed
@given(problem=problems(most=12), seed=st.integers(0, 5))
def test_greedy_draws_maximal_sets_that_do_not_overlap(problem, seed):
    left = [i for i in range(len(problem)) if problem.receivers[i]]
    sends = [sum(1 << s for s in options) for options in problem.senders]
    takes = [sum(1 << r for r in targets) for targets in problem.receivers]
    taken = baselines._draw(np.random.default_rng(seed), left, sends, takes)
    sending = Counter(taken.values())
    taking = Counter(r for i in taken for r in problem.receivers[i])
    assert all(s in problem.senders[i] for i, s in taken.items())
    assert max([*sending.values(), *taking.values()], default=1) == 1
    for i in set(left) - set(taken):  # nothing more would fit
        free = set(problem.senders[i]) - set(sending)
        assert not free or set(problem.receivers[i]) & set(taking)


def test_configurations_see_tasks_that_exclude_each_other_in_pairs():
    """Three receiver sets that meet pairwise: loads say 2, but no two tasks run at once."""
    problem = Problem([1.0] * 3, [(0,), (1,), (2,)], [(3, 4), (4, 5), (3, 5)])
    assert problem.fluid_bound == 2.0
    bound, columns = generate(problem.groups, [], Budget(5.0))
    assert bound == pytest.approx(3.0, rel=1e-6)
    assert solve(problem).makespan == 3.0
    slots = slot_schedule(problem.groups, columns, 5.0)
    assert max(a.end for a in slots) == 3.0


def test_cp_sat_proves_what_the_stages_before_it_do_not():
    problem = Problem(
        [3.0, 2.0, 2.0, 3.0, 4.0, 2.0, 3.0],
        [(0,), (0,), (1,), (1,), (2,), (2,), (0, 1, 2)],
        [(3,), (4,), (3,), (5,), (4,), (5,), (3,)],
    )
    start = list_schedule(problem, range(7), [options[0] for options in problem.senders])
    order, bound = cpsat.search(problem.groups, start, 0.0, Budget(10.0), 0)
    tasks, senders = [task for task, _ in order], dict(order)
    assert sorted(tasks) == list(range(7))
    placed = list_schedule(problem, tasks, [senders[i] for i in range(7)])
    assert max(a.end for a in placed) == pytest.approx(bound) == solve(problem).makespan


@relaxed
@given(problem=problems(most=12))
def test_list_scheduling_passes_make_schedules(problem):
    moving = sorted(i for g in problem.groups for i in g.tasks)
    if not moving:
        return
    tables = [problem.groups, longest_first(problem.groups)]
    for schedule in (
        *(dispatch(GroupTable(groups)) for groups in tables),
        dispatch(GroupTable(problem.groups), np.random.default_rng(1), 0.5),
        insert_widest(problem.groups, 0.0, Budget(0.01), 0),
    ):
        assert sorted(a.task for a in schedule) == moving
        busy: dict = {}
        for a in schedule:
            assert a.end - a.start == pytest.approx(problem.durations[a.task])
            for nic in [("tx", a.sender), *(("rx", r) for r in problem.receivers[a.task])]:
                busy.setdefault(nic, []).append((a.start, a.end))
        for spans in busy.values():
            spans.sort()
            assert all(x[1] <= y[0] + 1e-9 for x, y in itertools.pairwise(spans))


@relaxed
@given(
    flows=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple),
        ),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    data=st.data(),
)
def test_rates_are_max_min_fair(flows, data):
    """The definition: no NIC over its speed, and every task has a NIC that is full and on which
    no other task gets more."""
    count = np.array(
        data.draw(st.lists(st.integers(1, 3), min_size=len(flows), max_size=len(flows)))
    )
    uses = [[(("tx", s), 1.0), *((("rx", r), 1.0) for r in to)] for s, to in flows]
    rate = _rates(port_table(uses), count)
    used: dict = {}
    fastest: dict = {}
    for f, (sender, receivers) in enumerate(flows):
        for nic in [("tx", sender), *(("rx", r) for r in receivers)]:
            used[nic] = used.get(nic, 0.0) + rate[f] * count[f]
            fastest[nic] = max(fastest.get(nic, 0.0), rate[f])
    assert max(used.values()) <= 1 + 1e-9
    for f, (sender, receivers) in enumerate(flows):
        assert any(
            used[nic] >= 1 - 1e-9 and rate[f] >= fastest[nic] * (1 - 1e-9)
            for nic in [("tx", sender), *(("rx", r) for r in receivers)]
        )


def test_two_tasks_through_one_nic_take_twice_as_long():
    problem = Problem([1.0, 1.0, 1.0], [(0,), (0,), (1,)], [(2,), (3,), (4,)])
    ends = [a.end for a in solve(problem, "concurrent").assignments]
    assert ends == [2.0, 2.0, 1.0]
    uneven = Problem([1.0, 3.0], [(0,), (0,)], [(2,), (3,)])
    assert [a.end for a in solve(uneven, "concurrent").assignments] == [2.0, 4.0]


def test_concurrent_keeps_its_time_limit_by_fewer_changes_of_rates():
    problem = Problem(
        [1 + (i * 0.618034) % 1 for i in range(200)],
        [(i % 15,) for i in range(200)],
        [(20 + i % 13,) for i in range(200)],
    )
    fine, coarse = (solve(problem, "concurrent", time_limit_s=t) for t in (10.0, 0.001))
    check(fine), check(coarse)
    assert len(coarse.sharing.rates) < len(fine.sharing.rates)
    assert any("worked out anew after every" in note for note in coarse.notes)


@relaxed
@given(problem=problems(most=10))
def test_shares_deliver_every_group_once(problem):
    if not problem.groups:
        return
    classes = receiver_classes(problem.groups)
    for g, classes_of in zip(problem.groups, classes, strict=True):
        assert sorted(r for c in classes_of for r in c) == sorted(g.receivers)
    sent: Counter = Counter()
    for part in share_out(problem.groups, 5.0):
        g = problem.groups[part.group]
        assert part.sender in g.senders
        assert sorted(part.to + part.onward) == sorted(classes[part.group])
        sent[part.group] += part.amount
    for i, g in enumerate(problem.groups):
        assert sent[i] == pytest.approx(g.duration * len(g.tasks), rel=1e-6)


def test_common_unit():
    assert common_unit([0.3, 0.2, 0.5]) == pytest.approx(0.1)
    assert common_unit([7.0]) == 7.0
    assert common_unit([]) is None
    assert common_unit([1.0, math.pi]) is None
    assert common_unit([n / 1.25e9 for n in (2**28, 3 * 2**20)]) == pytest.approx(2**20 / 1.25e9)


def test_whole_tasks_raise_the_bound_to_a_multiple_of_their_unit():
    assert unsplit_bound([2.0, 3.0], 4.2) == 5.0
    assert unsplit_bound([2.0, 4.0], 4.2) == 6.0
    assert unsplit_bound([2.0, 4.0], 4.0 + 1e-12) == pytest.approx(4.0)
    assert unsplit_bound([9.0], 4.0) == 9.0
    assert unsplit_bound([], 0.0) == 0.0


def test_bound_of_one_sender_set_among_many():
    """Only the tasks that senders 0 and 1 alone may send bind: 6 over 2."""
    loads = {(0, 1): 5.0, (0,): 1.0, (1, 2, 3): 1.0}
    assert fractional_sender_load(loads) == pytest.approx(3.0, rel=1e-12)
    assert fluid_bound([5.0, 1.0, 1.0], list(loads), [(7,), (8,), (9,)]) == 5.0
