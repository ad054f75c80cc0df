"""A plan carried out again and again on one device: its data, the repeats, the check of every one.

The content of an element follows from its row-major index in the whole tensor and a seed, so a
device makes its own piece of any box, and checks the piece it was brought, without the plan, the
planner or the other devices. No byte of any element is ever ``POISON``, with which destinations
are filled before a run: a byte that was not written cannot pass.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.boxes import Box, box_shape, box_text, box_volume, contains
from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.runtime.arrays import bytes_of
from reshard_lab.runtime.calls import Deadline, torch_modules
from reshard_lab.runtime.context import devices_of, resolve_rank
from reshard_lab.runtime.measure import cpu_ticks
from reshard_lab.runtime.program import Observer
from reshard_lab.runtime.rank import plan_group, run_rank
from reshard_lab.units import ITEMSIZE, dtype_name

POISON = 0xFF
"""Byte that destinations are filled with before a run."""
_KEEP = 0xEF  # one bit of every byte is cleared, so that no byte of the content is POISON
_SEED_STEP = 7919  # tensors of one plan hold different data
_BLOCK = 1 << 16  # elements data at a time: they stay in the cache


class Wrong(NamedTuple):
    """The first element of a piece that is not what it should be."""

    element: tuple[int, ...]
    """Its index in the whole tensor."""
    expected: str
    """Its bytes in hexadecimal, lowest address first."""
    actual: str


def pattern(shape: tuple[int, ...], dtype: str, box: Box, seed: int = 0) -> np.ndarray:
    """The bytes of ``box`` of a tensor of ``shape``: uint8, row-major, ``itemsize`` an element.

    Valid values for every dtype (a bool is 0 or 1); floats may be NaN: compare bytes.

    >>> whole = pattern((4, 3), "int16", ((0, 4), (0, 3))).view("int16").reshape(4, 3)
    >>> part = pattern((4, 3), "int16", ((1, 3), (0, 2))).view("int16").reshape(2, 2)
    >>> bool((whole[1:3, 0:2] == part).all())
    True
    """
    out = np.empty(box_volume(box) * ITEMSIZE[dtype_name(dtype)], np.uint8)
    fill(out, shape, dtype, box, seed)
    return out


def fill(out: np.ndarray, shape: tuple[int, ...], dtype: str, box: Box, seed: int = 0) -> None:
    """Write ``pattern`` of the same arguments into ``out``, the bytes of a piece."""
    _check(out, dtype, box)
    for first, data in _blocks(shape, dtype, box, seed):
        out[first : first + len(data)] = data


def first_wrong(
    shape: tuple[int, ...], dtype: str, box: Box, seed: int, given: np.ndarray
) -> Wrong | None:
    """Compare the bytes of a piece with what ``box`` should hold; None if every byte is right."""
    itemsize = _check(given, dtype, box)
    for first, data in _blocks(shape, dtype, box, seed):
        actual = given[first : first + len(data)]
        if not np.array_equal(actual, data):
            byte = int(np.argmax(actual != data)) // itemsize * itemsize
            local = np.unravel_index((first + byte) // itemsize, box_shape(box))
            index = tuple(int(i) + lo for i, (lo, _) in zip(local, box, strict=True))
            one = slice(byte, byte + itemsize)
            return Wrong(index, data[one].tobytes().hex(), actual[one].tobytes().hex())
    return None


def _check(given: np.ndarray, dtype: str, box: Box) -> int:
    """The itemsize, if ``given`` can be the bytes of a piece."""
    itemsize = ITEMSIZE[dtype_name(dtype)]
    nbytes = box_volume(box) * itemsize
    if given.dtype != np.uint8 or given.shape != (nbytes,):
        raise ReshardError(
            f"the piece of box {box_text(box)} must be given as {nbytes} bytes (uint8), "
            f"not as {given.dtype} of shape {given.shape}"
        )
    return itemsize


def _blocks(
    shape: tuple[int, ...], dtype: str, box: Box, seed: int
) -> Iterator[tuple[int, np.ndarray]]:
    """``(first byte, bytes)`` of consecutive runs of ``box``."""
    if len(box) != len(shape) or not contains(tuple((0, n) for n in shape), box):
        raise ReshardError(f"box {box_text(box)} is not inside a tensor of shape {shape}")
    dtype, volume = dtype_name(dtype), box_volume(box)
    if not volume:
        return
    # Elements whose indices follow one another: the last dimension, and more where it is whole.
    outer, run = len(box), 1
    while outer and run == math.prod(shape[outer:]):
        outer -= 1
        run *= box[outer][1] - box[outer][0]
    rows, many, itemsize = volume // run, max(1, _BLOCK // run), ITEMSIZE[dtype]
    for row in range(0, rows, many):
        starts = _row_starts(shape, box, outer, np.arange(row, min(rows, row + many)))
        for column in range(0, run, _BLOCK):
            along = np.arange(column, min(run, column + _BLOCK))
            index = (starts[:, None] + along).ravel()
            yield (row * run + column) * itemsize, _content(index, dtype, seed)


def _row_starts(shape: tuple[int, ...], box: Box, outer: int, row: np.ndarray) -> np.ndarray:
    """Index in the tensor of the first element of each row of ``box``.

    Rows are numbered over the first ``outer`` dimensions.
    """
    start = np.zeros(len(row), np.int64)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for (lo, _), step in zip(box[outer:], strides[outer:], strict=True):
        start += lo * step
    for (lo, hi), step in reversed(list(zip(box[:outer], strides[:outer], strict=True))):
        row, inside = np.divmod(row, hi - lo)
        start += (lo + inside) * step
    return start


def _content(index: np.ndarray, dtype: str, seed: int) -> np.ndarray:
    """Bytes of the elements with these indices: a 32-bit hash each, or a few for wide dtypes."""
    word = _mix(index.astype(np.uint32), seed)
    if index[-1] >> 32:  # the largest
        high = (index >> 32).astype(np.uint32)
        word = np.where(high > 0, _mix(word ^ high, seed), word)
    itemsize = ITEMSIZE[dtype]
    if dtype == "bool":
        return (word >> 31).astype(np.uint8)
    if itemsize < 4:
        data = (word >> (32 - 8 * itemsize)).astype(f"u{itemsize}").view(np.uint8)
    else:
        words = [word, *(_mix(word.copy(), seed + k) for k in range(1, itemsize // 4))]
        data = np.stack(words, axis=1).ravel().view(np.uint8) if itemsize > 4 else word.view("u1")
    data &= _KEEP
    return data


def _mix(word: np.ndarray, seed: int) -> np.ndarray:
    """Scatter 32-bit words, in place."""
    word += np.uint32((seed * 0x9E3779B9 + 0x7F4A7C15) % 2**32)
    word ^= word >> 16
    word *= np.uint32(0x85EBCA6B)
    word ^= word >> 13
    word *= np.uint32(0xC2B2AE35)
    word ^= word >> 16
    return word


class Trial:
    """A plan that this device carries out again and again, on the default process group."""

    def __init__(
        self,
        plan: Plan,
        device: int,
        ranks: Mapping[int, int],
        seed: int,
        timeout_s: float,
        observe: Observer | None = None,
        carrier: str | None = None,
    ) -> None:
        self.plan, self.device, self.ranks = plan, device, ranks
        self.timeout_s, self.observe = timeout_s, observe
        context = resolve_rank(plan, None, ranks, carrier)
        self.on, self.carrier = context.on, context.carrier
        self.seeds = [seed + _SEED_STEP * number for number in range(len(plan.tasks))]
        self.boxes = [t.dst.boxes(t.shape).get(device) for t in plan.tasks]
        held = [t.src.boxes(t.shape).get(device) for t in plan.tasks]
        torch, _ = torch_modules()
        self.source, self.target = (
            [
                None
                if box is None
                else torch.empty(box_shape(box), dtype=getattr(torch, t.dtype), device=self.on)
                for t, box in zip(plan.tasks, boxes, strict=True)
            ]
            for boxes in (held, self.boxes)
        )
        for task, box, piece, own in zip(plan.tasks, held, self.source, self.seeds, strict=True):
            if box is not None:
                bytes_of(piece).copy_(torch.from_numpy(pattern(task.shape, task.dtype, box, own)))
        self.group = plan_group(plan, context, Deadline(timeout_s))

    def repeat(self) -> tuple[float, list[float] | None]:
        """Seconds from the barrier to the end of this device's part; the result is checked.

        Also what the CPU did meanwhile, as seen by the last device, which in a chain works until
        the end.
        """
        for tensor in self.target:
            if tensor is not None:
                bytes_of(tensor).fill_(POISON)
        ticks = cpu_ticks if self.device == devices_of(self.plan)[-1] else lambda: None
        self.group.meet(b"barrier", Deadline(self.timeout_s))
        elapsed = _stopwatch(self.on)
        before = ticks()
        run_rank(
            self.plan,
            self.source,
            ranks=self.ranks,
            out=self.target,
            timeout_s=self.timeout_s,
            observe=self.observe,
            carrier=self.carrier,
        )
        seconds = elapsed()
        after = ticks()
        if self.plan.delivers:
            self.check()
        if before is None or after is None:
            return seconds, None
        return seconds, [b - a for a, b in zip(before, after, strict=True)]

    def check(self) -> None:
        """Compare every byte that this device was brought; raises ReshardError."""
        for number, (task, box) in enumerate(zip(self.plan.tasks, self.boxes, strict=True)):
            if box is None:
                continue
            data = bytes_of(self.target[number]).cpu().numpy()
            wrong = first_wrong(task.shape, task.dtype, box, self.seeds[number], data)
            if wrong is not None:
                raise ReshardError(
                    f"device {self.device} holds wrong bytes in its destination piece "
                    f"{box_text(box)} of tensor {number} ({task.dtype}, shape {task.shape}): "
                    f"element {wrong.element} is 0x{wrong.actual}, expected 0x{wrong.expected}"
                )


def _stopwatch(on: Any) -> Callable[[], float]:
    """Started now; gives the seconds until it is called: those of the GPU where the pieces are."""
    if on.type != "cuda":
        start = time.perf_counter()
        return lambda: time.perf_counter() - start
    cuda = torch_modules()[0].cuda
    cuda.synchronize(on)
    first, second = (cuda.Event(enable_timing=True) for _ in range(2))
    first.record()

    def elapsed() -> float:
        second.record()
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3

    return elapsed
