"""Operations of a pipeline schedule: their text, lists of them, and the proof that these run.

An op is a letter, a microbatch and, where a stage holds several chunks of the model, a chunk:

- ``F3``: forward of microbatch 3
- ``B3``: its whole backward
- ``I3``, ``W3``: its backward in two halves, the gradient of the input (which the stage before
  waits for) and the gradient of the weights (which nobody waits for; section 4)
- ``F3.1``: forward of microbatch 3 through chunk 1 of the stage

With S stages, chunk ``c`` of stage ``s`` is **model chunk** ``c * S + s``: a microbatch goes
through the model chunks in order, forwards, and back through them in reverse.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reshard_lab.errors import ReshardError, must_be, short

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}

_OP = re.compile(r"([FBIW])([0-9]{1,18})(?:\.([0-9]{1,18}))?\Z")
_SHOWN = 3  # faults named in a message


class StageOp(NamedTuple):
    kind: str
    """``"F"``, ``"B"``, ``"I"`` or ``"W"``."""
    microbatch: int
    chunk: int = 0

    def text(self, chunks: int = 1) -> str:
        """As written in a schedule; the chunk only where a stage has several.

        >>> StageOp("F", 3).text(), StageOp("F", 3, 1).text(2)
        ('F3', 'F3.1')
        """
        name = f"{self.kind}{self.microbatch}"
        return name if chunks == 1 else f"{name}.{self.chunk}"


class OpLists(NamedTuple):
    """A schedule that has been read: the ops of every stage, in order."""

    ops: tuple[tuple[StageOp, ...], ...]
    chunks: int
    """Model chunks a stage."""
    microbatches: int

    @property
    def stages(self) -> int:
        return len(self.ops)

    @property
    def model_chunks(self) -> int:
        return len(self.ops) * self.chunks

    @property
    def unit(self) -> str:
        """What messages call a model chunk."""
        return "stage" if self.chunks == 1 else "model chunk"

    @property
    def trains(self) -> bool:
        return any(op.kind != FORWARD for ops in self.ops for op in ops)


def even_ranges(total: int, count: int) -> list[range]:
    """0 to ``total`` in ``count`` ranges as equal as can be, the longer ones first.

    >>> even_ranges(8, 3)
    [range(0, 3), range(3, 6), range(6, 8)]
    """
    size, longer = divmod(total, count)
    edges = [i * size + min(i, longer) for i in range(count + 1)]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


class Checked(NamedTuple):
    """What ``check`` proved of a schedule, with the proof."""

    lists: OpLists
    order: tuple[tuple[int, int, int], ...]
    """Every op as (stage, position in its list, tick), in an order in which all of them can run;
    ticks are those at which they do where every op takes one and transfers none."""

    def __repr__(self) -> str:
        n = self.lists
        chunks = f" x {n.chunks} chunks" if n.chunks > 1 else ""
        return (
            f"Checked({n.stages} stages{chunks}, {n.microbatches} microbatches, "
            f"{len(self.order)} ops: complete, no deadlock)"
        )


def check(schedule: Sequence[Sequence[str]]) -> Checked:
    """Prove that ``schedule`` runs every op of every microbatch once, and never gets stuck.

    Complete: each stage runs, for each of its chunks and each microbatch, F and then B (or I and
    then W); or no stage runs any backward (inference). Free of deadlock: with ops run in list
    order, forwards after those of the model chunk before and backwards after those of the one
    behind, all ops end. Raises ReshardError naming the ops at fault and, for a deadlock, the cycle
    of ops that wait for each other.

    >>> check([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]])
    Checked(2 stages, 2 microbatches, 8 ops: complete, no deadlock)
    >>> check([["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    reshard_lab.errors.ReshardError: the schedule deadlocks: stage 0 is at B0, which waits for B0 \
of stage 1, ...
    """
    lists = read(schedule)
    faults = list(itertools.islice(_faults(lists), _SHOWN + 1))
    if faults:
        more = "; and more" if len(faults) > _SHOWN else ""
        raise ReshardError(f"the schedule is not complete: {'; '.join(faults[:_SHOWN])}{more}")
    order, position = _run(lists)
    if len(order) < sum(map(len, lists.ops)):
        raise ReshardError(f"the schedule deadlocks: {_cycle(lists, position)}")
    return Checked(lists, tuple(order))


def read(schedule: Sequence[Sequence[str]]) -> OpLists:
    """The ops of ``schedule``, a list of op texts a stage; raises on what is not an op.

    >>> read([["F0", "B0"], ["F0", "B0"]]).ops[1]
    (StageOp(kind='F', microbatch=0, chunk=0), StageOp(kind='B', microbatch=0, chunk=0))
    """
    if isinstance(schedule, str) or not isinstance(schedule, Sequence) or not len(schedule):
        raise ReshardError(
            f"a schedule is one list of ops a stage, such as [['F0', 'B0']], not {short(schedule)}"
        )
    known: dict[str, StageOp] = {}
    stages = []
    for s, texts in enumerate(schedule):
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise must_be(f"stage {s} of a schedule", "a list of ops such as ['F0', 'B0']", texts)
        for text in texts:
            if isinstance(text, str) and text in known:
                continue
            match = _OP.match(text) if isinstance(text, str) else None
            if match is None:
                raise ReshardError(
                    f"stage {s} has {short(text)}, which is not an op; write a letter (F forward, "
                    "B backward, I and W its halves) and a microbatch, as 'F0', and '.chunk' where "
                    "a stage has several chunks of the model, as 'F0.1'"
                )
            known[text] = StageOp(match[1], int(match[2]), int(match[3] or 0))
        stages.append(tuple([known[text] for text in texts]))
    if not known:
        raise ReshardError("the schedule has no ops; each stage needs at least F0")
    return OpLists(
        tuple(stages),
        chunks=1 + max(op.chunk for op in known.values()),
        microbatches=1 + max(op.microbatch for op in known.values()),
    )


def _faults(lists: OpLists) -> Iterator[str]:
    """What keeps ``lists`` from being complete, one clause each, by stage."""
    complete = {"FB", "FIW"} if lists.trains else {"F"}
    for stage, ops in enumerate(lists.ops):
        kinds: defaultdict[tuple[int, int], str] = defaultdict(str)
        for kind, m, chunk in ops:
            kinds[m, chunk] += kind
        if len(kinds) == lists.microbatches * lists.chunks and complete.issuperset(kinds.values()):
            continue
        first: dict[StageOp, int] = {}
        for i, op in enumerate(ops):
            if first.setdefault(op, i) < i:
                text = op.text(lists.chunks)
                yield f"stage {stage} runs {text} twice (positions {first[op]} and {i})"
        for chunk in range(lists.chunks):
            for m in range(lists.microbatches):
                each = "".join(dict.fromkeys(kinds.get((m, chunk), "")))
                if each not in complete:
                    yield f"stage {stage} {_fault(each, m, chunk, lists)}"


def _fault(kinds: str, microbatch: int, chunk: int, lists: OpLists) -> str:
    """What is wrong with the ops of one microbatch on one model chunk, given their order."""
    f, b, i, w = (StageOp(kind, microbatch, chunk).text(lists.chunks) for kind in "FBIW")
    if FORWARD not in kinds:
        return f"never runs {f} (the schedule has microbatches 0 to {lists.microbatches - 1})"
    half, weight = INPUT_GRADIENT in kinds, WEIGHT_GRADIENT in kinds
    if BACKWARD in kinds and (half or weight):
        return f"runs {b} and also {i if half else w}: a backward is B or I and W"
    if BACKWARD in kinds:
        return f"runs {b} before {f}"
    if half and weight:
        late = kinds.index(INPUT_GRADIENT) < kinds.index(FORWARD)
        return f"runs {i} before {f}" if late else f"runs {w} before {i}"
    if half or weight:
        return f"runs {i if half else w} without {w if half else i}"
    return f"runs {f} but never {b} (or {i} and {w})"


def _run(lists: OpLists) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Run ops while any can: their order, and where every stage stands at the end."""
    stages, width = lists.stages, lists.model_chunks
    # [microbatch * width + model chunk]: the tick after the forward, the input gradient; 0: not run
    forwards, backwards = ([0] * (width * lists.microbatches) for _ in range(2))
    position, clock = [0] * stages, [0] * stages
    order: list[tuple[int, int, int]] = []
    moved = True
    while moved:
        moved = False
        for stage, ops in enumerate(lists.ops):
            i, tick = position[stage], clock[stage]
            for kind, microbatch, chunk in itertools.islice(ops, i, None):
                if kind != WEIGHT_GRADIENT:
                    model_chunk = chunk * stages + stage
                    here = microbatch * width + model_chunk
                    done, step = (forwards, -1) if kind == FORWARD else (backwards, 1)
                    if 0 <= model_chunk + step < width:
                        if not done[here + step]:
                            break
                        tick = max(tick, done[here + step])
                    done[here] = tick + 1
                order.append((stage, i, tick))
                tick += 1
                i += 1
            moved = moved or i > position[stage]
            position[stage], clock[stage] = i, tick
    return order, position


def _cycle(lists: OpLists, position: list[int]) -> str:
    """The cycle of stages that wait for each other, in words."""
    stage = next(s for s, ops in enumerate(lists.ops) if position[s] < len(ops))
    clauses: dict[int, tuple[int, str]] = {}  # by stage: the stage it waits for, and the words
    while stage not in clauses:
        clauses[stage] = _wait(lists, position, stage)
        stage = clauses[stage][0]
    cycle = [stage]
    while clauses[cycle[-1]][0] != stage:
        cycle.append(clauses[cycle[-1]][0])
    return "; ".join(clauses[s][1] for s in cycle) + ". Run one of the awaited ops earlier"


def _wait(lists: OpLists, position: list[int], stage: int) -> tuple[int, str]:
    """The stage that a stuck one waits for, and why in words."""
    head = lists.ops[stage][position[stage]]
    model_chunk = head.chunk * lists.stages + stage + (-1 if head.kind == FORWARD else 1)
    other, chunk = model_chunk % lists.stages, model_chunk // lists.stages
    kinds = (FORWARD,) if head.kind == FORWARD else (BACKWARD, INPUT_GRADIENT)
    there = lists.ops[other][position[other] :]
    awaited = next(op for op in there if op[1:] == (head.microbatch, chunk) and op.kind in kinds)
    behind = f", which is behind {there[0].text(lists.chunks)} there"
    return other, (
        f"stage {stage} is at {head.text(lists.chunks)}, which waits for "
        f"{awaited.text(lists.chunks)} of stage {other}{behind if awaited != there[0] else ''}"
    )
