"""What is compiled for each device, and how messages lie in memory; no processes."""

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.boxes import box_shape, box_volume, slices_within, span_boxes
from reshard_lab.runtime.arrays import RankPieces, bytes_of, check_pieces
from reshard_lab.runtime.context import devices_of
from reshard_lab.runtime.program import Compiler, HopEnd, PieceMemory
from reshard_lab.transfer import IN_FLIGHT, MESSAGE_BYTES
from reshard_lab.units import ITEMSIZE
from support.random_tasks import random_plan

torch = pytest.importorskip("torch")
SEEDS = range(60)


def programs(plan):
    compiler = Compiler(plan)
    return {device: compiler.compile(device) for device in devices_of(plan)}


def piece_of(plan, place, device):
    """The box of the piece that ``place`` lies in, and its task."""
    task = plan.tasks[place.task]
    layout = task.src if place.side == "src" else task.dst
    return task, layout.boxes(task.shape)[device]


def bytes_in_piece(plan, transfer, place, device):
    """Where every byte of the payload lies, found by slicing an array of byte numbers."""
    task, piece = piece_of(plan, place, device)
    shape = (*box_shape(piece), task.itemsize)
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    parts = [numbers[slices_within(b, piece)] for b in span_boxes(transfer.box, transfer.span)]
    return np.concatenate([p.ravel() for p in parts])


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_lie_where_slicing_says(seed):
    plan = random_plan(seed)
    for device, program in programs(plan).items():
        source, target = [], []
        for task in plan.tasks:
            for layout, tensors in ((task.src, source), (task.dst, target)):
                box = layout.boxes(task.shape).get(device)
                size = 0 if box is None else box_volume(box) * task.itemsize
                values = (np.arange(size) * 7 % 251).astype(np.uint8)
                if box is None:
                    tensors.append(None)
                    continue
                tensors.append(torch.empty(box_shape(box), dtype=getattr(torch, task.dtype)))
                bytes_of(tensors[-1]).copy_(torch.from_numpy(values))
        memory = PieceMemory(RankPieces(source, target))
        for move in (*program.sends, *program.recvs):
            at = bytes_in_piece(plan, plan.transfers[move.transfer], move.buffer, device)
            assert len(at) == move.nbytes
            flat = memory.flat[move.buffer.side, move.buffer.task]
            for i in range(move.messages):
                lo, hi = move.edge(i), move.edge(i + 1)
                staging = torch.zeros(move.nbytes, dtype=torch.uint8)
                data = memory.message(move, i, True, staging)
                assert np.array_equal(data.numpy(), flat.numpy()[at[lo:hi]])
                if move.buffer.offset is not None:
                    assert data.data_ptr() == flat.data_ptr() + at[lo]
                    continue
                before = flat.numpy().copy()
                memory.unpack(move, i, torch.full((hi - lo,), 255, dtype=torch.uint8))
                changed = np.flatnonzero(flat.numpy() != before)
                assert np.array_equal(changed, np.sort(at[lo:hi]))
                memory.unpack(move, i, data)
                assert np.array_equal(flat.numpy(), before)
        for move in program.copies:
            from_at = bytes_in_piece(plan, plan.transfers[move.transfer], move.buffer, device)
            to_at = bytes_in_piece(plan, plan.transfers[move.transfer], move.target, device)
            memory.copy(move)
            read = memory.flat["src", move.buffer.task].numpy()[from_at]
            assert np.array_equal(memory.flat["dst", move.target.task].numpy()[to_at], read)


@pytest.mark.parametrize("seed", SEEDS)
def test_staging_is_what_the_plan_counts(seed):
    """Pieces plus the staging of both lanes is exactly ``peak_bytes``."""
    plan = random_plan(seed)
    for device, program in programs(plan).items():
        held = sum(
            box_volume(boxes[device]) * task.itemsize
            for task in plan.tasks
            for boxes in (task.src.boxes(task.shape), task.dst.boxes(task.shape))
            if device in boxes
        )
        lanes = [
            max((m.staged for m in lane), default=0) for lane in (program.sends, program.recvs)
        ]
        assert plan.peak_bytes[device] == held + sum(lanes)
        for move in (*program.sends, *program.recvs):
            assert (move.staged == 0) == (move.buffer.offset is not None)
            check_slots(move)


