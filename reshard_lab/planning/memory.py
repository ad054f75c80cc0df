"""How much memory a plan needs on every device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reshard_lab.boxes import Box, box_volume, contains, is_contiguous
from reshard_lab.planning.record import PlanRecord
from reshard_lab.transfer import Transfer

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


class StagedEnd(NamedTuple):
    """One end of a hop whose data lies scattered in memory."""

    transfer: int
    hop: int
    device: int
    sends: bool
    """Whether the device sends it on; False = it takes it in."""
    nbytes: int
    """Bytes staged while the hop is under way."""


def staged_ends(plan: PlanRecord) -> Iterator[StagedEnd]:
    """Every end of every hop that stages bytes; none in a ``signal`` plan."""
    if not plan.delivers:
        return
    have = [task.src.boxes(task.shape) for task in plan.tasks]
    need = [task.dst.boxes(task.shape) for task in plan.tasks]
    hops = plan.hops
    columns = (hops.transfer, hops.hop, hops.source, hops.destination)
    for number, hop, device, peer in zip(*(c.tolist() for c in columns), strict=True):
        if device == peer:
            continue
        t = plan.transfers[number]
        task = plan.units[t.unit].task
        held = have[task].get(device) if hop == 0 else None
        source = held if held is not None and contains(held, t.box) else need[task][device]
        for end, piece in ((device, source), (peer, need[task][peer])):
            staged = staged_bytes(t, piece)
            if staged:
                yield StagedEnd(number, hop, end, end == device, staged)


def peak_bytes(plan: PlanRecord) -> dict[int, int]:
    """Source piece, destination piece and the largest staging each way, by device.

    In a plan without an order all transfers of a device may be under way at once.
    """
    total: dict[int, int] = {}
    for task in plan.tasks:
        for layout in (task.src, task.dst):
            for device, box in layout.boxes(task.shape).items():
                total[device] = total.get(device, 0) + box_volume(box) * task.itemsize
    staged: dict[tuple[int, bool, int], int] = {}
    for end in staged_ends(plan):
        key = (end.device, end.sends, 0 if plan.ordered else end.transfer)
        staged[key] = max(staged.get(key, 0), end.nbytes)
    for (device, _, _), nbytes in staged.items():
        total[device] += nbytes
    return dict(sorted(total.items()))
