"""Random layouts and tasks as hypothesis draws them: one that fails is made small."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import reshard_lab as rl

MOST_DEVICES = 16
DTYPES = ("int8", "float32", "int16", "complex128")
RULES = ("chunk", "balanced", "even")


@st.composite
def meshes(draw, pool: list[int]) -> rl.Mesh:
    """A mesh of 1 to 3 axes on some devices of ``pool``, in any order."""
    shape = draw(
        st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(
            lambda s: np.prod(s) <= len(pool)
        )
    )
    count = int(np.prod(shape))
    ids = draw(st.permutations(pool))[:count]
    return rl.Mesh(np.array(ids).reshape(shape))


@st.composite
def layouts(draw, pool: list[int], ndim: int, rules: tuple[str, ...] = RULES) -> rl.Layout:
    """A layout on a random mesh: every mesh axis cuts one dimension or none, in any order."""
    mesh = draw(meshes(pool))
    dims: list[list[int]] = [[] for _ in range(ndim)]
    for axis in draw(st.permutations(range(mesh.ndim))):
        where = draw(st.integers(-1, ndim - 1))
        if where >= 0:
            dims[where].append(axis)
    rule = draw(st.sampled_from(rules))
    return rl.Layout(mesh, rl.ShardingSpec.from_dims(dims), rule)


@st.composite
def reshardings(draw, most_elements: int = 100_000) -> rl.ReshardingTask:
    """A task on a cluster of up to 16 devices; the meshes may overlap in any way."""
    shape = tuple(draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)))
    assume(np.prod(shape) <= most_elements)
    per_host = draw(st.sampled_from((1, 2, 3, 4, 8)))
    cluster = rl.Cluster(
        hosts=-(-MOST_DEVICES // per_host),
        devices_per_host=per_host,
        nics_per_host=draw(st.sampled_from((1, 1, 2))),
    )
    half = MOST_DEVICES // 2
    every = list(range(MOST_DEVICES))
    first, second = draw(st.sampled_from(((every, every), (every[:half], every[half:]))))
    src, dst = draw(layouts(first, len(shape))), draw(layouts(second, len(shape)))
    for layout in (src, dst):
        if layout.rule == "even":
            try:
                layout.boxes(shape)
            except rl.ReshardError:
                assume(False)
    return rl.ReshardingTask(shape, draw(st.sampled_from(DTYPES)), src, dst, cluster)


@st.composite
def layouts_and_shapes(draw: st.DrawFn) -> tuple[rl.Layout, tuple[int, ...]]:
    """A layout of up to 24 devices and a tensor of up to 4 dimensions."""
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 3, 4, 7, 16, 100, 1024]), max_size=4)))
    return draw(layouts(list(range(24)), len(shape), ("chunk", "balanced"))), shape
