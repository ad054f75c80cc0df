"""``reshard-lab explain``, ``plan`` and ``simulate``: what needs no process."""

import argparse
from typing import Any

from reshard_lab.cli import common
from reshard_lab.cli.common import Command, Output, facts_text, table_text
from reshard_lab.errors import check_int, check_path
from reshard_lab.layout import Layout
from reshard_lab.planning import Plan
from reshard_lab.plots.device_grid import layout_panel
from reshard_lab.plots.layouts import mesh_text, side_by_side
from reshard_lab.plots.unit_tasks import unit_tasks_text
from reshard_lab.resharding import ReshardingTask
from reshard_lab.simulation import RESOLUTIONS, Timeline, simulate
from reshard_lab.units import format_bytes, format_seconds

EXPLAIN = "print the unit tasks of a resharding: each box, who holds it, who needs it"
PLAN = "plan a resharding: strategy, senders, order, predicted time and its lower bound"
SIMULATE = "simulate a plan: when every NIC is busy, and which waits make it as long as it is"


def _add_explain(parser: argparse.ArgumentParser) -> None:
    common.add_task(parser)
    whole = "the paper's text instead of its code: a source slice travels whole"
    parser.add_argument("--whole-slices", action="store_true", help=whole)
    limit = "unit tasks printed at most, 0 for all (default 64)"
    parser.add_argument("--limit", type=int, default=64, metavar="N", help=limit)


def run_explain(args: argparse.Namespace) -> Output:
    """Print the two meshes, then the unit tasks."""
    task = common.task_of(args)
    limit = check_int("--limit", args.limit) or None
    units = task.whole_slice_tasks if args.whole_slices else task.unit_tasks
    data = {
        **common.task_data(task),
        "reading": "whole slices" if args.whole_slices else "intersections",
        "unit_tasks": [unit._asdict() for unit in units],
    }
    src, dst = _mesh_text(task, task.src, "source"), _mesh_text(task, task.dst, "destination")
    head = f"tensor {'x'.join(map(str, task.shape))} {task.dtype}"
    parts = [head, side_by_side(src, dst), unit_tasks_text(task, args.whole_slices, limit)]
    return Output("\n\n".join(parts), data)


def _mesh_text(task: ReshardingTask, layout: Layout, end: str) -> str:
    rule = "" if layout.rule == "chunk" else f", rule {layout.rule}"
    title = f"{end}: {layout.spec} on {'x'.join(map(str, layout.mesh.shape))}{rule}"
    return mesh_text(layout_panel(title, layout, task.shape, task.cluster))


def _add_plan(parser: argparse.ArgumentParser) -> None:
    common.add_task(parser)
    common.add_plan(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the plan as JSON")
    limit = "unit tasks printed at most, 0 for all (default 20)"
    parser.add_argument("--limit", type=int, default=20, metavar="N", help=limit)


def run_plan(args: argparse.Namespace) -> Output:
    """Build and verify the plan, save it if asked, and explain it."""
    if args.output is not None:
        check_path("--output", args.output)
    plan = common.plan_of(args)
    plan.verify()
    text = plan.explain(limit=check_int("--limit", args.limit) or len(plan.units))
    if args.output is not None:
        plan.to_json(args.output)
        text += f"\nwritten to {args.output}"
    return Output(text, plan_data(plan))


_CHOSEN = ("strategy", "scheduler", "chunks", "seed")
_RESULT = ("makespan_s", "lower_bound_s", "optimal", "notes")


def plan_data(plan: Plan) -> dict[str, Any]:
    """``plan`` in plain values, without its transfers (a plan file has those)."""
    return {
        "tasks": [common.task_data(task) for task in plan.tasks],
        **{key: getattr(plan, key) for key in (*_CHOSEN, *_RESULT)},
        "peak_bytes": {str(device): n for device, n in plan.peak_bytes.items()},
        "transfers": len(plan.transfers),
        "units": [
            {**planned._asdict(), **unit._asdict()}
            for planned, unit in zip(plan.units, plan.unit_tasks, strict=True)
        ],
    }


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    common.add_plan_file(parser)
    add = parser.add_argument_group("simulation").add_argument
    add("--resolution", default="auto", help=f"{', '.join(RESOLUTIONS)} (default auto)")
    core = "all traffic between hosts shares the speed of all NICs over N"
    add("--core-oversubscription", type=float, metavar="N", help=core)
    add("--trace", metavar="FILE", help="write a trace that Perfetto opens")
    limit = "steps of the critical path printed at most, 0 for all (default 20)"
    add("--limit", type=int, default=20, metavar="N", help=limit)


def run_simulate(args: argparse.Namespace) -> Output:
    """Simulate the plan of a file, or the one that the options describe."""
    if args.trace is not None:
        check_path("--trace", args.trace)
    plan = common.plan_or_file(args)
    check_int("--limit", args.limit)
    timeline = simulate(plan, args.resolution, core_oversubscription=args.core_oversubscription)
    text = _timeline_text(timeline, args.limit)
    if args.trace is not None:
        timeline.to_chrome_trace(args.trace)
        text += f"\n\ntrace written to {args.trace}; open it at https://ui.perfetto.dev"
    return Output(text, {"plan": plan_data(plan), "simulation": timeline_data(timeline)})


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """``timeline`` in plain values."""
    return {
        "duration_s": timeline.duration_s,
        "resolution": timeline.resolution,
        "nics": [use._asdict() for use in timeline.nic_use()],
        "critical_path": [step._asdict() for step in timeline.critical_path()],
        "peak_staging_bytes": {str(d): s.peak_nbytes for d, s in timeline.staging().items()},
        "transmissions": [row._asdict() for row in timeline],
    }


def _timeline_text(timeline: Timeline, limit: int) -> str:
    plan = timeline.plan
    unit = "chunks of hops" if timeline.resolution == "chunks" else "hops, each one flow"
    facts = [
        ("plan", f"{plan.strategy}, scheduler {plan.scheduler}, {len(plan.units)} unit tasks"),
        ("simulated", f"{format_seconds(timeline.duration_s)}, {len(timeline)} {unit}"),
        ("planned", format_seconds(plan.makespan_s)),
        ("lower bound", f"{format_seconds(plan.lower_bound_s)} on {timeline.cluster!r}"),
    ]
    parts = [facts_text(facts)]
    use = timeline.nic_use()
    if use:
        rows = [("host", "NIC", "", "carries", "busy", "idle", "of its capacity")]
        for u in use:
            does = "sends" if u.direction == "tx" else "receives"
            busy, idle = format_seconds(u.busy_s), format_seconds(u.idle_s)
            figures = format_bytes(u.nbytes), busy, idle, f"{u.utilisation:.0%}"
            rows.append((str(u.host), str(u.nic), does, *figures))
        parts.append(table_text(rows))
    path = timeline.critical_path()
    if path:
        steps = [("from", "to", "critical path", "because")]
        for s in path[: limit or len(path)]:
            number = plan.transfers[s.transfer].unit
            hop = f"transfer {s.transfer} (task {number}), device {s.source} -> {s.destination}"
            steps.append((format_seconds(s.start_s), format_seconds(s.end_s), hop, s.waits))
        more = len(path) + 1 - len(steps)
        parts.append(table_text(steps) + f"\n... and {more} more steps" * (more > 0))
    return "\n\n".join(parts)


COMMANDS = {
    "explain": Command(EXPLAIN, _add_explain, run_explain),
    "plan": Command(PLAN, _add_plan, run_plan),
    "simulate": Command(SIMULATE, _add_simulate, run_simulate),
}
