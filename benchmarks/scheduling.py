"""How long scheduling takes: all-to-all problems, the handed instances, the greedy search."""

from __future__ import annotations

import json
import math
import time
from itertools import pairwise
from pathlib import Path

import reshard_lab as rl
from reshard_lab.scheduling import Problem, Schedule, solve

CASES = Path(__file__).resolve().parent.parent / "tests" / "cases" / "schedules.json"
LIMITS_S = {256: 0.1, 1024: 0.2, 4096: 0.5}
"""Most that ``auto`` may take, by number of tasks."""
HANDED_LIMIT_S = 15.0


def all_to_all(hosts: int) -> Problem:
    """Every one of ``hosts`` senders has a different piece for every one of ``hosts`` receivers."""
    pairs = [(s, hosts + r) for r in range(hosts) for s in range(hosts)]
    return Problem([1.0] * len(pairs), [(s,) for s, _ in pairs], [(r,) for _, r in pairs])


def handed() -> list[Problem]:
    """The problems of the handed instances, through NICs of one byte a second."""
    return [_problem(case) for case in json.loads(CASES.read_text())]


def _problem(case: dict) -> Problem:
    size = case["cluster"]
    cluster = rl.Cluster(
        hosts=size["hosts"], devices_per_host=size["devices_per_host"], nic=1.0, nic_latency=0
    )

    def layout(side: dict) -> rl.Layout:
        return rl.Layout(rl.Mesh(side["mesh"]), side["spec"])

    return Problem.from_tasks(
        rl.ReshardingTask(t["shape"], case["dtype"], layout(t["src"]), layout(t["dst"]), cluster)
        for t in case["tensors"]
    )


def timed(problem: Problem, method: str, limit_s: float) -> tuple[Schedule, float]:
    """The schedule and the seconds it took."""
    start = time.perf_counter()
    schedule = solve(problem, method, time_limit_s=limit_s)
    return schedule, time.perf_counter() - start


def growth(points: list[tuple[int, float]]) -> str:
    """The exponent of the growth between neighbouring sizes."""
    return ", ".join(
        f"n^{math.log(b / a) / math.log(m / n):.1f} from {n} to {m}"
        for (n, a), (m, b) in pairwise(points)
    )


def main() -> bool:
    """Print the figures, the limits beside them; returns whether one was missed."""
    import scipy.optimize  # noqa: F401  (imports are no part of the figures)
    from ortools.sat.python import cp_model  # noqa: F401

    print("scheduling, all-to-all (time of `auto`, and of the randomized greedy search)")
    ours, theirs = [], []
    missed = False
    for n, limit in LIMITS_S.items():
        side = math.isqrt(n)
        best = min((timed(all_to_all(side), "auto", 2.0) for _ in range(3)), key=lambda r: r[1])
        drawn, spent = timed(all_to_all(side), "greedy", 100.0)
        ours.append((n, best[1]))
        missed |= best[1] > limit or best[0].optimal != "unsplit"
        theirs.append((n, spent))
        print(
            f"  {n:5d} tasks: auto {best[1]:.3f} s (limit {limit} s), {best[0].optimal}-optimal; "
            f"greedy {spent:.2f} s, {drawn.makespan / best[0].makespan:.3f} x the optimum"
        )
    print(f"  growth: auto {growth(ours)}; greedy {growth(theirs)}")
    problems = handed()
    for method in ("auto", "split", "concurrent"):
        made = [timed(p, method, 2.0) for p in problems]
        proven = sum(s.optimal is not None for s, _ in made)
        missed |= sum(t for _, t in made) > HANDED_LIMIT_S
        missed |= method == "auto" and proven < len(problems)
        print(
            f"scheduling, {len(problems)} handed instances: {method} "
            f"{sum(t for _, t in made):.2f} s in all (limit {HANDED_LIMIT_S:g} s), "
            f"slowest {max(t for _, t in made):.2f} s, {proven} proven optimal"
        )
    return missed


if __name__ == "__main__":
    main()
