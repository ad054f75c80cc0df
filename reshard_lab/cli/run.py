"""``reshard-lab run``: carry a plan out on real processes and time it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from reshard_lab.cli.arguments import add_plan, add_run, add_task, plan_or_file
from reshard_lab.cli.output import Output
from reshard_lab.cli.plan import plan_data
from reshard_lab.planning import Plan
from reshard_lab.runtime import Measurement
from reshard_lab.runtime import run as run_plan
from reshard_lab.runtime.launch import LAUNCH_TARGETS
from reshard_lab.units import format_bytes, format_rate, format_seconds, parse_seconds

HELP = "carry a resharding out on processes of this machine, check it and time it"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a file that 'plan -o' wrote")
    add_task(parser, required=False)
    add_plan(parser)
    add_run(parser, tuple(LAUNCH_TARGETS))


def run(args: argparse.Namespace) -> Output:
    """Run the plan of a file, or the one that the options describe."""
    made = plan_or_file(args)
    with contextlib.redirect_stdout(sys.stderr):  # a line a run, under torchrun
        measured = run_plan(
            made,
            where=args.where,
            repeats=args.repeats,
            warmup=args.warmup,
            timeout_s=parse_seconds(args.timeout, "--timeout"),
            seed=args.seed,
        )
    data = {"plan": plan_data(made), "measurement": measured.to_dict()}
    return Output(_text(made, measured), data)


def _text(plan: Plan, measured: Measurement) -> str:
    times = measured.times_s
    low, middle, high = map(format_seconds, (min(times), measured.median_s, max(times)))
    checked = "every result checked" if measured.verified else "delivers no data: nothing to check"
    carried = f"{len(plan.units)} unit tasks, {format_bytes(plan.nbytes)}"
    rows = [
        ("plan", f"{plan.strategy}, scheduler {plan.scheduler}, {carried}"),
        ("predicted", f"{format_seconds(plan.makespan_s)} on the cluster described"),
        ("lower bound", f"{format_seconds(plan.lower_bound_s)} on that cluster, {plan.cluster!r}"),
        ("measured", f"{middle}, the median of {len(times)} ({low} to {high}); {checked}"),
        ("bandwidth", f"{format_rate(measured.bandwidth_Bps)}, bits of the tensor over that time"),
        *environment_rows(measured.environment),
    ]
    return "\n".join(f"{name:<12} {words}" for name, words in rows)


def environment_rows(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """The stamp of a measurement as two lines."""
    software = ", ".join(
        f"{name} {environment[name]}" for name in ("python", "torch", "reshard_lab", "commit")
    )
    machine = f"{environment['link']}; {environment['cpu']}, {environment['system']}"
    return [("measured on", machine), ("with", software)]
