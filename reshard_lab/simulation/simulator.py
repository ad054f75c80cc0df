"""From a plan and a cluster to a timeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.simulation.engine import Run, run
from reshard_lab.simulation.hops import Hops, hops_of
from reshard_lab.simulation.jobs import Jobs, chunk_jobs, fluid_jobs
from reshard_lab.simulation.timeline import Timeline
from reshard_lab.units import format_rate

if TYPE_CHECKING:
    from reshard_lab.planning import Plan

RESOLUTIONS = ("auto", "chunks", "fluid")
MOST_FLOWS = 20_000
"""Chunks in flight from hop to hop up to which ``auto`` follows every one of them."""


def simulate(
    plan: Plan,
    resolution: str = "auto",
    *,
    cluster: Cluster | None = None,
    core_oversubscription: float | None = None,
    verify: bool = True,
) -> Timeline:
    """What ``plan`` does on its cluster, transmission by transmission.

    resolution:
        ``chunks`` follows every chunk over every hop; ``fluid`` takes all chunks of a hop as one
        flow that is never ahead of the hop before it; ``auto`` is ``chunks`` for plans of fewer
        than 20 000 of them.
    cluster:
        another cluster of the same hosts and devices to run the plan on (a slow host, a faster
        network); by default the plan's own.
    core_oversubscription:
        1 or more: all traffic between hosts shares a core that carries the speed of all NICs over
        this factor. None: the core is never the limit.
    verify:
        False leaves out ``plan.verify()``, for a plan that was verified before.

    The model is on a page in docs/simulator.md.

    >>> from reshard_lab import Cluster, Layout, ReshardingTask, plan
    >>> cluster = Cluster(3, 2, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)
    >>> src, dst = Layout(cluster.mesh(1), "R"), Layout(cluster.mesh((2, 2), first_host=1), "R")
    >>> task = ReshardingTask((1_000_000,), "int8", src, dst, cluster)
    >>> for name in ("send_recv", "local_allgather", "global_allgather", "broadcast"):
    ...     print(name, round(simulate(plan(task, name)).duration_s, 6))
    send_recv 4.0
    local_allgather 2.0
    global_allgather 1.75
    broadcast 1.01
    """
    if not hasattr(plan, "transfers"):
        raise ReshardError(f"simulate takes a plan, not {plan!r}; make one with plan(task)")
    check_choice("resolution", resolution, RESOLUTIONS)
    on = plan.cluster if cluster is None else _like(cluster, plan.cluster)
    core_Bps = _core_Bps(core_oversubscription, on)
    if verify:
        plan.verify()
    hops = hops_of(plan, on)
    if resolution == "auto":
        resolution = "chunks" if int(hops.chunks.sum()) < MOST_FLOWS else "fluid"
    jobs = (chunk_jobs if resolution == "chunks" else fluid_jobs)(hops, on, core_Bps)
    return _timeline(plan, on, resolution, hops, jobs, run(jobs))


def _like(cluster: Cluster, planned: Cluster) -> Cluster:
    given = (cluster.hosts, cluster.devices_per_host)
    if given != (planned.hosts, planned.devices_per_host):
        raise ReshardError(
            f"the plan is for {planned.hosts} hosts x {planned.devices_per_host} devices, the "
            f"cluster has {given[0]} x {given[1]}; give one of the same hosts and devices"
        )
    return cluster


def _core_Bps(oversubscription: float | None, cluster: Cluster) -> float:
    if oversubscription is None:
        return math.inf
    if not isinstance(oversubscription, (int, float)) or not 1 <= oversubscription < math.inf:
        raise ReshardError(
            f"core_oversubscription must be a number of at least 1, not {oversubscription!r}; "
            f"4 means a core of a quarter of all NICs "
            f"({format_rate(_all_nics_Bps(cluster) / 4)} here), None means no limit"
        )
    return _all_nics_Bps(cluster) / oversubscription


def _all_nics_Bps(cluster: Cluster) -> float:
    return math.fsum(
        rate * nics for rate, nics in zip(cluster.host_nic_Bps, cluster.host_nics, strict=True)
    )


def _timeline(
    plan: Plan, cluster: Cluster, resolution: str, hops: Hops, jobs: Jobs, ran: Run
) -> Timeline:
    unit = np.array([t.unit for t in plan.transfers], dtype=np.int64)[hops.transfer]
    task = np.array([u.task for u in plan.units], dtype=np.int64)[unit]
    kind = np.where(hops.crosses, "network", "inside")
    kind = np.where(hops.source == hops.destination, "copy", kind)
    row, whole = jobs.row, jobs.chunk < 0
    columns = {
        "operation": kind[row],
        "task": task[row],
        "unit": unit[row],
        "transfer": hops.transfer[row],
        "hop": hops.hop[row],
        "first_chunk": np.where(whole, 0, jobs.chunk),
        "stop_chunk": np.where(whole, hops.chunks[row], jobs.chunk + 1),
        "source": hops.source[row],
        "destination": hops.destination[row],
        "tx_nic": hops.tx_nic[row],
        "rx_nic": hops.rx_nic[row],
        "start_s": ran.start_s,
        "end_s": ran.end_s,
        "nbytes": jobs.nbytes,
    }
    return Timeline(plan, cluster, resolution, columns, jobs.work_s, ran.cause, ran.held)
