"""How much memory a plan needs on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reshard_lab.boxes import Box, box_volume, contains, is_contiguous
from reshard_lab.transfer import Transfer

if TYPE_CHECKING:
    from reshard_lab.planning.record import Plan

MESSAGE_BYTES = 16 * 2**20
"""Longest message an executor sends; longer chunks are cut further."""
IN_FLIGHT = 2
"""Messages a device stages at once in each direction."""


def messages(transfer: Transfer) -> int:
    """Messages a transfer is carried in: its chunks, or more where those would be too long."""
    return max(transfer.chunks, -(-transfer.nbytes // MESSAGE_BYTES))


def staged_bytes(transfer: Transfer, piece: Box) -> int:
    """Bytes one end of ``transfer`` stages, its data lying in the array that holds ``piece``.

    Nothing where the payload is one run of memory: it moves straight from or into the array.
    """
    if is_contiguous(transfer.box, piece):
        return 0
    return min(transfer.nbytes, IN_FLIGHT * -(-transfer.nbytes // messages(transfer)))


def peak_bytes(plan: Plan) -> dict[int, int]:
    """Source piece, destination piece and the largest staging each way, by device."""
    total: dict[int, int] = {}
    pieces: list[tuple[dict[int, Box], dict[int, Box]]] = []
    for task in plan.tasks:
        boxes = task.src.boxes(task.shape), task.dst.boxes(task.shape)
        pieces.append(boxes)
        for held in boxes:
            for device, box in held.items():
                total[device] = total.get(device, 0) + box_volume(box) * task.itemsize
    staged: dict[tuple[int, int], int] = {}
    for t in plan.transfers if plan.delivers else ():
        have, need = pieces[plan.units[t.unit].task]
        for hop, device in enumerate(t.path):
            first, last = hop == 0, hop == len(t.path) - 1
            if len(t.path) == 1:
                continue
            if not last:
                from_source = first and device in have and contains(have[device], t.box)
                piece = have[device] if from_source else need[device]
                key = (device, 0)
                staged[key] = max(staged.get(key, 0), staged_bytes(t, piece))
            if not first:
                key = (device, 1)
                staged[key] = max(staged.get(key, 0), staged_bytes(t, need[device]))
    for (device, _), nbytes in staged.items():
        total[device] += nbytes
    return dict(sorted(total.items()))
