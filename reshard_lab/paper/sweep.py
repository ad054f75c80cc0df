"""Grids of simulated reshardings: on all cores, kept on disk, as one tidy table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, check_int, need
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.paper.cache import Cache, code_version, key_of
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
    check_choice("resolution", resolution, RESOLUTIONS)
    check_int("seed", seed)
    described = (cluster or Cluster.preset("p3.8xlarge")).to_dict()
    if isinstance(described["nic"], list) or isinstance(described["nics_per_host"], list):
        raise ReshardError("a sweep changes the number of hosts; give a cluster of equal hosts")
    specs = [str(ShardingSpec(src)), str(ShardingSpec(dst))]
    axes: dict[str, list[Any]] = {
        "nbytes": [parse_bytes(n, "nbytes") for n in _several(nbytes)],
        "chunks": [k if k == "auto" else check_int("chunks", k, 1) for k in _several(chunks)],
        "hosts": [check_int("hosts", n, 1) for n in _several(hosts)],
        "devices": [check_int("devices", n, 1) for n in _several(devices)],
        "strategy": [
            check_choice("strategy", s, (*STRATEGIES, "auto")) for s in _several(strategies)
        ],
        "scheduler": [check_choice("scheduler", s, METHODS) for s in _several(schedulers)],
    }
    points = []
    for values in itertools.product(*axes.values()):
        point: Point = dict(zip(axes, values, strict=True))
        receivers = [point["hosts"], point["devices"]]
        point["senders"] = receivers if senders == "same" else _mesh(senders)
        points.append(
            point
            | {"src": specs[0], "dst": specs[1], "resolution": resolution, "seed": seed}
            | {"cluster": described}
        )
    return evaluate(simulated, points, jobs=jobs, cache=cache, progress=progress)


def simulated(point: Point) -> dict[str, Any]:
    """One row of ``sweep``: a resharding planned and simulated."""
    start = time.perf_counter()
    task = task_of(point)
    made = plan(
        task, point["strategy"], point["scheduler"], chunks=point["chunks"], seed=point["seed"]
    )
    timeline = simulate(made, point["resolution"])
    return {
        "nbytes": task.nbytes,
        "chunks": point["chunks"],
        "hosts": point["hosts"],
        "devices": point["devices"],
        "strategy": made.strategy,
        "scheduler": made.scheduler,
        "planned_s": made.makespan_s,
        "simulated_s": timeline.duration_s,
        "lower_bound_s": made.lower_bound_s,
        "optimal": made.optimal,
        "unit_tasks": len(made.unit_tasks),
        "transfers": len(made.transfers),
        "resolution": timeline.resolution,
        "took_s": time.perf_counter() - start,
    }


def task_of(point: Point) -> ReshardingTask:
    """The resharding of a point: senders from host 0 on, receivers on the hosts after them."""
    (src_hosts, src_devices), dst_hosts = point["senders"], point["hosts"]
    per = max(src_devices, point["devices"])
    cluster = Cluster(
        **{**point["cluster"], "hosts": src_hosts + dst_hosts, "devices_per_host": per}
    )
    ndim = ShardingSpec(point["src"]).ndim
    side = round(point["nbytes"] ** (1 / ndim)) if ndim else 1
    shape = (*[side] * (ndim - 1), -(-point["nbytes"] // max(side ** (ndim - 1), 1)))[:ndim]
    return ReshardingTask(
        shape,
        "int8",
        Layout(_first_devices(cluster, 0, src_hosts, src_devices), point["src"]),
        Layout(_first_devices(cluster, src_hosts, dst_hosts, point["devices"]), point["dst"]),
        cluster,
    )


def _first_devices(cluster: Cluster, first_host: int, hosts: int, devices: int) -> Mesh:
    """The first ``devices`` of ``hosts`` hosts, a row a host."""
    starts = np.arange(first_host, first_host + hosts) * cluster.devices_per_host
    return Mesh(starts[:, None] + np.arange(devices))


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
    pd = need("pandas", "notebooks", "a sweep")
    tqdm = need("tqdm", "run", "a sweep").tqdm
    if isinstance(cache, bool):
        kept = Cache() if cache else None
    else:
        kept = Cache(cache)
    name, version = f"{function.__module__}.{function.__qualname__}", code_version()
    keys = [key_of(name, point, version) for point in points]
    rows: list[Mapping[str, Any] | None] = [kept.load(key) if kept else None for key in keys]
    missing = [i for i, row in enumerate(rows) if row is None]
    with tqdm(total=len(points), initial=len(points) - len(missing), disable=not progress) as bar:
        for i, row in _computed(function, points, missing, jobs):
            rows[i] = row
            if kept:
                kept.store(keys[i], row)
            bar.update(1)
    return pd.DataFrame(rows)


def _computed(
    function: Callable[[Point], Mapping[str, Any]],
    points: Sequence[Point],
    missing: Sequence[int],
    jobs: int | None,
) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """(index, row) of the ``missing`` points, as they are done."""
    joblib = need("joblib", "run", "a sweep")
    if not missing:
        return ()
    configured = joblib.parallel.get_active_backend()[1]
    count = jobs if jobs is not None else (-1 if configured is None else configured)
    calls = (joblib.delayed(_numbered)(function, i, points[i]) for i in missing)
    found: Iterable[tuple[int, Mapping[str, Any]]] = joblib.Parallel(
        n_jobs=count, return_as="generator_unordered"
    )(calls)
    return found


def _numbered(
    function: Callable[[Point], Mapping[str, Any]], index: int, point: Point
) -> tuple[int, Mapping[str, Any]]:
    return index, function(point)


def _several(values: Any) -> list[Any]:
    """One value, or the values of a collection."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [values]
    return list(values)


def _mesh(senders: object) -> list[int]:
    if not isinstance(senders, (tuple, list)) or len(senders) != 2:
        raise ReshardError(
            f"senders must be (hosts, devices on each) such as (1, 1), or 'same', not {senders!r}"
        )
    return [
        check_int("hosts of senders", senders[0], 1),
        check_int("devices of senders", senders[1], 1),
    ]
