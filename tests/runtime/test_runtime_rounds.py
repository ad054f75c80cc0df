"""Rounds: what NCCL would be given, checked by bookkeeping and on a fake process group."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

import reshard_lab as rl
from reshard_lab.runtime.arrays import check_pieces
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.context import RankContext, communicators_of, devices_of
from reshard_lab.runtime.program import Compiler, PieceMemory
from reshard_lab.runtime.rounds import BATCH, BatchCall, broadcast_groups, rounds_of
from support.random_tasks import random_plan
from support.rounds import placed

PLANS = [random_plan(seed) for seed in range(60)]
PLANS += [
    rl.plan(plan.tasks, scheduler=scheduler, chunks=4)
    for plan in PLANS[:12]
    for scheduler in ("split", "concurrent")
]
WITH_BROADCASTS = [
    n
    for n, plan in enumerate(PLANS)
    if any(op.kind == "broadcast" for ops in rounds_of(plan, True) for op in ops)
]
WITH_TOKENS = [
    n
    for n, plan in enumerate(PLANS)
    if any(op.kind == "token" for ops in rounds_of(plan, True) for op in ops)
]


def test_the_random_plans_have_what_is_to_be_tested():
    kinds = Counter(op.kind for plan in PLANS for _, op in placed(rounds_of(plan, True)))
    assert min(kinds[kind] for kind in ("copy", "hop", "token", "broadcast")) > 10


@pytest.mark.parametrize("collective", [False, True])
def test_every_message_of_every_hop_is_there_once(collective):
    for plan in PLANS:
        counts = Counter()
        for _, op in placed(rounds_of(plan, collective)):
            if op.kind == "broadcast":
                counts.update((op.transfer, a, b) for a, b in pairwise(op.devices))
                assert op.devices == plan.transfers[op.transfer].path
            elif op.kind != "token":
                counts[op.transfer, op.devices[0], op.devices[-1]] += 1
        broadcast = {
            op.transfer: op.messages
            for _, op in placed(rounds_of(plan, collective))
            if op.kind == "broadcast"
        }
        expected = Counter()
        for t in plan.transfers:
            count = broadcast.get(t.id, t.messages if len(t.path) > 1 else 1)
            for a, b in pairwise(t.path if len(t.path) > 1 else t.path * 2):
                expected[t.id, a, b] += count
        assert counts == expected
        assert bool(broadcast) <= collective


@pytest.mark.parametrize("collective", [False, True])
def test_lanes_keep_the_order_of_the_plan_and_one_message_at_a_time(collective):
    for plan in PLANS:
        rounds = rounds_of(plan, collective)
        for device, steps in plan.programs.items():
            for lane, end in (("send", slice(None, -1)), ("recv", slice(1, None))):
                done = [
                    (at, op.transfer)
                    for at, op in placed(rounds)
                    if op.kind in ("hop", "broadcast") and device in op.devices[end]
                ]
                assert len({at for at, _ in done}) == len(done)
                if not plan.ordered:
                    continue
                order = list(dict.fromkeys(transfer for _, transfer in sorted(done)))
                assert order == [s.transfer for s in steps if s.op == lane]
        for ops in rounds:
            load = Counter(d for op in ops if op.kind in ("hop", "token") for d in op.devices)
            assert max(load.values(), default=0) <= BATCH


@pytest.mark.parametrize("collective", [False, True])
def test_data_is_there_before_it_leaves(collective):
    """A device forwards what it has; what comes ``after`` others knows that they are complete."""
    for plan in PLANS:
        ops = placed(rounds_of(plan, collective))
        first, last, notified = {}, {}, {}
        for at, op in ops:
            if op.kind == "token":
                assert at > max(
                    r for r, o in ops if o.transfer == op.transfer and o.kind != "token"
                )
                notified[op.transfer, op.devices[1]] = at
                assert op.devices[0] == plan.transfers[op.transfer].path[-1]
                continue
            last[op.transfer] = at
            if op.devices[0] == plan.transfers[op.transfer].path[0]:
                first.setdefault(op.transfer, at)
            if op.kind == "hop" and op.devices[0] != plan.transfers[op.transfer].path[0]:
                (came,) = [
                    r
                    for r, o in ops
                    if o.kind == "hop"
                    and o.transfer == op.transfer
                    and o.devices[1] == op.devices[0]
                    and o.message == op.message
                ]
                assert came < at
        for t in plan.transfers:
            for other in t.after:
                here = plan.transfers[other].path[-1] == t.path[0]
                assert first[t.id] > (last[other] if here else notified[other, t.path[0]])


def chain_plan(nbytes=4000, chunks=10, shape=None):
    cluster = rl.Cluster(hosts=3, devices_per_host=2)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([[2, 3], [4, 5]]), "R")
    task = rl.ReshardingTask((nbytes,), "uint8", src, dst, cluster)
    return rl.plan(task, chunks=chunks)


def test_a_chain_is_pipelined():
    """K chunks down h hops take K + h - 1 rounds, not K times h."""
    assert len(rounds_of(chain_plan(), collective=False)) == 10 + 4 - 1
    (ops,) = rounds_of(chain_plan(), collective=True)
    assert [op.kind for op in ops] == ["broadcast"]


def test_a_broadcast_of_scattered_data_stages_no_more_than_its_chunks():
    cluster = rl.Cluster(hosts=3, devices_per_host=2)
    src, dst = rl.Layout(rl.Mesh([0]), "RR"), rl.Layout(rl.Mesh([[2, 3], [4, 5]]), "RS0")
    plan = rl.plan(rl.ReshardingTask((64, 100), "uint8", src, dst, cluster), chunks=8)
    broadcasts = [op for _, op in placed(rounds_of(plan, True)) if op.kind == "broadcast"]
    assert {op.messages for op in broadcasts} == {4}  # two chunks of eight at a time


def test_tokens_beyond_a_batch_wait_for_the_next_round():
    """One device that waits for many others."""
    count = BATCH + 20
    cluster = rl.Cluster(hosts=count + 2, devices_per_host=1)
    whole = rl.Layout(cluster.mesh(1), "R")
    dst = rl.Layout(cluster.mesh(count, first_host=1), "R")
    plan = rl.plan(rl.ReshardingTask((count,), "int8", whole, dst, cluster), "global_allgather")
    load = Counter(
        (at, d)
        for at, op in placed(rounds_of(plan, False))
        if op.kind in ("hop", "token")
        for d in op.devices
    )
    assert max(load.values()) == BATCH


def test_lanes_that_forbid_a_broadcast_are_named():
    """Between a chain's hops 0 sends to 3, then 3 to 2: only hop by hop is there room for it."""
    cluster = rl.Cluster(hosts=4, devices_per_host=1)
    ends = [(0, rl.Mesh([1, 2])), (0, rl.Mesh([3])), (3, rl.Mesh([2]))]
    tasks = [
        rl.ReshardingTask((8,), "int8", rl.Layout(rl.Mesh([a]), "R"), rl.Layout(m, "R"), cluster)
        for a, m in ends
    ]
    plan = rl.plan(tasks, scheduler="naive", chunks=2)
    chain, there, on = sorted(plan.transfers, key=lambda t: t.unit)
    assert (chain.path, there.path, on.path) == ((0, 1, 2), (0, 3), (3, 2))
    changed = {
        chain.id: chain._replace(stage=1, after=()),
        there.id: there._replace(stage=2, after=()),
        on.id: on._replace(stage=0, after=(there.id,)),
    }
    odd = replace(plan, transfers=tuple(changed[t.id] for t in plan.transfers))
    odd.verify()
    rounds_of(odd, collective=False)
    with pytest.raises(rl.ReshardError, match=f"transfer {chain.id} cannot be .*carrier='chain'"):
        rounds_of(odd, collective=True)


