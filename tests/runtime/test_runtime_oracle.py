"""The oracle against element-by-element arithmetic and NumPy slicing."""

import itertools
import random

import numpy as np
import pytest

from reshard_lab.runtime import trial
from reshard_lab.units import ITEMSIZE


def mix(word: int, seed: int) -> int:
    """The documented hash, one Python integer at a time."""
    word = (word + seed * 0x9E3779B9 + 0x7F4A7C15) % 2**32
    word ^= word >> 16
    word = word * 0x85EBCA6B % 2**32
    word ^= word >> 13
    word = word * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


def content(index: int, dtype: str, seed: int) -> bytes:
    """Bytes of the element with row-major index ``index``."""
    word = mix(index % 2**32, seed)
    if index >> 32:
        word = mix(word ^ index >> 32, seed)
    size = ITEMSIZE[dtype]
    if dtype == "bool":
        return bytes([word >> 31])
    words = [word] + [mix(word, seed + k) for k in range(1, size // 4)]
    raw = b"".join(w.to_bytes(4, "little") for w in words)
    return bytes(b & 0xEF for b in raw[-size:])


def whole(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """The whole tensor as bytes, last axis the bytes of an element."""
    count = int(np.prod(shape))
    raw = b"".join(content(i, dtype, seed) for i in range(count))
    return np.frombuffer(raw, np.uint8).reshape(*shape, ITEMSIZE[dtype])


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_a_box_is_a_slice_of_the_whole_tensor(dtype):
    rng = random.Random(dtype)
    for shape in [(), (7,), (4, 1, 5), (3, 0, 2), (2, 3, 4, 2)]:
        full = whole(shape, dtype, seed=3)
        for _ in range(8):
            box = tuple(tuple(sorted((rng.randint(0, n), rng.randint(0, n)))) for n in shape)
            part = full[tuple(slice(lo, hi) for lo, hi in box)]
            values = trial.pattern(shape, dtype, box, seed=3)
            assert values.tobytes() == part.tobytes()
            assert trial.first_wrong(shape, dtype, box, 3, values) is None


def test_boxes_longer_than_a_block_and_indices_over_32_bits():
    shape, box = (3, 70_001, 2), ((1, 3), (1, 70_000), (0, 2))
    values = trial.pattern(shape, "int16", box).reshape(2, 69_999, 2, 2)
    for i, j, k in [(0, 0, 0), (0, 69_998, 1), (1, 32_767, 0), (1, 69_998, 1)]:
        index = ((1 + i) * 70_001 + 1 + j) * 2 + k
        assert values[i, j, k].tobytes() == content(index, "int16", 0)
    shape = (5, 2**31)
    box = ((2, 5), (2**31 - 2, 2**31))
    values = trial.pattern(shape, "uint8", box).reshape(3, 2)
    for i, j in itertools.product(range(3), range(2)):
        index = (2 + i) * 2**31 + 2**31 - 2 + j
        assert values[i, j].tobytes() == content(index, "uint8", 0)
    shape, edge = (2**32 + 100,), 2**32
    values = trial.pattern(shape, "int64", ((edge - 10, edge + 10),), seed=5)
    assert values.tobytes() == b"".join(content(edge + i, "int64", 5) for i in range(-10, 10))
    for cut in (edge - 3, edge, edge + 3):  # however it is cut
        parts = [
            trial.pattern(shape, "int64", (ends,), seed=5)
            for ends in ((edge - 10, cut), (cut, edge + 10))
        ]
        assert np.array_equal(np.concatenate(parts), values)
    assert trial.pattern((2**33,), "uint8", ((0, 64),)).tobytes() != (
        trial.pattern((2**33,), "uint8", ((2**32, 2**32 + 64),)).tobytes()
    )


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_no_byte_is_poison_and_bools_are_valid(dtype):
    values = trial.pattern((5000,), dtype, ((0, 5000),), seed=1)
    assert trial.POISON not in values
    assert len(np.unique(values)) == (2 if dtype == "bool" else 128)


def test_seeds_differ():
    box = ((0, 100),)
    assert not np.array_equal(
        trial.pattern((100,), "int32", box, 1), trial.pattern((100,), "int32", box, 2)
    )


def test_the_first_wrong_element_is_named():
    shape, box = (4, 6), ((1, 4), (2, 5))
    right = trial.pattern(shape, "int16", box)
    for byte, element in [(0, (1, 2)), (7, (2, 2)), (17, (3, 4))]:
        damaged = right.copy()
        damaged[byte] = trial.POISON
        wrong = trial.first_wrong(shape, "int16", box, 0, damaged)
        assert wrong.element == element
        assert wrong.expected != wrong.actual and "ff" in wrong.actual
    later = right.copy()
    later[[9, 16]] ^= 1
    assert trial.first_wrong(shape, "int16", box, 0, later).element == (2, 3)
