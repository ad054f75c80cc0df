"""Figure 3, and which strategy wins where: one sender, on an idle described cluster, simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.paper.sweep import Point, evaluate, task_of
from reshard_lab.planning import plan
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
            planned = plan(task, strategy, "naive", chunks=k)
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
                    "simulated_s": simulate(planned).duration_s,
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
    frame = evaluate(_map_row, points, **how)
    best = frame.groupby(["nbytes", "nic_latency_s"])["simulated_s"].transform("min")
    return frame.assign(wins=frame["simulated_s"] == best, over_best=frame["simulated_s"] / best)


def _map_row(point: Point) -> dict[str, Any]:
    planned = plan(task_of(point), point["strategy"], "naive", chunks=point["chunks"])
    return {
        "nbytes": point["nbytes"],
        "nic_latency_s": point["cluster"]["nic_latency"],
        "strategy": point["strategy"],
        "simulated_s": simulate(planned).duration_s,
    }


def _speeds(cluster: Cluster | None) -> dict[str, Any]:
    """What a cluster (default p3.8xlarge) is planned from; its hosts have to be equal."""
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
