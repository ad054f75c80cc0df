"""Torch's pipeline runtime on some ranks, started by test_pipeline_torch.py.

Arguments: ranks, folder (holds schedule.json and model_chunks.json; results go there). Ranks are
forked from one process that has imported torch: importing it costs more than all they do.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

import reshard_lab as rl

WIDTH = 6
BATCH = 24


DEADLINE_S = 150


def layers(count: int) -> nn.Sequential:
    """The whole model: one layer a model chunk."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def run_rank(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    schedule = json.loads((folder / "schedule.json").read_text())
    model_chunks = json.loads((folder / "model_chunks.json").read_text())
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=120),
    )
    model = layers(model_chunks)
    mine = list(range(rank, model_chunks, ranks))
    stages = [PipelineStage(model[k], k, model_chunks, torch.device("cpu")) for k in mine]
    done: list[str] = []
    for stage in stages:
        note(stage, "forward_one_chunk", "F", done)
        note(stage, "backward_one_chunk", "B", done)
    runtime = rl.pipeline.torch_runtime(schedule, stages, nn.functional.mse_loss)
    x, y = batch()
    losses: list[torch.Tensor] = []
    first = (x,) if rank == 0 else ()
    runtime.step(*first, target=y if model_chunks - 1 in mine else None, losses=losses)
    gradients = {
        f"{k}.{name}": parameter.grad
        for k in mine
        for name, parameter in model[k].named_parameters()
    }
    torch.save({"gradients": gradients, "losses": losses, "done": done}, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main(ranks: int, folder: Path) -> None:
    """Run all ranks; the exit code is 1 if any fails or is late."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=run_rank, args=(r, ranks, folder)) for r in range(ranks)]
    for process in processes:
        process.start()
    end = time.monotonic() + DEADLINE_S
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    sys.exit(f"exit codes {codes}" if any(codes) or None in codes else 0)


def note(stage: PipelineStage, method: str, letter: str, done: list[str]) -> None:
    """Have ``stage`` write down each call of ``method`` as an op."""
    inner = getattr(stage, method)

    def noted(microbatch: int, *args: object, **kwargs: object) -> object:
        done.append(f"{stage.stage_index}{letter}{microbatch}")
        return inner(microbatch, *args, **kwargs)

    setattr(stage, method, noted)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