def check_slots(move):
    if not move.staged:
        return
    spans = [
        (move.slot(i), move.slot(i) + move.edge(i + 1) - move.edge(i)) for i in range(move.messages)
    ]
    assert all(0 <= lo < hi <= move.staged for lo, hi in spans)
    for i, (lo, hi) in enumerate(spans):
        for a, b in spans[i + 1 : i + IN_FLIGHT]:
            assert b <= lo or hi <= a, "two messages under way share staging memory"


@pytest.mark.parametrize(("nbytes", "messages"), [(3, 2), (5, 2), (7, 3), (4, 3), (100, 7), (5, 5)])
def test_slots_of_messages_of_uneven_length(nbytes, messages):
    slot = -(-nbytes // messages)
    staged = min(nbytes, IN_FLIGHT * slot)
    check_slots(HopEnd(0, 0, 1, nbytes, messages, None, None, staged, False, True, (), (), ()))


def test_long_payloads_are_cut_into_messages():
    cluster = rl.Cluster(hosts=2, devices_per_host=1)
    rows = 3 * MESSAGE_BYTES // 4 + 5
    src, dst = rl.Layout(cluster.mesh(1), "RR"), rl.Layout(cluster.mesh(1, first_host=1), "RR")
    plan = rl.plan(rl.ReshardingTask((rows, 2), "uint16", src, dst, cluster), "send_recv")
    (move,) = programs(plan)[0].sends
    assert move.messages == 4 and move.staged == 0
    assert max(move.edge(i + 1) - move.edge(i) for i in range(4)) <= MESSAGE_BYTES


def test_waits_are_told_by_the_last_device_of_the_transfer():
    """Two senders, one NIC to receive: the second starts when the first is complete."""
    cluster = rl.Cluster(hosts=3, devices_per_host=2)
    src = rl.Layout(rl.Mesh([0, 2]), "S0")
    dst = rl.Layout(rl.Mesh([4, 5]), "R")
    plan = rl.plan(rl.ReshardingTask((8,), "int8", src, dst, cluster), chunks=4)
    first, second = plan.transfers
    assert first.path == (0, 4, 5) and second.path == (2, 4, 5) and second.after == (0,)
    compiled = programs(plan)
    assert compiled[2].awaited == [(5, 0)]
    assert [m.notify for m in compiled[5].recvs] == [(2,), ()]
    assert [m.notify for m in compiled[4].recvs] == [(), ()]
    assert [m.last for m in compiled[4].recvs] == [False, False]
    assert [m.forward for m in compiled[4].sends] == [True, True]


def test_a_wait_for_what_ends_at_the_same_device_needs_no_word():
    cluster = rl.Cluster(hosts=3, devices_per_host=2)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([2, 3]), "R")
    plan = rl.plan(rl.ReshardingTask((8,), "int8", src, dst, cluster), "local_allgather")
    ring = [m for p in programs(plan).values() for m in p.sends if m.local]
    assert ring and all(t in m.local for m in ring for t in m.local)
    assert {m.buffer.side for m in ring} == {"dst"}


@pytest.fixture
def plan():
    cluster = rl.Cluster(hosts=2, devices_per_host=2)
    src, dst = rl.Layout(cluster.mesh(2), "S0R"), rl.Layout(cluster.mesh(2, first_host=1), "RS0")
    return rl.plan(rl.ReshardingTask((4, 6), "float32", src, dst, cluster))


def test_pieces_of_devices_without_one(plan):
    pieces = check_pieces(plan, 2, None, None)
    assert pieces.source == [None] and pieces.target[0].shape == (4, 3)


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_bytes_are_the_memory_of_the_tensor(dtype):
    for shape in ((), (3,), (2, 0)):
        tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
        flat = bytes_of(tensor)
        assert flat.dtype == torch.uint8 and flat.numel() == tensor.numel() * tensor.itemsize
        assert flat.data_ptr() == tensor.data_ptr()
