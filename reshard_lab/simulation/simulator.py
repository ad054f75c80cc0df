"""From a plan and a cluster to a timeline, and what users ask of one."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, check_int, need
from reshard_lab.paper_cases import one_sender_task
from reshard_lab.planning import Plan
from reshard_lab.planning import plan as plan_task
from reshard_lab.simulation.engine import run
from reshard_lab.simulation.flows import flows_of, links_of
from reshard_lab.simulation.timeline import (
    NicUse,
    PathStep,
    Staging,
    TimelineRecord,
    critical_path,
    nic_use,
    staging,
)
from reshard_lab.simulation.trace import chrome_trace
from reshard_lab.units import format_rate

RESOLUTIONS = ("auto", "chunks", "fluid")
MOST_FLOWS = 20_000
"""Chunks in flight from hop to hop up to which ``auto`` follows every one of them."""


class Timeline(TimelineRecord):
    """The simulation of one plan: columns of equal length, one entry a transmission.

    Rows are in order of transfer, hop and chunk. Made by ``simulate``; read-only.
    """

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        return need("pandas", "notebooks", "a table").DataFrame(dict(self.columns))

    def nic_use(self) -> tuple[NicUse, ...]:
        """Bytes, busy and idle time of every NIC that carries something, in each direction."""
        return nic_use(self)

    def critical_path(self) -> tuple[PathStep, ...]:
        """The transmissions that made the duration, first to last, and what each waited for."""
        return critical_path(self)

    def staging(self) -> dict[int, Staging]:
        """Bytes every device stages over time (see ``Plan.peak_bytes``), for those that do."""
        return staging(self)

    def to_chrome_trace(self, path: str | Path | None = None) -> str:
        """The timeline as JSON for Perfetto or chrome://tracing, also written to ``path``."""
        return chrome_trace(self, path)


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
    planned = plan.cluster
    on = planned if cluster is None else cluster
    if (on.hosts, on.devices_per_host) != (planned.hosts, planned.devices_per_host):
        raise ReshardError(
            f"the plan is for {planned.hosts} hosts x {planned.devices_per_host} devices, the "
            f"cluster has {on.hosts} x {on.devices_per_host}; give one of the same hosts and "
            "devices"
        )
    core_Bps = _core_Bps(core_oversubscription, on)
    if verify:
        plan.verify()
    hops, links = plan.hops, links_of(plan.hops, on)
    if resolution == "auto":
        resolution = "chunks" if int(links.chunks.sum()) < MOST_FLOWS else "fluid"
    flows = flows_of(hops, links, on, core_Bps, resolution == "fluid")
    ran = run(flows)
    unit = np.array([t.unit for t in plan.transfers], dtype=np.int64)[hops.transfer]
    task = np.array([u.task for u in plan.units], dtype=np.int64)[unit]
    operation = np.where(links.crosses, "network", np.where(hops.copies, "copy", "inside"))
    row, chunk = flows.row, flows.first_chunk
    columns = {
        "operation": operation[row],
        "task": task[row],
        "unit": unit[row],
        "transfer": hops.transfer[row],
        "hop": hops.hop[row],
        "first_chunk": chunk,
        "stop_chunk": chunk + 1 if resolution == "chunks" else links.chunks[row],
        "source": hops.source[row],
        "destination": hops.destination[row],
        "tx_nic": links.tx_nic[row],
        "rx_nic": links.rx_nic[row],
        "start_s": ran.start_s,
        "end_s": ran.end_s,
        "nbytes": flows.nbytes,
    }
    return Timeline(plan, on, resolution, columns, flows.work_s, ran.cause, ran.held)


def one_sender(
    strategy: str, nbytes: int, hosts: int, devices: int, cluster: Cluster, chunks: int = 100
) -> Timeline:
    """Simulate one unit task of ``nbytes`` from device 0 to A = ``hosts`` of B = ``devices``.

    The receivers are the first B devices of hosts 1 to A of ``cluster``: the setting of
    ``strategies.closed_form_s``.

    >>> cluster = Cluster(3, 2, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)
    >>> one_sender("local_allgather", 1_000_000, 2, 2, cluster).duration_s
    2.0
    """
    check_int("nbytes", nbytes, 1), check_int("hosts", hosts, 1), check_int("devices", devices, 1)
    per = cluster.devices_per_host
    if devices > per or hosts >= cluster.hosts:
        raise ReshardError(
            f"a sender and {hosts} hosts of {devices} devices were asked, but the cluster has "
            f"{cluster.hosts} hosts of {per}; use a larger cluster"
        )
    task = one_sender_task((nbytes,), hosts, devices, cluster)
    planned = plan_task(task, strategy, "naive", chunks=chunks)
    return simulate(planned, "chunks", verify=False)  # just planned, and drawn again at every move


def _core_Bps(oversubscription: float | None, cluster: Cluster) -> float:
    if oversubscription is None:
        return math.inf
    nics = zip(cluster.host_nic_Bps, cluster.host_nics, strict=True)
    all_nics_Bps = math.fsum(rate * count for rate, count in nics)
    if not isinstance(oversubscription, (int, float)) or not 1 <= oversubscription < math.inf:
        raise ReshardError(
            f"core_oversubscription must be a number of at least 1, not {oversubscription!r}; "
            f"4 means a core of a quarter of all NICs "
            f"({format_rate(all_nics_Bps / 4)} here), None means no limit"
        )
    return all_nics_Bps / oversubscription
