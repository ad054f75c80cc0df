"""How long simulating takes: the suite's nine cases chunk by chunk, and large plans as fluid.

Planning, verification and imports are left out. Marks are held against processor time: simulating
runs on one core, so that on an idle machine it is the time on the clock.
"""

from __future__ import annotations

import gc
import math
import statistics
import time

import numpy as np

import reshard_lab as rl
from reshard_lab.paper import SUITE, suite_task

REPEATS = 3
SUITE_MOST_S = 1.0
ORDERED_MOST_S = 10.0
CONCURRENT_MOST_S = 60.0
HOSTS = (16, 32, 64, 128)
"""Hosts of 8 devices on either side; the last one is 1024 -> 1024 devices."""


def seconds(plan: rl.Plan, resolution: str) -> tuple[float, rl.Timeline]:
    """Median processor time of simulating ``plan``, and its timeline."""
    times = []
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        timeline = rl.simulate(plan, resolution, verify=False)
        times.append(time.process_time() - start)
    return statistics.median(times), timeline


def suite() -> bool:
    """The nine cases at K = 100; whether they hold their mark."""
    total, messages = 0.0, 0
    for case in SUITE:
        plan = rl.plan(suite_task(case.number), chunks=100)
        took, timeline = seconds(plan, "chunks")
        total, messages = total + took, messages + len(timeline)
    print(f"the nine cases of table 2 at K = 100: {total:.3f} s for {messages} messages")
    return held(total, SUITE_MOST_S)


def held(took: float, most_s: float) -> bool:
    """Print and return whether a mark is held."""
    print(f"  must hold  under {most_s:g} s: {'yes' if took < most_s else 'NO'}")
    return took < most_s


def rows_to_columns(hosts: int, uneven: bool) -> rl.ReshardingTask:
    """Rows over ``hosts`` hosts to columns over as many others, replicated on 8 devices each."""
    rng = np.random.default_rng(0)
    speeds = list(rng.uniform(1e9, 2e9, 2 * hosts)) if uneven else "10Gbps"
    cluster = rl.Cluster(2 * hosts, 8, nic=speeds)
    src = rl.Layout(cluster.mesh((hosts, 8)), "S0RR")
    dst = rl.Layout(cluster.mesh((hosts, 8), first_host=hosts), "RS0R")
    return rl.ReshardingTask((37 * hosts + 11, 37 * hosts + 5, 4096), "float32", src, dst, cluster)


def growth(name: str, scheduler: str, uneven: bool = False) -> float:
    """Print the times of fluid simulations of growing plans; returns the last."""
    print(name)
    before: tuple[int, float] | None = None
    took = 0.0
    for hosts in HOSTS:
        plan = rl.plan(rows_to_columns(hosts, uneven), scheduler=scheduler)
        took, timeline = seconds(plan, "fluid")
        power = ""
        if before is not None:
            exponent = math.log(took / before[1]) / math.log(len(timeline) / before[0])
            power = f", grows as n^{exponent:.2f}"
        before = len(timeline), took
        ends = len(np.unique(timeline.columns["end_s"]))
        print(
            f"  {8 * hosts:>4} -> {8 * hosts:<4} devices, {len(plan.unit_tasks):>5} unit tasks, "
            f"{len(timeline):>6} hops that end at {ends:>5} times: {took:.3f} s{power}"
        )
    return took


def main() -> int:
    """Print the figures; returns 1 if a mark is missed."""
    print(f"processor time, median of {REPEATS}; planning, verify and imports left out")
    marks = [suite()]
    marks.append(held(growth("in order (load_balance)", "load_balance"), ORDERED_MOST_S))
    marks.append(held(growth("in no order (concurrent)", "concurrent"), CONCURRENT_MOST_S))
    growth("concurrent, and no two NICs of one speed", "concurrent", uneven=True)
    return 0 if all(marks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
