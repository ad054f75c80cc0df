"""What the notebooks tabulate: against closed forms of sections 3 and 4, and counting by hand."""

import itertools
import math

import pytest

import reshard_lab as rl
from reshard_lab import paper, teaching

T = 0.1
"""Seconds that 125 MB take through a NIC of 10 Gbit/s."""


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
    with pytest.raises(rl.ReshardError, match="hosts must be at least 1, not 0"):
        teaching.deliver("broadcast", 0, 1)


def test_latency_makes_too_many_chunks_cost():
    counts, latency, hosts = [1, 7, 50, 400], 2e-4, 3
    table = teaching.chunk_times(counts, latency, hosts=hosts)
    expected = [(k + hosts - 1) * (T / k + latency) / T for k in counts]
    assert list(table["simulated"]) == pytest.approx(expected, abs=1e-4)


def test_tables_cut_by_rows_go_to_columns():
    task = teaching.rows_to_columns(rows=11, columns=13, hosts=6)
    # Rows 2, 2, 2, 2, 2, 1 and columns 3, 3, 3, 3, 1 and none.
    sizes = [r * c for c in (3, 3, 3, 3, 1) for r in (2, 2, 2, 2, 2, 1)]
    assert [unit.nbytes for unit in task.unit_tasks] == [125_000_000 * size for size in sizes]
    assert task.lower_bound_s == pytest.approx(11 * 3 * T)


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


@pytest.mark.parametrize(("stages", "forward", "backward"), [(2, 1.0, 2.0), (4, 1.0, 2.0)])
def test_in_the_long_run_a_microbatch_costs_what_section_4_says(stages, forward, backward):
    whole = forward + backward
    table = teaching.steady_state(
        ["1f1b", "eager_1f1b"], [0, 0.4, whole / 2], stages, forward, backward
    )
    ones = [whole + 2 * c * (1 - 1 / stages) for c in (0, 0.4, whole / 2)]
    assert list(table["1f1b"]) == pytest.approx(ones, abs=1e-4)
    assert list(table["eager_1f1b"]) == pytest.approx([whole] * 3, abs=1e-4)
    for nothing in ([], [0.5]), (["1f1b"], []):
        with pytest.raises(rl.ReshardError, match="at least one schedule and one transfer time"):
            teaching.steady_state(*nothing)


def test_live_microbatches_are_the_forwards_before_the_first_backward():
    table = teaching.live_microbatches(["gpipe", "1f1b", "eager_1f1b"], 3, 4)
    assert table.to_numpy().tolist() == [[4, 4, 4], [3, 2, 1], [4, 3, 1]]


def test_steps_of_overlap_get_shorter_and_end_as_counted():
    table = teaching.overlap_steps((8, 20), stages=3, transfer_s=0.25)
    for count in (8, 20):
        ends = list(table[f"M = {count}"])
        assert all(a > b for a, b in itertools.pairwise(ends))
        eager = 3 * (count + 2) + 2 * 2 * 0.25  # fill and drain cross two links each
        assert ends[2:] == pytest.approx([eager, eager - 2])  # two weight halves of 1 s less


def test_described_machines_have_the_bound_of_their_nics():
    table = teaching.on_machines()
    for name, row in table.iterrows():
        rate = row["nics"] * row["nic_Gbps"] * 1e9 / 8
        assert row["lower_bound_s"] == pytest.approx(2**30 / rate, abs=1e-6), name
        assert row["over_bound"] >= 1
    assert math.isclose(table["nic_Gbps"]["DGX-H100"], 400)


def test_figures_7_and_9_as_pictures():
    rows = paper.figure7(["GPT-1.3B"])
    picture = paper.draw_figure7(rows)
    assert picture.svg == paper.draw_figure7(rows).svg
    assert picture.svg.startswith("<svg")
    ours = rows.set_index("method")["tflops_per_device"]["ours"]
    assert f"GPT-1.3B, ours: {ours:.1f}" in picture.alt
    assert picture.rows[0] == ("model", "method", "throughput (TFLOP/s a device)")
    assert ("GPT-1.3B", "ours", f"{ours:.1f}") in picture.rows
    assert "Simulated, not measured" in picture.caption
    assert "37.5 (float16) and 11 (float32) TFLOP/s a device, assumed" in picture.caption
    assert picture.caption.endswith("forwards recomputed and counted.")
    kept = paper.draw_figure7(paper.figure7(["GPT-1.3B"], recompute=False))
    assert kept.caption.endswith("activations kept.")
    steps = paper.figure9(["GPT-1.3B"], microbatches=[2, 4])
    drawn = paper.draw_figure9(steps)
    assert "GPT-1.3B, 4, overlap: " in drawn.alt
    assert drawn.rows[0][:3] == ("model", "microbatches", "method")
    assert "overlap: 1F1B; eager_1f1b: eager-1F1B;" in drawn.caption
