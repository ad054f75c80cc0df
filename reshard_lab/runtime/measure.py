"""What a run measured, and the machine it was measured on."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import need
from reshard_lab.planning import Plan
from reshard_lab.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd


class Timed:
    """Figures of what was timed several times."""

    times_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median time."""
        return statistics.median(self.times_s)

    @property
    def min_s(self) -> float:
        """Shortest time."""
        return min(self.times_s)

    @property
    def spread(self) -> float:
        """(longest - shortest) / median."""
        return (max(self.times_s) - self.min_s) / self.median_s


@dataclass(frozen=True, repr=False)
class Measurement(Timed):
    """The times of one plan, carried out several times.

    A time runs from a barrier of all devices to the end of the slowest one, in seconds.
    """

    strategy: str
    scheduler: str
    shapes: tuple[tuple[int, ...], ...]
    """Of every tensor of the plan."""
    nbytes: int
    """Of all tensors together."""
    chunks: int
    times_s: tuple[float, ...]
    """One a repeat, warm-ups left out."""
    verified: bool
    """Every destination piece of every repeat, and warm-up, was compared with what it should
    hold (False: the strategy delivers no data)."""
    predicted_s: float
    """The plan's makespan on the plan's cluster, which need not describe this machine."""
    lower_bound_s: float
    """No plan can beat this on the plan's cluster."""
    environment: dict[str, Any]
    """Where it was measured: backend, link, machine, versions, commit."""
    predicted_here: bool = False
    """Whether the plan's cluster has the NICs that it was measured on."""

    @property
    def bandwidth_Bps(self) -> float:
        """Effective bandwidth of section 5: bytes of the tensors over the median time."""
        return self.nbytes / self.median_s

    def to_dict(self) -> dict[str, Any]:
        """All fields and the figures derived from them, for JSON."""
        derived = ("median_s", "min_s", "spread", "bandwidth_Bps")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    def __repr__(self) -> str:
        checked = "verified" if self.verified else "not verified"
        return (
            f"Measurement({self.strategy}, {self.scheduler}: {format_bytes(self.nbytes)} in "
            f"{format_seconds(self.median_s)}, min {format_seconds(self.min_s)}, "
            f"spread {self.spread:.0%} of {len(self.times_s)}, {format_rate(self.bandwidth_Bps)}, "
            f"{checked}; {self.environment['link']})"
        )


def measurement(
    plan: Plan, times_s: Iterable[float], verified: bool, environment: dict[str, Any]
) -> Measurement:
    """The record of ``plan`` having taken ``times_s``."""
    return Measurement(
        strategy=plan.strategy,
        scheduler=plan.scheduler,
        shapes=tuple(task.shape for task in plan.tasks),
        nbytes=plan.nbytes,
        chunks=plan.chunks,
        times_s=tuple(times_s),
        verified=verified,
        predicted_s=plan.makespan_s,
        lower_bound_s=plan.lower_bound_s,
        environment=environment,
        predicted_here=environment.get("nic_Bps") == max(plan.cluster.host_nic_Bps),
    )


def to_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """One row a measurement; the environment's entries are columns of their own."""
    pd = need("pandas", "notebooks", "a table of measurements")
    rows = [measured.to_dict() for measured in measurements]
    return pd.DataFrame([row | row.pop("environment") for row in rows])


def environment(where: str, backend: str, link: str, torch_version: str) -> dict[str, Any]:
    """The stamp on every measurement. ``link``: what the bytes went over, in words."""
    cores = available_cores()
    try:
        installed = version("reshard-lab")
    except PackageNotFoundError:
        installed = "not installed"
    return {
        "where": where,
        "backend": backend,
        "link": f"{backend}, {link}, {cores} core{'s' * (cores != 1)}",
        "cpu": _cpu(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch_version,
        "reshard_lab": installed,
        "commit": _commit(),
    }


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_ticks() -> tuple[float, float] | None:
    """Seconds so far that the cores of this process were not idle, and all seconds; on Linux.

    Whoever used them: what else runs on the machine takes part in a measurement.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = need("psutil", "run", "a measurement").cpu_times(percpu=True)
    mine = [cores[core][:8] for core in os.sched_getaffinity(0)]  # user .. steal
    idle = sum(times[3] + times[4] for times in mine)
    total = sum(map(sum, mine))
    return total - idle, total


def cpu_share(spans: Iterable[Sequence[float] | None]) -> float | None:
    """Share of the cores that was busy over ``(busy seconds, all seconds)`` spans; None if unknown.

    >>> cpu_share([(30, 40), None, (10, 40)])
    0.5
    """
    known = [span for span in spans if span is not None]
    total = sum(span[1] for span in known)
    return sum(span[0] for span in known) / total if total else None


@lru_cache(maxsize=1)
def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def _commit() -> str | None:
    """The commit of the checkout the package runs from (``-dirty``: changed); None if installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
