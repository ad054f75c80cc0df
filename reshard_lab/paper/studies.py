"""Questions asked of the simulator, each answered by a tidy table.

All times are of an idle, described cluster; nothing here is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.paper.sweep import Point, evaluate, simulated, task_of
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.simulation import simulate
from reshard_lab.strategies import PAPER, closed_form_s
from reshard_lab.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    import pandas as pd


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
    size = parse_bytes(nbytes, "nbytes")
    speeds = _speeds(cluster)
    grid = [("A", a, 2, 100) for a in counts] + [("B", 2, b, 100) for b in counts]
    grid += [("K", 2, 2, k) for k in chunks]
    rows = []
    for varies, a, b, k in grid:
        for strategy in PAPER:
            task = task_of(_one_sender(size, a, b, speeds))
            made = plan(task, strategy, "naive", chunks=k)
            assert task.cluster is not None
            t = size / task.cluster.nic_Bps
            rows.append(
                {
                    "varies": varies,
                    "A": a,
                    "B": b,
                    "K": k,
                    "strategy": strategy,
                    "paper_s": PAPER[strategy].seconds(t, a, b, k),
                    "closed_form_s": closed_form_s(strategy, size, a, b, task.cluster, k),
                    "simulated_s": simulate(made).duration_s,
                }
            )
    return need("pandas", "notebooks", "figure 3").DataFrame(rows)


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
    shortest). ``how`` goes to ``sweep.evaluate`` (jobs, cache, progress).
    """
    speeds = _speeds(cluster)
    points = [
        _one_sender(
            parse_bytes(n, "nbytes"),
            hosts,
            devices,
            {**speeds, "nic_latency": parse_seconds(latency, "latency")},
        )
        | {"strategy": strategy, "chunks": chunks}
        for n in nbytes
        for latency in latencies
        for strategy in PAPER
    ]
    found = evaluate(_map_row, points, **how)
    best = found.groupby(["nbytes", "nic_latency_s"])["simulated_s"].transform("min")
    return found.assign(wins=found["simulated_s"] == best, over_best=found["simulated_s"] / best)


def _map_row(point: Point) -> dict[str, Any]:
    made = plan(task_of(point), point["strategy"], "naive", chunks=point["chunks"])
    return {
        "nbytes": point["nbytes"],
        "nic_latency_s": point["cluster"]["nic_latency"],
        "strategy": point["strategy"],
        "simulated_s": simulate(made).duration_s,
    }


def scaling(
    devices: Iterable[int] = (64, 256, 1024, 4096),
    schedulers: Sequence[str] = ("load_balance", "auto", "concurrent"),
    nbytes_a_device: int | str = "4MiB",
    cluster: Cluster | None = None,
    **how: Any,
) -> pd.DataFrame:
    """Rows on half of the hosts to columns on the other half, up to 4096 GPUs (8 a host).

    Every host of the one half has a piece for every host of the other: unit tasks grow with the
    square of the hosts. Columns as of ``sweep``, with ``gpus`` in front. ``how`` as there.
    """
    size = parse_bytes(nbytes_a_device, "nbytes_a_device")
    points = []
    for gpus in devices:
        if gpus < 16 or gpus % 16:
            raise ReshardError(
                f"{gpus} devices are not two halves of hosts with 8; give a multiple of 16"
            )
        half = gpus // 16
        shape = _halves(size * half * 8, half, 8, _speeds(cluster))
        for scheduler in schedulers:
            points.append(
                {**shape, "chunks": "auto", "strategy": "broadcast", "scheduler": scheduler}
                | {"resolution": "auto", "seed": 0, "gpus": gpus}
            )
    return evaluate(_scale_row, points, **how)


def _scale_row(point: Point) -> dict[str, Any]:
    return {"gpus": point["gpus"], **simulated(point), "scheduler": point["scheduler"]}


