"""What the notebooks tabulate: against closed forms of section 3, and counting by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from reshard_lab import paper, teaching

# Counted element by element, on meshes of figure 2.
SPECS = ["RR", "S0R", "S1R", "S01R", "S10R", "RS0", "RS1", "RS01", "S0S1", "S1S0"]


@given(st.sampled_from(SPECS), st.sampled_from(SPECS), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=40)
def test_both_readings_count_the_bytes_that_enter_each_host(src, dst, rows, columns):
    task = paper.on_figure2(src, dst, shape=(rows, columns), dtype="int16")
    elements = list(itertools.product(range(rows), range(columns)))

    def holds(box, element):
        return all(lo <= i < hi for i, (lo, hi) in zip(element, box, strict=True))

    have, need = task.src.boxes(task.shape), task.dst.boxes(task.shape)
    table = teaching.two_readings(task)
    for host in (2, 3):
        on_host = [need[d] for d in (2 * host, 2 * host + 1)]
        wanted = [e for e in elements if any(holds(b, e) for b in on_host)]
        whole = {box for box in have.values() for e in wanted if holds(box, e)}
        row = table.loc[f"host {host}"]
        assert row["needs"] == row["intersections"] == 2 * len(wanted)
        volume = sum(math.prod(hi - lo for lo, hi in box) for box in whole)
        assert row["whole slices"] == 2 * volume
    assert table.loc["all"].tolist() == table.iloc[:2].sum().tolist()


def test_hosts_that_hold_the_data_take_nothing_in():
    mesh = rl.Mesh([[0, 1], [2, 3]])
    cluster = rl.Cluster(hosts=2, devices_per_host=2)
    task = rl.ReshardingTask((4, 4), "int8", rl.Layout(mesh, "S0R"), rl.Layout(mesh, "RR"), cluster)
    assert teaching.two_readings(task).loc["host 0"].tolist() == [8, 8, 8]
    same = rl.ReshardingTask(
        (4, 4), "int8", rl.Layout(mesh, "S0R"), rl.Layout(mesh, "S0R"), cluster
    )
    assert teaching.two_readings(same).loc["all"].tolist() == [0, 0, 0]


def test_the_list_of_appendix_b():
    first = teaching.unit_tasks(paper.figure2(1))
    assert first["box"].tolist() == ["[0:1, 0:4]", "[1:2, 0:4]", "[2:3, 0:4]", "[3:4, 0:4]"]
    assert first["N"].tolist() == ["0", "1", "2", "3"]
    assert first["M"].tolist() == ["4,5", "4,5", "6,7", "6,7"]
    second = teaching.unit_tasks(paper.figure2(2))
    assert second[["N", "M"]].to_numpy().tolist() == [["4,5", "0,1"], ["6,7", "2,3"]]
    assert second["bytes"].tolist() == [32, 32]
    whole = teaching.unit_tasks(paper.on_figure2("S0R", "RS0"), whole_slices=True)
    assert whole["M"].tolist() == ["4-7", "4-7"]


@given(st.integers(0, 40), st.integers(1, 9))
def test_uneven_follows_the_rules_of_numpy_and_torch(size, devices):
    """``balanced`` is numpy.array_split; ``chunk`` is torch.chunk: pieces of ceil(n/k)."""
    table = teaching.uneven([size], rl.Mesh(range(devices)))
    length = -(-size // devices)
    chunked = [max(0, min(length, size - i * length)) for i in range(devices)]
    split = [len(part) for part in np.array_split(np.arange(size), devices)]
    assert table.loc[(size, "chunk")].tolist() == [str(n) for n in chunked]
    assert table.loc[(size, "balanced")].tolist() == [str(n) for n in split]
    divides = size % devices == 0
    even = [str(size // devices) if divides else "refused"] * devices
    assert table.loc[(size, "even")].tolist() == even


@pytest.mark.parametrize("hosts", [1, 2, 5])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_four_strategies_take_what_section_3_says_and_move_what_can_be_counted(hosts, devices):
    n, chunks = hosts * devices, 20
    table = teaching.strategy_times(hosts, devices, chunks)
    ring = 0 if hosts == 1 else (n - 1) / n
    times = [n, hosts, 1 + ring, 1 + (hosts - 1) / chunks]
    assert list(table["simulated"]) == pytest.approx(times, abs=1e-4)
    assert list(table["closed_form"]) == pytest.approx(times, abs=1e-4)
    assert list(table["leave_sender"]) == pytest.approx([n, hosts, 1, 1], abs=1e-4)
    # Under the ring a host gets a part for each of its devices, then all but one part once more.
    assert list(table["enter_host"]) == pytest.approx([devices, 1, 1 / hosts + ring, 1], abs=1e-4)
    assert table.index.tolist() == ["send_recv", "local_allgather", "global_allgather", "broadcast"]


def test_a_delivery_can_be_of_any_size_over_any_nic():
    slow = teaching.deliver("broadcast", 3, 1, chunks=10, nbytes=5_000_000, nic="100Mbit")
    assert slow.duration_s == pytest.approx(0.4 * (1 + 2 / 10))


def test_schedulers_side_by_side():
    """Graham's example: longest first gives 7 on two machines, the best is 6."""
    problem = rl.scheduling.Problem([3, 3, 2, 2, 2], [(0, 1)] * 5, [(i,) for i in range(2, 7)])
    table = teaching.schedulers(problem, ["naive", "load_balance", "exact", "split"])
    assert list(table["makespan"]) == [12, 7, 6, 6]
    assert list(table["bound"]) == [6, 6, 6, 6]
    assert list(table["proven"]) == ["no", "no", "unsplit", "fluid"]
    assert list(table["over_bound"]) == pytest.approx([2, 7 / 6, 1, 1], abs=1e-4)
    task = paper.suite_task(9)
    as_task = teaching.schedulers(task, ["naive", "ensemble"])
    as_problem = teaching.schedulers(
        rl.scheduling.Problem.from_tasks([task]), ["naive", "ensemble"]
    )
    assert as_task.equals(as_problem)
    assert as_task["makespan"]["naive"] / as_task["makespan"]["ensemble"] == pytest.approx(1.5)
