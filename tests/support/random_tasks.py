"""Random layouts, tasks and plans, the same from the same seed."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence

import numpy as np

import reshard_lab as rl
from reshard_lab.units import ITEMSIZE

STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")
MESHES = [shape for axes in (1, 2, 3) for shape in itertools.product(range(1, 5), repeat=axes)]
MESHES.append((8,))


def random_layout(
    rng: random.Random,
    devices: Sequence[int],
    ndim: int,
    rules: Sequence[str] = ("chunk",),
    in_order: float = 0.0,
) -> rl.Layout:
    """A mesh of 1 to 3 axes on any of ``devices``, or, so often, on the first ones in order.

    Every mesh axis cuts one dimension or none; axes come in any order.
    """
    axes = rng.randrange(1, 4)
    fitting = [s for s in MESHES if len(s) == axes and math.prod(s) <= len(devices)]
    shape = rng.choice(fitting)
    count = math.prod(shape)
    straight = in_order and rng.random() < in_order
    ids = devices[:count] if straight else rng.sample(devices, count)
    dims: list[list[int]] = [[] for _ in range(ndim)]
    for axis in rng.sample(range(axes), axes):
        where = rng.randrange(-1, ndim)
        if where >= 0:
            dims[where].append(axis)
    spec = rl.ShardingSpec.from_dims(dims)
    return rl.Layout(rl.Mesh(np.array(ids).reshape(shape)), spec, rng.choice(rules))


def random_ends(rng: random.Random, devices: int) -> tuple[list[int], list[int]]:
    """Devices of source and destination: all of them for both, or one half each."""
    every, half = list(range(devices)), devices // 2
    return rng.choice([(every, every), (every[:half], every[half:])])


def random_plan(seed: int, devices: int = 8) -> rl.Plan:
    """One to three tensors on one cluster; meshes overlap, or lie on either half of it."""
    rng = random.Random(seed)
    per = rng.choice((1, 2, 3, 4))
    cluster = rl.Cluster(hosts=-(-devices // per), devices_per_host=per)
    ends = random_ends(rng, devices)
    tasks = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        shape = tuple(rng.choice((0, 1, 2, 3, 5, 7, 16, 33)) for _ in range(rng.randrange(1, 5)))
        src, dst = (random_layout(rng, end, len(shape), ("chunk", "balanced")) for end in ends)
        tasks.append(rl.ReshardingTask(shape, rng.choice(list(ITEMSIZE)), src, dst, cluster))
    strategy, chunks = rng.choice(STRATEGIES), rng.choice((1, 3, 8))
    return rl.plan(tasks, strategy, "load_balance", chunks=chunks, seed=seed)


def timed_task(
    rng: random.Random,
    devices: int = 8,
    overlap: bool = False,
    uniform: bool = True,
    nics: Sequence[int] = (1,),
    latency: bool = True,
    sizes: tuple[int, int] = (30, 200),
    intra: Sequence[float] = (2e9, 1e11),
) -> rl.ReshardingTask:
    """A task on a cluster of any speeds, small enough for the simulator to follow every message.

    Up to ``devices`` source devices and as many others (the same ones where they overlap).
    """
    per = rng.choice((1, 2, 4))
    hosts = devices // per * (1 if overlap else 2)
    speeds = 1.25e9 if uniform else [rng.choice((1.25e8, 3.125e8, 1.25e9)) for _ in range(hosts)]
    cluster = rl.Cluster(
        hosts,
        per,
        nic=speeds,
        nics_per_host=rng.choice(nics),
        nic_latency=rng.choice((0, 2e-5, 1e-3)) if latency else 0,
        intra=rng.choice(intra),
        intra_latency=rng.choice((0, 5e-6)) if latency else 0,
    )
    shape = tuple(rng.randrange(*sizes) for _ in range(3))
    first = list(range(devices))
    second = first if overlap else list(range(devices, 2 * devices))
    src, dst = (random_layout(rng, end, 3, in_order=0.7) for end in (first, second))
    return rl.ReshardingTask(shape, "float32", src, dst, cluster)


def unordered(plan: rl.Plan) -> rl.Plan:
    """The same transfers, all at once."""
    free = tuple(t._replace(after=()) for t in plan.transfers)
    return dataclasses.replace(plan, transfers=free, ordered=False)


def waits_past_the_middle(plan: rl.Plan) -> bool:
    """Whether a device in the middle of a chain waits until the chain's end has everything."""
    return any(
        t.path[0] in plan.transfers[other].path[1:-1] for t in plan.transfers for other in t.after
    )


def traced_plans() -> list[rl.Plan]:
    """Some with waits across devices, some with chains that forward chunks, and some in which a
    device in the middle of a chain waits until the chain's end has everything."""
    plans = [random_plan(seed) for seed in range(80)]
    waiting = [p for p in plans if any(t.after for t in p.transfers)]
    chains = [p for p in plans if any(len(t.path) > 2 and t.chunks > 2 for t in p.transfers)]
    middle = [random_plan(seed) for seed in (19, 169, 176, 211)]
    assert all(waits_past_the_middle(p) for p in middle)
    return waiting[:8] + chains[:6] + middle


def several_tensors() -> list[rl.Plan]:
    """Joint plans of more than one tensor."""
    return [p for p in map(random_plan, range(40)) if len(p.tasks) > 1][:6]
