"""What every device does, in order, read off the transfers."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.planning.hops import HopTable
from reshard_lab.transfer import Step, Transfer


def programs_of(hops: HopTable, dtype_of_unit: Sequence[str]) -> Mapping[int, tuple[Step, ...]]:
    """``{device: steps}``: by stage, within a stage by hop, receive before forward."""
    copies = hops.copies
    copied, moved = np.flatnonzero(copies), np.flatnonzero(~copies)
    row = np.concatenate((copied, moved, moved))
    device = np.concatenate((hops.source[copied], hops.source[moved], hops.destination[moved]))
    peer = np.concatenate((hops.source[copied], hops.destination[moved], hops.source[moved]))
    op = np.repeat(np.arange(3), (len(copied), len(moved), len(moved)))
    order = np.lexsort((row, hops.hop[row], hops.stage[row], device))
    row = row[order]
    dtypes = [dtype_of_unit[t.unit] for t in hops.transfers]
    with collector_paused():
        steps = [
            Step(_OPS[op], number, peer, nbytes, dtypes[number])
            for op, number, peer, nbytes in zip(
                op[order].tolist(),
                hops.transfer[row].tolist(),
                peer[order].tolist(),
                hops.nbytes[row].tolist(),
                strict=True,
            )
        ]
    ends = np.searchsorted(device[order], hops.devices, side="right").tolist()
    return {
        number: tuple(steps[start:end])
        for number, start, end in zip(hops.devices.tolist(), [0, *ends], ends, strict=False)
    }


_OPS = ("copy", "send", "recv")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking millions of new records again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def levels_of(transfers: Sequence[Transfer]) -> list[int]:
    """For every transfer, how many others it comes ``after`` one behind the other at most.

    In a plan without an order the transfers between two devices go level by level, those of one
    level side by side. Raises ReshardError if transfers wait for each other in a circle.
    """
    waits = [len(set(t.after)) for t in transfers]
    then: dict[int, list[int]] = {}
    for t in transfers:
        for other in set(t.after):
            then.setdefault(other, []).append(t.id)
    level = [0] * len(transfers)
    ready = [t.id for t in transfers if not waits[t.id]]
    for number in ready:
        for later in then.get(number, ()):
            level[later] = max(level[later], level[number] + 1)
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    if len(ready) < len(transfers):
        stuck = next(i for i, n in enumerate(waits) if n)
        raise ReshardError(f"transfer {stuck} comes after transfers that come after it")
    return level
