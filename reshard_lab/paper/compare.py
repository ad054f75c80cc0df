"""Predicted and measured side by side: the rows that every measuring experiment is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, need
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.simulation import simulate
from reshard_lab.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from reshard_lab.runtime import Measurement

    Measure = Callable[[Plan], Measurement]
    """Carries a plan out and times it, such as ``Pool.run``."""


class Case(NamedTuple):
    """One bar of a figure: its labels, and the plan behind it."""

    labels: Mapping[str, Any]
    plan: Plan


def compare(
    cases: Iterable[Case],
    measure: Measure | None = None,
    progress: Callable[[Case], object] | None = None,
) -> pd.DataFrame:
    """One row a case: labels, predicted and simulated time, bound; with ``measure`` also measured.

    Cases with the same tensors and transfers are measured once: they are the same run. Columns
    ``*_s`` are seconds, ``*_Gbps`` the tensor's bits over that time (section 5); the whiskers
    ``low_Gbps`` and ``high_Gbps`` are of the slowest and the fastest run. ``progress`` is called
    after each case.
    """
    rows = []
    done: dict[tuple[object, ...], Measurement] = {}
    for case in cases:
        run = (case.plan.tasks, case.plan.transfers, case.plan.ordered)
        if measure is not None and run not in done:
            done[run] = measure(case.plan)
        rows.append(_row(case, done.get(run)))
        if progress is not None:
            progress(case)
    return need("pandas", "notebooks", "a table").DataFrame(rows)


def _row(case: Case, measured: Measurement | None) -> dict[str, Any]:
    made = case.plan
    simulated_s = simulate(made).duration_s
    row = {
        **case.labels,
        "strategy": made.strategy,
        "scheduler": made.scheduler,
        "chunks": made.chunks,
        "nbytes": made.nbytes,
        "unit_tasks": len(made.units),
        "predicted_s": made.makespan_s,
        "lower_bound_s": made.lower_bound_s,
        "simulated_s": simulated_s,
        "predicted_Gbps": _gbps(made.nbytes, made.makespan_s),
        "simulated_Gbps": _gbps(made.nbytes, simulated_s),
        "bound_Gbps": _gbps(made.nbytes, made.lower_bound_s),
    }
    if measured is not None:
        times = measured.times_s
        row |= {
            "measured_s": measured.median_s,
            "fastest_s": min(times),
            "slowest_s": max(times),
            "runs": len(times),
            "measured_over_predicted": measured.median_s / made.makespan_s,
            "measured_over_simulated": measured.median_s / simulated_s,
            "measured_Gbps": _gbps(made.nbytes, measured.median_s),
            "low_Gbps": _gbps(made.nbytes, max(times)),
            "high_Gbps": _gbps(made.nbytes, min(times)),
            "verified": measured.verified,
            "cpu_share": measured.environment.get("cpu_share"),
        }
    return row


def _gbps(nbytes: int, seconds: float) -> float:
    """Effective bandwidth of section 5: bits of the tensor over the time."""
    return 8 * nbytes / seconds / 1e9 if seconds > 0 else float("inf")


@dataclasses.dataclass(frozen=True)
class Fit:
    """The speed of a link, from one measured transfer between two devices.

    One number is all that one transfer gives: bytes over time. The cluster built from it has
    that rate on every link, inside hosts too, and no latency.
    """

    nbytes: int
    seconds: float
    """Median time of the transfer."""

    @property
    def bandwidth_Bps(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds

    def cluster(self, hosts: int, devices_per_host: int) -> Cluster:
        """A cluster whose every link has the measured rate."""
        rate = self.bandwidth_Bps
        return Cluster(
            hosts, devices_per_host, nic=rate, nic_latency=0.0, intra=rate, intra_latency=0.0
        )

    def __str__(self) -> str:
        return (
            f"{format_rate(self.bandwidth_Bps)} on every link, no latency: one transfer of "
            f"{format_bytes(self.nbytes)} in {format_seconds(self.seconds)}"
        )


def fit_one_transfer(measure: Measure, nbytes: int) -> Fit:
    """Measure one transfer of ``nbytes`` from device 0 to device 1, and fit a rate to it."""
    cluster = Cluster(hosts=2, devices_per_host=1)
    src, dst = (Layout(Mesh([device]), "R") for device in (0, 1))
    task = ReshardingTask((nbytes,), "uint8", src, dst, cluster)
    measured = measure(plan(task, strategy="send_recv"))
    if not measured.verified:
        raise ReshardError("the transfer that the cluster is fitted from did not arrive right")
    return Fit(nbytes, measured.median_s)
