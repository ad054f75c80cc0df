"""What the notebooks on strategies, scheduling and pipelines tabulate (sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reshard_lab import pipeline
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.layout import Layout
from reshard_lab.planning import plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.scheduling import Problem, solve
from reshard_lab.simulation import Timeline
from reshard_lab.simulation.delivery import one_sender
from reshard_lab.strategies import PAPER, closed_form_s

if TYPE_CHECKING:
    import pandas as pd

NBYTES = 125_000_000
"""A slice that takes 0.1 s through a NIC of 10 Gbit/s: the t of section 3.1."""
OVERLAP_STEPS = (
    ("1F1B, transfers block", "1f1b", False, False),
    ("1F1B, overlapped", "1f1b", True, False),
    ("eager-1F1B, overlapped", "eager_1f1b", True, False),
    ("eager-1F1B, weights delayed", "eager_1f1b", True, True),
)
"""What a step is called, its schedule, whether transfers overlap, whether weights are delayed."""


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

    Columns: the formula as the ``paper`` writes it, ``closed_form`` (exact) and ``simulated``
    times, and copies of the slice that ``leave_sender`` by its NIC, and that
    ``enter_host``: the most by the NIC of any receiving host.
    """
    rows = []
    for name in PAPER:
        timeline = deliver(name, hosts, devices, chunks)
        t = timeline.plan.lower_bound_s
        moved: dict[str, int] = {"tx": 0, "rx": 0}
        for use in timeline.nic_use():
            if use.direction == "rx" or use.host == 0:
                moved[use.direction] = max(moved[use.direction], use.nbytes)
        exact = closed_form_s(name, NBYTES, hosts, devices, timeline.cluster, chunks)
        rows.append(
            {
                "strategy": name,
                "paper": PAPER[name].words,
                "closed_form": exact / t,
                "simulated": timeline.duration_s / t,
                "leave_sender": moved["tx"] / NBYTES,
                "enter_host": moved["rx"] / NBYTES,
            }
        )
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("strategy").round(4)


def chunk_times(
    counts: Sequence[int], nic_latency: float | str, hosts: int = 2, devices: int = 2
) -> pd.DataFrame:
    """A broadcast cut into each of ``counts`` chunks: simulated time in units of t, by K."""
    rows = []
    for count in counts:
        timeline = deliver("broadcast", hosts, devices, count, nic_latency)
        rows.append({"K": count, "simulated": timeline.duration_s / timeline.plan.lower_bound_s})
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("K").round(4)


def rows_to_columns(
    rows: int, columns: int, hosts: int, cell_nbytes: int = NBYTES
) -> ReshardingTask:
    """A table cut by rows over ``hosts`` hosts goes to columns over as many others, a device each.

    Every cell of the table has ``cell_nbytes`` bytes: 0.1 s through a NIC. Where a size does not
    divide, pieces differ in size, and so do the unit tasks.

    >>> len(rows_to_columns(4, 4, hosts=2).unit_tasks)
    4
    """
    check_int("hosts", hosts, 1)
    cluster = model_cluster(2 * hosts, 1)
    src = Layout(cluster.mesh((hosts,)), "S0RR")
    dst = Layout(cluster.mesh((hosts,), first_host=hosts), "RS0R")
    return ReshardingTask((rows, columns, cell_nbytes), "uint8", src, dst, cluster)


def on_machines(machines: Sequence[str] = ("p3.8xlarge", "p4d", "DGX-H100")) -> pd.DataFrame:
    """Case 9 of table 2 over whole hosts of several described machines: 2 GiB, rows to columns.

    One row a machine: ``nics`` of a host and the rate of each in Gbit/s, ``lower_bound_s``,
    ``predicted_s``, ``over_bound``, and the ``strategy`` chosen.
    """
    rows = []
    for name in machines:
        cluster = Cluster.preset(name, hosts=4)
        shape = 2, cluster.devices_per_host
        src = Layout(cluster.mesh(shape), "RS0R")
        dst = Layout(cluster.mesh(shape, first_host=2), "RRS0")
        made = plan(ReshardingTask((1024, 1024, 512), "float32", src, dst, cluster), "auto")
        rows.append(
            {
                "machine": name,
                "nics": cluster.nics_per_host,
                "nic_Gbps": cluster.nic_Bps * 8 / 1e9,
                "lower_bound_s": made.lower_bound_s,
                "predicted_s": made.makespan_s,
                "over_bound": made.makespan_s / made.lower_bound_s,
                "strategy": made.strategy,
            }
        )
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("machine").round(6)


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
    given = Problem.from_tasks([problem]) if isinstance(problem, ReshardingTask) else problem
    rows = []
    for method in methods:
        made = solve(given, method, time_limit_s, seed)
        rows.append(
            {
                "method": method,
                "makespan": made.makespan,
                "bound": made.lower_bound,
                "over_bound": made.gap + 1,
                "proven": made.optimal or "no",
            }
        )
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("method").round(4)


def steady_state(
    schedules: Sequence[str],
    transfers_s: Sequence[float],
    stages: int = 4,
    forward_s: float = 1.0,
    backward_s: float = 2.0,
) -> pd.DataFrame:
    """Seconds that one more microbatch costs in the long run: (T(128) - T(64)) / 64 (section 4).

    One row a transfer time c, one column a schedule; transfers overlap with compute.
    """
    if not schedules or not transfers_s:
        raise ReshardError("name at least one schedule and one transfer time")
    rows = []
    for c in transfers_s:
        row: dict[str, float] = {"c": c}
        for name in schedules:
            short, long = (
                pipeline.simulate(
                    pipeline.schedule(name, stages, count), forward_s, backward_s, c
                ).makespan_s
                for count in (64, 128)
            )
            row[name] = (long - short) / 64
        rows.append(row)
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("c").round(4)


def live_microbatches(
    schedules: Sequence[str], stages: int = 4, microbatches: int = 8
) -> pd.DataFrame:
    """Most microbatches live at once, one row a schedule, one column a stage."""
    rows = []
    for name in schedules:
        made = pipeline.simulate(pipeline.schedule(name, stages, microbatches), 1.0, 2.0)
        peaks = {f"stage {s}": live for s, live in enumerate(made.peak_live)}
        rows.append({"schedule": name, **peaks})
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("schedule")


def overlap_steps(
    microbatches: Sequence[int] = (8,),
    stages: int = 4,
    forward_s: float = 1.0,
    backward_s: float = 2.0,
    transfer_s: float = 0.5,
) -> pd.DataFrame:
    """Seconds until a pipeline ends, step by step from transfers that block to the paper's method.

    One row a step, one column a number of microbatches.
    """
    rows = []
    for words, name, overlap, delay in OVERLAP_STEPS:
        row: dict[str, object] = {"step": words}
        for count in microbatches:
            lists = pipeline.schedule(name, stages, count, delay_weights=delay)
            made = pipeline.simulate(lists, forward_s, backward_s, transfer_s, overlap=overlap)
            row[f"M = {count}"] = made.makespan_s
        rows.append(row)
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index("step").round(4)
