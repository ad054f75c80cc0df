"""Unit tasks against figure 2, the handed cases, brute force and public reports."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

import reshard_lab as rl
from reshard_lab.bounds import fractional_sender_load
from support.property_tasks import reshardings
from support.reference_cases import read, row_major, tasks_of

A = rl.Mesh([[0, 1], [2, 3]])
B = rl.Mesh([[4, 5], [6, 7]])


def task(shape, src, dst, dtype="float32", cluster=None) -> rl.ReshardingTask:
    return rl.ReshardingTask(shape, dtype, rl.Layout(*src), rl.Layout(*dst), cluster)


def test_figure_2_task_1():
    units = task((4, 4), (A, "S01R"), (B, "S0R")).unit_tasks
    assert len(units) == 4
    assert units[0] == rl.UnitTask(((0, 1), (0, 4)), 16, (0,), (4, 5))
    assert [u.senders for u in units] == [(0,), (1,), (2,), (3,)]
    assert [u.receivers for u in units] == [(4, 5), (4, 5), (6, 7), (6, 7)]


def test_figure_2_task_2():
    units = task((4, 4), (B, "S0R"), (A, "S0R")).unit_tasks
    assert units == (
        rl.UnitTask(((0, 2), (0, 4)), 32, (4, 5), (0, 1)),
        rl.UnitTask(((2, 4), (0, 4)), 32, (6, 7), (2, 3)),
    )


@pytest.mark.parametrize("case", read("schedules"), ids=lambda c: c["name"])
def test_handed_unit_task_counts_and_bounds(case):
    tasks = tasks_of(case)
    expected = case["expected"]
    assert sum(len(t.unit_tasks) for t in tasks) == expected["unit_tasks"]
    problem = rl.scheduling.Problem.from_tasks(tasks)
    assert problem.fluid_bound == pytest.approx(expected["fluid_bound_bytes"], rel=1e-9)
    assert rl.plan(tasks).lower_bound_s == pytest.approx(expected["fluid_bound_bytes"], rel=1e-9)


def brute_force(t: rl.ReshardingTask) -> list[rl.UnitTask]:
    """Every pair of distinct slices, intersected as boolean masks."""

    def distinct(layout):
        masks: dict[bytes, tuple[np.ndarray, list[int]]] = {}
        for device, box in layout.boxes(t.shape).items():
            mask = np.zeros(t.shape, dtype=bool)
            mask[tuple(slice(lo, hi) for lo, hi in box)] = True
            if mask.any():
                masks.setdefault(mask.tobytes(), (mask, []))[1].append(device)
        return list(masks.values())

    units = []
    for need, receivers in distinct(t.dst):
        for have, senders in distinct(t.src):
            both = need & have
            if both.any():
                at = np.argwhere(both)
                box = tuple((int(a), int(b) + 1) for a, b in zip(at.min(0), at.max(0), strict=True))
                nbytes = int(both.sum()) * t.itemsize
                units.append(
                    rl.UnitTask(box, nbytes, tuple(sorted(senders)), tuple(sorted(receivers)))
                )
    return units


@settings(max_examples=60)
@given(reshardings(most_elements=2000))
def test_unit_tasks_equal_brute_force_in_order(t):
    assert list(t.unit_tasks) == brute_force(t)


@pytest.mark.parametrize("strategy", ["alpa", "broadcast", "global_allgather"])
def test_scalars_are_carried(strategy):
    cluster = rl.Cluster(2, 2)
    one, host = rl.Layout(rl.Mesh([0]), ""), rl.Layout(rl.Mesh([2, 3]), "")
    plan = rl.plan(rl.ReshardingTask((), "float32", one, host, cluster), strategy)
    out = rl.execute(plan, {0: np.array(7, "float32")})
    assert [float(out[d]) for d in (2, 3)] == [7.0, 7.0]


def test_scalar_and_empty_tensors():
    (unit,) = task((), (A, ""), (B, "")).unit_tasks
    assert unit == rl.UnitTask((), 4, (0, 1, 2, 3), (4, 5, 6, 7))
    assert task((0, 3), (A, "S0R"), (B, "RS0")).unit_tasks == ()


def test_uneven_to_uneven():
    units = task((7,), (rl.Mesh([0, 1]), "S0"), (rl.Mesh([2, 3, 4]), "S0")).unit_tasks
    assert [u.box[0] for u in units] == [(0, 3), (3, 4), (4, 6), (6, 7)]


def test_rows_1024_512_512_1024():
    src = row_major((2, 4))
    dst = rl.Mesh(np.arange(8, 20).reshape(3, 4))
    units = task((3072, 1024, 170), (src, "S0RR"), (dst, "S0RR")).unit_tasks
    assert [u.box[0][1] - u.box[0][0] for u in units] == [1024, 512, 512, 1024]


def test_two_kv_heads_to_four_ranks():
    """2 heads from one rank to four ranks with a replicating axis: 2 unit tasks of 2 receivers."""
    dst = rl.Mesh([[1, 2], [3, 4]])
    units = task((2, 128), (rl.Mesh([0]), "RR"), (dst, "S0R")).unit_tasks
    assert [(u.box[0], u.receivers) for u in units] == [((0, 1), (1, 2)), ((1, 2), (3, 4))]


def test_bytes_beyond_32_bits():
    dst = rl.Mesh([4, 5, 6, 7])
    units = task((131072, 131072), (rl.Mesh([0, 1, 2, 3]), "S0R"), (dst, "RS0")).unit_tasks
    assert len(units) == 16
    assert {u.nbytes for u in units} == {4 * 2**30}
    assert task((131072, 131072), (A, "RR"), (B, "RR")).nbytes == 2**36


def test_sub_mesh_receives_only_what_it_names():
    units = task((4,), (A, "S01"), (rl.Mesh([0, 2]), "S0")).unit_tasks
    assert {d for u in units for d in u.receivers} == {0, 2}
    assert units[0] == rl.UnitTask(((0, 1),), 4, (0,), (0,))  # stays local, listed


def test_whole_slices_send_what_nobody_needs():
    t = task((4, 4), (A, "S0R"), (B, "RS0"))
    assert [u.nbytes for u in t.unit_tasks] == [16] * 4
    assert t.whole_slice_tasks == (
        rl.UnitTask(((0, 2), (0, 4)), 32, (0, 1), (4, 5, 6, 7)),
        rl.UnitTask(((2, 4), (0, 4)), 32, (2, 3), (4, 5, 6, 7)),
    )
    same = task((4, 4), (A, "S01R"), (B, "S0R"))
    assert same.whole_slice_tasks == same.unit_tasks


def test_hosts_that_hold_the_box_need_no_nic():
    cluster = rl.Cluster(hosts=2, devices_per_host=2, nic=1.0)
    t = task((8,), (rl.Mesh([0]), "R"), (rl.Mesh([1, 2, 3]), "R"), "int8", cluster)
    assert t.lower_bound_s == 8.0  # host 1 takes 8 bytes in; device 1 is served inside host 0
    local = task((8,), (rl.Mesh([0]), "R"), (rl.Mesh([1]), "R"), "int8", cluster)
    assert local.lower_bound_s == 0.0
    problem = rl.scheduling.Problem.from_tasks([t, local])
    assert problem.receivers == ((1,), ())


def test_fractional_senders_bound_the_load():
    """Four hosts hold everything, one host each needs a quarter: 2 bytes a NIC, not 8."""
    cluster = rl.Cluster(hosts=8, devices_per_host=1, nic=1.0)
    src = rl.Layout(cluster.mesh(4), "R")
    dst = rl.Layout(cluster.mesh(4, first_host=4), "S0")
    t = rl.ReshardingTask((8,), "int8", src, dst, cluster)
    assert t.lower_bound_s == 2.0
    assert sorted(rl.plan(t).units[i].sender for i in range(4)) == [0, 1, 2, 3]


def test_every_nic_of_a_host_counts_in_the_bound():
    for nics in (1, 2, 4):
        cluster = rl.Cluster(hosts=2, devices_per_host=4, nic=1.0, nics_per_host=nics)
        src, dst = rl.Layout(cluster.mesh(4), "S0"), rl.Layout(cluster.mesh(4, first_host=1), "R")
        assert rl.ReshardingTask((8,), "int8", src, dst, cluster).lower_bound_s == 8 / nics


def test_fractional_load_equals_the_heaviest_set_of_senders():
    """Hall's condition: the least largest load is max over sets X of (work only X can send)/|X|."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        hosts = int(rng.integers(1, 6))
        loads: dict[tuple[int, ...], float] = {}
        for _ in range(int(rng.integers(1, 8))):
            allowed = tuple(np.flatnonzero(rng.random(hosts) < 0.5).tolist()) or (0,)
            loads[allowed] = loads.get(allowed, 0.0) + float(rng.integers(1, 50))
        heaviest = max(
            sum(w for key, w in loads.items() if set(key) <= set(chosen)) / size
            for size in range(1, hosts + 1)
            for chosen in combinations(range(hosts), size)
        )
        assert fractional_sender_load(loads) == pytest.approx(heaviest, rel=1e-9)


CLUSTER = rl.Cluster(hosts=2, devices_per_host=2)


def test_repr_is_one_deterministic_line():
    t = task((4, 4), (A, "S01R"), (B, "S0R"))
    assert repr(t) == (
        "ReshardingTask(shape=(4, 4), dtype='float32', 'S01R' on 2x2 -> 'S0R' on 2x2, 64 B)"
    )
