"""A plan in words."""

from __future__ import annotations

from reshard_lab.boxes import box_text
from reshard_lab.cluster import Cluster
from reshard_lab.errors import check_int
from reshard_lab.planning.record import PlanRecord
from reshard_lab.resharding import UnitTask, nic_hosts
from reshard_lab.units import device_list, format_bytes, format_rate, format_seconds, table

_PROOF = {
    "fluid": "proven optimal in bytes over NIC bandwidth, also against split tasks",
    "unsplit": "proven optimal in bytes over NIC bandwidth, among schedules of whole tasks",
}


def explain(plan: PlanRecord, limit: int = 20) -> str:
    """``plan`` as text; at most ``limit`` unit tasks are listed, in order of their start."""
    check_int("limit", limit)
    lines = [*_tensors(plan), *_choices(plan), "", *_units(plan, limit), "", *_times(plan)]
    return "\n".join(lines)


def _tensors(plan: PlanRecord) -> list[str]:
    cluster = plan.cluster
    lines = [
        f"tensor {i}: shape {task.shape} {task.dtype}, {format_bytes(task.nbytes)}: "
        f"{task.src} -> {task.dst}"
        for i, task in enumerate(plan.tasks)
    ]
    lines.append(
        f"cluster: {cluster.hosts} hosts x {cluster.devices_per_host} devices, {_nics(cluster)}"
    )
    between, inside = map(format_seconds, (cluster.nic_latency_s, cluster.intra_latency_s))
    lines.append(
        f"a message takes {between} to another host, {inside} inside one, and then its bytes over "
        f"the NIC's speed, or {cluster.intra_text} inside"
    )
    return lines


def _nics(cluster: Cluster) -> str:
    """What every host has, or the kinds of hosts there are."""
    kinds = dict.fromkeys(zip(cluster.host_nics, cluster.host_nic_Bps, strict=True))
    words = [f"{'one NIC' if n == 1 else f'{n} NICs'} of {format_rate(r)}" for n, r in kinds]
    more = f" and {len(words) - 3} other kinds" if len(words) > 3 else ""
    return f"{' or '.join(words[:3])}{more} a host"


def _choices(plan: PlanRecord) -> list[str]:
    most = f"up to {plan.chunks} chunks" if plan.chunks > 1 else "in one piece"
    chunks = f", {most}" if plan.strategy == "broadcast" else ""
    lines = [f"strategy {plan.strategy}{chunks}; scheduler {plan.scheduler}, seed {plan.seed}"]
    if not plan.delivers:
        lines.append("signal moves one byte a transfer and delivers no data: an upper bound only")
    return lines + list(plan.notes)


def _units(plan: PlanRecord, limit: int) -> list[str]:
    units = plan.unit_tasks
    order = sorted(range(len(units)), key=lambda i: (plan.units[i].start_s, i))
    rows = [("task", "box", "size", "sender", "receivers", "start", "end")]
    for i in order[:limit]:
        planned, unit = plan.units[i], units[i]
        stays = set(unit.receivers) <= set(unit.senders)
        box = (
            box_text(unit.box) if len(plan.tasks) == 1 else f"{planned.task}: {box_text(unit.box)}"
        )
        rows.append(
            (
                str(i),
                box,
                format_bytes(unit.nbytes),
                "-" if stays else f"{planned.sender} of {device_list(unit.senders)}",
                device_list(unit.receivers) + (" (local)" if stays else ""),
                format_seconds(planned.start_s),
                format_seconds(planned.start_s + planned.duration_s),
            )
        )
    lines = [f"{len(units)} unit tasks, {len(plan.transfers)} transfers"]
    lines += table(rows)
    if len(units) > limit:
        lines.append(f"... and {len(units) - limit} more")
    return lines


def _times(plan: PlanRecord) -> list[str]:
    bound = plan.lower_bound_s
    over = f", {_times_text(plan.makespan_s / bound)} the bound" if bound > 0 else ""
    crossing = sum(_network_bytes(unit, plan) for unit in plan.unit_tasks)
    proof = _PROOF.get(plan.optimal or "", "not proven optimal")
    return [
        f"bytes that must enter a host through its NICs: {format_bytes(crossing)} in all",
        f"predicted time {format_seconds(plan.makespan_s)}{over}",
        f"lower bound {format_seconds(bound)} (NIC traffic alone, no latency)",
        f"schedule of the unit tasks: {proof}",
    ]


def _times_text(ratio: float) -> str:
    return f"{ratio:.3g} x" if ratio < 1000 else f"{ratio:,.0f} x"


def _network_bytes(unit: UnitTask, plan: PlanRecord) -> int:
    return unit.nbytes * len(nic_hosts(unit, plan.cluster)[1])
