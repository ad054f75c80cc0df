"""Pipeline schedules: the order in which every stage runs its forwards and backwards (section 4).

All are written with S stages, M microbatches and stage ``s`` counted from 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from reshard_lab.errors import ReshardError, check_bool, check_choice, check_int, short
from reshard_lab.pipelining.ops import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Op

SCHEDULES = ("gpipe", "1f1b", "eager_1f1b", "interleaved_1f1b", "zero_bubble", "inference")
MOST_OPS = 2_000_000
"""Of all stages: more would take minutes and gigabytes to carry out."""


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
    count = _chunks(name, chunks)
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
        if name == "interleaved_1f1b":
            ops = list(_interleaved(s, stages, microbatches, count))
        elif name == "zero_bubble":
            ops = list(_zero_bubble(s, stages, microbatches))
        elif name == "inference":
            ops = [Op(FORWARD, m) for m in range(microbatches)]
        else:
            eager = 2 * (stages - s) - 1
            warm_up = {"gpipe": microbatches, "1f1b": stages - s, "eager_1f1b": eager}[name]
            ops = list(_one_by_one(warm_up, microbatches))
        if delay_weights:
            ops = [half for op in ops for half in _halves(op)]
        lists.append([op.text(count) for op in ops])
    return lists


def _chunks(name: str, chunks: int | None) -> int:
    if name == "interleaved_1f1b":
        return 2 if chunks is None else check_int("chunks", chunks, 1)
    if chunks is not None and check_int("chunks", chunks, 1) != 1:
        raise ReshardError(
            f"schedule {name!r} has one model chunk a stage, but chunks={chunks} was given; "
            "use 'interleaved_1f1b' or leave chunks out"
        )
    return 1


def _halves(op: Op) -> tuple[Op, ...]:
    """``B`` as ``I`` and ``W``."""
    if op.kind != BACKWARD:
        return (op,)
    return op._replace(kind=INPUT_GRADIENT), op._replace(kind=WEIGHT_GRADIENT)


def _one_by_one(warm_up: int, microbatches: int) -> Iterator[Op]:
    """``warm_up`` forwards (M at most), then a backward and a forward in turn while there are."""
    done = min(warm_up, microbatches)
    for m in range(done):
        yield Op(FORWARD, m)
    for m in range(microbatches):
        yield Op(BACKWARD, m)
        if done + m < microbatches:
            yield Op(FORWARD, done + m)


def _zero_bubble(stage: int, stages: int, microbatches: int) -> Iterator[Op]:
    """ZB-H1: the weight half of microbatch m follows the input half of microbatch m + s.

    So stage ``s`` holds S-s microbatches before their input half and s after it, S in all: the
    memory of 1F1B's first stage.
    """
    warm_up = stages - stage
    for op in _one_by_one(warm_up, microbatches):
        if op.kind == FORWARD:
            yield op
            continue
        m = op.microbatch
        yield Op(INPUT_GRADIENT, m)
        if m >= stage:
            yield Op(WEIGHT_GRADIENT, m - stage)
    for m in range(max(0, microbatches - stage), microbatches):
        yield Op(WEIGHT_GRADIENT, m)


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> Iterator[Op]:
    """Interleaved 1F1B: groups of microbatches go through one chunk after the other.

    Groups have S microbatches where S divides M; else M is cut into floor(M/S) groups of at
    least S, as equal as can be, the longer ones first (one group if M < S). The number of
    forwards before the first backward is 2(S-s-1) + (chunks-1) * (the first group) + 1.
    """
    forward: list[Op] = []
    backward: list[Op] = []
    for group in _groups(stages, microbatches):
        for c in range(chunks):
            forward += [Op(FORWARD, m, c) for m in group]
            backward += [Op(BACKWARD, m, chunks - 1 - c) for m in group]
    first = len(_groups(stages, microbatches)[0])
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * first, len(forward))
    yield from forward[:warm_up]
    for i, op in enumerate(forward[warm_up:]):
        yield op
        yield backward[i]
    yield from backward[len(forward) - warm_up :]


def _groups(stages: int, microbatches: int) -> list[range]:
    count = max(1, microbatches // stages)
    size, longer = divmod(microbatches, count)
    starts = [i * size + min(i, longer) for i in range(count + 1)]
    return [range(a, b) for a, b in itertools.pairwise(starts)]
