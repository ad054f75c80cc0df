"""Grids of simulated reshardings: on all cores, kept on disk, as one tidy table."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, check_int, check_path, need, os_errors
from reshard_lab.layout import Layout
from reshard_lab.paper.files import several
from reshard_lab.paper_cases import host_rows
from reshard_lab.planning import plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.scheduling import METHODS
from reshard_lab.simulation import RESOLUTIONS, simulate
from reshard_lab.spec import ShardingSpec
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import parse_bytes

if TYPE_CHECKING:
    import pandas as pd

Point = dict[str, Any]
"""What one row is computed from: plain values, as JSON has them."""
PACKAGE = Path(__file__).resolve().parents[1]
SOLVERS = ("numpy", "ortools", "scipy")
"""Libraries on which results may depend."""


def sweep(
    nbytes: int | str | Iterable[int | str] = "64MiB",
    chunks: int | str | Iterable[int | str] = 100,
    hosts: int | Iterable[int] = 2,
    devices: int | Iterable[int] = 2,
    strategies: str | Iterable[str] = "broadcast",
    schedulers: str | Iterable[str] = "auto",
    *,
    src: str = "R",
    dst: str = "R",
    senders: tuple[int, int] | str = (1, 1),
    cluster: Cluster | None = None,
    resolution: str = "auto",
    seed: int = 0,
    jobs: int | None = None,
    cache: str | Path | bool = True,
    progress: bool = True,
) -> pd.DataFrame:
    """Plan and simulate every combination; one row each, in the order of the arguments.

    nbytes, chunks, hosts, devices, strategies, schedulers:
        one value or several: bytes of the tensor, K (or ``"auto"``), receiver hosts A and devices
        on each B, and the names ``plan`` takes.
    src, dst:
        specs of the tensor on the senders and the receivers; its dimensions are of like size.
    senders:
        hosts and devices on each of the source mesh, ``"same"`` = as many as receive.
    cluster:
        the speeds (default p3.8xlarge); hosts and devices are as many as a row needs.
    jobs:
        processes; by default as configured with ``joblib.parallel_config``, else one a core. A
        backend configured there is used, a dask cluster for one.
    cache:
        a folder for results, True = the user's cache folder, False = none. What is there already
        is not computed again, after an interruption too; after a change to the package's code, or
        of a library that solves schedules, it is.

    Columns: the arguments, ``planned_s``, ``simulated_s``, ``lower_bound_s``, ``optimal``,
    ``unit_tasks``, ``transfers``, ``resolution``, and ``took_s`` (to plan and simulate, when that
    was done: a row that is kept keeps the time of its first run).
    """
    fixed = {
        "src": str(ShardingSpec(src)),
        "dst": str(ShardingSpec(dst)),
        "resolution": check_choice("resolution", resolution, RESOLUTIONS),
        "seed": check_int("seed", seed),
        "cluster": speeds_of(cluster, "a sweep changes the number of hosts"),
    }
    names = (*STRATEGIES, "auto")
    axes: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "nbytes": (nbytes, lambda n: parse_bytes(n, "nbytes")),
        "chunks": (chunks, lambda k: k if k == "auto" else check_int("chunks", k, 1)),
        "hosts": (hosts, lambda n: check_int("hosts", n, 1)),
        "devices": (devices, lambda n: check_int("devices", n, 1)),
        "strategy": (strategies, lambda name: check_choice("strategy", name, names)),
        "scheduler": (schedulers, lambda name: check_choice("scheduler", name, METHODS)),
    }
    checked = ([check(v) for v in several(name, vs)] for name, (vs, check) in axes.items())
    points = [dict(zip(axes, v, strict=True)) | fixed for v in itertools.product(*checked)]
    for point in points:
        receivers = [point["hosts"], point["devices"]]
        point["senders"] = receivers if senders == "same" else _check_senders(senders)
    return evaluate(simulated_row, points, jobs=jobs, cache=cache, progress=progress)


def _check_senders(senders: object) -> list[int]:
    if not isinstance(senders, (tuple, list)) or len(senders) != 2:
        raise ReshardError(
            f"senders must be (hosts, devices on each) such as (1, 1), or 'same', not {senders!r}"
        )
    hosts, devices = senders
    return [check_int("hosts of senders", hosts, 1), check_int("devices of senders", devices, 1)]


def speeds_of(cluster: Cluster | None, changes: str) -> dict[str, Any]:
    """Fields of a cluster of equal hosts (default p3.8xlarge), whose size is changed next."""
    described = cluster or Cluster.preset("p3.8xlarge")
    if not described.uniform:
        raise ReshardError(f"{changes}; give a cluster of equal hosts, not {described!r}")
    return described.to_dict()


def resized(speeds: Mapping[str, Any], hosts: int, devices_per_host: int) -> Cluster:
    """The cluster with these fields, but of another size."""
    return Cluster(**{**speeds, "hosts": hosts, "devices_per_host": devices_per_host})


def simulated_row(point: Point) -> dict[str, Any]:
    """One row of ``sweep``: a resharding planned and simulated."""
    start = time.perf_counter()
    task = _task_of(point)
    how = {key: point[key] for key in ("strategy", "scheduler", "chunks", "seed")}
    p = plan(task, **how)
    timeline = simulate(p, point["resolution"])
    return {
        "nbytes": task.nbytes,
        **{key: point[key] for key in ("chunks", "hosts", "devices")},
        **{key: getattr(p, key) for key in ("strategy", "scheduler")},
        "planned_s": p.makespan_s,
        "simulated_s": timeline.duration_s,
        **{key: getattr(p, key) for key in ("lower_bound_s", "optimal")},
        "unit_tasks": len(p.unit_tasks),
        "transfers": len(p.transfers),
        "resolution": timeline.resolution,
        "took_s": time.perf_counter() - start,
    }


def _task_of(point: Point) -> ReshardingTask:
    """The resharding of a point: senders from host 0 on, receivers on the hosts after them."""
    (src_hosts, src_devices), hosts, devices = point["senders"], point["hosts"], point["devices"]
    cluster = resized(point["cluster"], src_hosts + hosts, max(src_devices, devices))
    ndim = ShardingSpec(point["src"]).ndim
    side = round(point["nbytes"] ** (1 / ndim)) if ndim else 1
    shape = (*[side] * (ndim - 1), -(-point["nbytes"] // max(side ** (ndim - 1), 1)))[:ndim]
    src = Layout(host_rows(cluster, src_hosts, src_devices), point["src"])
    dst = Layout(host_rows(cluster, hosts, devices, src_hosts), point["dst"])
    return ReshardingTask(shape, "int8", src, dst, cluster)


def evaluate(
    function: Callable[[Point], Mapping[str, Any]],
    points: Sequence[Point],
    *,
    jobs: int | None = None,
    cache: str | Path | bool = True,
    progress: bool = True,
) -> pd.DataFrame:
    """``function`` of every point as the rows of a table, in order; see ``sweep`` for the rest.

    ``function`` is one of a module, and its result plain values that depend on the point alone (a
    time it took is that of the run whose result is kept).
    """
    if jobs is not None and jobs != -1:
        check_int("jobs", jobs, 1)
    pd, joblib = need("pandas", "notebooks", "a sweep"), need("joblib", "run", "a sweep")
    tqdm = need("tqdm", "run", "a sweep").tqdm
    stored = None if cache is False else Cache(None if cache is True else cache)
    name, code = f"{function.__module__}.{function.__qualname__}", code_version()
    keys = [key_of(name, point, code) for point in points]
    rows: list[Mapping[str, Any] | None] = [stored.load(key) if stored else None for key in keys]
    missing = [i for i, row in enumerate(rows) if row is None]
    configured = joblib.parallel.get_active_backend()[1]
    count = jobs if jobs is not None else (-1 if configured is None else configured)
    work = joblib.Parallel(n_jobs=count, return_as="generator_unordered")
    with tqdm(total=len(points), initial=len(points) - len(missing), disable=not progress) as bar:
        for i, row in work(joblib.delayed(_numbered)(function, i, points[i]) for i in missing):
            rows[i] = row
            if stored:
                stored.store(keys[i], row)
            bar.update(1)
    return pd.DataFrame(rows)


def _numbered(
    function: Callable[[Point], Mapping[str, Any]], index: int, point: Point
) -> tuple[int, Mapping[str, Any]]:
    return index, function(point)


class Cache:
    """Rows by key: one small JSON file each, written in one step.

    Whatever interrupts a run, a file is whole or not there; one that cannot be read counts as not
    there. Two runs may share a folder. Raises ReshardError for a folder that cannot be written to.

    folder:
        default: ``$RESHARD_LAB_CACHE``, or ``reshard_lab`` in the user's cache folder.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        if folder is None:
            user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            folder = os.environ.get("RESHARD_LAB_CACHE") or Path(user) / "reshard_lab"
        self.folder = check_path("cache, if not True or False,", folder)
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)

    def _writing(self) -> AbstractContextManager[None]:
        how = "folder (cache=..., or the variable RESHARD_LAB_CACHE), or none (cache=False)"
        return os_errors(f"keep results in {str(self.folder)!r}", f"choose another {how}")

    def load(self, key: str) -> Mapping[str, Any] | None:
        """The row under ``key``, or None."""
        try:
            row = json.loads(self._file(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) else None

    def store(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep ``row`` under ``key``."""
        file = self._file(key)
        with self._writing():
            file.parent.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".new")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as out:
                    json.dump(row, out)
                os.replace(name, file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


def key_of(function: str, point: Mapping[str, Any], code: str) -> str:
    """A name for the result of ``function`` of ``point``, as ``code`` (a version) gives it."""
    text = json.dumps([code, function, point], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def code_version() -> str:
    """A hash of every module of the package and of the versions of ``SOLVERS``."""

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "absent"

    digest = hashlib.sha256(repr([(name, installed(name)) for name in SOLVERS]).encode())
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(file.relative_to(PACKAGE)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
