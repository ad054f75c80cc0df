"""Arrays of numpy, CuPy or torch: boxes packed and unpacked, arrays handed over without a copy.

Each function is one copy with strides, which on a GPU is one kernel. CuPy and torch share the
memory of an array through DLPack.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from reshard_lab.boxes import Box, box_shape, box_volume, slices_within
from reshard_lab.errors import need


def new(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An array with no content yet, of the library and on the device of ``like``.

    numpy if ``like`` is None.
    """
    if like is None:
        return np.empty(shape, dtype)
    if hasattr(like, "new_empty"):  # torch
        return like.new_empty(shape)
    library = __import__(type(like).__module__.split(".")[0])  # numpy or cupy
    return library.empty(shape, like.dtype)


def pack(array: Any, piece: Box, box: Box) -> Any:
    """``box`` of the array that holds ``piece``, row-major, as a new array of one dimension.

    >>> pack(np.arange(12).reshape(3, 4), ((0, 3), (4, 8)), ((1, 3), (5, 7)))
    array([ 5,  6,  9, 10])
    """
    flat = new(array, (box_volume(box),), "")
    flat.reshape(box_shape(box))[...] = array[slices_within(box, piece)]
    return flat


def unpack(array: Any, piece: Box, box: Box, flat: Any) -> None:
    """Put what ``pack`` made of ``box`` into the array that holds ``piece``."""
    array[slices_within(box, piece)] = flat.reshape(box_shape(box))


def to_torch(array: Any) -> Any:
    """The same memory as a torch tensor."""
    return need("torch", "run", "an exchange with torch").from_dlpack(array)


def to_cupy(array: Any) -> Any:
    """The same memory, which must be a GPU's, as a CuPy array."""
    return need("cupy", "gpu", "an exchange with CuPy").from_dlpack(array)


def cupy_missing() -> str | None:
    """Why arrays of CuPy cannot be used here; None if they can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'reshard-lab[gpu]')"
    if not need("cupy", "gpu", "arrays on a GPU").cuda.is_available():
        return "CuPy finds no GPU"
    return None
