"""Inputs that broke other systems in public (tests/cases/reports.md), by their number there."""

from __future__ import annotations

import numpy as np
import pytest

import reshard_lab as rl
from support.reference_cases import pieces_of

CLUSTER = rl.Cluster(hosts=8, devices_per_host=4)
STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")


def reshard(array, src: rl.Layout, dst: rl.Layout) -> dict[int, list]:
    """What every destination device holds, the same under every strategy."""
    task = rl.ReshardingTask(array.shape, array.dtype, src, dst, CLUSTER)
    results = []
    for strategy in STRATEGIES:
        out = rl.execute(rl.plan(task, strategy=strategy), pieces_of(src, array))
        results.append({device: piece.tolist() for device, piece in out.items()})
    assert all(result == results[0] for result in results)
    return results[0]


def on(devices, spec: str) -> rl.Layout:
    return rl.Layout(rl.Mesh(devices), spec)


def units(shape, src: rl.Layout, dst: rl.Layout) -> tuple[rl.UnitTask, ...]:
    return rl.ReshardingTask(shape, "float32", src, dst, CLUSTER).unit_tasks


EIGHT = np.arange(8, dtype=np.float32)


@pytest.mark.parametrize(
    ("number", "src", "dst", "expected"),
    [
        (1, on([0, 1], "S0"), on([2, 3], "S0"), {2: [0, 1, 2, 3], 3: [4, 5, 6, 7]}),
        (
            2,
            on([0, 1, 2, 3], "S0"),
            on([3, 2, 1, 0], "S0"),
            {3: [0, 1], 2: [2, 3], 1: [4, 5], 0: [6, 7]},
        ),
        (3, on([0, 1], "S0"), on([2, 3], "R"), {2: list(range(8)), 3: list(range(8))}),
        (7, on([0, 1, 2, 3], "S0"), on([4, 5], "S0"), {4: [0, 1, 2, 3], 5: [4, 5, 6, 7]}),
        (10, on([0, 1], "S0"), on([4, 5, 6], "R"), {key: list(range(8)) for key in (4, 5, 6)}),
        (11, on([0, 2], "S0"), on([1, 3], "S0"), {1: [0, 1, 2, 3], 3: [4, 5, 6, 7]}),
    ],
)
def test_eight_numbers(number, src, dst, expected):
    assert reshard(EIGHT, src, dst) == expected


def test_4_grid_to_flat():
    array = np.arange(16).reshape(4, 4)
    src, dst = on([[0, 1], [2, 3]], "S0S1"), on([0, 1, 2, 3], "S0R")
    assert reshard(array, src, dst) == {d: [array[d].tolist()] for d in range(4)}
    tasks = units((4, 4), src, dst)
    assert len(tasks) == 8
    assert {tuple(hi - lo for lo, hi in u.box) for u in tasks} == {(1, 2)}


def test_5_a_permuted_mesh():
    src, dst = on([[0, 3], [1, 2]], "RS1"), on([[0, 1], [2, 3]], "RS1")
    array = np.array([[10, 20]])
    assert reshard(array, src, dst) == {0: [[10]], 1: [[20]], 2: [[10]], 3: [[20]]}


def test_6_two_axes_to_one():
    src, dst = on([[0, 1], [2, 3]], "S0S1"), on([8, 9, 10, 11], "S0R")
    out = reshard(np.arange(64).reshape(8, 8), src, dst)
    assert out[9] == np.arange(16, 32).reshape(2, 8).tolist()


def test_9_a_sub_mesh():
    out = reshard(EIGHT, on([[0, 1], [2, 3]], "S01"), on([0, 2], "S0"))
    assert out == {0: [0, 1, 2, 3], 2: [4, 5, 6, 7]}


def test_12_13_uneven_rows_are_gathered_back():
    for shape, rows in (((5, 10), [2, 2, 1, 0]), ((10, 2), [3, 3, 3, 1])):
        array = np.arange(shape[0] * shape[1]).reshape(shape)
        src = on([0, 1, 2, 3], "S0R")
        assert [piece.shape[0] for piece in pieces_of(src, array).values()] == rows
        assert reshard(array, src, on([4], "RR")) == {4: array.tolist()}


