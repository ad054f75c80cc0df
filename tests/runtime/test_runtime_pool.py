"""Plans on real processes: every strategy, odd shapes, every dtype, random plans."""

import os

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.units import ITEMSIZE
from support.random_tasks import STRATEGIES, random_plan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def pool():
    with rl.runtime.Pool(8) as pool:
        yield pool


@pytest.fixture(scope="module")
def cluster():
    return rl.Cluster(hosts=4, devices_per_host=2)


def task_of(cluster, shape=(13, 7), dtype="float32", src="S01R", dst="S0R"):
    layouts = rl.Layout(cluster.mesh((2, 2)), src), rl.Layout(cluster.mesh((2, 2), 2), dst)
    return rl.ReshardingTask(shape, dtype, *layouts, cluster)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("shape", "src", "dst"),
    [
        ((13, 7), "S01R", "S0R"),
        ((13, 7), "RS0", "S1R"),
        ((5, 1, 9), "S1RS0", "RRS01"),
        ((3, 2), "S01R", "RS01"),  # empty pieces on both sides
        ((0, 4), "S0R", "RS1"),  # nothing to send at all
        ((1,), "R", "S01"),
        ((2, 3, 4, 5), "RRRR", "S0RS1R"),
    ],
)
def test_every_strategy_delivers_odd_shapes(pool, cluster, strategy, shape, src, dst):
    plan = rl.plan(task_of(cluster, shape, "int16", src, dst), strategy, chunks=5)
    measured = pool.run(plan, repeats=2, warmup=1, seed=7)
    assert measured.verified and len(measured.times_s) == 2


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_every_dtype(pool, cluster, dtype):
    plan = rl.plan(task_of(cluster, (6, 10), dtype, "S0S1", "S1S0"), chunks=7)
    assert pool.run(plan, repeats=1, warmup=0).verified


@pytest.mark.parametrize("seed", range(100, 130))
def test_random_plans(pool, seed):
    """Several tensors, overlapping and permuted meshes, every rule, strategy and dtype."""
    assert pool.run(random_plan(seed), repeats=1, warmup=0, seed=seed).verified


def test_scalar(pool, cluster):
    src, dst = rl.Layout(cluster.mesh(2), ""), rl.Layout(cluster.mesh(2, 2), "")
    plan = rl.plan(rl.ReshardingTask((), "complex64", src, dst, cluster))
    assert pool.run(plan, repeats=1, warmup=0).verified


def test_signal_is_not_verified(pool, cluster):
    measured = pool.run(rl.plan(task_of(cluster), "signal"), repeats=1, warmup=0)
    assert not measured.verified and "not verified" in repr(measured)


def test_payloads_longer_than_a_message(pool, cluster):
    """40 MiB in one chunk, staged at one end and in place at the other."""
    src = rl.Layout(rl.Mesh([0]), "RR")
    dst = rl.Layout(rl.Mesh([2]), "RR")
    other = rl.Layout(rl.Mesh([[4, 5]]), "RS1")
    tasks = [
        rl.ReshardingTask((4, 10 * 2**20), "uint8", src, layout, cluster) for layout in (dst, other)
    ]
    assert pool.run(rl.plan(tasks, "send_recv"), repeats=1, warmup=0).verified


def test_a_sweep_needs_one_launch(pool, cluster):
    pids = None
    for chunks in (1, 2, 3):
        pool.run(rl.plan(task_of(cluster), chunks=chunks), repeats=1, warmup=0)
        assert pids is None or pids == pool.pids
        pids = dict(pool.pids)
    assert sorted(pids) == list(range(8))


def test_what_a_measurement_says(pool, cluster):
    plan = rl.plan(task_of(cluster), "global_allgather", "naive")
    measured = pool.run(plan, repeats=3, warmup=1)
    assert (measured.strategy, measured.scheduler) == ("global_allgather", "naive")
    assert measured.shapes == ((13, 7),) and measured.nbytes == 13 * 7 * 4
    assert measured.predicted_s == plan.makespan_s
    assert measured.lower_bound_s == plan.lower_bound_s
    assert all(t > 0 for t in measured.times_s)
    stamp = measured.environment
    assert stamp["where"] == "local" and stamp["backend"] == "gloo"
    assert stamp["link"].startswith("gloo, loopback (unshaped), ")
    assert stamp["torch"] == torch.__version__
    assert stamp["cores"] == len(os.sched_getaffinity(0))


def test_the_longest_deadline_and_numbers_of_numpy(cluster):
    plan = rl.plan(task_of(cluster))
    with rl.runtime.Pool(8, start_timeout_s=1e6) as pool:
        measured = pool.run(plan, np.int64(2), np.int8(1), timeout_s=1e6, seed=np.uint16(3))
    assert measured.verified and len(measured.times_s) == 2


def test_run_starts_and_ends_its_own_processes(cluster):
    src, dst = rl.Layout(rl.Mesh([3]), "R"), rl.Layout(rl.Mesh([6]), "R")
    plan = rl.plan(rl.ReshardingTask((9,), "int8", src, dst, cluster))
    measured = rl.run(plan, repeats=2, warmup=0)
    assert measured.verified and measured.environment["where"] == "local"


def test_emulated_devices_are_those_of_the_cluster():
    assert rl.EmulatedCluster(2, 2, devices=[3, 0, 3]).devices == (0, 3)
