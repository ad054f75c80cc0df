"""What every device does, in order, read off the transfers."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter

from reshard_lab.errors import ReshardError
from reshard_lab.transfer import Step, Transfer


def programs_of(
    transfers: Sequence[Transfer], dtype_of_unit: Sequence[str]
) -> Mapping[int, tuple[Step, ...]]:
    """``{device: steps}``: by stage, within a stage by hop, receive before forward."""
    with collector_paused():
        return _programs_of(transfers, dtype_of_unit)


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


def _programs_of(
    transfers: Sequence[Transfer], dtype_of_unit: Sequence[str]
) -> Mapping[int, tuple[Step, ...]]:
    rows: dict[int, list[tuple[int, int, Step]]] = {}
    for t in transfers:
        path, dtype = t.path, dtype_of_unit[t.unit]
        if len(path) == 1:
            rows.setdefault(path[0], []).append(
                (t.stage, 0, Step("copy", t.id, path[0], t.nbytes, dtype))
            )
        for hop in range(len(path) - 1):
            a, b = path[hop], path[hop + 1]
            send = Step("send", t.id, b, t.nbytes, dtype)
            recv = Step("recv", t.id, a, t.nbytes, dtype)
            rows.setdefault(a, []).append((t.stage, hop, send))
            rows.setdefault(b, []).append((t.stage, hop, recv))
    return {
        device: tuple(step for _, _, step in sorted(rows[device], key=itemgetter(0, 1)))
        for device in sorted(rows)
    }


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
