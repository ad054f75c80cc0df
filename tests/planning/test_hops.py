"""The table of hops against the plan's paths, and its waits against their definition."""

from itertools import pairwise

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.planning.hops import Wait, Waits, hops_of
from support.random_tasks import random_plan

PLANS = [random_plan(seed) for seed in range(40)]
PLANS += [rl.plan(plan.tasks, scheduler="concurrent", chunks=3) for plan in PLANS[:8]]


@pytest.mark.parametrize("plan", PLANS)
def test_rows_are_the_hops_of_the_paths(plan):
    hops = plan.hops
    rows = zip(hops.transfer, hops.hop, hops.source, hops.destination, strict=True)
    expected = []
    for t in plan.transfers:
        assert hops.first[t.id] == len(expected)
        if len(t.path) == 1:
            expected.append((t.id, 0, *t.path, *t.path))
        expected += [(t.id, i, a, b) for i, (a, b) in enumerate(pairwise(t.path))]
    assert [tuple(map(int, row)) for row in rows] == expected
    assert len(hops) == hops.first[-1] == len(expected)
    assert set(hops.devices.tolist()) == {d for t in plan.transfers for d in t.path}


@pytest.mark.parametrize("plan", PLANS)
def test_waits_are_those_of_chains_afters_and_lanes(plan):
    hops, waits = plan.hops, plan.hops.waits
    expected = set()
    for t in plan.transfers:
        rows = range(hops.first[t.id], hops.first[t.id + 1])
        expected |= {(row, row + 1, Wait.CHAIN) for row in rows[:-1]}
        expected |= {(hops.first[other + 1] - 1, rows[0], Wait.AFTER) for other in t.after}
    for device, steps in plan.programs.items() if plan.ordered else ():
        for op, kind in (("send", Wait.SEND_LANE), ("recv", Wait.RECEIVE_LANE)):
            numbers = [step.transfer for step in steps if step.op == op]
            places = [plan.transfers[n].path.index(device) - (op == "recv") for n in numbers]
            lane = [hops.first[n] + place for n, place in zip(numbers, places, strict=True)]
            expected |= {(a, b, kind) for a, b in pairwise(lane)}
    edges = zip(waits.earlier.tolist(), waits.later.tolist(), waits.kind.tolist(), strict=True)
    assert set(edges) == expected
    for row in range(len(hops)):
        assert (waits.earlier[waits.offsets[row] : waits.offsets[row + 1]] == row).all()
    assert waits.offsets[-1] == len(waits.earlier)


@pytest.mark.parametrize("plan", PLANS)
def test_every_row_comes_after_those_it_waits_for(plan):
    hops = plan.hops
    place = np.empty(len(hops), dtype=int)
    place[list(hops.order)] = np.arange(len(hops))
    assert (place[hops.waits.earlier] < place[hops.waits.later]).all()


def test_a_cycle_is_found_among_rows_that_only_wait_for_it():
    edges = np.array([(0, 1), (1, 2), (2, 3), (3, 1), (3, 4), (4, 5)]).T
    waits = Waits.of(6, *edges, np.zeros(6, dtype=np.int8))
    assert waits.order() == [0]
    cycle = waits.cycle()
    assert set(cycle) == {1, 2, 3}
    known = set(zip(*edges.tolist(), strict=True))
    assert all((b, a) in known for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))


def test_no_transfers():
    hops = hops_of((), ordered=True)
    assert len(hops) == len(hops.waits.earlier) == len(hops.order) == 0
