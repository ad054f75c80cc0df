"""Schedules to and from the compute-only CSV of torch.distributed.pipelining, and its runtime.

One row a rank, one cell an op: stage, letter, microbatch, as ``1F0``; an empty cell is a bubble.
Torch's "stage" is our model chunk, its rank our stage: with S ranks, model chunk ``k`` lies on
rank ``k mod S``.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reshard_lab.errors import ReshardError, need, os_errors, write_text
from reshard_lab.pipelining.ops import Op, check

_CELL = re.compile(r"([0-9]+)([FBIW])([0-9]+)$")
_REDUCE_GRAD = re.compile(r"[0-9]+REDUCE_GRAD$")  # torch adds it to some compute-only orders


def to_torch_csv(schedule: Sequence[Sequence[str]], path: str | Path | None = None) -> str:
    """``schedule`` as torch's compute-only CSV, also written to ``path``; it is checked first.

    >>> print(to_torch_csv([["F0", "B0"], ["F0", "B0"]]), end="")
    0F0,0B0
    1F0,1B0
    """
    lists = check(schedule).lists
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for stage, ops in enumerate(lists.ops):
        writer.writerow(f"{op.chunk * lists.stages + stage}{op.kind}{op.microbatch}" for op in ops)
    if path is not None:
        write_text("schedule", path, text.getvalue())
    return text.getvalue()


def from_torch_csv(path: str | Path) -> list[list[str]]:
    """The schedule in a compute-only CSV that torch or ``to_torch_csv`` wrote; it is checked.

    Empty cells are left out, and so is torch's REDUCE_GRAD. Raises ReshardError for cells that
    are no compute op, a model chunk ``k`` that is not on rank ``k mod ranks`` (such as a V-shaped
    placement), and a schedule that is incomplete or deadlocks. (Torch 2.13 dumps 1F1B with the
    forwards of the last stage numbered from 1: incomplete.)
    """
    with (
        os_errors(f"read schedule {str(path)!r}"),
        open(path, newline="", encoding="utf-8") as file,
    ):
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    try:
        lists = [
            [_op(cell, rank, len(rows)) for cell in row if cell and not _REDUCE_GRAD.match(cell)]
            for rank, row in enumerate(rows)
        ]
        chunks = 1 + max((op.chunk for ops in lists for op in ops), default=0)
        schedule = [[op.text(chunks) for op in ops] for ops in lists]
        check(schedule)
    except ReshardError as error:
        raise ReshardError(f"{path}: {error}") from None
    return schedule


def torch_runtime(
    schedule: Sequence[Sequence[str]],
    stages: Sequence[Any],
    loss_fn: Callable[..., Any],
    **options: Any,
) -> Any:
    """A torch schedule object that runs ``schedule``: ``.step(...)`` carries out one batch.

    stages:
        this rank's ``PipelineStage`` objects, one a chunk, in model order.
    options:
        as torch's schedules take them, such as ``scale_grads``.

    Goes through ``_PipelineScheduleRuntime``, which torch (2.6 and later) marks as internal.
    """
    module = need("torch.distributed.pipelining.schedules", "run", "pipeline.torch_runtime")
    lists = check(schedule).lists
    if len(stages) != lists.chunks:
        raise ReshardError(
            f"the schedule has {lists.chunks} model chunks a rank, but {len(stages)} "
            "stages were given; give this rank's PipelineStage objects, one a chunk"
        )
    runtime = module._PipelineScheduleRuntime(
        list(stages), lists.microbatches, loss_fn=loss_fn, **options
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        to_torch_csv(schedule, path)
        runtime._load_csv(str(path), format="compute_only")
    return runtime


def _op(cell: str, rank: int, ranks: int) -> Op:
    """The op in a cell of torch's CSV."""
    match = _CELL.match(cell)
    if match is None:
        raise ReshardError(
            f"rank {rank} has {cell!r}, which is not a compute op such as '1F0'; write the "
            "schedule with format='compute_only'"
        )
    model_chunk = int(match[1])
    if model_chunk % ranks != rank:
        raise ReshardError(
            f"rank {rank} has {cell!r}, but with {ranks} ranks model chunk {model_chunk} "
            f"lies on rank {model_chunk % ranks} here; other placements are not supported"
        )
    return Op(match[2], int(match[3]), model_chunk // ranks)
