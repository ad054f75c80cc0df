"""What several cells of the notebooks tabulate: layouts, unit tasks, strategies, schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reshard_lab.boxes import box_text, box_volume
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.layout import RULES, Layout
from reshard_lab.mesh import Mesh
from reshard_lab.resharding import ReshardingTask, UnitTask, need_cluster, nic_hosts
from reshard_lab.scheduling import Problem, solve
from reshard_lab.simulation import Timeline, one_sender
from reshard_lab.spec import ShardingSpec
from reshard_lab.strategies import PAPER, closed_form_s
from reshard_lab.units import device_list

if TYPE_CHECKING:
    import pandas as pd

NBYTES = 125_000_000
"""A slice that takes 0.1 s through a NIC of 10 Gbit/s: the t of section 3.1."""


def _table(
    rows: Sequence[Any], index: str | list[str], columns: list[str] | None = None
) -> pd.DataFrame:
    return need("pandas", "notebooks", "a table").DataFrame(rows, columns=columns).set_index(index)


def uneven(sizes: Sequence[int], mesh: Mesh, spec: str = "S0") -> pd.DataFrame:
    """How many elements each device gets of a one-dimensional tensor, under the three rules.

    One row a size and rule; under ``even`` a size that does not divide says so.
    """
    if ShardingSpec(spec).ndim != 1:
        raise ReshardError(f"spec {spec!r} is not of one dimension; give one token such as 'S0'")
    rows = []
    for size in sizes:
        for rule in RULES:
            try:
                boxes = Layout(mesh, spec, rule).boxes((size,))
                counts = {f"device {d}": str(box_volume(box)) for d, box in boxes.items()}
            except ReshardError:
                counts = {f"device {d}": "refused" for d in mesh.devices}
            rows.append({"size": size, "rule": rule, **counts})
    return _table(rows, ["size", "rule"])


def unit_tasks(task: ReshardingTask, whole_slices: bool = False) -> pd.DataFrame:
    """The list of appendix B: one row a unit task, N the devices that hold it, M those it goes to.

    whole_slices:
        the paper's text (a source slice travels whole) instead of intersections.
    """
    units = task.whole_slice_tasks if whole_slices else task.unit_tasks
    rows = [
        (box_text(u.box), box_volume(u.box), u.nbytes, *map(device_list, (u.senders, u.receivers)))
        for u in units
    ]
    pandas = need("pandas", "notebooks", "a table")
    table: pd.DataFrame = pandas.DataFrame(rows, columns=["box", "elements", "bytes", "N", "M"])
    return table.rename_axis("unit task")


def two_readings(task: ReshardingTask) -> pd.DataFrame:
    """Bytes that enter each host under both readings of a unit task, beside those it needs.

    A box enters a host once, however many of its devices need it, and not at all where the host
    holds it. The last row adds up the hosts.
    """
    cluster = need_cluster([task])

    def entering(units: Sequence[UnitTask], host: int) -> int:
        return sum(unit.nbytes for unit in units if host in nic_hosts(unit, cluster)[1])

    rows = [
        {
            "host": f"host {host}",
            "needs": _needed_bytes(task, host),
            "intersections": entering(task.unit_tasks, host),
            "whole slices": entering(task.whole_slice_tasks, host),
        }
        for host in sorted({cluster.host_of(d) for d in task.dst.mesh.devices})
    ]
    table = _table(rows, "host")
    table.loc["all"] = table.sum()
    return table.rename_axis(columns="bytes")


def _needed_bytes(task: ReshardingTask, host: int) -> int:
    """Bytes of distinct elements that devices of ``host`` need and none of them holds.

    Counted element by element over a mask of the tensor: slow, and independent of unit tasks.
    """
    cluster = need_cluster([task])
    mask = np.zeros(task.shape, dtype=bool)
    for layout, needed in ((task.dst, True), (task.src, False)):
        for device, box in layout.boxes(task.shape).items():
            if cluster.host_of(device) == host:
                mask[tuple(slice(lo, hi) for lo, hi in box)] = needed
    return int(mask.sum()) * task.itemsize


def model_cluster(
    hosts: int, devices_per_host: int, nic_latency: float | str = 0.0, nic: str = "10Gbps"
) -> Cluster:
    """The cluster of section 3.1: inside a host everything is free."""
    return Cluster(
        hosts, devices_per_host, nic, nic_latency=nic_latency, intra="inf", intra_latency=0
    )


def deliver(
    strategy: str,
    hosts: int,
    devices: int,
    chunks: int = 100,
    nic_latency: float | str = 0.0,
    nbytes: int = NBYTES,
    nic: str = "10Gbps",
) -> Timeline:
    """One unit task, simulated on the model's cluster: device 0 to ``hosts`` x ``devices``.

    >>> deliver("send_recv", hosts=2, devices=2).duration_s
    0.4
    """
    check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    cluster = model_cluster(hosts + 1, devices, nic_latency, nic)
    return one_sender(strategy, nbytes, hosts, devices, cluster, chunks)


def strategy_times(hosts: int, devices: int, chunks: int = 100) -> pd.DataFrame:
    """Figure 3 for one A and B: one row a strategy of section 3.1, all numbers in units of t.

    Columns: the formula of the ``paper``, ``closed_form`` (exact) and ``simulated`` times, and
    copies of the slice that ``leave_sender`` and that ``enter_host``, the most of any receiver.
    """
    rows = []
    for name in PAPER:
        timeline = deliver(name, hosts, devices, chunks)
        t, use = timeline.plan.lower_bound_s, timeline.nic_use()
        exact = closed_form_s(name, NBYTES, hosts, devices, timeline.cluster, chunks)
        leave = max(nic.nbytes for nic in use if nic.direction == "tx" and nic.host == 0)
        enter = max(nic.nbytes for nic in use if nic.direction == "rx")
        times, copies = (exact / t, timeline.duration_s / t), (leave / NBYTES, enter / NBYTES)
        rows.append((name, PAPER[name].words, *times, *copies))
    columns = ["strategy", "paper", "closed_form", "simulated", "leave_sender", "enter_host"]
    return _table(rows, "strategy", columns).round(4)


def schedulers(
    problem: Problem | ReshardingTask,
    methods: Sequence[str] = ("naive", "load_balance", "dfs", "greedy", "ensemble", "exact"),
    time_limit_s: float = 2.0,
    seed: int = 0,
) -> pd.DataFrame:
    """The schedules of several methods: makespan, lower bound, their ratio, and what is proven.

    Times are in the unit of the problem's durations. ``bound`` is the best that the method knows;
    ``proven``: ``"unsplit"``, ``"fluid"`` (see ``Schedule.optimal``) or ``"no"``.
    """
    if isinstance(problem, ReshardingTask):
        problem = Problem.from_tasks([problem])
    rows = []
    for method in methods:
        s = solve(problem, method, time_limit_s, seed)
        rows.append((method, s.makespan, s.lower_bound, s.gap + 1, s.optimal or "no"))
    columns = ["method", "makespan", "bound", "over_bound", "proven"]
    return _table(rows, "method", columns).round(4)