def slow_host(
    slowdowns: Sequence[float] = (1, 1.5, 2, 4, 10),
    hosts: int = 4,
    devices: int = 4,
    nbytes: int | str = "256MiB",
    methods: Sequence[tuple[str, str]] = (
        ("send_recv", "load_balance"),
        ("global_allgather", "load_balance"),
        ("broadcast", "load_balance"),
        ("broadcast", "concurrent"),
    ),
    cluster: Cluster | None = None,
) -> pd.DataFrame:
    """What it costs if one host's NICs are slower than all others, sending or receiving.

    Rows over ``hosts`` hosts to columns over as many others. Columns: ``slow_host`` (``"none"``,
    ``"sender"``, ``"receiver"``), ``slowdown``, ``strategy``, ``scheduler``, ``simulated_s``,
    ``lower_bound_s``, and ``times_none`` (over the same without a slow host).
    """
    speeds = _speeds(cluster)
    size = parse_bytes(nbytes, "nbytes")
    rows = []
    for strategy, scheduler in methods:
        base = 0.0
        cases = [("none", 1.0), *itertools.product(("sender", "receiver"), slowdowns)]
        for where, slow in cases:
            rates = [speeds["nic"]] * (2 * hosts)
            if where != "none":
                rates[0 if where == "sender" else hosts] /= slow
            task = task_of(_halves(size, hosts, devices, {**speeds, "nic": rates}))
            made = plan(task, strategy, scheduler)
            took = simulate(made).duration_s
            base = took if where == "none" else base
            rows.append(
                {
                    "slow_host": where,
                    "slowdown": slow,
                    "strategy": strategy,
                    "scheduler": scheduler,
                    "simulated_s": took,
                    "lower_bound_s": made.lower_bound_s,
                    "times_none": took / base,
                }
            )
    return need("pandas", "notebooks", "a study").DataFrame(rows)


def full_duplex(
    nbytes: int | str = "64MiB",
    hosts: int = 2,
    devices: int = 4,
    src: str = "S0R",
    dst: str = "RS0",
    scheduler: str = "auto",
    cluster: Cluster | None = None,
) -> pd.DataFrame:
    """Training traffic: activations forward and gradients backward, alone and at the same time.

    NICs send and receive at once, so both together may take as long as one. Columns: ``traffic``
    (``"forward"``, ``"backward"``, ``"one after the other"``, ``"together"``), ``nbytes``,
    ``simulated_s``, ``lower_bound_s``, and ``busiest_nic``: the largest part of its capacity that
    a NIC uses in a direction.
    """
    size = parse_bytes(nbytes, "nbytes")
    forward = task_of(_halves(size, hosts, devices, _speeds(cluster), src, dst))
    backward = ReshardingTask(
        forward.shape, forward.dtype, forward.dst, forward.src, forward.cluster
    )
    plans = {
        "forward": plan(forward, scheduler=scheduler),
        "backward": plan(backward, scheduler=scheduler),
        "together": plan([forward, backward], scheduler=scheduler),
    }
    there, back, together = (_traffic(name, made) for name, made in plans.items())
    both: dict[str, Any] = {"traffic": "one after the other"}
    both |= {key: there[key] + back[key] for key in ("nbytes", "simulated_s", "lower_bound_s")}
    busy = max(row["busiest_nic"] * row["simulated_s"] for row in (there, back))
    both["busiest_nic"] = busy / both["simulated_s"] if both["simulated_s"] else 0.0
    return need("pandas", "notebooks", "a study").DataFrame([there, back, both, together])


def _traffic(name: str, made: Plan) -> dict[str, Any]:
    timeline = simulate(made)
    return {
        "traffic": name,
        "nbytes": made.nbytes,
        "simulated_s": timeline.duration_s,
        "lower_bound_s": made.lower_bound_s,
        "busiest_nic": max((use.utilisation for use in timeline.nic_use()), default=0.0),
    }


def _speeds(cluster: Cluster | None) -> dict[str, Any]:
    """What a cluster (default p3.8xlarge) is made from; its hosts have to be equal."""
    described = cluster or Cluster.preset("p3.8xlarge")
    if not described.uniform:
        raise ReshardError(
            f"a study changes hosts and their speeds; give a cluster of equal hosts, not "
            f"{described!r}"
        )
    return described.to_dict()


def _one_sender(nbytes: int, hosts: int, devices: int, speeds: dict[str, Any]) -> Point:
    """One device to ``hosts`` x ``devices``."""
    check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    shape = {"nbytes": nbytes, "hosts": hosts, "devices": devices, "senders": [1, 1]}
    return {**shape, "src": "R", "dst": "R", "cluster": speeds}


def _halves(
    nbytes: int,
    hosts: int,
    devices: int,
    speeds: dict[str, Any],
    src: str = "S0R",
    dst: str = "RS0",
) -> Point:
    """From ``hosts`` x ``devices`` to as many others."""
    check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    shape = {"nbytes": nbytes, "hosts": hosts, "devices": devices, "senders": [hosts, devices]}
    return {**shape, "src": src, "dst": dst, "cluster": speeds}
