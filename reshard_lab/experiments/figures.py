"""Figures 5 and 6 of the paper: the plans behind each bar, predicted and, where asked, measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, whole
from reshard_lab.experiments.compare import Case, compare
from reshard_lab.experiments.suite import FULL, SUITE, Scale, case_devices_per_host, suite_task
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning import plan
from reshard_lab.resharding import ReshardingTask

if TYPE_CHECKING:
    import pandas as pd

    from reshard_lab.experiments.compare import Measure

    Make = Callable[[int, int], Cluster]
    """``make(hosts, devices_per_host)``: the cluster to plan for."""

FIGURE5_STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")
FIGURE6_METHODS = (("send_recv", "load_balance"), ("alpa", "load_balance"), ("broadcast", "auto"))
"""Strategy and scheduler: the paper's two baselines, and its own method."""
ONE_HOST, TWO_DEVICES = "1 host × 1–4 devices", "1–4 hosts × 2 devices"
FIGURE5_POINTS = (
    *((ONE_HOST, 1, devices) for devices in (1, 2, 3, 4)),
    *((TWO_DEVICES, hosts, 2) for hosts in (1, 2, 3, 4)),
)
"""The two sweeps: which, receiver hosts, devices on each."""


def p3(hosts: int, devices_per_host: int) -> Cluster:
    """The paper's cluster, its hosts cut to ``devices_per_host`` of their devices."""
    described = Cluster.preset("p3.8xlarge")
    fields = {**described.to_dict(), "hosts": hosts, "devices_per_host": devices_per_host}
    return Cluster(**fields)


def figure5_cases(
    make: Make = p3,
    nbytes: int = 2**30,
    strategies: Sequence[str] = FIGURE5_STRATEGIES,
    chunks: int = 100,
) -> list[Case]:
    """Figure 5 (section 5.1.1): one device sends an int32 tensor of ``nbytes`` to all others."""
    if whole("nbytes", nbytes, 4) % 4:
        raise ReshardError(f"nbytes {nbytes} is not a whole number of int32 elements of 4 bytes")
    cases = []
    for sweep, hosts, devices in FIGURE5_POINTS:
        per = 4 if sweep == ONE_HOST else 2
        cluster = make(hosts + 1, per)
        ids = [[h * per + d for d in range(devices)] for h in range(1, hosts + 1)]
        src, dst = Layout(Mesh([0]), "R"), Layout(Mesh(ids), "R")
        task = ReshardingTask((nbytes // 4,), "int32", src, dst, cluster)
        labels = {"sweep": sweep, "hosts": hosts, "devices": devices}
        cases += [Case(labels, plan(task, strategy=s, chunks=chunks)) for s in strategies]
    return cases


def figure6_cases(
    make: Make = p3,
    scale: Scale = FULL,
    methods: Sequence[tuple[str, str]] = FIGURE6_METHODS,
    chunks: int = 100,
) -> list[Case]:
    """Figure 6 (section 5.1.2): the nine cases of table 2."""
    cases = []
    for case in SUITE:
        per = case_devices_per_host(case, scale)
        cluster = make(case.src_hosts + case.dst_hosts, per)
        task = suite_task(case.number, cluster, scale)
        labels = {
            "case": case.number,
            "source": f"({case.src_hosts},{per}) {case.src_spec}",
            "destination": f"({case.dst_hosts},{per}) {case.dst_spec}",
            "shape": "×".join(map(str, task.shape)),
        }
        cases += [
            Case(labels, plan(task, strategy=strategy, scheduler=scheduler, chunks=chunks))
            for strategy, scheduler in methods
        ]
    return cases


def figure5(
    make: Make = p3,
    nbytes: int = 2**30,
    strategies: Sequence[str] = FIGURE5_STRATEGIES,
    measure: Measure | None = None,
) -> pd.DataFrame:
    """Figure 5 as rows (see ``compare``): predicted, and measured where ``measure`` is given."""
    return compare(figure5_cases(make, nbytes, strategies), measure)


def figure6(
    make: Make = p3,
    scale: Scale = FULL,
    methods: Sequence[tuple[str, str]] = FIGURE6_METHODS,
    measure: Measure | None = None,
) -> pd.DataFrame:
    """Figure 6 as rows (see ``compare``): the nine cases of table 2."""
    return compare(figure6_cases(make, scale, methods), measure)
