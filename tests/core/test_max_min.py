"""Max-min fair rates against plain progressive filling, in every way they are computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshard_lab import max_min as filling
from reshard_lab.max_min import headroom, max_min


def filled(ports, capacity, cap, leader, gain) -> np.ndarray:
    """Raise all rates in one small step after another; a full port stops all who use it."""
    rate = np.zeros(len(cap))
    left = capacity.astype(float)
    rising = set(range(len(cap)))
    while rising:
        pace: dict[int, float] = {}
        for f in sorted(rising):
            follows = leader[f] in rising
            pace[f] = min(1.0, gain[f] * pace[leader[f]]) if follows else 1.0
        limit = {
            f: min(cap[f], gain[f] * rate[leader[f]])
            if leader[f] >= 0 and leader[f] not in rising
            else cap[f]
            for f in rising
        }
        step = min((limit[f] - rate[f]) / pace[f] for f in rising)
        for port in range(len(left)):
            load = sum(pace[f] for f in rising for p in ports[f] if p == port)
            if load:
                step = min(step, left[port] / load)
        for f in rising:
            rate[f] += step * pace[f]
            for p in ports[f]:
                left[p] -= step * pace[f]
        rising = {
            f
            for f in rising
            if rate[f] < limit[f] * (1 - 1e-12)
            and all(left[p] > 1e-12 * capacity[p] for p in ports[f])
        }
    return rate


@st.composite
def flows(draw):
    """Up to 12 flows on up to 6 ports; some of them led by an earlier one at equal pace."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, many = int(rng.integers(1, 13)), int(rng.integers(2, 7))
    ports = np.array([rng.choice(many, 2, replace=False) for _ in range(count)])
    capacity = rng.choice([1.0, 2.0, 3.5, 10.0], many)
    cap = rng.choice([0.2, 1.0, 5.0, 100.0], count)
    leader = np.array(
        [int(rng.integers(-1, f)) if f and rng.random() < 0.5 else -1 for f in range(count)]
    )
    return ports, capacity, cap, leader


@pytest.mark.parametrize("dense", [filling._DENSE, 0])
@settings(max_examples=150)
@given(case=flows())
def test_rates_are_those_of_progressive_filling(dense, case):
    """``dense`` 0 takes the way for many flows, one port after another, for few as well."""
    ports, capacity, cap, leader = case
    alike = np.ones(len(cap))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "_DENSE", dense)
        if dense == 0:
            patch.setattr(filling._Filling, "round", lambda self, flows: np.zeros(len(flows), bool))
        free = max_min(ports, capacity, cap)
        led = max_min(ports, capacity, cap, leader, alike)
    nobody = np.full(len(cap), -1)
    assert free == pytest.approx(filled(ports, capacity, cap, nobody, alike), rel=1e-9)
    assert led == pytest.approx(filled(ports, capacity, cap, leader, alike), rel=1e-9)


@settings(max_examples=150)
@given(case=flows())
def test_rates_are_fair(case):
    """Whoever is below its cap and its leader has a full port where nobody gets more."""
    ports, capacity, cap, leader = case
    rate = max_min(ports, capacity, cap, leader, np.ones(len(cap)))
    used = np.bincount(ports.ravel(), np.repeat(rate, 2), minlength=len(capacity))
    assert (used <= capacity * (1 + 1e-9)).all()
    assert (rate <= cap * (1 + 1e-12)).all()
    for f in range(len(cap)):
        most = cap[f] if leader[f] < 0 else min(cap[f], rate[leader[f]])
        assert rate[f] <= most * (1 + 1e-9)
        if rate[f] < most * (1 - 1e-9):
            assert any(
                used[p] >= capacity[p] * (1 - 1e-9)
                and rate[f] >= rate[(ports == p).any(axis=1)].max() * (1 - 1e-9)
                for p in ports[f]
            )


def test_a_leader_of_another_pace():
    """Half its leader's rate while that rises, and never more than it."""
    ports, capacity = np.array([[0], [1]]), np.array([3.0, 10.0])
    leader, cap = np.array([-1, 0]), np.full(2, 50.0)
    assert max_min(ports, capacity, cap, leader, np.array([1.0, 0.5])).tolist() == [3.0, 1.5]
    assert max_min(ports, capacity, cap, leader, np.array([1.0, 2.0])).tolist() == [3.0, 6.0]


def test_headroom_is_the_rate_without_a_leader():
    ports, capacity = np.array([[0, 2], [0, 2], [1, 2]]), np.array([4.0, 4.0, np.inf])
    assert headroom(ports, capacity, np.array([1.0, 1.0, 3.0])).tolist() == [3.0, 3.0, 4.0]
    assert headroom(ports, capacity, np.array([1.0, 3.0, 3.0])).tolist() == [3.0, 3.0, 4.0]


def test_many_flows_on_every_pair_of_ports():
    """Ports of all speeds, each sharing flows with each: beyond 512 flows, one port at a time."""
    rng = np.random.default_rng(1)
    tx, rx = np.divmod(np.arange(40 * 40), 40)
    ports = np.column_stack((tx, 40 + rx))[rng.random(1600) < 0.9]
    capacity = rng.uniform(1, 2, 80)
    rate = max_min(ports, capacity, np.full(len(ports), 9.0))
    used = np.bincount(ports.ravel(), np.repeat(rate, 2))
    assert used.max() == pytest.approx(capacity[used.argmax()], rel=1e-9)
    top = np.zeros(80)
    np.maximum.at(top, ports.ravel(), np.repeat(rate, 2))
    full = used >= capacity * (1 - 1e-9)
    bottleneck = full[ports] & (rate[:, None] >= top[ports] * (1 - 1e-9))
    assert bottleneck.any(axis=1).all()
