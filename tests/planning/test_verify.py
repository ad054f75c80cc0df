"""`verify` refuses every damaged plan and names the transfer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import reshard_lab as rl
from reshard_lab.planning.verify import _by_pairs, first_fault

CLUSTER = rl.Cluster(hosts=4, devices_per_host=2)
SRC = CLUSTER.mesh((2, 2))
DST = CLUSTER.mesh((2, 2), first_host=2)


def make(strategy="broadcast", src="S01R", dst="S0R", shape=(8, 6)) -> rl.Plan:
    task = rl.ReshardingTask(shape, "int32", rl.Layout(SRC, src), rl.Layout(DST, dst), CLUSTER)
    return rl.plan(task, strategy=strategy, scheduler="load_balance")


def with_transfer(plan: rl.Plan, number: int, **changes) -> rl.Plan:
    """One transfer changed, the programs read off the changed transfers."""
    transfers = list(plan.transfers)
    transfers[number] = transfers[number]._replace(**changes)
    return replace(plan, transfers=tuple(transfers))


def without(plan: rl.Plan, number: int) -> rl.Plan:
    """One transfer taken out, the others renumbered."""
    kept = [t for t in plan.transfers if t.id != number]
    new = {t.id: i for i, t in enumerate(kept)}
    return replace(
        plan,
        transfers=tuple(
            t._replace(id=new[t.id], after=tuple(new[a] for a in t.after if a in new)) for t in kept
        ),
    )


def refused(plan: rl.Plan, words: str) -> None:
    with pytest.raises(rl.ReshardError, match=words):
        plan.verify()


def test_a_right_plan_says_what_was_proven():
    assert make().verify() == (8, 4, 2 * 8 * 6, True)
    signal = make("signal").verify()
    assert signal.delivers is False
    assert signal.elements == 0


# Records


def test_ids_are_positions():
    refused(with_transfer(make(), 1, id=3), "transfer 3 stands at position 1")


def test_unknown_unit():
    refused(with_transfer(make(), 1, unit=9), "transfer 1 .* belongs to unit task 9, but there")


def test_device_outside_the_cluster():
    plan = make()
    path = plan.transfers[2].path
    refused(with_transfer(plan, 2, path=(*path[:-1], 99)), "transfer 2 .* uses device 99")


def test_a_path_visits_a_device_once():
    refused(with_transfer(make(), 0, path=(0, 4, 0)), "transfer 0 .* each once")
    refused(with_transfer(make(), 0, path=()), "transfer 0 .* at least one device")


@pytest.mark.parametrize("box", [((0, 9), (0, 6)), ((2, 2), (0, 6)), ((0, 2),), ((-1, 1), (0, 6))])
def test_box_outside_the_tensor(box):
    refused(with_transfer(make(), 0, box=box), "transfer 0 .* is not a non-empty box of shape")


@pytest.mark.parametrize("span", [(0, 13), (5, 5), (-1, 3)])
def test_span_outside_its_box(span):
    refused(with_transfer(make(), 0, span=span), "transfer 0 .* is outside its box of 12 elements")


def test_size_that_is_not_the_boxs():
    refused(with_transfer(make(), 3, nbytes=47), "transfer 3 .* says 47 bytes, but carries 48")


@pytest.mark.parametrize("chunks", [0, 49])
def test_chunk_count(chunks):
    refused(with_transfer(make(), 3, chunks=chunks), f"transfer 3 .* has {chunks} chunks; allowed")


def test_waiting_for_nothing():
    refused(with_transfer(make(), 0, after=(44,)), "transfer 0 .* waits for transfer 44")
    refused(with_transfer(make(), 0, after=(0,)), "transfer 0 .* waits for transfer 0")


# Both ends


def two_on_one_pair() -> rl.Plan:
    """Device 0 sends two boxes to device 4."""
    cluster = rl.Cluster(hosts=4, devices_per_host=2)
    src = rl.Layout(rl.Mesh([0]), "R")
    tasks = [rl.ReshardingTask((4,), "int8", src, rl.Layout(rl.Mesh([4]), "R"), cluster)] * 2
    return rl.plan(tasks)


def swapped_stages(plan: rl.Plan) -> rl.Plan:
    """The first two transfers carried in the other order."""
    first, second = (t.stage for t in plan.transfers[:2])
    return with_transfer(with_transfer(plan, 0, stage=second), 1, stage=first)


def test_both_ends_of_a_pair_keep_one_order_whatever_the_stages():
    plan = two_on_one_pair()
    plan.verify()
    plan = swapped_stages(with_transfer(plan, 1, after=()))
    plan.verify()
    assert [step.transfer for step in plan.programs[0]] == [1, 0]
    assert [step.transfer for step in plan.programs[4]] == [1, 0]


def test_a_stage_out_of_all_bounds():
    refused(with_transfer(make(), 1, stage=10**30), "transfer 1 .* has stage 1000")


# Waits


def test_two_ranks_that_both_send_first():
    """Each rank's send goes first and the other's must be received before: nobody can start."""
    cluster = rl.Cluster(hosts=2, devices_per_host=1)
    a, b = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1]), "R")
    there = rl.ReshardingTask((4,), "int8", a, b, cluster)
    back = rl.ReshardingTask((4,), "int8", b, a, cluster)
    plan = rl.plan([there, back])
    plan.verify()
    crossed = with_transfer(with_transfer(plan, 0, after=(1,)), 1, after=(0,))
    refused(crossed, r"transfer \d .* waits for itself: transfers (0 -> 1 -> 0|1 -> 0 -> 1) each")


def test_first_transfer_waiting_for_a_later_one():
    refused(with_transfer(make(), 0, after=(1,)), "waits for itself")


def test_receives_in_another_order_than_the_schedule_sends():
    """Transfer 1 waits for 0 to be complete, but device 4 would take 1 in before 0."""
    plan = make()
    assert plan.transfers[1].after == (0,)
    assert plan.transfers[0].path[1] == plan.transfers[1].path[1] == 4
    refused(swapped_stages(plan), "waits for itself: transfers (0 -> 1 -> 0|1 -> 0 -> 1) each")


# Data


def test_sender_that_does_not_hold_the_box():
    plan = make()
    path = plan.transfers[0].path
    refused(
        with_transfer(plan, 0, path=(3, *path[1:])), "transfer 0 .* leaves device 3, which does"
    )


def test_ring_that_does_not_wait_for_its_part():
    plan = make("global_allgather")
    ring = next(t for t in plan.transfers if t.after and t.path[0] in DST.devices)
    refused(
        with_transfer(plan, ring.id, after=()), f"transfer {ring.id} .* does not hold it by then"
    )


def test_data_of_another_tensor_does_not_count():
    """Device 4 got the same box of another tensor before: that is not this one's data."""
    plan = two_on_one_pair()
    relayed = plan.transfers[1]._replace(path=(4, 5), after=(0,))
    target = rl.Layout(rl.Mesh([5]), "R")
    second = rl.ReshardingTask((4,), "int8", plan.tasks[1].src, target, plan.cluster)
    refused(
        replace(plan, tasks=(plan.tasks[0], second), transfers=(plan.transfers[0], relayed)),
        "transfer 1 .* leaves device 4, which does not hold it by then",
    )


