"""A cluster's speeds from a few measured runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, need
from reshard_lab.simulation.simulator import simulate
from reshard_lab.units import format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from reshard_lab.planning import Plan

PARAMETERS = ("nic", "overhead", "nic_latency", "intra", "intra_latency")
"""What is fitted, those first that are kept longest when runs cannot tell them apart."""
_RATES = ("nic", "intra")
_ALIKE = 1e-3
"""A parameter whose effect on the runs is, but for this part, a mix of others' cannot be told."""
_ROUNDS = 60


class Fitted(NamedTuple):
    """One parameter: bytes a second of a rate, seconds of a latency or of the overhead."""

    name: str
    value: float
    stderr: float
    """Standard error, from the scatter of the runs; NaN where not fitted."""
    fitted: bool
    """False: the runs do not tell it (from the others), and ``value`` is the given one."""


class Compared(NamedTuple):
    """A measured run beside its prediction."""

    strategy: str
    nbytes: int
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, repr=False)
class Calibration:
    """A cluster that explains measured runs, and how well it does."""

    cluster: Cluster
    """The first run's cluster with the fitted speeds."""
    overhead_s: float
    """Seconds every run takes on top of its transfers (launch, barrier)."""
    parameters: tuple[Fitted, ...]
    runs: tuple[Compared, ...]
    """The runs it was fitted to."""

    def predict_s(self, plan: Plan) -> float:
        """Seconds a run of ``plan`` should take."""
        seconds = {p.name: p.value for p in self.parameters}
        return self.overhead_s + _duration(plan, _with(plan.cluster, seconds))

    def compare(self, plan: Plan, measured: object) -> Compared:
        """A later run, given as in ``calibrate``, beside its prediction."""
        return Compared(plan.strategy, plan.nbytes, _seconds(measured), self.predict_s(plan))

    @property
    def rms_error(self) -> float:
        """Root mean square of the runs' relative errors."""
        return math.sqrt(math.fsum(run.error**2 for run in self.runs) / len(self.runs))

    def to_frame(self) -> pd.DataFrame:
        """The runs as a table: measured, predicted and relative error."""
        rows = [{**run._asdict(), "error": run.error} for run in self.runs]
        return need("pandas", "notebooks", "a table").DataFrame(rows)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{p.name} {format_rate(p.value) if p.name in _RATES else format_seconds(p.value)}"
            + ("" if p.fitted else " (given)")
            for p in self.parameters
        )
        return f"Calibration({shown}; {len(self.runs)} runs, rms error {self.rms_error:.1%})"


def calibrate(runs: Iterable[tuple[Plan, object]]) -> Calibration:
    """Fit NIC and intra-host speed, latency a message and overhead a run to measured runs.

    runs:
        ``(plan, measured)`` pairs; measured is seconds, several seconds (the median counts) or
        a ``Measurement``. Where the plans' clusters say hosts differ, their ratio is kept.

    Least squares of the relative errors of ``simulate``, all parameters at least 0. Durations are
    piecewise linear in latencies and seconds a byte, so each round solves the linear problem at
    hand. What the runs cannot tell keeps the value of the first plan's cluster: a latency needs
    runs of different sizes or chunk counts, an intra-host speed needs runs it shows in.

    >>> from reshard_lab import Layout, ReshardingTask, plan
    >>> cluster = Cluster(2, 1, nic="1Gbps", nic_latency="20us")
    >>> ends = Layout(cluster.mesh(1), "R"), Layout(cluster.mesh(1, first_host=1), "R")
    >>> plans = [plan(ReshardingTask((n,), "int8", *ends, cluster), "send_recv")
    ...          for n in (10**6, 10**7)]
    >>> calibrate([(plans[0], 0.011), (plans[1], 0.101)]).cluster
    Cluster(hosts=2, devices_per_host=1, nic='800Mbit/s' x 1)
    """
    listed = [(plan, _seconds(measured)) for plan, measured in runs]
    if not listed:
        raise ReshardError("calibrate needs at least one (plan, measured) pair")
    plans = [plan for plan, _ in listed]
    for plan in plans:
        if not hasattr(plan, "transfers"):
            raise ReshardError(f"calibrate takes (plan, measured) pairs, not {plan!r} as a plan")
        plan.verify()
    measured = np.array([seconds for _, seconds in listed])
    theta, told, stderr = _fit(plans, measured, _start(plans[0].cluster))
    values = _values(theta)
    predicted = _predict(plans, theta)
    return Calibration(
        cluster=_with(plans[0].cluster, values),
        overhead_s=values["overhead"],
        parameters=tuple(
            Fitted(name, values[name], _own_unit(name, values[name], float(error)), bool(known))
            for name, error, known in zip(PARAMETERS, stderr, told, strict=True)
        ),
        runs=tuple(
            Compared(plan.strategy, plan.nbytes, float(m), float(p))
            for plan, m, p in zip(plans, measured, predicted, strict=True)
        ),
    )