class Recorder:
    """What one rank asks of torch.distributed, in order."""

    def __init__(self):
        self.groups, self.calls = [], []

    def install(self, patch):
        import torch.distributed as dist

        make, real_broadcast, batch = dist.new_group, dist.broadcast, dist.batch_isend_irecv
        self.ranks = {}

        def new_group(ranks, backend=None):
            self.groups.append(tuple(ranks))
            group = make(ranks, backend=backend)
            self.ranks[group] = tuple(ranks)
            return group

        def broadcast(data, group, group_src, async_op):
            self.calls.append(("broadcast", self.ranks[group], group_src, data.numel()))
            return real_broadcast(data, group=group, group_src=group_src, async_op=async_op)

        def batched(posts):
            kinds = {dist.isend: "send", dist.irecv: "recv"}
            self.calls.append(
                ("batch", [(kinds[p.op], p.group_peer, p.tensor.numel()) for p in posts])
            )
            return batch(posts)

        patch.setattr(dist, "new_group", new_group)
        patch.setattr(dist, "broadcast", broadcast)
        patch.setattr(dist, "batch_isend_irecv", batched)


def record(plan, rank, size, collective, patch):
    """What ``rank`` of a fake group of ``size`` asks for, when the plan is run twice."""
    torch = pytest.importorskip("torch")
    dist = pytest.importorskip("torch.distributed")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", rank=rank, world_size=size, store=fake.FakeStore())
    try:
        recorder = Recorder()
        recorder.install(patch)
        group, on = dist.group.WORLD, torch.device("cpu")
        rounds = rounds_of(plan, collective)
        devices = devices_of(plan)
        carrier = "broadcast" if collective else "chain"
        context = RankContext(group, {d: d for d in devices}, rank, carrier, on)
        for _ in range(2):
            communicators_of(group).make(broadcast_groups(rounds, context.rank_of), on)
            if rank in devices:
                pieces = [
                    None
                    if (box := t.src.boxes(t.shape).get(rank)) is None
                    else torch.zeros([hi - lo for lo, hi in box], dtype=getattr(torch, t.dtype))
                    for t in plan.tasks
                ]
                memory = PieceMemory(check_pieces(plan, rank, pieces, None, on))
                program = Compiler(plan).compile(rank)
                BatchCall(rounds, program, memory, context, Deadline(60), lambda *_: None).run()
        return recorder
    finally:
        patch.undo()
        dist.destroy_process_group()


