"""Figures 3, 5, 6 and 8 of the paper, table 2, and which strategy wins where: plans as rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab import paper_cases
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.paper.measuring import Case, MakeCluster, Measure, compare
from reshard_lab.paper.sweeps import Point, evaluate, resized, speeds_of
from reshard_lab.paper_cases import FULL, SUITE, Scale, SuiteCase
from reshard_lab.planning import plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.simulation import simulate
from reshard_lab.strategies import PAPER, closed_form_s
from reshard_lab.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    import pandas as pd


class Method(NamedTuple):
    """A bar of every group: how a resharding is planned."""

    name: str
    strategy: str
    scheduler: str
    paper: bool
    """Whether the paper has it."""


FIGURE5_STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")
OURS = (
    Method("auto", "auto", "auto", False),
    Method("split", "broadcast", "split", False),
    Method("concurrent", "broadcast", "concurrent", False),
)
FIGURE5 = (*(Method(name, name, "load_balance", True) for name in FIGURE5_STRATEGIES), *OURS)
"""One sender, so the schedule makes no difference: a strategy a bar."""
FIGURE6 = (
    Method("send_recv", "send_recv", "load_balance", True),
    Method("alpa", "alpa", "load_balance", True),
    Method("broadcast", "broadcast", "ensemble", True),
    *OURS,
)
"""``broadcast`` is the paper's method: broadcasts in the better order of its two searches."""
FIGURE8 = (
    Method("naive", "broadcast", "naive", True),
    Method("load_balance", "broadcast", "load_balance", True),
    Method("ensemble", "broadcast", "ensemble", True),
    *OURS,
)
"""Broadcasts all; ``ensemble`` is the paper's method."""
ONE_HOST, TWO_DEVICES = "1 host × 1–4 devices", "1–4 hosts × 2 devices"
FIGURE5_POINTS = (
    *((ONE_HOST, 1, devices) for devices in (1, 2, 3, 4)),
    *((TWO_DEVICES, hosts, 2) for hosts in (1, 2, 3, 4)),
)
"""The two sweeps: which, receiver hosts, devices on each."""
MOST_CHUNKS = 100
"""K in the paper."""
_STUDY = "a study changes hosts and their speeds"
LEAST_CHUNK = 2**18
"""Bytes; what a chunk costs beside its bytes, in software, would drown smaller ones."""


def p3(hosts: int, devices_per_host: int) -> Cluster:
    """The paper's cluster, its hosts cut to ``devices_per_host`` of their devices."""
    return resized(Cluster.preset("p3.8xlarge").to_dict(), hosts, devices_per_host)


def figure3(
    nbytes: int | str = "64MiB",
    counts: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
    chunks: Sequence[int] = (1, 2, 5, 10, 20, 50, 100, 200, 500),
    cluster: Cluster | None = None,
) -> pd.DataFrame:
    """Time against A, B and K for the four strategies (figure 3): closed form and simulated.

    One sender; A = 2 hosts, B = 2 devices and K = 100 where they are not varied. Columns:
    ``varies``, ``A``, ``B``, ``K``, ``strategy``, ``paper_s`` (the paper's formula, in which links
    inside hosts and latencies cost nothing), ``closed_form_s`` and ``simulated_s``.
    """
    size, speeds = parse_bytes(nbytes, "nbytes"), speeds_of(cluster, _STUDY)
    grid = [("A", a, 2, 100) for a in counts] + [("B", 2, b, 100) for b in counts]
    grid += [("K", 2, 2, k) for k in chunks]
    rows = []
    for varies, a, b, k in grid:
        on = resized(speeds, check_int("hosts", a, 1) + 1, check_int("devices", b, 1))
        for strategy, formula in PAPER.items():
            paper_s = formula.seconds(size / on.nic_Bps, a, b, k)
            exact_s = closed_form_s(strategy, size, a, b, on, k)
            simulated_s = _one_sender_s(strategy, size, a, b, on, k)
            rows.append((varies, a, b, k, strategy, paper_s, exact_s, simulated_s))
    columns = ["varies", "A", "B", "K", "strategy", "paper_s", "closed_form_s", "simulated_s"]
    return need("pandas", "notebooks", "figure 3").DataFrame(rows, columns=columns)


def _one_sender_s(
    strategy: str, nbytes: int, hosts: int, devices: int, cluster: Cluster, chunks: int
) -> float:
    task = paper_cases.one_sender_task((nbytes,), hosts, devices, cluster)
    return simulate(plan(task, strategy, "naive", chunks=chunks)).duration_s


def strategy_map(
    nbytes: Iterable[int | str] = ("1KiB", "16KiB", "256KiB", "4MiB", "64MiB", "1GiB"),
    latencies: Iterable[float | str] = (0.0, "1us", "10us", "100us", "1ms", "10ms"),
    hosts: int = 2,
    devices: int = 2,
    chunks: int = 100,
    cluster: Cluster | None = None,
    **how: Any,
) -> pd.DataFrame:
    """Which strategy wins as size and NIC latency change: one row a point and strategy.

    One sender to ``hosts`` x ``devices``. Columns: ``nbytes``, ``nic_latency_s``, ``strategy``,
    ``simulated_s``, ``wins`` (the shortest at its point) and ``over_best`` (its time over the
    shortest). ``how`` goes to ``evaluate`` (jobs, cache, progress).
    """
    speeds = speeds_of(cluster, _STUDY)
    receivers = check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    points = []
    for n, latency, strategy in itertools.product(nbytes, latencies, PAPER):
        on = {**speeds, "nic_latency": parse_seconds(latency, "latency")}
        size = {"nbytes": parse_bytes(n, "nbytes"), "receivers": receivers, "chunks": chunks}
        points.append({**size, "cluster": on, "strategy": strategy})
    frame = evaluate(_strategy_row, points, **how)
    best = frame.groupby(["nbytes", "nic_latency_s"])["simulated_s"].transform("min")
    return frame.assign(wins=frame["simulated_s"] == best, over_best=frame["simulated_s"] / best)


