"""Measuring plans: a row a plan, predicted beside measured, on an emulated cluster or loopback."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, need
from reshard_lab.paper_cases import one_sender_task
from reshard_lab.planning import Plan, plan
from reshard_lab.runtime import EmulatedCluster, Measurement, Pool
from reshard_lab.runtime.launch import POOL_TARGETS, SlowError
from reshard_lab.runtime.measure import cpu_share, cpu_ticks
from reshard_lab.runtime.network import need_namespaces, refused
from reshard_lab.simulation import simulate
from reshard_lab.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd

Measure = Callable[[Plan], Measurement]
"""Carries a plan out and times it, such as ``Pool.run``."""
MakeCluster = Callable[[int, int], Cluster]
"""``make(hosts, devices_per_host)``: a cluster to plan for, of that size or larger."""
T = TypeVar("T")
HOSTS, DEVICES_PER_HOST = 5, 4
"""Hold every point of figure 5 and every case of table 2."""
NICS = ("400Mbit", "200Mbit")
"""Speeds to emulate, the first that the machine carries; above, two cores make the times."""
IDLE = 0.12
"""Share of the cores that others may keep busy."""
_CAUTION = "Here every link is carried by the same cores, which such a prediction does not know."
_LOOK_S, _PATIENCE_S = 0.5, 3600.0
_LIMIT = 0.9  # share of the cores from which they may make the times


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
    p, simulated_s = case.plan, simulate(case.plan).duration_s
    row = {
        **case.labels,
        **{key: getattr(p, key) for key in ("strategy", "scheduler", "chunks", "nbytes")},
        "unit_tasks": len(p.units),
        "predicted_s": p.makespan_s,
        "lower_bound_s": p.lower_bound_s,
        "simulated_s": simulated_s,
        **_rates(p, predicted=p.makespan_s, simulated=simulated_s, bound=p.lower_bound_s),
    }
    if measured is not None:
        median, fastest, slowest = measured.median_s, min(measured.times_s), max(measured.times_s)
        row |= {"measured_s": median, "fastest_s": fastest, "slowest_s": slowest}
        row["runs"] = len(measured.times_s)
        row |= {f"measured_over_{n}": median / row[f"{n}_s"] for n in ("predicted", "simulated")}
        row |= _rates(p, measured=median, low=slowest, high=fastest)
        row["verified"] = measured.verified
        row["cpu_share"] = measured.environment.get("cpu_share")
    return row


def _rates(plan: Plan, **seconds: float) -> dict[str, float]:
    """Effective bandwidths of section 5: bits of the tensors over each time."""
    bits = 8 * plan.nbytes
    return {f"{n}_Gbps": bits / s / 1e9 if s > 0 else math.inf for n, s in seconds.items()}


class LinkFit(NamedTuple):
    """The speed of a link, from one measured transfer: bytes over time, no latency."""

    nbytes: int
    seconds: float
    """Median time of the transfer."""

    @property
    def bandwidth_Bps(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds

    def cluster(self, hosts: int, devices_per_host: int) -> Cluster:
        """A cluster whose every link, inside hosts too, has the measured rate."""
        rate = self.bandwidth_Bps
        return Cluster(hosts, devices_per_host, rate, nic_latency=0, intra=rate, intra_latency=0)

    def __str__(self) -> str:
        return (
            f"{format_rate(self.bandwidth_Bps)} on every link, no latency: one transfer of "
            f"{format_bytes(self.nbytes)} in {format_seconds(self.seconds)}"
        )


def fit_one_transfer(measure: Measure, nbytes: int) -> LinkFit:
    """Measure one transfer of ``nbytes`` from device 0 to device 1, and fit a rate to it."""
    task = one_sender_task((nbytes,), 1, 1, Cluster(hosts=2, devices_per_host=1))
    measured = measure(plan(task, strategy="send_recv"))
    if not measured.verified:
        raise ReshardError("the transfer that the cluster is fitted from did not arrive right")
    return LinkFit(nbytes, measured.median_s)


class MeasuringTarget(NamedTuple):
    """Somewhere to measure plans, and what to predict with."""

    name: str
    """``"emulated"`` or ``"local"``."""
    measure: Measure
    make: MakeCluster
    """The cluster to plan for."""
    predicted: str
    """What predictions rest on, in words."""
    caution: str
    """What predictions do not know, in words; may be empty."""
    about: dict[str, Any]
    """The same in numbers."""


def choose_target(name: str | None) -> tuple[str, str]:
    """The place called ``name`` (None: the best that this machine allows), and why, in words."""
    if name is not None:
        return check_choice("place to measure", name, POOL_TARGETS), ""
    reason = refused()
    return ("local", f"Not on an emulated cluster: {reason}.") if reason else ("emulated", "")


@contextmanager
def open_target(
    name: str, why: str, nbytes: int, repeats: int, warmup: int, patient: bool = False
) -> Iterator[tuple[MeasuringTarget, list[Measurement]]]:
    """The place, its processes running, and a list of what will have been measured.

    nbytes:
        of the transfer that speeds are fitted from where they are not known.
    patient:
        measure while no other program keeps the cores busy (see ``when_idle``).
    """
    done: list[Measurement] = []
    pool: Pool
    with fastest_emulation(patient=patient) if name == "emulated" else Pool(devices=16) as pool:
        run = when_idle(pool.run) if patient else pool.run

        def measure(plan: Plan) -> Measurement:
            done.append(run(plan, repeats, warmup))
            return done[-1]

        if isinstance(pool, EmulatedCluster):
            on = pool.cluster
            assert pool.probe is not None
            share = pool.probe.share
            carried = f"on entry the NICs carried {share:.0%} of that, all at once"
            predicted = f"NICs of {format_rate(on.nic_Bps)}, all else free ({carried})"
            about = {"nic_Bps": on.nic_Bps, "nic_share": share}
            yield MeasuringTarget(name, measure, lambda *_: on, predicted, "", about), done
        else:
            fit = fit_one_transfer(measure, nbytes)
            predicted = f"a cluster fitted from one measured transfer ({fit})"
            about = {**fit._asdict(), "bandwidth_Bps": fit.bandwidth_Bps}
            caution = f"{_CAUTION} {why}".strip()
            yield MeasuringTarget(name, measure, fit.cluster, predicted, caution, about), done


def label_of(place: MeasuringTarget, done: Sequence[Measurement]) -> tuple[dict[str, Any], str]:
    """The environment of all that was measured, and in words what was measured where.

    Backend, link, machine, how busy the cores were at most, and what predictions rest on: what
    stands on every table and picture.
    """
    environment = dict(done[-1].environment)
    shares = [m.environment["cpu_share"] for m in done]
    busy, most = "how busy the cores were is not known", None
    if None not in shares:
        most = max(shares)
        doubt = " (there they may have made the times)" * (most > _LIMIT)
        busy = f"cores busy {most:.0%} at most{doubt}"
    environment["cpu_share"] = most
    words = (
        f"Measured: {environment['link']}, {environment['cpu']}, {busy}; every result checked. "
        f"Predicted: {place.predicted}. {place.caution}"
    )
    return environment, words.strip()


def when_idle(work: Callable[..., T]) -> Callable[..., T]:
    """``work``, done while the cores are idle otherwise, and done again if they are not after it.

    What counts is whether others keep the cores busy, never what was measured. Raises ReshardError
    if they do for more than an hour.
    """

    def busy() -> float:
        before = cpu_ticks()
        time.sleep(_LOOK_S)
        after = cpu_ticks()
        if before is None or after is None:
            raise ReshardError("this system does not say how busy its cores are: no --patient here")
        return cpu_share([[b - a for a, b in zip(before, after, strict=True)]]) or 0.0

    def patiently(*given: Any) -> T:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            if busy() > IDLE or busy() > IDLE:
                continue
            result = work(*given)
            if busy() <= 2 * IDLE:  # what was measured last may still be checked
                return result
        raise ReshardError(f"other programs keep the cores busy for {_PATIENCE_S / 60:.0f} minutes")

    return patiently


@contextmanager
def fastest_emulation(
    hosts: int = HOSTS, devices_per_host: int = DEVICES_PER_HOST, patient: bool = False
) -> Iterator[EmulatedCluster]:
    """The fastest emulated cluster of ``NICS`` that the machine carries.

    patient:
        look what it carries while no other program keeps the cores busy (see ``when_idle``).
    """
    need_namespaces()
    with ExitStack() as stack:

        def enter(nic: str) -> EmulatedCluster | SlowError:
            stack.close()  # an attempt that others disturbed
            try:
                return stack.enter_context(EmulatedCluster(hosts, devices_per_host, nic=nic))
            except SlowError as error:
                return error

        for nic in NICS:
            entered = (when_idle(enter) if patient else enter)(nic)
            if isinstance(entered, EmulatedCluster):
                yield entered
                return
    raise SlowError(
        f"no speed of {', '.join(NICS)} can be emulated here: {entered}; or wait for the cores to "
        "be idle (--patient), or measure over loopback (--where local)"
    )
