"""``reshard-lab plan``: who sends what, when, and how long it takes."""

from __future__ import annotations

import argparse
from typing import Any

from reshard_lab.cli.arguments import add_plan, add_task, plan_of, task_data
from reshard_lab.cli.output import Output
from reshard_lab.errors import check_int, check_path
from reshard_lab.planning import Plan

HELP = "plan a resharding: strategy, senders, order, predicted time and its lower bound"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_task(parser)
    add_plan(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the plan as JSON")
    limit = "unit tasks printed at most, 0 for all (default 20)"
    parser.add_argument("--limit", type=int, default=20, metavar="N", help=limit)


def run(args: argparse.Namespace) -> Output:
    """Build and verify the plan, save it if asked, and explain it."""
    if args.output is not None:
        check_path("--output", args.output)
    made = plan_of(args)
    made.verify()
    text = made.explain(limit=check_int("--limit", args.limit) or len(made.units))
    if args.output is not None:
        made.to_json(args.output)
        text += f"\nwritten to {args.output}"
    return Output(text, plan_data(made))


def plan_data(plan: Plan) -> dict[str, Any]:
    """``plan`` in plain values, without its transfers (a plan file has those)."""
    return {
        "tasks": [task_data(task) for task in plan.tasks],
        "strategy": plan.strategy,
        "scheduler": plan.scheduler,
        "chunks": plan.chunks,
        "seed": plan.seed,
        "makespan_s": plan.makespan_s,
        "lower_bound_s": plan.lower_bound_s,
        "optimal": plan.optimal,
        "notes": plan.notes,
        "peak_bytes": {str(device): n for device, n in plan.peak_bytes.items()},
        "transfers": len(plan.transfers),
        "units": [
            {**planned._asdict(), **unit._asdict()}
            for planned, unit in zip(plan.units, plan.unit_tasks, strict=True)
        ],
    }
