"""Hosts whose NICs differ in speed and number: the bound, the planner's times."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from reshard_lab.bounds import fluid_bound


def copies(cluster: rl.Cluster, sources: list[int], targets: list[int]) -> rl.ReshardingTask:
    """1000 bytes that all ``sources`` hold, to all ``targets``."""
    src, dst = (rl.Layout(rl.Mesh(ids), "R") for ids in (sources, targets))
    return rl.ReshardingTask((1000,), "int8", src, dst, cluster)


def test_the_bound_knows_every_hosts_speed():
    cluster = rl.Cluster(4, 1, nic=[100, 50, 100, 25])
    assert copies(cluster, [0], [2]).lower_bound_s == pytest.approx(10)
    assert copies(cluster, [0], [3]).lower_bound_s == pytest.approx(40)  # into the slow host
    assert copies(cluster, [1], [2]).lower_bound_s == pytest.approx(20)  # out of a slow host
    assert copies(cluster, [0, 1], [2]).lower_bound_s == pytest.approx(10)
    double = rl.Cluster(4, 1, nic=[100, 50, 100, 25], nics_per_host=[1, 1, 1, 4])
    assert copies(double, [0], [3]).lower_bound_s == pytest.approx(10)
    free = rl.Cluster(4, 1, nic=["inf", 50, 100, "inf"])
    assert copies(free, [0], [3]).lower_bound_s == 0
    assert copies(free, [0], [2]).lower_bound_s == pytest.approx(10)
    assert copies(free, [1], [3]).lower_bound_s == pytest.approx(20)


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1))
def test_sender_load_equals_the_heaviest_set_of_senders(seed):
    """Over every set of senders: what only they may send, over their speed together."""
    rng = np.random.default_rng(seed)
    hosts, tasks = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    work = rng.uniform(1, 5, tasks)
    allowed = [
        tuple(sorted(rng.choice(hosts, int(rng.integers(1, hosts + 1)), replace=False).tolist()))
        for _ in range(tasks)
    ]
    speed = {h: float(rng.choice([0.25, 0.5, 1, math.inf], p=[0.3, 0.3, 0.3, 0.1]))
             for h in range(hosts)}  # fmt: skip
    expected = max(
        sum(w for w, senders in zip(work, allowed, strict=True) if set(senders) <= set(chosen))
        / sum(speed[h] for h in chosen)
        for size in range(1, hosts + 1)
        for chosen in itertools.combinations(range(hosts), size)
    )
    bound = fluid_bound(work, allowed, [("target",)] * tasks, {**speed, "target": math.inf})
    assert bound == pytest.approx(expected, rel=1e-9)


def test_a_chain_is_timed_link_by_link():
    """Two chunks of 500 bytes at 100, then at 25, then at 25 bytes a second."""
    cluster = rl.Cluster(4, 1, nic=[100, 100, 25, 50], nic_latency=1)
    plan = rl.plan(copies(cluster, [0], [1, 2, 3]), chunks=2)
    assert plan.makespan_s == pytest.approx(6 + 21 + 21 + 21)
    assert plan.optimal is None
    assert plan.makespan_s >= plan.lower_bound_s == pytest.approx(40)


def test_a_ring_is_timed_link_by_link():
    """Parts of 500 bytes: sent at 100 and 25 bytes a second, then exchanged at 25 both ways."""
    cluster = rl.Cluster(3, 1, nic=[100, 100, 25], nic_latency=0)
    plan = rl.plan(copies(cluster, [0], [1, 2]), "global_allgather")
    assert plan.makespan_s == pytest.approx(5 + 20 + 20)
    assert rl.simulate(plan).duration_s == pytest.approx(45)


def test_explain_says_that_hosts_differ():
    cluster = rl.Cluster(3, 1, nic=["10Gbps", "10Gbps", "1Gbps"])
    text = rl.plan(copies(cluster, [0], [1, 2])).explain()
    assert "3 hosts x 1 devices, one NIC of 10 Gbit/s or one NIC of 1 Gbit/s a host\n" in text
