"""Seeded random plans for tests that run them on processes."""

from __future__ import annotations

import random

import numpy as np

import reshard_lab as rl
from reshard_lab.units import ITEMSIZE

STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")


def random_layout(rng: random.Random, devices: list[int], shape: tuple[int, ...]) -> rl.Layout:
    """A layout on some of ``devices`` in any order; every mesh axis cuts one dimension or none."""
    sizes = rng.choice([(1,), (2,), (3,), (4,), (2, 2), (1, 3), (2, 1, 2), (3, 2), (8,)])
    sizes = sizes if np.prod(sizes) <= len(devices) else (len(devices),)
    ids = rng.sample(devices, int(np.prod(sizes)))
    dims: list[list[int]] = [[] for _ in shape]
    for axis in rng.sample(range(len(sizes)), len(sizes)):
        where = rng.randrange(-1, len(shape))
        if where >= 0:
            dims[where].append(axis)
    spec = rl.ShardingSpec.from_dims(dims)
    return rl.Layout(rl.Mesh(np.array(ids).reshape(sizes)), spec, rng.choice(("chunk", "balanced")))


def random_plan(seed: int, devices: int = 8) -> rl.Plan:
    """One to three tensors on one cluster; meshes overlap, or lie on either half of it."""
    rng = random.Random(seed)
    cluster = rl.Cluster(
        hosts=-(-devices // (per := rng.choice((1, 2, 3, 4)))), devices_per_host=per
    )
    every = list(range(devices))
    first, second = rng.choice([(every, every), (every[: devices // 2], every[devices // 2 :])])
    tasks = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        shape = tuple(rng.choice((0, 1, 2, 3, 5, 7, 16, 33)) for _ in range(rng.randrange(1, 5)))
        src, dst = random_layout(rng, first, shape), random_layout(rng, second, shape)
        tasks.append(rl.ReshardingTask(shape, rng.choice(list(ITEMSIZE)), src, dst, cluster))
    strategy, chunks = rng.choice(STRATEGIES), rng.choice((1, 3, 8))
    return rl.plan(tasks, strategy, "load_balance", chunks=chunks, seed=seed)


def traced_plans() -> list[rl.Plan]:
    """Some with waits across devices, some with chains that forward chunks, and some in which a
    device in the middle of a chain waits until the chain's end has everything."""
    plans = [random_plan(seed) for seed in range(80)]
    waiting = [p for p in plans if any(t.after for t in p.transfers)]
    chains = [p for p in plans if any(len(t.path) > 2 and t.chunks > 2 for t in p.transfers)]
    middle = [random_plan(seed) for seed in (116, 181, 197, 176)]
    assert all(
        any(t.path[0] in p.transfers[o].path[1:-1] for t in p.transfers for o in t.after)
        for p in middle
    )
    return waiting[:8] + chains[:6] + middle


def several_tensors() -> list[rl.Plan]:
    """Joint plans of more than one tensor."""
    return [p for p in map(random_plan, range(40)) if len(p.tasks) > 1][:6]
