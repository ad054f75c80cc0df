"""Where plans are carried out, by name, and what can be done there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import check_choice
from reshard_lab.planning import Plan
from reshard_lab.runtime.agent import run_torchrun
from reshard_lab.runtime.context import devices_of
from reshard_lab.runtime.emulated import emulation_of
from reshard_lab.runtime.measure import Measurement
from reshard_lab.runtime.pool import Pool
from reshard_lab.runtime.trial import check_run


class LaunchTarget(NamedTuple):
    """Somewhere to start processes."""

    pool: Callable[[Cluster, Sequence[int]], Pool] | None = None
    """Makes the pool of the listed devices for plans on a cluster; it starts nothing before it is
    used. Its ``cluster``, if it has one, takes the place of the one given. Pools also train
    pipelines, and measure figures."""
    run: Callable[[Plan, int, int, float, int], Measurement] | None = None
    """Carries out a plan where there is no pool: (plan, repeats, warmup, timeout_s, seed)."""


LAUNCH_TARGETS = {
    "local": LaunchTarget(pool=lambda cluster, devices: Pool(devices)),
    "emulated": LaunchTarget(pool=emulation_of),
    "torchrun": LaunchTarget(run=run_torchrun),
}
POOL_TARGETS = tuple(name for name, target in LAUNCH_TARGETS.items() if target.pool is not None)
"""Where there is a pool: to train in, and to measure figures."""


def open_pool(where: str, cluster: Cluster, devices: Sequence[int]) -> Pool:
    """The pool of one of ``POOL_TARGETS``, to be used in a ``with`` statement."""
    make = LAUNCH_TARGETS[check_choice("place to run (where)", where, POOL_TARGETS)].pool
    assert make is not None
    return make(cluster, devices)


def run(
    plan: Plan,
    where: str = "local",
    repeats: int = 10,
    warmup: int = 3,
    timeout_s: float = 60.0,
    seed: int = 0,
) -> Measurement:
    """Carry ``plan`` out on processes started for it, and measure it (see ``Pool.run``).

    where:
        ``"local"``: one process a device on this machine, over loopback. ``"emulated"``: the
        same, each host in a network namespace behind NICs of the plan's speed; where that is more
        than this machine can emulate, all NICs are slowed down alike, and the measurement says
        so. ``"torchrun"``: one process a GPU of this machine, with NCCL (with gloo, on the CPU,
        where there is no GPU); prints a line a run.

    A sweep of plans is faster on one ``Pool`` or ``EmulatedCluster``.
    """
    target = LAUNCH_TARGETS[check_choice("place to run (where)", where, LAUNCH_TARGETS)]
    checked = check_run(plan, repeats, warmup, timeout_s, seed)
    if target.run is not None:
        return target.run(plan, *checked)
    with open_pool(where, plan.cluster, devices_of(plan)) as pool:
        return pool.run(plan, *checked)
