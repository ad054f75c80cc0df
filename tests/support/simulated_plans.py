"""Random clusters and plans, small enough to follow every message, for the simulator's tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

import reshard_lab as rl

STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")


def unordered(plan: rl.Plan) -> rl.Plan:
    """The same transfers, all at once."""
    free = tuple(t._replace(after=()) for t in plan.transfers)
    return dataclasses.replace(plan, transfers=free, ordered=False)


def random_layout(rng: np.random.Generator, pool: Sequence[int], ndim: int) -> rl.Layout:
    """A mesh of up to 3 axes on the first devices of ``pool``, at times shuffled."""
    while True:
        shape = rng.integers(1, 5, rng.integers(1, 4))
        if np.prod(shape) <= len(pool):
            break
    ids = np.array(pool[: int(np.prod(shape))])
    if rng.random() < 0.3:
        ids = rng.permutation(ids)
    dims: list[list[int]] = [[] for _ in range(ndim)]
    for axis in rng.permutation(len(shape)):
        where = int(rng.integers(-1, ndim))
        if where >= 0:
            dims[where].append(int(axis))
    return rl.Layout(rl.Mesh(ids.reshape(shape)), rl.ShardingSpec.from_dims(dims))


def random_task(
    rng: np.random.Generator,
    devices: int = 8,
    overlap: bool = False,
    uniform: bool = True,
    nics: Sequence[int] = (1,),
    latency: bool = True,
    sizes: tuple[int, int] = (30, 200),
    intra: Sequence[float] = (2e9, 1e11),
) -> rl.ReshardingTask:
    """Up to ``devices`` source devices and as many others (the same ones where they overlap)."""
    per = int(rng.choice([1, 2, 4]))
    hosts = devices // per * (1 if overlap else 2)
    speeds = 1.25e9 if uniform else list(rng.choice([1.25e8, 3.125e8, 1.25e9], hosts))
    cluster = rl.Cluster(
        hosts,
        per,
        nic=speeds,
        nics_per_host=int(rng.choice(nics)),
        nic_latency=float(rng.choice([0, 2e-5, 1e-3])) if latency else 0,
        intra=float(rng.choice(intra)),
        intra_latency=float(rng.choice([0, 5e-6])) if latency else 0,
    )
    shape = tuple(int(n) for n in rng.integers(*sizes, 3))
    first = list(range(devices))
    second = first if overlap else list(range(devices, 2 * devices))
    return rl.ReshardingTask(
        shape, "float32", random_layout(rng, first, 3), random_layout(rng, second, 3), cluster
    )
