"""How long decomposition and planning take, and how much memory, on large meshes.

Each case is timed in fresh processes (imports left out), and its peak memory is that of the whole
process, imports included. Marks are held against processor time: planning runs on one core, so that
is what it takes on a machine with nothing else to do. The time on the clock stands beside it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import NamedTuple

REPEATS = 5
TIMEOUT_S = 120


class Case(NamedTuple):
    """A square resharding of rows to columns, and the marks it must hold."""

    devices: int
    unit_tasks: int
    most_s: float
    most_MiB: float | None


CASES = (Case(64, 4096, 0.3, None), Case(1024, 16384, 2.0, 1024.0))

# Rows over all source devices, columns over all or some destination devices: every source slice
# meets every destination slice.
CHILD = """
import json, resource, sys, time
devices, columns = int(sys.argv[1]), int(sys.argv[2])
import reshard_lab as rl
cluster = rl.Cluster(hosts=2 * devices // 8, devices_per_host=8)
src = cluster.mesh((devices // 8, 8))
dst = cluster.mesh((columns, devices // columns), first_host=devices // 8)
task = rl.ReshardingTask(
    (4096, 4096), "float32", rl.Layout(src, "S01R"), rl.Layout(dst, "RS0"), cluster
)
clock, start = time.perf_counter(), time.process_time()
units = len(task.unit_tasks)
cut = time.process_time()
plan = rl.plan(task, strategy="broadcast", scheduler="load_balance")
planned, clock = time.process_time(), time.perf_counter() - clock
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peak //= 1024 if sys.platform == "darwin" else 1
print(json.dumps([units, len(plan.transfers), cut - start, planned - cut, clock, peak / 1024]))
"""


def measure(case: Case) -> list[list[float]]:
    """Of every repeat: unit tasks, transfers, processor seconds to cut and to plan, seconds of
    both on the clock, and peak MiB."""
    columns = case.unit_tasks // case.devices
    command = [sys.executable, "-c", CHILD, str(case.devices), str(columns)]
    rows = []
    for _ in range(REPEATS):
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        )
        rows.append(json.loads(done.stdout))
    return rows


def main() -> int:
    """Print the figures; returns 1 if a mark is missed."""
    missed = 0
    print(f"median of {REPEATS} fresh processes (fastest to slowest)")
    for case in CASES:
        rows = measure(case)
        units, transfers = (int(n) for n in rows[0][:2])
        cut, planned, clock = ([row[i] for row in rows] for i in (2, 3, 4))
        total = [a + b for a, b in zip(cut, planned, strict=True)]
        peak = max(row[5] for row in rows)
        holds = units >= case.unit_tasks and statistics.median(total) < case.most_s
        holds = holds and (case.most_MiB is None or peak < case.most_MiB)
        missed += not holds
        limit = f" and {case.most_MiB:.0f} MiB" if case.most_MiB else ""
        print(
            f"{case.devices} -> {case.devices} devices, {units} unit tasks, {transfers} transfers"
        )
        shown = {"unit tasks": cut, "plan": planned, "both": total, "on the clock": clock}
        for name, times in shown.items():
            low, high = min(times), max(times)
            print(f"  {name:<12} {statistics.median(times):.3f} s ({low:.3f} to {high:.3f})")
        print(f"  peak         {peak:.0f} MiB, imports included")
        print(f"  must hold    both under {case.most_s:g} s{limit}: {'yes' if holds else 'NO'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
