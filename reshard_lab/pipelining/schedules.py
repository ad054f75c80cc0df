"""Pipeline schedules: the order in which every stage runs its forwards and backwards.

By name (section 4), with S stages, M microbatches and stage ``s`` counted from 0; and to and from
the compute-only CSV of torch.distributed.pipelining, and its runtime. The CSV has one row a rank,
one cell an op: stage, letter, microbatch, as ``1F0``; an empty cell is a bubble. Torch's "stage"
is our model chunk, its rank our stage: with S ranks, model chunk ``k`` lies on rank ``k mod S``.
"""

import csv
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from reshard_lab.errors import (
    ReshardError,
    check_bool,
    check_choice,
    check_int,
    need,
    os_errors,
    short,
    write_text,
)
from reshard_lab.pipelining.ops import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    StageOp,
    check,
    even_ranges,
)

SCHEDULES = ("gpipe", "1f1b", "eager_1f1b", "interleaved_1f1b", "zero_bubble", "inference")
MOST_OPS = 2_000_000
"""Of all stages: more would take minutes and gigabytes to carry out."""

_CELL = re.compile(r"([0-9]+)([FBIW])([0-9]+)$")
_REDUCE_GRAD = re.compile(r"[0-9]+REDUCE_GRAD$")  # torch adds it to some compute-only orders


def schedule(
    name: str,
    stages: int,
    microbatches: int,
    chunks: int | None = None,
    delay_weights: bool = False,
) -> list[list[str]]:
    """One list of ops a stage (``pipeline.ops`` has their syntax).

    name:
        - ``gpipe``: all forwards, then all backwards
        - ``1f1b``: min(M, S-s) forwards, then one backward and one forward in turn
        - ``eager_1f1b``: the same after min(M, 2(S-s)-1) forwards: more live activations, and a
          slot of slack for every transfer (section 4)
        - ``interleaved_1f1b``: 1F1B with ``chunks`` model chunks a stage (2 unless given; Narayanan
          et al. 2021, arXiv 2104.04473, section 2.2)
        - ``zero_bubble``: ZB-H1, 1F1B with split backwards whose weight half stage ``s`` holds
          back by s microbatches (Qi et al. 2023, arXiv 2401.10241, section 2)
        - ``inference``: forwards only
    chunks:
        model chunks a stage; only ``interleaved_1f1b`` takes more than 1.
    delay_weights:
        backward weight delaying (section 4): every backward is written as its input half ``I``,
        which the stage before waits for, then its weight half ``W``. ``zero_bubble`` always does.

    Any numbers of stages and microbatches of at least 1, in any relation, as long as there are
    ``MOST_OPS`` ops at most.

    >>> schedule("eager_1f1b", stages=2, microbatches=4)[0]
    ['F0', 'F1', 'F2', 'B0', 'F3', 'B1', 'B2', 'B3']
    >>> schedule("1f1b", stages=1, microbatches=2, delay_weights=True)
    [['F0', 'I0', 'W0', 'F1', 'I1', 'W1']]
    """
    check_choice("pipeline schedule", name, SCHEDULES)
    stages = check_int("stages", stages, 1)
    microbatches = check_int("microbatches", microbatches, 1)
    halves = check_bool("delay_weights", delay_weights) or name == "zero_bubble"
    count = 2 if chunks is None else check_int("chunks", chunks, 1)
    if name != "interleaved_1f1b":
        if chunks is not None and count != 1:
            raise ReshardError(
                f"schedule {name!r} has one model chunk a stage, but chunks={chunks} was given; "
                "use 'interleaved_1f1b' or leave chunks out"
            )
        count = 1
    ops_each = 1 if name == "inference" else 3 if halves else 2
    if stages * microbatches * count * ops_each > MOST_OPS:
        raise ReshardError(
            f"{short(stages)} stages x {short(microbatches)} microbatches"
            f"{f' x {short(count)} chunks' * (count > 1)} are too many: a schedule has up to "
            f"{MOST_OPS} ops, and this one {ops_each} of each microbatch on each model chunk; use "
            "fewer"
        )
    lists = []
    for s in range(stages):
        left = stages - s
        warm_up = {"1f1b": left, "zero_bubble": left, "eager_1f1b": 2 * left - 1}
        if name == "interleaved_1f1b":
            ops = _interleaved(s, stages, microbatches, count)
        elif name == "inference":
            ops = (StageOp(FORWARD, m) for m in range(microbatches))
        else:
            ops = _one_by_one(warm_up.get(name, microbatches), microbatches)
        if halves:
            ops = _halves(ops, s if name == "zero_bubble" else 0)
        lists.append([op.text(count) for op in ops])
    return lists


