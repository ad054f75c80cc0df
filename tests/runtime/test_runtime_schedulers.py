"""Plans that share tasks out, relay them or leave their order open, on real processes."""

import functools
import itertools
import random
from collections import Counter

import pytest

import reshard_lab as rl
from reshard_lab.planning import build
from reshard_lab.planning.hops import hops_of
from reshard_lab.runtime import Pool
from reshard_lab.runtime.program import Compiler
from reshard_lab.runtime.rounds import rounds_of
from support.random_tasks import random_layout
from support.rounds import placed

SCHEDULERS = ("split", "concurrent")
RULES = ("chunk", "balanced")


def shared_plan(seed: int, scheduler: str) -> rl.Plan:
    """One or two tensors on 8 devices; hosts of one or two devices, one or two NICs each."""
    rng = random.Random(seed)
    per = rng.choice((1, 2))
    cluster = rl.Cluster(
        hosts=8 // per, devices_per_host=per, nics_per_host=rng.choice((1, per)), nic_latency=0
    )
    every = list(range(8))
    first, second = rng.choice([(every, every), (every[:4], every[4:]), (every[:3], every[3:])])
    tasks = []
    for _ in range(rng.choice((1, 2))):
        shape = tuple(rng.choice((4, 7, 16, 33)) for _ in range(rng.randrange(1, 4)))
        src, dst = (random_layout(rng, end, len(shape), RULES) for end in (first, second))
        tasks.append(rl.ReshardingTask(shape, rng.choice(("int8", "float64")), src, dst, cluster))
    return rl.plan(tasks, scheduler=scheduler, chunks=rng.choice((1, 3)), seed=seed)


@functools.cache
def interesting(scheduler: str, count: int) -> list[rl.Plan]:
    """Of many seeds, the plans that are cut most, or have most transfers."""
    plans = [shared_plan(seed, scheduler) for seed in range(200)]
    plans = [p for p in plans if 8 <= len(p.transfers) <= 400]
    cuts = [sum(t.span is not None for t in p.transfers) for p in plans]
    order = sorted(range(len(plans)), key=lambda i: (-cuts[i], -len(plans[i].transfers)))
    return [plans[i] for i in order[:count]]


@pytest.fixture(scope="module")
def pool():
    with Pool(8) as processes:
        yield processes


@pytest.mark.distributed
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_results_are_right_on_processes(pool, scheduler):
    plans = interesting(scheduler, 6)
    assert len(plans) == 6
    for plan in plans:
        assert pool.run(plan, repeats=2, warmup=1, timeout_s=30).verified


@pytest.mark.distributed
def test_relays_on_processes(pool, monkeypatch):
    """Receiver sets that overlap: parts are passed on by hosts that received them."""
    monkeypatch.setattr(build, "_BATCH_BYTES", 1)
    cluster = rl.Cluster(hosts=8, devices_per_host=1, nic_latency=0)
    src = cluster.mesh(2)
    tasks = [
        rl.ReshardingTask((48, 3), "int16", rl.Layout(src, "S0R"), rl.Layout(mesh, "RR"), cluster)
        for mesh in (rl.Mesh([4, 5]), rl.Mesh([5, 6]), rl.Mesh([4, 6]))
    ]
    plan = rl.plan(tasks, scheduler="split")
    assert {t.path[0] for t in plan.transfers} > {0, 1}
    assert pool.run(plan, repeats=1, warmup=0, timeout_s=30).verified


def test_the_plans_are_what_they_are_meant_to_be():
    split, shared = (interesting(s, 6) for s in SCHEDULERS)
    assert all(p.ordered for p in split)
    assert not any(p.ordered for p in shared)
    assert sum(any(t.span for t in p.transfers) for p in split) >= 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_lanes_of_a_device(scheduler):
    """One each way in order; one each way for every other device without."""
    for plan in interesting(scheduler, 4):
        compiler = Compiler(plan)
        for device in plan.programs:
            program = compiler.compile(device)
            for moves in (program.sends, program.recvs):
                lanes = program.lanes(moves)
                listed = itertools.chain.from_iterable(lane.ends for lane in lanes)
                assert list(moves) == sorted(listed, key=lambda m: m.step)
                peers = {m.peer for m in moves}
                assert len(lanes) == (bool(moves) if plan.ordered else len(peers))
                for lane in lanes:
                    assert lane.in_turn != plan.ordered
                    sent = Counter(move.step for move, _ in lane.messages())
                    assert sent == {move.step: move.messages for move in lane.ends}
                    if not plan.ordered:
                        assert len({m.peer for m in lane.ends}) == 1


def test_messages_between_two_devices_take_turns():
    """In proportion, the shorter transfers' messages spread over the longer ones'."""
    cluster = rl.Cluster(hosts=2, devices_per_host=1)
    ends = rl.Layout(cluster.mesh(1), "R"), rl.Layout(cluster.mesh(1, first_host=1), "R")
    tasks = [rl.ReshardingTask((n,), "int8", *ends, cluster) for n in (2, 4)]
    plan = rl.plan(tasks, scheduler="concurrent", chunks=4)
    compiler = Compiler(plan)
    for device, side in ((0, "sends"), (1, "recvs")):
        program = compiler.compile(device)
        (lane,) = program.lanes(getattr(program, side))
        assert [(move.transfer, i) for move, i in lane.messages()] == [
            (1, 0), (0, 0), (1, 1), (1, 2), (0, 1), (1, 3)
        ]  # fmt: skip


def test_levels_of_waiting_transfers():
    plan = next(p for p in interesting("concurrent", 30) if any(t.after for t in p.transfers))
    levels = plan.hops.levels
    assert max(levels) >= 1
    for t in plan.transfers:
        assert levels[t.id] == max((levels[o] + 1 for o in t.after), default=0)
    cycle = [t._replace(after=((t.id + 1) % 2,)) for t in plan.transfers[:2]]
    with pytest.raises(
        rl.ReshardError, match=r"waits for itself: transfers (0 -> 1 -> 0|1 -> 0 -> 1) each"
    ):
        _ = hops_of(cycle, ordered=False).levels


@pytest.mark.parametrize("collective", [False, True])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_rounds_of_shared_plans_give_every_lane_one_message_at_a_time(scheduler, collective):
    for plan in interesting(scheduler, 4):
        rounds = rounds_of(plan, collective)
        busy = Counter()
        for number, op in placed(rounds):
            if op.kind == "hop":
                busy[number, op.devices[0], "send"] += 1
                busy[number, op.devices[1], "recv"] += 1
        assert max(busy.values(), default=1) == 1
        carried = {op.transfer for _, op in placed(rounds) if op.kind != "token"}
        assert carried == {t.id for t in plan.transfers}