def _strategy_row(point: Point) -> dict[str, Any]:
    nbytes, (hosts, devices), strategy = point["nbytes"], point["receivers"], point["strategy"]
    cluster = resized(point["cluster"], hosts + 1, devices)
    seconds = _one_sender_s(strategy, nbytes, hosts, devices, cluster, point["chunks"])
    row = {"nbytes": nbytes, "nic_latency_s": cluster.nic_latency_s, "strategy": strategy}
    return row | {"simulated_s": seconds}


def figure5_cases(
    make: MakeCluster = p3,
    nbytes: int = 2**30,
    methods: Sequence[Method] = FIGURE5,
    chunk_nbytes: int = 1,
) -> list[Case]:
    """Figure 5 (section 5.1.1): one device sends an int32 tensor of ``nbytes`` to all others.

    chunk_nbytes:
        least size of a chunk of a broadcast, which is never cut into more than 100.
    """
    if check_int("nbytes", nbytes, 4) % 4:
        raise ReshardError(f"nbytes {nbytes} is not a whole number of int32 elements of 4 bytes")
    cases = []
    for sweep, hosts, devices in FIGURE5_POINTS:
        cluster = make(hosts + 1, 4 if sweep == ONE_HOST else 2)
        task = paper_cases.one_sender_task((nbytes // 4,), hosts, devices, cluster, "int32")
        labels = {"sweep": sweep, "hosts": hosts, "devices": devices}
        cases += _cases(task, labels, methods, chunk_nbytes)
    return cases


def suite_cases(
    make: MakeCluster = p3,
    scale: Scale = FULL,
    methods: Sequence[Method] = FIGURE6,
    chunk_nbytes: int = 1,
    numbers: Sequence[int] = tuple(range(1, len(SUITE) + 1)),
) -> list[Case]:
    """The cases of table 2, of figures 6 (section 5.1.2) and 8 (section 5.3.1).

    numbers:
        which of the nine; all, unless given.
    """
    cases = []
    for case in map(paper_cases.suite_case, numbers):
        per = paper_cases.case_devices_per_host(case, scale)
        cluster = make(case.src_hosts + case.dst_hosts, per)
        task = paper_cases.suite_task(case.number, cluster, scale)
        cases += _cases(task, _suite_labels(case, task), methods, chunk_nbytes)
    return cases


def _suite_labels(case: SuiteCase, task: ReshardingTask) -> dict[str, object]:
    per = task.src.mesh.shape[-1]
    return {
        "case": case.number,
        "source": f"({case.src_hosts},{per}) {case.src_spec}",
        "destination": f"({case.dst_hosts},{per}) {case.dst_spec}",
        "shape": "×".join(map(str, task.shape)),
    }


def chunks_of(task: ReshardingTask, chunk_nbytes: int) -> int:
    """K: as many chunks of at least ``chunk_nbytes`` as the largest unit task has, 100 at most."""
    largest = max((unit.nbytes for unit in task.unit_tasks), default=1)
    return max(1, min(MOST_CHUNKS, largest // check_int("chunk_nbytes", chunk_nbytes, 1)))


def figure5(
    make: MakeCluster = p3,
    nbytes: int = 2**30,
    methods: Sequence[Method] = FIGURE5,
    measure: Measure | None = None,
    chunk_nbytes: int = 1,
) -> pd.DataFrame:
    """Figure 5 as rows (see ``compare``): measured where ``measure`` is given."""
    return compare(figure5_cases(make, nbytes, methods, chunk_nbytes), measure)


def figure6(
    make: MakeCluster = p3,
    scale: Scale = FULL,
    methods: Sequence[Method] = FIGURE6,
    measure: Measure | None = None,
    chunk_nbytes: int = 1,
) -> pd.DataFrame:
    """The nine cases of table 2 by strategy as rows (see ``compare``); figure 8: by schedule."""
    return compare(suite_cases(make, scale, methods, chunk_nbytes), measure)


figure8 = partial(figure6, methods=FIGURE8)
"""``figure6`` with the methods of figure 8: the nine cases by schedule (section 5.3.1)."""


def _cases(
    task: ReshardingTask, labels: dict[str, object], methods: Sequence[Method], chunk_nbytes: int
) -> list[Case]:
    chunks = chunks_of(task, chunk_nbytes)
    return [
        Case(
            {**labels, "method": m.name, "paper": m.paper},
            plan(task, m.strategy, scheduler=m.scheduler, chunks=chunks),
        )
        for m in methods
    ]


def table2(scale: Scale = FULL) -> pd.DataFrame:
    """The nine cases as rows: layouts, sizes, and unit tasks counted here and in the paper.

    Scaled down to fewer devices a host, a case that cuts over them has fewer unit tasks.
    """
    rows = []
    for case in SUITE:
        task = paper_cases.suite_task(case.number, None, scale)
        row = _suite_labels(case, task)
        row |= {"nbytes": task.nbytes, "unit_tasks": len(task.unit_tasks)}
        rows.append(row | {"unit_tasks_paper": case.unit_tasks, "note": case.note})
    return need("pandas", "notebooks", "table2").DataFrame(rows)
