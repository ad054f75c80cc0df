"""Layouts: a spec on a mesh, and the box of the tensor that every device holds (section 2)."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reshard_lab.boxes import Box, Interval, check_shape, cut
from reshard_lab.errors import ReshardError, check_choice, short
from reshard_lab.mesh import Mesh
from reshard_lab.spec import ShardingSpec

RULES = ("chunk", "balanced", "even")


@dataclass(frozen=True)
class Grid:
    """The distinct slices of a layout: a product of the cuts of every dimension.

    Because a mesh axis cuts at most one dimension, every combination of the non-empty
    ``intervals`` is held by at least one device.
    """

    intervals: tuple[tuple[Interval, ...], ...]
    """For every dimension, its distinct non-empty intervals in ascending order."""
    slice_of: np.ndarray
    """For every mesh position, the row-major index of its slice (-1 = empty)."""


@dataclass(frozen=True, init=False, repr=False)
class Layout:
    """A sharding spec on a mesh.

    rule:
        ``chunk`` (default, as torch: pieces of ceil(n/k), the last ones shorter or empty, a
        further axis cuts the local piece again), ``balanced`` (the first n mod k pieces get one
        more) or ``even`` (an error if it does not divide, as JAX).

    >>> Layout(Mesh([[0, 1], [2, 3]]), "S0R").boxes((4, 4))[3]
    ((2, 4), (0, 4))
    """

    mesh: Mesh
    spec: ShardingSpec
    rule: str

    def __init__(self, mesh: Mesh, spec: str | ShardingSpec, rule: str = "chunk") -> None:
        mesh = mesh if isinstance(mesh, Mesh) else Mesh(mesh)
        spec = ShardingSpec(spec)
        for axis in (a for axes in spec.dims for a in axes):
            if axis >= mesh.ndim:
                raise ReshardError(
                    f"spec '{spec}' uses mesh axis {axis}, but the mesh has shape {mesh.shape}: "
                    f"its axes are 0 to {mesh.ndim - 1}"
                )
        vars(self).update(mesh=mesh, spec=spec, rule=check_choice("layout rule", rule, RULES))

    def boxes(self, shape: Iterable[int]) -> dict[int, Box]:
        """``{device: ((start, stop), ...)}`` in mesh order, for a tensor of ``shape``.

        An empty piece is ``(n, n)`` with n the size of the dimension.
        """
        sizes = self.check(shape)
        cuts, which = self._cuts(sizes)
        columns = [[cuts[d][i] for i in which[d]] for d in range(len(sizes))]
        rows = zip(*columns, strict=True) if columns else (() for _ in self.mesh.devices)
        return dict(zip(self.mesh.devices, rows, strict=True))

    def grid(self, shape: Iterable[int]) -> Grid:
        """The distinct slices for a tensor of ``shape`` and which one every position holds."""
        sizes = self.check(shape)
        cuts, which = self._cuts(sizes)
        slice_of = np.zeros(self.mesh.size, dtype=np.int64)
        empty = np.zeros(self.mesh.size, dtype=bool)
        intervals = []
        for pieces, index in zip(cuts, which, strict=True):
            full = [i for i, (lo, hi) in enumerate(pieces) if hi > lo]
            rank = np.full(len(pieces), -1, dtype=np.int64)
            rank[full] = np.arange(len(full))
            empty |= rank[index] < 0
            slice_of = slice_of * len(full) + rank[index]
            intervals.append(tuple(pieces[i] for i in full))
        slice_of[empty] = -1
        return Grid(tuple(intervals), slice_of)

    def slices(self, shape: Iterable[int]) -> dict[Box, tuple[int, ...]]:
        """Distinct non-empty slices in mesh order of their first device, each with its replicas."""
        groups: dict[Box, list[int]] = {}
        for device, box in self.boxes(shape).items():
            if all(hi > lo for lo, hi in box):
                groups.setdefault(box, []).append(device)
        return {box: tuple(sorted(devices)) for box, devices in groups.items()}

    def check(self, shape: Iterable[int], what: str = "spec") -> tuple[int, ...]:
        """``shape`` as a tuple; raises if it has not as many dimensions as the spec."""
        sizes = check_shape(shape)
        if len(sizes) != self.spec.ndim:
            raise ReshardError(
                f"{what} {short(str(self.spec))} has {self.spec.ndim} tokens, but shape "
                f"{short(sizes)} has {len(sizes)} dimensions; give one token a dimension"
            )
        return sizes

    def _cuts(self, sizes: tuple[int, ...]) -> tuple[list[list[Interval]], list[np.ndarray]]:
        """Per dimension: the pieces in token order, and the piece of every mesh position."""
        coords = np.indices(self.mesh.shape).reshape(self.mesh.ndim, -1)
        cuts, which = [], []
        for dim, (n, axes) in enumerate(zip(sizes, self.spec.dims, strict=True)):
            pieces: list[Interval] = [(0, n)]
            index = np.zeros(self.mesh.size, dtype=np.int64)
            for axis in axes:
                parts = self.mesh.shape[axis]
                if self.rule == "even" and (pieces[0][1] - pieces[0][0]) % parts:
                    over = int(np.prod([self.mesh.shape[a] for a in axes]))
                    raise ReshardError(
                        f"dimension {dim} of size {n} does not divide evenly over mesh axes {axes} "
                        f"({over} pieces) under rule 'even'; use rule 'chunk' or 'balanced'"
                    )
                pieces = [p for lo, hi in pieces for p in cut(lo, hi, parts, self.rule)]
                index = index * parts + coords[axis]
            cuts.append([(lo, hi) if hi > lo else (n, n) for lo, hi in pieces])
            which.append(index)
        return cuts, which

    def __repr__(self) -> str:
        rule = "" if self.rule == "chunk" else f", rule={self.rule!r}"
        return f"Layout({self.mesh!r}, '{self.spec}'{rule})"
