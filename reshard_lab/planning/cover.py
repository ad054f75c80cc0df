"""Whether boxes tile a box exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reshard_lab.boxes import Box, box_volume, intersect

_MOST_CELLS = 4_000_000


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
    over = [i for i, b in enumerate(boxes) if intersect(b, cell)]
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
