"""What a plan says of itself: what is proven, what ties, and that no tensor is too small for it."""

import numpy as np
import pytest

import reshard_lab as rl

SENT_ONCE = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")


def spread(spec: str, cluster: rl.Cluster) -> rl.ReshardingTask:
    """From rows on two hosts of four devices to ``spec`` on two others."""
    src = rl.Layout(cluster.mesh((2, 4)), "S0R")
    dst = rl.Layout(cluster.mesh((2, 4), first_host=2), spec)
    return rl.ReshardingTask((2048, 64), "float32", src, dst, cluster)


@pytest.mark.parametrize("strategy", SENT_ONCE)
def test_with_one_receiver_a_task_one_proof_is_good_for_all_strategies(strategy):
    cluster = rl.Cluster(4, 4)
    assert rl.plan(spread("RS01", cluster), strategy).optimal == "fluid"
    several = rl.plan(spread("RR", cluster), strategy).optimal
    assert several == ("fluid" if strategy == "broadcast" else None)


@pytest.mark.parametrize("strategy", SENT_ONCE)
def test_a_plan_that_takes_no_longer_than_its_bound_is_optimal_whatever_it_is(strategy):
    free = rl.Cluster(2, 2, nic_latency=0, intra="inf", intra_latency=0)
    src, dst = rl.Layout(rl.Mesh([0, 2]), "R"), rl.Layout(rl.Mesh([1, 3]), "S0")
    inside = rl.ReshardingTask((64,), "int8", src, dst, free)  # hosts send and receive
    assert rl.plan(inside, strategy).makespan_s == inside.lower_bound_s == 0
    assert rl.plan(inside, strategy).optimal == "fluid"
    stays = rl.ReshardingTask((64,), "int8", src, src, rl.Cluster(2, 2))
    assert rl.plan(stays, strategy).optimal == "fluid"


def test_signal_delivers_nothing_and_so_proves_nothing():
    cluster = rl.Cluster(4, 4)
    for spec in ("RS01", "RR"):
        assert rl.plan(spread(spec, cluster), "signal").optimal is None


def test_auto_says_when_strategies_tie():
    cluster = rl.Cluster(4, 4, nic_latency=0, intra="inf", intra_latency=0)
    (tied, *_) = rl.plan(spread("RS01", cluster), "auto").notes
    assert tied.startswith("strategy auto: broadcast is the first of those that tie (")
    (won, *_) = rl.plan(spread("RR", cluster), "auto").notes
    assert won.startswith("strategy auto: broadcast has the shortest predicted time (")


@pytest.mark.parametrize("scheduler", ["auto", "split"])
def test_a_tiny_tensor_beside_a_large_one_is_planned_and_delivered(scheduler):
    cluster = rl.Cluster(5, 1, nic_latency=0)
    two, three = cluster.mesh(2), cluster.mesh(3, first_host=2)
    whole = rl.Layout(two, "R")
    large = rl.ReshardingTask((2**27,), "int8", whole, rl.Layout(three, "S0"), cluster)
    tiny = rl.ReshardingTask((1,), "int8", whole, rl.Layout(three, "R"), cluster)
    plan = rl.plan([large, tiny], scheduler=scheduler)
    plan.verify()
    assert plan.makespan_s >= plan.lower_bound_s * (1 - 1e-9)
    tensors = [np.resize(np.arange(113, dtype=np.int8), size) for size in (2**27, 1)]
    got = rl.execute(plan, [dict.fromkeys((0, 1), tensor) for tensor in tensors])
    for tensor, task, pieces in zip(tensors, (large, tiny), got, strict=True):
        for device, ((start, stop),) in task.dst.boxes(task.shape).items():
            np.testing.assert_array_equal(pieces[device], tensor[start:stop])


def test_links_that_nothing_keeps_busy_do_not_make_an_unordered_plan_wait():
    """The simulator, which shares only what has a limit, is the judge."""
    cluster = rl.Cluster(6, 3, nic_latency=0, intra="inf", intra_latency="5us")
    src, dst = cluster.mesh((3, 3)), cluster.mesh((3, 3), first_host=3)
    one_host = rl.Layout(cluster.mesh((1, 3), first_host=3), "R")
    large = rl.ReshardingTask((2**20,), "int8", rl.Layout(src, "S01"), rl.Layout(dst, "R"), cluster)
    small = rl.ReshardingTask((2**18,), "int8", rl.Layout(src, "R"), one_host, cluster)
    plan = rl.plan([large, small], scheduler="concurrent")
    simulated = rl.simulate(plan).duration_s
    assert plan.makespan_s == pytest.approx(simulated, rel=0.15)
