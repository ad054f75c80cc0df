"""Device meshes (section 2)."""

from dataclasses import dataclass, field

import numpy as np

from reshard_lab.errors import ReshardError, short

_LISTED = 256
"""Devices that a mesh prints; a larger one says how many it has."""


@dataclass(frozen=True, init=False, repr=False)
class Mesh:
    """An n-D array of distinct device ids, in any order (section 2).

    >>> mesh = Mesh([[0, 1], [2, 3]])
    >>> mesh.shape, mesh.devices
    ((2, 2), (0, 1, 2, 3))
    """

    shape: tuple[int, ...]
    """Length of every mesh axis."""
    devices: tuple[int, ...]
    """Device ids in row-major order of the mesh positions."""
    _position: dict[int, int] = field(compare=False)

    def __init__(self, devices: object) -> None:
        try:
            array = np.asarray(devices)
        except ValueError:
            array = np.asarray(None)
        if array.ndim < 1 or array.size == 0 or array.dtype.kind not in "iu":
            raise ReshardError(
                f"mesh {short(devices)} must be a non-empty rectangular array of whole device ids, "
                "such as [[0, 1], [2, 3]]"
            )
        flat = tuple(array.ravel().tolist())
        if min(flat) < 0:
            raise ReshardError(f"mesh has device {min(flat)}; device ids must be at least 0")
        position = {d: i for i, d in enumerate(flat)}
        if len(position) < len(flat):
            twice = next(d for i, d in enumerate(flat) if position[d] != i)
            raise ReshardError(
                f"mesh {short(array.tolist())} lists device {twice} twice; ids must differ"
            )
        vars(self).update(shape=array.shape, devices=flat, _position=position)

    @property
    def ndim(self) -> int:
        """Number of mesh axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.devices)

    def position(self, device: int) -> int:
        """Row-major position of ``device`` in the mesh."""
        try:
            return self._position[device]
        except KeyError:
            raise ReshardError(f"device {device} is not in {short(self)}") from None

    def array(self) -> np.ndarray:
        """The device ids as an integer array of the mesh's shape."""
        return np.array(self.devices).reshape(self.shape)

    def __repr__(self) -> str:
        if self.size <= _LISTED:
            return f"Mesh({self.array().tolist()})"
        shape = "x".join(map(str, self.shape))
        return f"Mesh({shape}: {self.size} devices, {min(self.devices)} to {max(self.devices)})"