def rendezvous(calls):
    """Carry out the calls of all ranks as NCCL might at worst; what is left when all are stuck.

    A rank turns to its next call when the one before is done. A batch is done when every partner
    has come to the batch with the other end, a broadcast when all its ranks have come to it.
    """
    at = dict.fromkeys(calls, 0)
    sent, taken = defaultdict(list), defaultdict(list)  # posted so far, by (sender, receiver)
    posted = set()

    def post(rank):
        if (rank, at[rank]) in posted or at[rank] == len(calls[rank]):
            return
        posted.add((rank, at[rank]))
        call = calls[rank][at[rank]]
        for kind, peer, nbytes in call[1] if call[0] == "batch" else ():
            pair = (rank, peer) if kind == "send" else (peer, rank)
            (sent if kind == "send" else taken)[pair].append((rank, at[rank], nbytes))

    def done(rank):
        call = calls[rank][at[rank]]
        if call[0] == "broadcast":
            return all(
                at[other] < len(calls[other]) and calls[other][at[other]] == call
                for other in call[1]
            )
        for kind, peer, _ in call[1]:
            pair = (rank, peer) if kind == "send" else (peer, rank)
            mine, theirs = (sent, taken) if kind == "send" else (taken, sent)
            for place, (who, where, nbytes) in enumerate(mine[pair]):
                if (who, where) == (rank, at[rank]):
                    if place >= len(theirs[pair]):
                        return False
                    assert theirs[pair][place][2] == nbytes, "sizes of the two ends differ"
        return True

    moved = True
    while moved:
        moved = False
        for rank in calls:
            post(rank)
        ready = {r for r in calls if at[r] < len(calls[r]) and calls[r][at[r]][0] == "broadcast"}
        for rank in [r for r in calls if at[r] < len(calls[r]) and r not in ready and done(r)]:
            at[rank] += 1
            moved = True
        for rank in ready:
            if (
                at[rank] < len(calls[rank])
                and calls[rank][at[rank]][0] == "broadcast"
                and done(rank)
            ):
                for other in calls[rank][at[rank]][1]:
                    at[other] += 1
                moved = True
                break
    return {rank: calls[rank][at[rank] :] for rank in calls if at[rank] < len(calls[rank])}


@pytest.mark.parametrize("collective", [False, True])
@pytest.mark.parametrize("seed", [*WITH_BROADCASTS[:5], *WITH_TOKENS[:5]])
def test_what_the_ranks_ask_for_fits_together(seed, collective, monkeypatch):
    plan, size = PLANS[seed], 8
    asked = {rank: record(plan, rank, size, collective, monkeypatch) for rank in range(size)}
    groups = {tuple(recorder.groups) for recorder in asked.values()}
    assert len(groups) == 1  # made in one order by all, and not made again
    (group,) = groups
    assert len(set(group)) == len(group) and bool(group) <= collective
    assert rendezvous({rank: recorder.calls for rank, recorder in asked.items()}) == {}


def test_the_fake_rendezvous_notices_what_does_not_fit():
    ahead = {0: [("batch", [("send", 1, 4)])], 1: [("batch", [("recv", 0, 4)])]}
    assert rendezvous(ahead) == {}
    crossed = {
        0: [("batch", [("send", 1, 4)]), ("batch", [("recv", 1, 4)])],
        1: [("batch", [("send", 0, 4)]), ("batch", [("recv", 0, 4)])],
    }
    assert set(rendezvous(crossed)) == {0, 1}
    broadcasts = {
        0: [("broadcast", (0, 1), 0, 4), ("broadcast", (0, 1), 1, 4)],
        1: [("broadcast", (0, 1), 1, 4), ("broadcast", (0, 1), 0, 4)],
    }
    assert set(rendezvous(broadcasts)) == {0, 1}
    with pytest.raises(AssertionError, match="sizes"):
        rendezvous({0: [("batch", [("send", 1, 4)])], 1: [("batch", [("recv", 0, 5)])]})
