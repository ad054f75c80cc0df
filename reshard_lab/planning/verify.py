"""The proof that a plan is right, made before anything runs.

1. Every record makes sense on its own (devices, boxes, sizes, dtypes).
2. No cycle of waits: lanes, data and ``after`` together can all be worked off (``HopTable.order``).
3. Every payload leaves a device that holds it by then.
4. Every element of every destination piece is written exactly once.

What devices do in order is derived from the transfers, so that both ends of every hop agree on
it by construction (``HopTable.waits``).

The destination pieces come from the layouts, not from the planner's unit tasks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reshard_lab.boxes import Box, box_text, box_volume, contains, intersect, span_boxes
from reshard_lab.errors import ReshardError
from reshard_lab.planning.record import PlanRecord
from reshard_lab.transfer import Transfer

_MOST_CELLS = 4_000_000
"""Largest grid of edges that is counted cell by cell."""


class Verified(NamedTuple):
    """What ``Plan.verify`` proved."""

    devices: int
    transfers: int
    elements: int
    """Elements of destination pieces, each proven to be written exactly once."""
    delivers: bool
    """False for ``signal``: order and waits were checked, delivery does not happen."""


def verify(plan: PlanRecord) -> Verified:
    """Prove ``plan`` right; raises ReshardError naming the transfer at fault.

    A ``signal`` plan delivers nothing: points 1 and 2 are proven, and the result says so.
    """
    elements = 0
    check_records(plan)
    _ = plan.hops.order  # raises for a cycle of waits
    if plan.delivers:
        check_held(plan)
        elements = check_written(plan)
    return Verified(len(plan.hops.devices), len(plan.transfers), elements, plan.delivers)


def check_records(plan: PlanRecord) -> None:
    """Point 1, transfer by transfer."""
    cluster = plan.cluster
    for position, t in enumerate(plan.transfers):
        if t.id != position:
            raise ReshardError(f"transfer {t.id} stands at position {position}; ids are positions")
        if not 0 <= t.unit < len(plan.units):
            raise ReshardError(
                f"{t.text} belongs to unit task {t.unit}, but there are {len(plan.units)}"
            )
        task = plan.tasks[plan.units[t.unit].task]
        if not t.path or len(set(t.path)) < len(t.path):
            raise ReshardError(f"{t.text} must visit at least one device, each once")
        for device in t.path:
            if not 0 <= device < cluster.size:
                raise ReshardError(
                    f"{t.text} uses device {device}; the cluster has 0 to {cluster.size - 1}"
                )
        if len(t.box) != len(task.shape) or not all(
            0 <= lo < hi <= n for (lo, hi), n in zip(t.box, task.shape, strict=False)
        ):
            raise ReshardError(f"{t.text} is not a non-empty box of shape {task.shape}")
        if t.span is not None and not 0 <= t.span[0] < t.span[1] <= box_volume(t.box):
            raise ReshardError(f"{t.text} is outside its box of {box_volume(t.box)} elements")
        right = t.elements * task.itemsize if plan.delivers or len(t.path) == 1 else 1
        if t.nbytes != right:
            raise ReshardError(
                f"{t.text} says {t.nbytes} bytes, but carries {right} ({task.dtype})"
            )
        if not 1 <= t.chunks <= t.nbytes:
            raise ReshardError(f"{t.text} has {t.chunks} chunks; allowed are 1 to {t.nbytes}")
        if not abs(t.stage) < 2**63:
            raise ReshardError(f"{t.text} has stage {t.stage}; allowed are 64 bits")
        for other in t.after:
            if not 0 <= other < len(plan.transfers) or other == t.id:
                raise ReshardError(f"{t.text} waits for transfer {other}, which is no other one")


def check_held(plan: PlanRecord) -> None:
    """Point 3: the first device holds the payload, in its source piece or from ``after``."""
    sources = [task.src.boxes(task.shape) for task in plan.tasks]
    for t in plan.transfers:
        number = plan.units[t.unit].task
        have = sources[number].get(t.path[0])
        if have is not None and contains(have, t.box):
            continue
        arrived = [
            b
            for other in map(plan.transfers.__getitem__, t.after)
            if plan.units[other.unit].task == number and t.path[0] in other.path[1:]
            for b in span_boxes(other.box, other.span)
        ]
        payload = span_boxes(t.box, t.span)
        if not all(any(contains(a, b) for a in arrived) for b in payload):
            raise ReshardError(
                f"{t.text} leaves device {t.path[0]}, which does not hold it by then: its source "
                f"piece is {'empty' if have is None else box_text(have)} and no transfer it waits "
                "for brings it"
            )


def check_written(plan: PlanRecord) -> int:
    """Point 4; returns the number of elements written."""
    targets = [task.dst.boxes(task.shape) for task in plan.tasks]
    writes: dict[tuple[int, int], list[int]] = {}
    for t in plan.transfers:
        number = plan.units[t.unit].task
        for device in t.path if len(t.path) == 1 else t.path[1:]:
            writes.setdefault((number, device), []).append(t.id)
    for (number, device), ids in writes.items():
        if device not in targets[number]:
            raise ReshardError(
                f"{plan.transfers[ids[0]].text} writes to device {device}, which has no "
                f"destination piece of tensor {number}"
            )
    for check in (_check_inside, _check_once):
        proven: set[tuple[Box, tuple[int, ...]]] = set()  # replicas take in the same transfers
        for number, needed in enumerate(targets):
            for device, piece in needed.items():
                taken = tuple(writes.get((number, device), ()))
                if (piece, taken) not in proven:
                    check(device, piece, [plan.transfers[i] for i in taken])
                    proven.add((piece, taken))
    return sum(box_volume(piece) for needed in targets for piece in needed.values())


def _check_inside(device: int, piece: Box, transfers: list[Transfer]) -> None:
    """Raise unless the boxes of ``transfers`` lie in ``piece``."""
    for t in transfers:
        if not contains(piece, t.box):
            raise ReshardError(
                f"{t.text} writes to device {device}, whose destination piece is {box_text(piece)}"
            )


def _check_once(device: int, piece: Box, transfers: list[Transfer]) -> None:
    """Raise unless ``transfers`` write every element of ``piece`` exactly once."""
    if not box_volume(piece):
        return
    written = [(box, t) for t in transfers for box in span_boxes(t.box, t.span)]
    fault = first_fault(piece, [box for box, _ in written])
    if fault is None:
        return
    where = f"{box_text(fault[0])} of the destination piece of device {device}"
    if not fault[1]:
        raise ReshardError(f"no transfer writes {where}")
    first, again = (written[i][1] for i in fault[1])
    raise ReshardError(
        f"{again.text} writes {where} again, after transfer {first.id}; "
        "every element must be written once"
    )


def first_fault(whole: Box, boxes: Sequence[Box]) -> tuple[Box, tuple[int, ...]] | None:
    """None if ``boxes`` (all inside ``whole``) cover every element of ``whole`` exactly once.

    Otherwise a box that is not, and the indices of two boxes that both cover it; none if it is
    not covered at all.
    """
    if len(boxes) == 1 and boxes[0] == whole:
        return None
    if not whole:  # a scalar
        return None if len(boxes) == 1 else (whole, (0, 1) if boxes else ())
    edges = [sorted({e for b in boxes for e in b[d]} | set(side)) for d, side in enumerate(whole)]
    if np.prod([float(len(e) - 1) for e in edges]) > _MOST_CELLS:
        return _by_pairs(whole, boxes)
    at = [{e: i for i, e in enumerate(side)} for side in edges]
    count = np.zeros([len(side) - 1 for side in edges], dtype=np.int32)
    for box in boxes:
        count[tuple(slice(at[d][lo], at[d][hi]) for d, (lo, hi) in enumerate(box))] += 1
    wrong = np.argwhere(count != 1)
    if not len(wrong):
        return None
    cell = tuple((edges[d][i], edges[d][i + 1]) for d, i in enumerate(wrong[0].tolist()))
    over = [i for i, b in enumerate(boxes) if intersect(b, cell) is not None]
    return cell, tuple(over[:2])


def _by_pairs(whole: Box, boxes: Sequence[Box]) -> tuple[Box, tuple[int, ...]] | None:
    """The same by comparing boxes, where the grid of all edges would be too large."""
    lows = np.array([[lo for lo, _ in b] for b in boxes])
    highs = np.array([[hi for _, hi in b] for b in boxes])
    for i in range(len(boxes) - 1):
        both = (np.minimum(highs[i], highs[i + 1 :]) > np.maximum(lows[i], lows[i + 1 :])).all(1)
        if both.any():
            j = i + 1 + int(np.argmax(both))
            common = intersect(boxes[i], boxes[j])
            if common is not None:
                return common, (i, j)
    if sum(map(box_volume, boxes)) == box_volume(whole):
        return None
    return _gap(whole, boxes), ()


def _gap(whole: Box, boxes: Sequence[Box]) -> Box:
    """An uncovered part of ``whole`` under disjoint ``boxes``: halve where volume is missing."""
    while True:
        inside = [c for c in (intersect(whole, b) for b in boxes) if c is not None]
        if not inside:
            return whole
        longest = max(range(len(whole)), key=lambda d: whole[d][1] - whole[d][0])
        lo, hi = whole[longest]
        middle = (lo + hi) // 2
        for part in ((lo, middle), (middle, hi)):
            half = (*whole[:longest], part, *whole[longest + 1 :])
            covered = sum(box_volume(c) for c in (intersect(half, b) for b in inside) if c)
            if covered < box_volume(half):
                whole, boxes = half, inside
                break
