"""A cluster's speeds from a few measured runs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, need
from reshard_lab.planning import Plan
from reshard_lab.simulation.simulator import simulate
from reshard_lab.units import format_rate, format_seconds

PARAMETERS = ("nic", "overhead", "nic_latency", "intra", "intra_latency")
"""What is fitted, those first that are kept longest when runs cannot tell them apart."""
_RATES = ("nic", "intra")
_ALIKE = 1e-3
"""A parameter is not fitted if its effect is, but for this part, a mix of those before it."""
_NO_TIME_S = 1e-10
"""A latency below this is 0: the solver comes no closer to its bound."""
_OPEN_ROUNDS, _ROUNDS = 3, 10
"""Rounds in which parameters come and go, as the runs tell them at the values at hand; then they
only go."""


class FittedParameter(NamedTuple):
    """One parameter: bytes a second of a rate, seconds of a latency or of the overhead."""

    name: str
    value: float
    stderr: float
    """Standard error, from the scatter of the runs; NaN where not fitted."""
    fitted: bool
    """False: the runs do not tell it (from the others), and ``value`` is the given one."""


class ComparedRun(NamedTuple):
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
    parameters: tuple[FittedParameter, ...]
    runs: tuple[ComparedRun, ...]
    """The runs it was fitted to."""

    def predict_s(self, plan: Plan) -> float:
        """Seconds a run of ``plan`` should take."""
        return _predict_s(plan, {p.name: p.value for p in self.parameters})

    def compare(self, plan: Plan, measured: object) -> ComparedRun:
        """A later run, given as in ``calibrate``, beside its prediction."""
        return ComparedRun(plan.strategy, plan.nbytes, _seconds(measured), self.predict_s(plan))

    @property
    def rms_error(self) -> float:
        """Root mean square of the runs' relative errors."""
        return math.sqrt(math.fsum(run.error**2 for run in self.runs) / len(self.runs))

    def to_frame(self) -> Any:
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

    Least squares of the relative errors of ``simulate``, all parameters at least 0, by
    ``scipy.optimize.least_squares`` in latencies and seconds a byte, in which durations are
    piecewise linear. What the runs cannot tell keeps the value of the first plan's cluster: a
    latency needs runs of different sizes or chunk counts, an intra-host speed needs runs it shows
    in.

    >>> from reshard_lab import Layout, ReshardingTask, plan
    >>> cluster = Cluster(2, 1, nic="1Gbps", nic_latency="20us")
    >>> ends = Layout(cluster.mesh(1), "R"), Layout(cluster.mesh(1, first_host=1), "R")
    >>> plans = [plan(ReshardingTask((n,), "int8", *ends, cluster), "send_recv")
    ...          for n in (10**6, 10**7)]
    >>> calibrate([(plans[0], 0.011), (plans[1], 0.101)]).cluster
    Cluster(hosts=2, devices_per_host=1, nic='800Mbit/s' x 1)
    """
    pairs = [(plan, _seconds(measured)) for plan, measured in runs]
    if not pairs:
        raise ReshardError("calibrate needs at least one (plan, measured) pair")
    for plan, _ in pairs:
        if not hasattr(plan, "transfers"):
            raise ReshardError(f"calibrate takes (plan, measured) pairs, not {plan!r} as a plan")
        plan.verify()
    first = pairs[0][0].cluster
    for name, rate in (("nic", first.nic_Bps), ("intra", first.intra_Bps)):
        if math.isinf(rate):
            raise ReshardError(
                f"{name} is infinite in the cluster to start from; give a finite guess"
            )
    latencies = first.nic_latency_s, first.intra_latency_s
    start = [1 / first.nic_Bps, 0.0, latencies[0], 1 / first.intra_Bps, latencies[1]]
    theta, fitted, stderr = _fit(pairs, np.array(start))
    values = _values(theta)
    return Calibration(
        cluster=_with(first, values),
        overhead_s=values["overhead"],
        parameters=tuple(
            FittedParameter(
                name, values[name], error * values[name] ** 2 if name in _RATES else error, known
            )
            for name, error, known in zip(PARAMETERS, stderr.tolist(), fitted.tolist(), strict=True)
        ),
        runs=tuple(
            ComparedRun(plan.strategy, plan.nbytes, seconds, _predict_s(plan, values))
            for plan, seconds in pairs
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


def _values(theta: np.ndarray) -> dict[str, float]:
    """Parameters by name: rates, not seconds a byte as in ``theta``."""
    return {
        name: (1 / value if value > 0 else math.inf) if name in _RATES else value
        for name, value in zip(PARAMETERS, theta.tolist(), strict=True)
    }


def _with(cluster: Cluster, values: dict[str, float]) -> Cluster:
    """``cluster`` with its fastest NIC at the given speed, and the others in proportion."""
    scale = values["nic"] / cluster.nic_Bps
    speeds = {name: values[name] for name in ("nic_latency", "intra", "intra_latency")}
    nics = [values["nic"] if r == cluster.nic_Bps else r * scale for r in cluster.host_nic_Bps]
    return Cluster(**{**cluster.to_dict(), **speeds, "nic": nics})


def _predict_s(plan: Plan, values: dict[str, float]) -> float:
    timeline = simulate(plan, cluster=_with(plan.cluster, values), verify=False)
    return timeline.duration_s + values["overhead"]


def _fit(
    runs: Sequence[tuple[Plan, float]], start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, which of them the runs tell, and their standard errors.

    Those that the runs do not tell are as at the start, their errors NaN.
    """
    from scipy.optimize import approx_fprime, least_squares

    rates = np.isin(PARAMETERS, _RATES)
    least = np.where(rates, 1e-15, 1e-8)

    def errors(x: np.ndarray, fitted: np.ndarray) -> np.ndarray:
        """Relative error of every run, with the fitted parameters at ``x``."""
        at = start.copy()
        at[fitted] = x
        values = _values(at)
        return np.array([_predict_s(plan, values) / seconds - 1 for plan, seconds in runs])

    def slopes(x: np.ndarray, fitted: np.ndarray) -> np.ndarray:
        """(runs, fitted) change of the errors, by small steps up."""
        step = 1e-4 * np.maximum(x, least[fitted])
        return approx_fprime(x, errors, step, fitted).reshape(len(runs), len(x))

    theta, every = start, np.ones(len(start), dtype=bool)
    jacobian = slopes(theta, every)
    fitted = _distinct(jacobian)
    for attempt in range(_ROUNDS):
        solved = least_squares(
            errors,
            theta[fitted],
            slopes,
            args=(fitted,),
            bounds=(0, np.inf),
            x_scale=1 / np.linalg.norm(jacobian[:, fitted], axis=0),
            ftol=1e-9,
            xtol=1e-10,
            gtol=1e-12,
            max_nfev=60,
        )
        theta = start.copy()
        theta[fitted] = np.where(rates[fitted] | (solved.x > _NO_TIME_S), solved.x, 0.0)
        jacobian = slopes(theta, every)
        before, fitted = fitted, _distinct(jacobian)
        if attempt >= _OPEN_ROUNDS:
            fitted &= before
        if np.array_equal(before, fitted):
            break
    stderr = np.full(len(theta), np.nan)
    spare = len(runs) - int(fitted.sum())
    if spare > 0:  # else no run is left to tell the scatter
        known = jacobian[:, fitted]
        scatter = float((errors(theta, every) ** 2).sum()) / spare
        stderr[fitted] = np.sqrt(np.diag(np.linalg.pinv(known.T @ known)) * scatter)
    return theta, fitted, stderr


def _distinct(jacobian: np.ndarray) -> np.ndarray:
    """Which columns are neither nothing nor, but for ``_ALIKE``, a mix of columns before them."""
    kept: list[int] = []
    for i, column in enumerate(jacobian.T):
        basis = np.linalg.qr(jacobian[:, kept])[0]
        rest = column - basis @ (basis.T @ column)
        size = np.linalg.norm(column)
        if size > 0 and len(kept) < len(column) and np.linalg.norm(rest) > _ALIKE * size:
            kept.append(i)
    return np.isin(np.arange(jacobian.shape[1]), kept)