def test_14_locals_that_do_not_fit_are_named():
    src, dst = on([0, 1, 2, 3], "RS0"), on([4], "RR")
    plan = rl.plan(rl.ReshardingTask((2, 14), "float64", src, dst, CLUSTER))
    pieces = {rank: np.zeros((2, 2 + rank)) for rank in range(4)}
    with pytest.raises(rl.ReshardError) as caught:
        rl.execute(plan, pieces)
    for rank in (0, 1, 3):
        assert f"device {rank} has (2, {2 + rank})" in str(caught.value)
    assert "device 2 has" not in str(caught.value)  # ranks hold 4, 4, 4, 2: it fits


def test_16_empty_transfers_are_skipped():
    src, dst = on([0, 1, 2, 3], "S0"), on([4, 5], "S0")
    assert reshard(np.arange(3), src, dst) == {4: [0, 1], 5: [2]}
    task = rl.ReshardingTask((3,), "int64", src, dst, CLUSTER)
    assert all(t.nbytes for t in rl.plan(task).transfers)


def test_18_odd_halves_to_replicas():
    array = np.arange(1001 * 4).reshape(1001, 4)
    src = on([0, 1], "S0R")
    assert [p.shape[0] for p in pieces_of(src, array).values()] == [501, 500]
    assert reshard(array, src, on([4, 8], "RR"))[8] == array.tolist()


def test_21_a_rank_without_data_takes_part():
    array = np.arange(6 * 256).reshape(6, 256)
    out = reshard(array, on([0, 1, 2, 3], "S0R"), on([4, 5, 6, 7], "S0R"))
    assert [len(out[d]) for d in (4, 5, 6, 7)] == [2, 2, 2, 0]


@pytest.mark.parametrize("n", [4, 5, 6])
def test_22_to_24_nested_order_is_gathered_back(n):
    array = np.arange(n)
    out = reshard(array, on([[0, 1], [2, 3]], "S10"), on([8], "R"))
    assert out == {8: array.tolist()}


def test_25_both_nested_orders():
    mesh = [[0, 1], [2, 3]]
    one, other = pieces_of(on(mesh, "S01"), EIGHT), pieces_of(on(mesh, "S10"), EIGHT)
    assert [one[d].tolist() for d in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [other[d].tolist() for d in range(4)] == [[0, 1], [4, 5], [2, 3], [6, 7]]
    swapped = reshard(EIGHT, on(mesh, "S01"), on(mesh, "S10"))
    assert swapped == {d: other[d].tolist() for d in range(4)}


@pytest.mark.parametrize(
    ("src", "dst", "axes"),
    [("S0S1R", "S1S0R", (2, 2)), ("RS01R", "RS0S1", (2, 2)), ("S01S2R", "S0S1S2", (2, 2, 2))],
)
def test_26_no_rank_gathers(src, dst, axes):
    n = int(np.prod(axes))
    a = rl.Layout(rl.Mesh(np.arange(n).reshape(axes)), src)
    b = rl.Layout(rl.Mesh(np.arange(n, 2 * n).reshape(axes)), dst)
    task = rl.ReshardingTask((8, 8, 8), "float32", a, b, CLUSTER)
    piece = task.nbytes // n
    assert max(rl.plan(task).peak_bytes.values()) <= 2 * piece
    array = np.arange(512, dtype=np.float32).reshape(8, 8, 8)
    expected = {d: p.tolist() for d, p in pieces_of(b, array).items()}
    assert reshard(array, a, b) == expected


def test_28_fused_rows_cut_by_raw_rows():
    """[32 q, k, v] twice over 8 ranks: 8.5 heads a rank; only ranks 3 and 7 hold K and V."""
    head = 2
    kinds = np.repeat((["q"] * 32 + ["k", "v"]) * 2, head)
    pieces = pieces_of(on(range(8), "S0"), kinds)
    assert [len(p) / head for p in pieces.values()] == [8.5] * 8
    assert [rank for rank, p in pieces.items() if {"k", "v"} & set(p.tolist())] == [3, 7]


def test_36_bytes_pass_2_to_the_32():
    tasks = units((131072, 131072), on([0, 1, 2, 3], "S0R"), on([4, 5, 6, 7], "RS0"))
    assert len(tasks) == 16
    assert sum(u.nbytes for u in tasks) == 2**36


def test_39_no_receiver_or_no_sender():
    with pytest.raises(rl.ReshardError, match="task 0 has no sender"):
        rl.scheduling.Problem(durations=[1.0], senders=[()], receivers=[(1,)])
    idle = rl.scheduling.Problem(durations=[1.0], senders=[(0,)], receivers=[()])
    assert rl.scheduling.solve(idle, "load_balance").makespan == 0.0
