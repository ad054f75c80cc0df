"""Operations of a pipeline schedule: their text, and lists of them read into records.

An op is a letter, a microbatch and, where a stage holds several pieces of the model, a chunk:

- ``F3``: forward of microbatch 3
- ``B3``: its whole backward
- ``I3``, ``W3``: its backward in two halves, the gradient of the input (which the stage before
  waits for) and the gradient of the weights (which nobody waits for; section 4)
- ``F3.1``: forward of microbatch 3 through chunk 1 of the stage

With S stages, chunk ``c`` of stage ``s`` is **piece** ``c * S + s`` of the model: a microbatch
goes through the pieces in order, forwards, and back through them in reverse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from reshard_lab.errors import ReshardError, short

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}

_OP = re.compile(r"([FBIW])([0-9]{1,18})(?:\.([0-9]{1,18}))?\Z")


class Op(NamedTuple):
    """One operation of a stage."""

    kind: str
    """``"F"``, ``"B"``, ``"I"`` or ``"W"``."""
    microbatch: int
    chunk: int = 0

    def text(self, chunks: int = 1) -> str:
        """As written in a schedule; the chunk only where a stage has several.

        >>> Op("F", 3).text(), Op("F", 3, 1).text(2)
        ('F3', 'F3.1')
        """
        name = f"{self.kind}{self.microbatch}"
        return name if chunks == 1 else f"{name}.{self.chunk}"


class Lists(NamedTuple):
    """A schedule that has been read: the ops of every stage, in order."""

    ops: tuple[tuple[Op, ...], ...]
    chunks: int
    """Pieces of the model a stage."""
    microbatches: int

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.ops)

    @property
    def pieces(self) -> int:
        """Number of pieces of the model over all stages."""
        return len(self.ops) * self.chunks

    @property
    def trains(self) -> bool:
        """Whether there is any backward."""
        return any(op.kind != FORWARD for ops in self.ops for op in ops)


def read(schedule: Sequence[Sequence[str]]) -> Lists:
    """The ops of ``schedule``, a list of op texts a stage; raises on what is not an op.

    >>> read([["F0", "B0"], ["F0", "B0"]]).ops[1]
    (Op(kind='F', microbatch=0, chunk=0), Op(kind='B', microbatch=0, chunk=0))
    """
    if isinstance(schedule, str) or not isinstance(schedule, Sequence) or not len(schedule):
        raise ReshardError(
            f"a schedule is one list of ops a stage, such as [['F0', 'B0']], not {short(schedule)}"
        )
    known: dict[str, Op] = {}
    stages = []
    for s, texts in enumerate(schedule):
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise ReshardError(
                f"stage {s} of a schedule must be a list of ops such as ['F0', 'B0'], not "
                f"{short(texts)}"
            )
        for text in texts:
            if not isinstance(text, str) or text not in known:
                known[text] = _parse(text, s)
        stages.append(tuple([known[text] for text in texts]))
    if not known:
        raise ReshardError("the schedule has no ops; each stage needs at least F0")
    return Lists(
        tuple(stages),
        chunks=1 + max(op.chunk for op in known.values()),
        microbatches=1 + max(op.microbatch for op in known.values()),
    )


def _parse(text: object, stage: int) -> Op:
    match = _OP.match(text) if isinstance(text, str) else None
    if match is None:
        raise ReshardError(
            f"stage {stage} has {short(text)}, which is not an op; write a letter (F forward, B "
            "backward, I and W its halves) and a microbatch, as 'F0', and '.chunk' where a stage "
            "has several pieces of the model, as 'F0.1'"
        )
    return Op(match[1], int(match[2]), int(match[3] or 0))
