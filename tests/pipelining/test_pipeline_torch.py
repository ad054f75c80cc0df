"""Schedules and torch.distributed.pipelining: its CSV, its own schedules, its runtime."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import reshard_lab as rl
from reshard_lab import pipeline
from support.paths import PROGRAMS


def torch_order(name: str, stages: int, chunks: int, microbatches: int, path: Path):
    """The order of one of torch's own schedule classes, read from its dump; None if refused."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    model_chunks = [
        types.SimpleNamespace(
            num_stages=stages * chunks,
            group_size=stages,
            group_rank=0,
            stage_index=c * stages,
            is_first=c == 0,
            is_last=False,
            submod=None,
        )
        for c in range(chunks)
    ]
    try:
        torchs = getattr(schedules, name)(
            model_chunks, microbatches, loss_fn=lambda out, target: out
        )
    except ValueError:  # torch wants rounds of equal size
        return None
    torchs._dump_csv(str(path), format="compute_only")
    return pipeline.from_torch_csv(path)


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_interleaved_is_torchs(chunks, tmp_path):
    compared = 0
    for stages in range(2, 6):
        for microbatches in range(1, 14):
            theirs = torch_order(
                "ScheduleInterleaved1F1B", stages, chunks, microbatches, tmp_path / "order.csv"
            )
            if theirs is not None:
                ours = pipeline.schedule("interleaved_1f1b", stages, microbatches, chunks)
                assert ours == theirs, (stages, microbatches)
                compared += 1
    assert compared > 30


def test_zero_bubble_is_torchs(tmp_path):
    compared = 0
    for stages in range(2, 6):
        for microbatches in range(1, 14):
            theirs = torch_order(
                "ScheduleInterleavedZeroBubble", stages, 1, microbatches, tmp_path / "order.csv"
            )
            if theirs is not None:
                assert pipeline.schedule("zero_bubble", stages, microbatches) == theirs
                compared += 1
    assert compared > 30


def dump_of(name: str, stages: int, microbatches: int, path: Path) -> None:
    """Compute-only CSV of one of torch's schedules with one stage a rank."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    torchs = getattr(schedules, name).__new__(getattr(schedules, name))
    torchs._num_stages, torchs._n_microbatches, torchs.pp_group_size = stages, microbatches, stages
    rows = torchs._get_pipeline_order()
    lines = (",".join("" if a is None else str(a) for a in rows[r]) for r in range(stages))
    path.write_text("\n".join(lines) + "\n")


def test_torchs_gpipe_is_read(tmp_path):
    dump_of("ScheduleGPipe", 3, 4, tmp_path / "gpipe.csv")
    assert "REDUCE_GRAD" in (tmp_path / "gpipe.csv").read_text()
    assert pipeline.from_torch_csv(tmp_path / "gpipe.csv") == pipeline.schedule("gpipe", 3, 4)


def test_torchs_1f1b_numbers_the_last_stage_from_1_and_is_refused(tmp_path):
    dump_of("Schedule1F1B", 3, 4, tmp_path / "1f1b.csv")
    rows = (tmp_path / "1f1b.csv").read_text().splitlines()
    assert "2F0" not in rows[2].split(",")
    assert "2F4" in rows[2].split(",")
    with pytest.raises(rl.ReshardError, match=r"1f1b.csv: .* not complete: .*F4"):
        pipeline.from_torch_csv(tmp_path / "1f1b.csv")


@pytest.mark.parametrize("name", pipeline.SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (3, 2), (4, 9)])
@pytest.mark.parametrize("delay_weights", [False, True])
def test_csv_round_trip(name, stages, microbatches, delay_weights, tmp_path):
    schedule = pipeline.schedule(name, stages, microbatches, delay_weights=delay_weights)
    text = pipeline.to_torch_csv(schedule, tmp_path / "order.csv")
    assert (tmp_path / "order.csv").read_text() == text
    assert pipeline.from_torch_csv(tmp_path / "order.csv") == schedule


def test_csv_cells_are_torchs(tmp_path):
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    schedule = pipeline.schedule("interleaved_1f1b", 2, 4, delay_weights=True)
    rows = [line.split(",") for line in pipeline.to_torch_csv(schedule).splitlines()]
    for rank, row in enumerate(rows):
        for cell, op in zip(row, schedule[rank], strict=True):
            action = schedules._Action.from_str(cell)
            letter, (microbatch, chunk) = op[0], op[1:].split(".")
            assert action.computation_type.value == letter
            assert action.microbatch_index == int(microbatch)
            assert action.stage_index == int(chunk) * 2 + rank


def test_the_runtime_wants_one_stage_a_chunk():
    pytest.importorskip("torch.distributed.pipelining.schedules")
    schedule = pipeline.schedule("interleaved_1f1b", 2, 4)
    with pytest.raises(rl.ReshardError, match="has 2 model chunks a rank, but 1 stages"):
        pipeline.torch_runtime(schedule, [None], None)


def run_ranks(schedule: list[list[str]], model_chunks: int, folder: Path) -> list[dict]:
    """Run one batch on a process for each stage of ``schedule``; the results by rank."""
    torch = pytest.importorskip("torch")
    (folder / "schedule.json").write_text(json.dumps(schedule))
    (folder / "model_chunks.json").write_text(json.dumps(model_chunks))
    ranks = len(schedule)
    environment = {
        "PATH": "/usr/bin:/bin",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": ":".join(p for p in sys.path if p),
    }
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "pipeline_torch_worker.py"), str(ranks), folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it and its ranks
            process.wait()
    assert process.returncode == 0, output[-4000:]
    return [torch.load(folder / f"{r}.pt") for r in range(ranks)]


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "model_chunks"),
    [("eager_1f1b", 4, 8, 4), ("interleaved_1f1b", 2, 4, 4)],
)
def test_torchs_runtime_trains_in_our_order(name, ranks, microbatches, model_chunks, tmp_path):
    """On gloo ranks; gradients and losses are those of one process with the whole batch."""
    torch = pytest.importorskip("torch")
    from programs.pipeline_torch_worker import batch, layers

    schedule = pipeline.schedule(name, ranks, microbatches)
    results = run_ranks(schedule, model_chunks, tmp_path)

    model, (x, y) = layers(model_chunks), batch()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    gradients = {name: g for result in results for name, g in result["gradients"].items()}
    assert gradients.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(gradients[key], gradient, rtol=1e-5, atol=1e-7)
    mean = torch.stack(results[-1]["losses"]).mean()
    torch.testing.assert_close(mean, loss.detach(), rtol=1e-5, atol=1e-7)
    csv = [line.split(",") for line in pipeline.to_torch_csv(schedule).splitlines()]
    assert [result["done"] for result in results] == csv
