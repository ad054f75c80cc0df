"""The proof that a plan is right, made before anything runs.

1. Every record makes sense on its own (devices, boxes, sizes, dtypes).
2. No cycle of waits: lanes, data and ``after`` together can all be worked off (``HopTable.order``).
3. Every payload leaves a device that holds it by then.
4. Every element of every destination piece is written exactly once.

What devices do in order is derived from the transfers, so that both ends of every hop agree on
it by construction (``HopTable.waits``).

The destination pieces come from the layouts, not from the planner's unit tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reshard_lab.boxes import Box, box_text, box_volume, contains, span_boxes
from reshard_lab.errors import ReshardError
from reshard_lab.planning.cover import first_fault
from reshard_lab.planning.programs import collector_paused
from reshard_lab.transfer import Transfer

if TYPE_CHECKING:
    from reshard_lab.planning.record import Plan, Verified


def verify(plan: Plan) -> Verified:
    """Prove ``plan`` right; raises ReshardError naming the transfer at fault.

    A ``signal`` plan delivers nothing: points 1 and 2 are proven, and the result says so.
    """
    from reshard_lab.planning.record import Verified

    elements = 0
    with collector_paused():
        check_records(plan)
        _ = plan.hops.order  # raises for a cycle of waits
        if plan.delivers:
            pieces = _Pieces(plan)
            check_held(plan, pieces)
            elements = check_written(plan, pieces)
    return Verified(len(plan.hops.devices), len(plan.transfers), elements, plan.delivers)


class _Pieces:
    """Source and destination boxes of every tensor, by device."""

    def __init__(self, plan: Plan) -> None:
        self.have = [task.src.boxes(task.shape) for task in plan.tasks]
        self.need = [task.dst.boxes(task.shape) for task in plan.tasks]


def check_records(plan: Plan) -> None:
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


def check_held(plan: Plan, pieces: _Pieces) -> None:
    """Point 3: the first device holds the payload, in its source piece or from ``after``."""
    for t in plan.transfers:
        number = plan.units[t.unit].task
        have = pieces.have[number].get(t.path[0])
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


def check_written(plan: Plan, pieces: _Pieces) -> int:
    """Point 4; returns the number of elements written."""
    writes: dict[tuple[int, int], list[int]] = {}
    for t in plan.transfers:
        number = plan.units[t.unit].task
        for device in t.path if len(t.path) == 1 else t.path[1:]:
            writes.setdefault((number, device), []).append(t.id)
    for (number, device), ids in writes.items():
        if device not in pieces.need[number]:
            raise ReshardError(
                f"{plan.transfers[ids[0]].text} writes to device {device}, which has no "
                f"destination piece of tensor {number}"
            )
    total = 0
    for check in (_check_inside, _check_once):
        total = 0
        proven: set[tuple[Box, tuple[int, ...]]] = set()  # replicas take in the same transfers
        for number, needed in enumerate(pieces.need):
            for device, piece in needed.items():
                taken = tuple(writes.get((number, device), ()))
                if (piece, taken) not in proven:
                    check(device, piece, [plan.transfers[i] for i in taken])
                    proven.add((piece, taken))
                total += box_volume(piece)
    return total


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
