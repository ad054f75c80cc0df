"""``reshard-lab simulate``: what a plan does on its cluster, transmission by transmission."""

from __future__ import annotations

import argparse
from typing import Any

from reshard_lab.cli.arguments import add_plan, add_task, plan_or_file
from reshard_lab.cli.output import Output
from reshard_lab.cli.plan import plan_data
from reshard_lab.errors import check_int, check_path
from reshard_lab.planning import Plan
from reshard_lab.planning.explain import table
from reshard_lab.simulation import RESOLUTIONS, PathStep, Timeline, simulate
from reshard_lab.units import format_bytes, format_seconds

HELP = "simulate a plan: when every NIC is busy, and which waits make it as long as it is"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a file that 'plan -o' wrote")
    add_task(parser, required=False)
    add_plan(parser)
    group = parser.add_argument_group("simulation")
    names = f"{', '.join(RESOLUTIONS)} (default auto)"
    group.add_argument("--resolution", default="auto", help=names)
    core = "all traffic between hosts shares the speed of all NICs over N"
    group.add_argument("--core-oversubscription", type=float, metavar="N", help=core)
    group.add_argument("--trace", metavar="FILE", help="write a trace that Perfetto opens")
    limit = "steps of the critical path printed at most, 0 for all (default 20)"
    group.add_argument("--limit", type=int, default=20, metavar="N", help=limit)


def run(args: argparse.Namespace) -> Output:
    """Simulate the plan of a file, or the one that the options describe."""
    if args.trace is not None:
        check_path("--trace", args.trace)
    made = plan_or_file(args)
    check_int("--limit", args.limit)
    timeline = simulate(made, args.resolution, core_oversubscription=args.core_oversubscription)
    text = _text(timeline, args.limit)
    if args.trace is not None:
        timeline.to_chrome_trace(args.trace)
        text += f"\n\ntrace written to {args.trace}; open it at https://ui.perfetto.dev"
    return Output(text, {"plan": plan_data(made), "simulation": timeline_data(timeline)})


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


def _text(timeline: Timeline, limit: int) -> str:
    plan = timeline.plan
    rows = [
        ("plan", f"{plan.strategy}, scheduler {plan.scheduler}, {len(plan.units)} unit tasks"),
        ("simulated", f"{format_seconds(timeline.duration_s)}, {_resolved(timeline)}"),
        ("planned", format_seconds(plan.makespan_s)),
        ("lower bound", f"{format_seconds(plan.lower_bound_s)} on {timeline.cluster!r}"),
    ]
    parts = ["\n".join(f"{name:<12} {words}" for name, words in rows)]
    use = timeline.nic_use()
    if use:
        head = ("host", "NIC", "", "carries", "busy", "idle", "of its capacity")
        lines = [
            (
                str(u.host),
                str(u.nic),
                "sends" if u.direction == "tx" else "receives",
                format_bytes(u.nbytes),
                format_seconds(u.busy_s),
                format_seconds(u.idle_s),
                f"{u.utilisation:.0%}",
            )
            for u in use
        ]
        parts.append("\n".join(table([head, *lines])))
    path = timeline.critical_path()
    if path:
        steps = [
            (
                format_seconds(s.start_s),
                format_seconds(s.end_s),
                _hop(plan, s),
                s.waits,
            )
            for s in path[: limit or len(path)]
        ]
        more = len(path) - len(steps)
        drawn = table([("from", "to", "critical path", "because"), *steps])
        parts.append("\n".join([*drawn, *([f"... and {more} more steps"] * (more > 0))]))
    return "\n\n".join(parts)


def _hop(plan: Plan, step: PathStep) -> str:
    """What is under way in a step of the critical path."""
    unit = plan.transfers[step.transfer].unit
    return f"transfer {step.transfer} (task {unit}), device {step.source} -> {step.destination}"


def _resolved(timeline: Timeline) -> str:
    unit = "chunks of hops" if timeline.resolution == "chunks" else "hops, each one flow"
    return f"{len(timeline)} {unit}"