def _halves(ops: Iterable[StageOp], held_back: int) -> Iterator[StageOp]:
    """Every ``B`` as ``I``, and its ``W`` after as many further ones as are ``held_back``.

    With s of them stage ``s`` of 1F1B holds S-s microbatches before their input half and s after
    it, S in all: the memory of 1F1B's first stage.
    """
    held: deque[StageOp] = deque()
    for op in ops:
        if op.kind != BACKWARD:
            yield op
            continue
        yield op._replace(kind=INPUT_GRADIENT)
        held.append(op._replace(kind=WEIGHT_GRADIENT))
        if len(held) > held_back:
            yield held.popleft()
    yield from held


def _one_by_one(warm_up: int, microbatches: int) -> Iterator[StageOp]:
    """``warm_up`` forwards (M at most), then a backward and a forward in turn while there are."""
    done = min(warm_up, microbatches)
    for m in range(done):
        yield StageOp(FORWARD, m)
    for m in range(microbatches):
        yield StageOp(BACKWARD, m)
        if done + m < microbatches:
            yield StageOp(FORWARD, done + m)


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> Iterator[StageOp]:
    """Interleaved 1F1B: groups of microbatches go through one chunk after the other.

    Groups have S microbatches where S divides M; else M is cut into floor(M/S) groups of at
    least S, as equal as can be, the longer ones first (one group if M < S). The number of
    forwards before the first backward is 2(S-s-1) + (chunks-1) * (the first group) + 1.
    """
    groups = even_ranges(microbatches, max(1, microbatches // stages))
    forward: list[StageOp] = []
    backward: list[StageOp] = []
    for group in groups:
        for c in range(chunks):
            forward += [StageOp(FORWARD, m, c) for m in group]
            backward += [StageOp(BACKWARD, m, chunks - 1 - c) for m in group]
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * len(groups[0]), len(forward))
    yield from forward[:warm_up]
    for i, op in enumerate(forward[warm_up:]):
        yield op
        yield backward[i]
    yield from backward[len(forward) - warm_up :]


def to_torch_csv(schedule: Sequence[Sequence[str]], path: str | Path | None = None) -> str:
    """``schedule`` as torch's compute-only CSV, also written to ``path``; it is checked first.

    >>> print(to_torch_csv([["F0", "B0"], ["F0", "B0"]]), end="")
    0F0,0B0
    1F0,1B0
    """
    lists = check(schedule).lists
    text = ""
    for stage, ops in enumerate(lists.ops):
        cells = (f"{op.chunk * lists.stages + stage}{op.kind}{op.microbatch}" for op in ops)
        text += ",".join(cells) + "\n"
    if path is not None:
        write_text("schedule", path, text)
    return text


def from_torch_csv(path: str | Path) -> list[list[str]]:
    """The schedule in a compute-only CSV that torch or ``to_torch_csv`` wrote; it is checked.

    Empty cells are left out, and so is torch's REDUCE_GRAD. Raises ReshardError for cells that
    are no compute op, a model chunk ``k`` that is not on rank ``k mod ranks`` (such as a V-shaped
    placement), and a schedule that is incomplete or deadlocks. (Torch 2.13 dumps 1F1B with the
    forwards of the last stage numbered from 1: incomplete.)
    """
    reading = os_errors(f"read schedule {str(path)!r}")
    with reading, open(path, newline="", encoding="utf-8") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    lists: list[list[StageOp]] = [[] for _ in rows]
    for rank, row in enumerate(rows):
        for cell in row:
            if not cell or _REDUCE_GRAD.match(cell):
                continue
            match = _CELL.match(cell)
            if match is None:
                raise ReshardError(
                    f"{path}: rank {rank} has {cell!r}, which is not a compute op such as '1F0'; "
                    "write the schedule with format='compute_only'"
                )
            chunk, its_rank = divmod(int(match[1]), len(rows))
            if its_rank != rank:
                raise ReshardError(
                    f"{path}: rank {rank} has {cell!r}, but with {len(rows)} ranks model chunk "
                    f"{int(match[1])} lies on rank {its_rank} here; other placements are not "
                    "supported"
                )
            lists[rank].append(StageOp(match[2], int(match[3]), chunk))
    chunks = 1 + max((op.chunk for ops in lists for op in ops), default=0)
    schedule = [[op.text(chunks) for op in ops] for ops in lists]
    try:
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
    own = list(stages)
    runtime = module._PipelineScheduleRuntime(own, lists.microbatches, loss_fn=loss_fn, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        to_torch_csv(schedule, path)
        runtime._load_csv(str(path), format="compute_only")
    return runtime
