"""Carrying a single plan out: on this machine, on an emulated cluster, or under torchrun."""

from __future__ import annotations

from collections.abc import Callable

from reshard_lab.errors import check_choice
from reshard_lab.planning import Plan
from reshard_lab.runtime.agent import run_torchrun
from reshard_lab.runtime.emulated import emulation_of
from reshard_lab.runtime.launch import Pool
from reshard_lab.runtime.measure import Measurement
from reshard_lab.runtime.rank import devices_of
from reshard_lab.runtime.trial import check_run


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
    launcher = PLACES[check_choice("place to run (where)", where, PLACES)]
    return launcher(plan, *check_run(plan, repeats, warmup, timeout_s, seed))


def _run_local(plan: Plan, repeats: int, warmup: int, timeout_s: float, seed: int) -> Measurement:
    with Pool(devices_of(plan)) as pool:
        return pool.run(plan, repeats, warmup, timeout_s, seed)


def _run_emulated(
    plan: Plan, repeats: int, warmup: int, timeout_s: float, seed: int
) -> Measurement:
    with emulation_of(plan.cluster, devices_of(plan)) as emulated:
        return emulated.run(plan, repeats, warmup, timeout_s, seed)


PLACES: dict[str, Callable[[Plan, int, int, float, int], Measurement]] = {
    "local": _run_local,
    "emulated": _run_emulated,
    "torchrun": run_torchrun,
}