def _seconds(measured: object) -> float:
    value = getattr(measured, "median_s", measured)
    try:
        seconds = float(np.median(np.asarray(value, dtype=float)))
    except (TypeError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ReshardError(
            f"a measured run must be seconds above 0, several of them or a Measurement, "
            f"not {measured!r}"
        )
    return seconds


def _start(cluster: Cluster) -> np.ndarray:
    """Seconds a byte and seconds, in the order of ``PARAMETERS``."""
    for name, rate in (("nic", cluster.nic_Bps), ("intra", cluster.intra_Bps)):
        if math.isinf(rate):
            raise ReshardError(
                f"{name} is infinite in the cluster to start from; give a finite guess"
            )
    return np.array(
        [
            1 / cluster.nic_Bps,
            0.0,
            cluster.nic_latency_s,
            1 / cluster.intra_Bps,
            cluster.intra_latency_s,
        ]
    )


def _values(theta: np.ndarray) -> dict[str, float]:
    """Parameters by name: rates, not seconds a byte."""
    return {
        name: (1 / value if value > 0 else math.inf) if name in _RATES else value
        for name, value in zip(PARAMETERS, theta.tolist(), strict=True)
    }


def _own_unit(name: str, value: float, error: float) -> float:
    """A standard error of seconds a byte as one of the rate."""
    return error * value**2 if name in _RATES else error


def _with(cluster: Cluster, values: dict[str, float]) -> Cluster:
    """``cluster`` with its fastest NIC at the given speed, and the others in proportion."""
    scale = values["nic"] / cluster.nic_Bps
    speeds = {name: values[name] for name in ("nic_latency", "intra", "intra_latency")}
    nics = [values["nic"] if r == cluster.nic_Bps else r * scale for r in cluster.host_nic_Bps]
    return Cluster(**{**cluster.to_dict(), **speeds, "nic": nics})


def _duration(plan: Plan, cluster: Cluster) -> float:
    return simulate(plan, cluster=cluster, verify=False).duration_s


def _predict(plans: Sequence[Plan], theta: np.ndarray) -> np.ndarray:
    values = _values(theta)
    durations = [_duration(plan, _with(plan.cluster, values)) for plan in plans]
    return np.array(durations) + values["overhead"]


def _slopes(plans: Sequence[Plan], theta: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(runs, parameters) change of the predicted times ``at`` theta, by small steps up."""
    columns = []
    for i, name in enumerate(PARAMETERS):
        if name == "overhead":
            columns.append(np.ones(len(plans)))
            continue
        least = 1e-15 if name in _RATES else 1e-8
        step = np.zeros(len(theta))
        step[i] = 1e-4 * max(theta[i], least)
        columns.append((_predict(plans, theta + step) - at) / step[i])
    return np.column_stack(columns)


def _told(weighted: np.ndarray) -> np.ndarray:
    """Which columns the runs tell from nothing and from the columns before them."""
    known = np.zeros(weighted.shape[1], dtype=bool)
    basis: list[np.ndarray] = []
    for i, column in enumerate(weighted.T):
        size = np.linalg.norm(column)
        rest = column.copy()
        for direction in basis:
            rest -= direction * (direction @ rest)
        if size > 0 and len(basis) < len(column) and np.linalg.norm(rest) > _ALIKE * size:
            known[i] = True
            basis.append(rest / np.linalg.norm(rest))
    return known


def _fit(
    plans: Sequence[Plan], measured: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, which of them the runs tell, and their standard errors."""
    from scipy.optimize import lsq_linear

    predicted = _predict(plans, theta)
    for _ in range(_ROUNDS):
        weighted = _slopes(plans, theta, predicted) / measured[:, None]
        told = _told(weighted)
        # In units of what each parameter alone would need to explain a run.
        scale = 1 / np.linalg.norm(weighted[:, told], axis=0)
        target = (measured - predicted) / measured + weighted[:, told] @ theta[told]
        solved = lsq_linear(weighted[:, told] * scale, target, bounds=(0, np.inf), tol=1e-14)
        step = np.zeros(len(theta))
        step[told] = solved.x * scale - theta[told]
        better, predicted_there = _advance(plans, measured, theta, predicted, step)
        moved = np.abs(better - theta).max(initial=0.0, where=told)
        theta, predicted = better, predicted_there
        if not moved or (np.abs(step[told]) <= 1e-9 * np.abs(theta[told])).all():
            break
    return theta, told, _stderr(weighted, told, (predicted - measured) / measured)


def _advance(
    plans: Sequence[Plan],
    measured: np.ndarray,
    theta: np.ndarray,
    predicted: np.ndarray,
    step: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The step, or the largest half, quarter, ... of it that explains the runs better."""
    least = _loss(predicted, measured)
    for _ in range(12):
        there = np.maximum(theta + step, 0.0)
        predicted_there = _predict(plans, there)
        if _loss(predicted_there, measured) < least:
            return there, predicted_there
        step = step / 2
    return theta, predicted


def _loss(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float((((predicted - measured) / measured) ** 2).sum())


def _stderr(weighted: np.ndarray, told: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Standard errors of theta; NaN where not fitted, or no run is left to tell the scatter."""
    found = np.full(len(told), np.nan)
    spare = len(error) - int(told.sum())
    if spare > 0:
        known = weighted[:, told]
        inverse = np.linalg.pinv(known.T @ known)
        found[told] = np.sqrt(np.diag(inverse) * float(error @ error) / spare)
    return found
