"""Figures 5, 6 and 8 of the paper: the plans behind each bar, predicted, simulated and measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.paper.measuring import Case, MakeCluster, Measure, compare
from reshard_lab.paper_cases import (
    FULL,
    SUITE,
    Scale,
    case_devices_per_host,
    suite_case,
    suite_task,
)
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask

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
LEAST_CHUNK = 2**18
"""Bytes; what a chunk costs beside its bytes, in software, would drown smaller ones."""


def p3(hosts: int, devices_per_host: int) -> Cluster:
    """The paper's cluster, its hosts cut to ``devices_per_host`` of their devices."""
    described = Cluster.preset("p3.8xlarge")
    fields = {**described.to_dict(), "hosts": hosts, "devices_per_host": devices_per_host}
    return Cluster(**fields)


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
        per = cluster.devices_per_host
        ids = [[h * per + d for d in range(devices)] for h in range(1, hosts + 1)]
        src, dst = Layout(Mesh([0]), "R"), Layout(Mesh(ids), "R")
        task = ReshardingTask((nbytes // 4,), "int32", src, dst, cluster)
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
    for case in map(suite_case, numbers):
        per = case_devices_per_host(case, scale)
        cluster = make(case.src_hosts + case.dst_hosts, per)
        task = suite_task(case.number, cluster, scale)
        labels = {
            "case": case.number,
            "source": f"({case.src_hosts},{per}) {case.src_spec}",
            "destination": f"({case.dst_hosts},{per}) {case.dst_spec}",
            "shape": "×".join(map(str, task.shape)),
        }
        cases += _cases(task, labels, methods, chunk_nbytes)
    return cases


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

    def made(method: Method) -> Plan:
        return plan(task, method.strategy, scheduler=method.scheduler, chunks=chunks)

    return [Case({**labels, "method": m.name, "paper": m.paper}, made(m)) for m in methods]


def table2(scale: Scale = FULL) -> pd.DataFrame:
    """The nine cases as rows: layouts, sizes, and unit tasks counted here and in the paper.

    Scaled down to fewer devices a host, a case that cuts over them has fewer unit tasks.
    """
    rows = []
    for case in SUITE:
        per = case_devices_per_host(case, scale)
        task = suite_task(case.number, None, scale)
        rows.append(
            {
                "case": case.number,
                "source": f"({case.src_hosts},{per}) {case.src_spec}",
                "destination": f"({case.dst_hosts},{per}) {case.dst_spec}",
                "shape": "×".join(map(str, task.shape)),
                "nbytes": task.nbytes,
                "unit_tasks": len(task.unit_tasks),
                "unit_tasks_paper": case.unit_tasks,
                "note": case.note,
            }
        )
    return need("pandas", "notebooks", "table2").DataFrame(rows)
