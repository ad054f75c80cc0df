"""Bytes that enter hosts: those that a plan sends, and those that a host needs and lacks."""

from __future__ import annotations

import numpy as np

import reshard_lab as rl


def arrivals(plan: rl.Plan) -> dict[int, int]:
    """Bytes that enter each host from another one."""
    host_of = plan.cluster.host_of
    taken: dict[int, int] = {}
    for t in plan.transfers:
        for a, b in zip(t.path, t.path[1:], strict=False):
            if host_of(a) != host_of(b):
                taken[host_of(b)] = taken.get(host_of(b), 0) + t.nbytes
    return taken


def distinct_bytes_needed(task: rl.ReshardingTask) -> dict[int, int]:
    """Bytes that a host needs and none of its devices holds, element by element."""
    assert task.cluster is not None
    needed: dict[int, np.ndarray] = {}
    held: dict[int, np.ndarray] = {}
    for layout, masks in ((task.dst, needed), (task.src, held)):
        for device, box in layout.boxes(task.shape).items():
            mask = masks.setdefault(task.cluster.host_of(device), np.zeros(task.shape, dtype=bool))
            mask[tuple(slice(lo, hi) for lo, hi in box)] = True
    missing = {
        h: int((mask & ~held.get(h, np.zeros_like(mask))).sum()) * task.itemsize
        for h, mask in needed.items()
    }
    return {h: nbytes for h, nbytes in missing.items() if nbytes}
