"""How long it takes to write, check and simulate large pipelines.

CPU seconds of one thread: on an idle machine, seconds.
"""

from __future__ import annotations

import itertools
import statistics
import time

import reshard_lab as rl

STAGES, MICROBATCHES = 64, 1024
REPEATS = 5
MOST_S = 1.5
"""For any schedule whose transfers are plain times, from its name to its makespan."""


def seconds(name: str, overlap: bool, transfer: object) -> float:
    """From the name of a schedule to its makespan and peak memory, once."""
    start = time.process_time()
    schedule = rl.pipeline.schedule(name, STAGES, MICROBATCHES)
    timeline = rl.pipeline.simulate(schedule, 1, 2, transfer, overlap=overlap)
    assert timeline.makespan_s > MICROBATCHES * 3 - 1e-6  # every stage is busy that long
    return time.process_time() - start


def shared_nics() -> list[rl.ReshardingTask]:
    """Reshardings between neighbours on 64 hosts: a stage's two directions share its NIC.

    Each takes about 1 s alone, of a slot of 3 s.
    """
    cluster = rl.Cluster(hosts=STAGES, devices_per_host=2, nic="10Gbps")
    layouts = [rl.Layout(cluster.mesh((1, 2), first_host=s), "S1R") for s in range(STAGES)]
    shape = (2**10, 10**6)
    return [
        rl.ReshardingTask(shape, "int8", a, rl.Layout(b.mesh, "RS1"), cluster)
        for a, b in itertools.pairwise(layouts)
    ]


def main() -> int:
    """Print the figures; returns 1 if a mark is missed."""
    missed = 0
    print(
        f"schedule, check and simulation of {STAGES} stages x {MICROBATCHES} microbatches, "
        f"CPU seconds, median of {REPEATS} (fastest to slowest)"
    )
    for name in ("gpipe", "1f1b", "eager_1f1b", "zero_bubble"):
        for overlap in (True, False):
            taken = sorted(seconds(name, overlap, 0.25) for _ in range(REPEATS))
            holds = statistics.median(taken) < MOST_S
            missed += not holds
            how = "overlapped" if overlap else "blocking"
            print(
                f"  {name:11} {how:10} {statistics.median(taken):5.2f} s "
                f"({taken[0]:.2f} to {taken[-1]:.2f}); under {MOST_S} s: "
                f"{'yes' if holds else 'NO'}"
            )
    tasks = shared_nics()
    for name in ("1f1b", "eager_1f1b"):
        print(f"  {name:11} overlapped {seconds(name, True, tasks):5.2f} s with NICs shared")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
