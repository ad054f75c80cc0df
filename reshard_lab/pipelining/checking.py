"""Prove a schedule complete and free of deadlock, or say in words what is wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.pipelining.ops import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Lists,
    Op,
    read,
)

_SHOWN = 3  # faults named in a message


class Checked(NamedTuple):
    """What ``check`` proved of a schedule, with the proof."""

    lists: Lists
    order: tuple[tuple[int, int], ...]
    """Every op as (stage, position in its list), in an order in which all of them can run."""

    def __repr__(self) -> str:
        n = self.lists
        pieces = f" x {n.chunks} chunks" if n.chunks > 1 else ""
        return (
            f"Checked({n.stages} stages{pieces}, {n.microbatches} microbatches, "
            f"{len(self.order)} ops: complete, no deadlock)"
        )


def check(schedule: Sequence[Sequence[str]]) -> Checked:
    """Prove that ``schedule`` runs every op of every microbatch once, and never gets stuck.

    Complete: each stage runs, for each of its chunks and each microbatch, F and then B (or I and
    then W); or no stage runs any backward (inference). Free of deadlock: with ops run in list
    order, forwards after those of the piece before and backwards after those of the piece behind,
    all ops end. Raises ReshardError naming the ops at fault and, for a deadlock, the circle of
    ops that wait for each other.

    >>> check([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]])
    Checked(2 stages, 2 microbatches, 8 ops: complete, no deadlock)
    >>> check([["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    reshard_lab.errors.ReshardError: the schedule deadlocks: stage 0 is at B0, which waits for B0 \
of stage 1, ...
    """
    lists = read(schedule)
    if not _complete(lists):
        faults = list(itertools.islice(_faults(lists), _SHOWN + 1))
        more = "; and more" if len(faults) > _SHOWN else ""
        raise ReshardError(f"the schedule is not complete: {'; '.join(faults[:_SHOWN])}{more}")
    order, at = _run(lists)
    if len(order) < sum(map(len, lists.ops)):
        raise ReshardError(f"the schedule deadlocks: {_circle(lists, at)}")
    return Checked(lists, tuple(order))


def needs(op: Op, stage: int, stages: int, chunks: int) -> tuple[int, Op] | None:
    """The op on another piece of the model that ``op`` of ``stage`` waits for, and its stage.

    A backward is returned as ``B``, whether that piece runs it whole or in halves.
    """
    piece = op.chunk * stages + stage
    if op.kind == FORWARD and piece > 0:
        kind, other = FORWARD, piece - 1
    elif op.kind in (BACKWARD, INPUT_GRADIENT) and piece < stages * chunks - 1:
        kind, other = BACKWARD, piece + 1
    else:
        return None
    return other % stages, Op(kind, op.microbatch, other // stages)


_NEXT = {(0, FORWARD): 1, (1, BACKWARD): 3, (1, INPUT_GRADIENT): 2, (2, WEIGHT_GRADIENT): 3}
"""How far a microbatch is on a piece (0 not begun, 3 through) before and after an op."""


def _complete(lists: Lists) -> bool:
    """Whether every microbatch goes through every piece once, and back unless none does."""
    through = 3 if lists.trains else 1
    each = lists.microbatches * lists.chunks
    if any(len(ops) < each for ops in lists.ops):
        return False
    for ops in lists.ops:
        state = [0] * each
        for kind, microbatch, chunk in ops:
            at = microbatch * lists.chunks + chunk
            state[at] = _NEXT.get((state[at], kind), -1)
        if any(s != through for s in state):
            return False
    return True


def _faults(lists: Lists) -> Iterator[str]:
    """What keeps ``lists`` from being complete, one clause each, by stage."""
    for stage, ops in enumerate(lists.ops):
        place: dict[Op, int] = {}
        for i, op in enumerate(ops):
            if op in place:
                name = op.text(lists.chunks)
                yield f"stage {stage} runs {name} twice (positions {place[op]} and {i})"
            else:
                place[op] = i
        for chunk in range(lists.chunks):
            for m in range(lists.microbatches):
                fault = _fault(place, m, chunk, lists)
                if fault:
                    yield f"stage {stage} {fault}"


def _fault(place: dict[Op, int], microbatch: int, chunk: int, lists: Lists) -> str | None:
    """What is wrong with the ops of one microbatch on one piece, given their places."""
    forward = Op(FORWARD, microbatch, chunk)
    whole = Op(BACKWARD, microbatch, chunk)
    half = Op(INPUT_GRADIENT, microbatch, chunk)
    weight = Op(WEIGHT_GRADIENT, microbatch, chunk)
    f, b, i, w = (op.text(lists.chunks) for op in (forward, whole, half, weight))
    if forward not in place:
        return f"never runs {f} (the schedule has microbatches 0 to {lists.microbatches - 1})"
    if whole in place:
        if half in place or weight in place:
            return f"runs {b} and also {i if half in place else w}: a backward is B or I and W"
        return f"runs {b} before {f}" if place[whole] < place[forward] else None
    if half in place and weight in place:
        if place[half] < place[forward]:
            return f"runs {i} before {f}"
        return f"runs {w} before {i}" if place[weight] < place[half] else None
    if half in place or weight in place:
        return f"runs {i if half in place else w} without {w if half in place else i}"
    return f"runs {f} but never {b} (or {i} and {w})" if lists.trains else None


def _run(lists: Lists) -> tuple[list[tuple[int, int]], list[int]]:
    """Run ops while any can: their order, and where every stage stands at the end."""
    stages, pieces = lists.stages, lists.pieces
    last = pieces - 1
    # [microbatch * pieces + piece]: whether the forward, whether the input gradient has been run
    forwards = bytearray(pieces * lists.microbatches)
    backwards = bytearray(pieces * lists.microbatches)
    at = [0] * stages
    order: list[tuple[int, int]] = []
    moved = True
    while moved:
        moved = False
        for stage, ops in enumerate(lists.ops):
            i, count = at[stage], len(ops)
            while i < count:
                kind, microbatch, chunk = ops[i]
                piece = chunk * stages + stage
                here = microbatch * pieces + piece
                if kind == FORWARD:
                    if piece and not forwards[here - 1]:
                        break
                    forwards[here] = 1
                elif kind != WEIGHT_GRADIENT:
                    if piece < last and not backwards[here + 1]:
                        break
                    backwards[here] = 1
                order.append((stage, i))
                i += 1
            moved = moved or i > at[stage]
            at[stage] = i
    return order, at


def _circle(lists: Lists, at: list[int]) -> str:
    """The circle of stages that wait for each other, in words."""
    stage = next(s for s, ops in enumerate(lists.ops) if at[s] < len(ops))
    seen: list[int] = []
    while stage not in seen:
        seen.append(stage)
        wanted = needs(lists.ops[stage][at[stage]], stage, lists.stages, lists.chunks)
        assert wanted is not None  # an op that waits for nothing has run
        stage = wanted[0]
    clauses = []
    for s in seen[seen.index(stage) :]:
        head = lists.ops[s][at[s]]
        wanted = needs(head, s, lists.stages, lists.chunks)
        assert wanted is not None
        other, op = wanted
        halves = (op, op._replace(kind=INPUT_GRADIENT)) if op.kind == BACKWARD else (op,)
        blocker = lists.ops[other][at[other]]
        awaited = next(o for o in lists.ops[other][at[other] :] if o in halves)
        behind = f", which is behind {blocker.text(lists.chunks)} there"
        clauses.append(
            f"stage {s} is at {head.text(lists.chunks)}, which waits for "
            f"{awaited.text(lists.chunks)} of stage {other}{behind if awaited != blocker else ''}"
        )
    return "; ".join(clauses) + ". Run one of the awaited ops earlier"
