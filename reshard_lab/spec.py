"""Sharding specs (section 2): one token per tensor dimension."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from reshard_lab.errors import ReshardError, short

_TOKEN = re.compile(r"\s*(?:(R)|S(?:\^?([0-9]+)|\^?\{([0-9]+(?:\s*,?\s*[0-9]+)*\s*,?)\}))\s*")
_DIGITS = 9  # of a mesh axis


@dataclass(frozen=True, init=False, repr=False)
class ShardingSpec:
    """Which mesh axes cut which tensor dimension, major to minor (section 2).

    ``R`` leaves a dimension whole; ``S0`` cuts it over mesh axis 0; ``S01`` first over axis 0,
    then over axis 1. ``S^0`` and ``S^{01}`` are the paper's spelling; axes of two digits are
    written with commas: ``S^{10,11}``, ``S^{12,}``.

    >>> spec = ShardingSpec("S^{01}R")
    >>> spec.dims, str(spec)
    (((0, 1), ()), 'S01R')
    """

    dims: tuple[tuple[int, ...], ...]
    """For every tensor dimension, the mesh axes that cut it (``()`` = replicated)."""

    def __init__(self, spec: str | ShardingSpec) -> None:
        dims = spec.dims if isinstance(spec, ShardingSpec) else _parse(spec)
        vars(self).update(dims=_checked(dims, str(spec)))

    @classmethod
    def from_dims(cls, dims: Iterable[Iterable[int]]) -> ShardingSpec:
        """The spec that cuts dimension ``i`` over the axes ``dims[i]``.

        >>> str(ShardingSpec.from_dims([(1, 0), ()]))
        'S10R'
        """
        axes_of = tuple(tuple(int(a) for a in axes) for axes in dims)
        spec = cls.__new__(cls)
        vars(spec).update(dims=_checked(axes_of, _text(axes_of)))
        return spec

    @property
    def ndim(self) -> int:
        """Number of tensor dimensions."""
        return len(self.dims)

    def __str__(self) -> str:
        return _text(self.dims)

    def __repr__(self) -> str:
        return f"ShardingSpec({str(self)!r})"


def _text(dims: tuple[tuple[int, ...], ...]) -> str:
    def token(axes: tuple[int, ...]) -> str:
        if not axes:
            return "R"
        if max(axes) > 9:
            return "S^{" + ",".join(map(str, axes)) + ("," if len(axes) == 1 else "") + "}"
        return "S" + "".join(map(str, axes))

    return "".join(map(token, dims))


def _parse(spec: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(spec, str):
        raise ReshardError(f"a spec is text such as 'S01R', not {short(spec)}")
    dims: list[tuple[int, ...]] = []
    at = 0
    while at < len(spec):
        match = _TOKEN.match(spec, at)
        if not match:
            raise ReshardError(
                f"spec {short(spec)} has an unknown token at {short(spec[at:])}; every tensor "
                "dimension is 'R' or 'S' with the mesh axes that cut it, such as 'S0', 'S01' or "
                "'S^{01}'"
            )
        digits, braced = match[2], match[3]
        if match[1]:
            dims.append(())
        elif braced and "," in braced:
            axes = [a.strip() for a in braced.split(",") if a.strip()]
            if not all(a.isdigit() and len(a) <= _DIGITS for a in axes):
                raise ReshardError(
                    f"spec {short(spec)} has an unknown mesh axis in {short(braced)}"
                )
            dims.append(tuple(map(int, axes)))
        else:
            dims.append(tuple(int(a) for a in (digits or braced) if a.isdigit()))
        at = match.end()
    return tuple(dims)


def _checked(dims: tuple[tuple[int, ...], ...], text: str) -> tuple[tuple[int, ...], ...]:
    seen: dict[int, int] = {}
    for dim, axes in enumerate(dims):
        for axis in axes:
            if axis < 0:
                raise ReshardError(f"spec {short(text)} uses mesh axis {axis}; axes start at 0")
            if axis in seen:
                where = f"dims {seen[axis]} and {dim}" if seen[axis] != dim else f"dim {dim}"
                raise ReshardError(
                    f"spec {short(text)} uses mesh axis {axis} twice ({where}); "
                    "an axis can split one dimension"
                )
            seen[axis] = dim
    return dims
