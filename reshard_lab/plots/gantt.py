"""Plans and simulated plans over time: a row for each side of each NIC, with the lower bound."""

from __future__ import annotations

from collections.abc import Mapping

from reshard_lab.errors import ReshardError, check_type, short
from reshard_lab.planning.nics import Gantt
from reshard_lab.plots import svg
from reshard_lab.plots.nic_rows import NicRows, TaskSpan, nic_rows_svg, row_name
from reshard_lab.plots.time_axis import instant
from reshard_lab.simulation.timeline import Timeline
from reshard_lab.units import format_seconds

_LEGEND = (
    "A bar is a unit task on a NIC, numbered; "
    "the share of the time in which the NIC lies idle stands at the right."
)
_FROM_PLAN = "plan.gantt() makes one"


def gantt(chart: Gantt, caption: str | None = None) -> svg.Figure:
    """``chart`` (see ``Plan.gantt``) as a figure; its table is ``chart.to_frame()``."""
    check_type("chart", chart, Gantt, _FROM_PLAN)
    words = caption or (
        f"Predicted {format_seconds(chart.makespan_s)}; lower bound "
        f"{format_seconds(chart.lower_bound_s)} (dashed). {_LEGEND}"
    )
    alt = _gantt_alt(chart)
    return svg.Figure(nic_rows_svg({"": _gantt_rows(chart)}, alt), words, alt)


def gantts(
    charts: Mapping[str, Gantt], moment_s: float | None = None, caption: str | None = None
) -> svg.Figure:
    """Several plans by name, one below the other on one time axis, as a figure.

    moment_s:
        a time that is marked: bars under way then have a thick outline, those to come are empty.
    """
    check_type("charts", charts, Mapping, "give them as {name: plan.gantt()}")
    if not charts:
        raise ReshardError("no plan to draw; give at least one, as {name: plan.gantt()}")
    charts = {
        str(name): check_type(f"chart {short(name)}", chart, Gantt, _FROM_PLAN)
        for name, chart in charts.items()
    }
    words = caption or (
        "On one time axis, each with its lower bound (dashed): "
        + "; ".join(f"{name}, {format_seconds(c.makespan_s)}" for name, c in charts.items())
        + f". {_LEGEND}"
    )
    alt = " ".join(f"{name}: {_gantt_alt(c)}" for name, c in charts.items())
    if moment_s is not None:
        moment = format_seconds(instant("moment_s", moment_s))
        words += f" At {moment} (the upright line): thick, under way; dotted, still to come."
        alt += f" {moment} is marked."
    drawn = nic_rows_svg({name: _gantt_rows(c) for name, c in charts.items()}, alt, moment_s)
    return svg.Figure(drawn, words, alt)


def draw_timeline(timeline: Timeline, caption: str | None = None) -> svg.Figure:
    """``timeline`` as a figure, a row a NIC and direction; its table is ``timeline.to_frame()``."""
    plan = check_type("timeline", timeline, Timeline, "reshard_lab.simulate makes one").plan
    duration = format_seconds(timeline.duration_s)
    words = caption or (
        f"Simulated {duration}; lower bound "
        f"{format_seconds(plan.lower_bound_s)} (dashed). {_LEGEND}"
    )
    nic_rows = _timeline_rows(timeline)
    alt = nic_rows.alt(f"{len(plan.unit_tasks)} unit tasks; simulated {duration}")
    return svg.Figure(nic_rows_svg({"": nic_rows}, alt), words, alt)


def _gantt_rows(chart: Gantt) -> NicRows:
    """NIC sides that send, by NIC, then those that receive."""
    spans: dict[tuple[str, int], list[TaskSpan]] = {}
    for delivery in chart.deliveries:
        if delivery.sender_nic is not None:
            span = TaskSpan(delivery.start_s, delivery.end_s, delivery.task)
            for key in [
                ("tx", delivery.sender_nic),
                *(("rx", nic) for nic in delivery.receiver_nics),
            ]:
                spans.setdefault(key, []).append(span)
    order = sorted(spans, key=lambda k: (k[0] == "rx", k[1]))
    rows = {row_name(chart.nics[nic], side): spans[side, nic] for side, nic in order}
    idle = {row_name(chart.nics[i.nic], i.side): i.share for i in chart.idle}
    inside = any(delivery.sender_nic is None for delivery in chart.deliveries)
    return NicRows(rows, idle, chart.makespan_s, chart.lower_bound_s, inside)


def _gantt_alt(chart: Gantt) -> str:
    order = "in the order of the plan" if chart.ordered else "side by side, sharing the NICs"
    tasks = len({delivery.task for delivery in chart.deliveries})
    predicted = f"predicted {format_seconds(chart.makespan_s)}"
    return _gantt_rows(chart).alt(f"{tasks} unit tasks {order}; {predicted}")


def _timeline_rows(timeline: Timeline) -> NicRows:
    columns, end_s = timeline.columns, timeline.duration_s
    rows, idle = {}, {}
    for use in sorted(timeline.nic_use(), key=lambda u: (u.direction == "rx", u.nic)):
        name = row_name(timeline.cluster.nic_text(use.nic), use.direction)
        own = columns[f"{use.direction}_nic"] == use.nic
        values = (columns[key][own].tolist() for key in ("start_s", "end_s", "unit"))
        rows[name] = [TaskSpan(*row) for row in zip(*values, strict=True)]
        idle[name] = use.idle_s / end_s if end_s else 0.0
    inside = bool((columns["tx_nic"] < 0).any())
    return NicRows(rows, idle, end_s, timeline.plan.lower_bound_s, inside)
