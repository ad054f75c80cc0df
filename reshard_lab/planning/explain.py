"""A plan in words."""

from reshard_lab.boxes import box_text
from reshard_lab.errors import check_int
from reshard_lab.planning.record import PlanRecord
from reshard_lab.resharding import nic_hosts
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
    kinds = dict.fromkeys(zip(cluster.host_nics, cluster.host_nic_Bps, strict=True))
    nics = [f"{'one NIC' if n == 1 else f'{n} NICs'} of {format_rate(r)}" for n, r in kinds]
    more = f" and {len(nics) - 3} other kinds" if len(nics) > 3 else ""
    lines.append(
        f"cluster: {cluster.hosts} hosts x {cluster.devices_per_host} devices, "
        f"{' or '.join(nics[:3])}{more} a host"
    )
    between, inside = map(format_seconds, (cluster.nic_latency_s, cluster.intra_latency_s))
    lines.append(
        f"a message takes {between} to another host, {inside} inside one, and then its bytes over "
        f"the NIC's speed, or {cluster.intra_text} inside"
    )
    return lines


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
        tensor = f"{planned.task}: " if len(plan.tasks) > 1 else ""
        rows.append(
            (
                str(i),
                tensor + box_text(unit.box),
                format_bytes(unit.nbytes),
                "-" if stays else f"{planned.sender} of {device_list(unit.senders)}",
                device_list(unit.receivers) + (" (local)" if stays else ""),
                format_seconds(planned.start_s),
                format_seconds(planned.start_s + planned.duration_s),
            )
        )
    more = [f"... and {len(units) - limit} more"] if len(units) > limit else []
    return [f"{len(units)} unit tasks, {len(plan.transfers)} transfers", *table(rows), *more]


def _times(plan: PlanRecord) -> list[str]:
    bound = plan.lower_bound_s
    over = ""
    if bound > 0:
        ratio = plan.makespan_s / bound
        over = f", {ratio:.3g} x the bound" if ratio < 1000 else f", {ratio:,.0f} x the bound"
    crossing = sum(u.nbytes * len(nic_hosts(u, plan.cluster)[1]) for u in plan.unit_tasks)
    proof = _PROOF.get(plan.optimal or "", "not proven optimal")
    return [
        f"bytes that must enter a host through its NICs: {format_bytes(crossing)} in all",
        f"predicted time {format_seconds(plan.makespan_s)}{over}",
        f"lower bound {format_seconds(bound)} (NIC traffic alone, no latency)",
        f"schedule of the unit tasks: {proof}",
    ]