def test_box_written_twice():
    plan = make()
    twice = with_transfer(plan, 1, box=plan.transfers[0].box, path=plan.transfers[0].path)
    refused(twice, "no transfer writes|transfer 1 .* writes .* again, after transfer 0")
    copy = plan.transfers[0]._replace(id=4, stage=9, after=(3,))
    refused(
        replace(plan, transfers=(*plan.transfers, copy)), "transfer 4 .* again, after transfer 0"
    )


def test_overlapping_spans():
    plan = make("global_allgather")
    t = next(t for t in plan.transfers if t.span and t.span[0] > 0 and t.path[0] not in DST.devices)
    lo, hi = t.span
    refused(
        with_transfer(plan, t.id, span=(lo - 1, hi), nbytes=t.nbytes + 4), "again|hold it by then"
    )


def test_box_written_to_a_device_that_does_not_need_it():
    plan = make()
    refused(with_transfer(plan, 0, path=(0, 6, 7)), "transfer 0 .* writes to device 6, whose dest")


def test_tensors_of_one_plan_are_kept_apart():
    plan = two_on_one_pair()
    refused(with_transfer(plan, 1, unit=0), "transfer 1 .* again, after transfer 0|no transfer")


@pytest.mark.parametrize(
    "strategy", ["send_recv", "local_allgather", "global_allgather", "broadcast", "alpa"]
)
def test_no_transfer_can_be_left_out(strategy):
    plan = make(strategy, src="S0R", dst="RS0")
    plan.verify()
    for number in range(len(plan.transfers)):
        with pytest.raises(rl.ReshardError, match=r"no transfer writes|does not hold it by then"):
            without(plan, number).verify()


@pytest.mark.parametrize(
    "strategy", ["send_recv", "local_allgather", "global_allgather", "broadcast"]
)
def test_random_damage_never_passes_and_still_delivers_wrong_data(strategy):
    """Damage that `verify` lets pass must be harmless: the executed result is still right."""
    import numpy as np

    from support.reference_cases import pieces_of

    rng = random.Random(7)
    plan = make(strategy, src="S0R", dst="RS0")
    array = np.arange(48, dtype=np.int32).reshape(8, 6)
    caught = 0
    for _ in range(300):
        t = rng.choice(plan.transfers)
        other = rng.choice(plan.transfers)
        field = rng.choice(["box", "span", "path", "after", "nbytes", "stage", "unit"])
        damaged = with_transfer(plan, t.id, **{field: getattr(other, field)})
        try:
            damaged.verify()
        except rl.ReshardError:
            caught += 1
            continue
        out = rl.execute(damaged, pieces_of(plan.tasks[0].src, array))
        for device, piece in pieces_of(plan.tasks[0].dst, array).items():
            assert np.array_equal(out[device], piece)
    assert caught > 100


# Tiling


def test_cover_finds_gaps_and_overlaps_both_ways():
    whole = ((0, 4), (0, 4))
    halves = [((0, 2), (0, 4)), ((2, 4), (0, 4))]
    assert first_fault(whole, halves) is None
    assert _by_pairs(whole, halves) is None
    for check in (first_fault, _by_pairs):
        box, culprits = check(whole, halves[:1])
        assert culprits == () and box[0][0] >= 2
        box, culprits = check(whole, [*halves, ((1, 2), (1, 2))])
        assert culprits == (0, 2) and box == ((1, 2), (1, 2))
    assert first_fault((), [()]) is None
    assert first_fault((), []) == ((), ())
    assert first_fault((), [(), ()]) == ((), (0, 1))


def test_a_scalar_written_twice_is_refused_as_such():
    """The empty box of a scalar is a box: what writes it again is named."""
    src, dst = (rl.Layout(rl.Mesh([device]), "") for device in (0, 1))
    plan = rl.plan(rl.ReshardingTask((), "float32", src, dst, rl.Cluster(2, 1)))
    again = plan.transfers[0]._replace(id=1, stage=1, after=(0,))
    refused(
        replace(plan, transfers=(*plan.transfers, again)), "transfer 1 .* again, after transfer 0"
    )
