"""A simulated plan over time: what every NIC carried, and when."""

from __future__ import annotations

from reshard_lab.errors import check_type
from reshard_lab.plots import svg
from reshard_lab.plots.gantt import Chart, row_name, rows_svg
from reshard_lab.plots.spans import Span
from reshard_lab.simulation.timeline import NicUse, Timeline
from reshard_lab.units import format_seconds


def draw_timeline(timeline: Timeline, caption: str | None = None) -> svg.Figure:
    """``timeline`` as a figure, a row a NIC and direction; its table is ``timeline.to_frame()``."""
    plan = check_type("timeline", timeline, Timeline, "reshard_lab.simulate makes one").plan
    words = caption or (
        f"Simulated {format_seconds(timeline.duration_s)}; lower bound "
        f"{format_seconds(plan.lower_bound_s)} (dashed). A bar is a unit task on a NIC, numbered; "
        "the share of the time in which the NIC lies idle stands at the right."
    )
    uses = sorted(timeline.nic_use(), key=lambda u: (u.direction == "rx", u.nic))
    alt = (
        f"{len(uses)} NIC sides over time carry {len(plan.unit_tasks)} unit tasks; simulated "
        f"{format_seconds(timeline.duration_s)}, lower bound {format_seconds(plan.lower_bound_s)}"
    )
    shares = [f"{_name(timeline, u)}: {_idle(timeline, u):.0%} idle" for u in uses[:8]]
    alt = ". ".join([alt, *shares]) + ("." if len(uses) <= 8 else ", and so on.")
    return svg.figure(rows_svg({"": _chart(timeline, uses)}, alt), words, alt)


def _chart(timeline: Timeline, uses: list[NicUse]) -> Chart:
    columns = timeline.columns
    rows = {}
    for use in uses:
        own = columns[f"{use.direction}_nic"] == use.nic
        values = (columns[key][own].tolist() for key in ("start_s", "end_s", "unit"))
        rows[_name(timeline, use)] = [Span(*row) for row in zip(*values, strict=True)]
    idle = {_name(timeline, use): _idle(timeline, use) for use in uses}
    inside = bool((columns["tx_nic"] < 0).any())
    return Chart(rows, idle, timeline.duration_s, timeline.plan.lower_bound_s, inside)


def _name(timeline: Timeline, use: NicUse) -> str:
    return row_name(timeline.cluster.nic_text(use.nic), use.direction)


def _idle(timeline: Timeline, use: NicUse) -> float:
    return use.idle_s / timeline.duration_s if timeline.duration_s else 0.0
