"""Boxes of a tensor: half-open intervals, cuts, intersections and flat ranges."""

import itertools
import math
from collections.abc import Iterable

from reshard_lab.errors import check_int, must_be, short

Interval = tuple[int, int]
Box = tuple[Interval, ...]
"""Half-open ``(start, stop)`` for every tensor dimension, in global coordinates."""
Span = tuple[int, int]
"""A half-open range of the elements of a box in row-major order."""


def check_shape(shape: object) -> tuple[int, ...]:
    """The tensor shape as a tuple of whole numbers of at least 0."""
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise must_be("shape", "a sequence of sizes such as (4, 4)", shape)
    sizes = tuple(shape)
    return tuple(
        check_int(f"size of dimension {i} of shape {short(sizes)}", n) for i, n in enumerate(sizes)
    )


def cut(start: int, stop: int, parts: int, rule: str) -> list[Interval]:
    """Cut ``[start, stop)`` into ``parts`` intervals by ``rule``; the last ones may be empty.

    >>> cut(0, 5, 4, "chunk"), cut(0, 5, 4, "balanced")
    ([(0, 2), (2, 4), (4, 5), (5, 5)], [(0, 2), (2, 3), (3, 4), (4, 5)])
    """
    n = stop - start
    if rule == "balanced":
        small, more = divmod(n, parts)
        edges = [start + i * small + min(i, more) for i in range(parts + 1)]
    else:
        size = -(-n // parts)
        edges = [min(start + i * size, stop) for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def box_volume(box: Box) -> int:
    """Number of elements in ``box``."""
    return math.prod(hi - lo for lo, hi in box)


def box_shape(box: Box) -> tuple[int, ...]:
    """Shape of the array that holds ``box``."""
    return tuple(hi - lo for lo, hi in box)


def box_text(box: Box) -> str:
    """``box`` as an index.

    >>> box_text(((0, 1), (0, 4)))
    '[0:1, 0:4]'
    """
    return "[" + ", ".join(f"{lo}:{hi}" for lo, hi in box) + "]"


def intersect(a: Box, b: Box) -> Box | None:
    """The common part of two boxes, or None if they share no element."""
    both = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return both if all(lo < hi for lo, hi in both) else None


def contains(outer: Box, inner: Box) -> bool:
    """Whether every element of ``inner`` is in ``outer``."""
    return all(a <= lo and hi <= b for (a, b), (lo, hi) in zip(outer, inner, strict=True))


def slices_within(inner: Box, outer: Box) -> tuple[slice, ...]:
    """Index of ``inner`` inside the array that holds ``outer``."""
    return tuple(slice(lo - o, hi - o) for (lo, hi), (o, _) in zip(inner, outer, strict=True))


def is_contiguous(inner: Box, outer: Box) -> bool:
    """Whether ``inner`` is one run of memory in a row-major array that holds ``outer``."""
    started = False
    for (lo, hi), (a, b) in zip(inner, outer, strict=True):
        if started and hi - lo != b - a:
            return False
        started = started or hi - lo > 1
    return True


def span_boxes(box: Box, span: Span | None) -> list[Box]:
    """The boxes that make up a row-major range of ``box``, in order (at most 2 ndim - 1 of them).

    >>> span_boxes(((0, 2), (0, 3)), (1, 6))
    [((0, 1), (1, 3)), ((1, 2), (0, 3))]
    """
    if span is None:
        return [box]
    start, stop = span
    if start >= stop:
        return []
    if start == 0 and stop == box_volume(box):
        return [box]
    (lo, _), inner = box[0], box[1:]
    row = box_volume(inner)
    first, head = divmod(start, row)
    last, tail = divmod(stop, row)
    if head and first == last:  # inside one row
        return [((lo + first, lo + first + 1), *b) for b in span_boxes(inner, (head, tail))]
    boxes: list[Box] = []
    if head:
        boxes += [((lo + first, lo + first + 1), *b) for b in span_boxes(inner, (head, row))]
        first += 1
    if first < last:
        boxes.append(((lo + first, lo + last), *inner))
    if tail:
        boxes += [((lo + last, lo + last + 1), *b) for b in span_boxes(inner, (0, tail))]
    return boxes
