"""``reshard-lab bench``: the strategies on one resharding, predicted and measured."""

from __future__ import annotations

import argparse

from reshard_lab.cli.arguments import add_plan, add_run, add_task, task_data, task_of
from reshard_lab.cli.output import MEASURED, Output, frame_text
from reshard_lab.cli.run import environment_rows
from reshard_lab.errors import choose
from reshard_lab.experiments.compare import Case, Fit, compare, fit_one_transfer
from reshard_lab.experiments.figures import FIGURE5_STRATEGIES
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask, need_cluster
from reshard_lab.runtime import Measurement, Pool
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import parse_seconds

HELP = "time several strategies on one resharding, predicted and measured side by side"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_task(parser)
    add_plan(parser, strategy=False)
    add_run(parser)
    names = f"a list such as send_recv,broadcast (default {','.join(FIGURE5_STRATEGIES)})"
    parser.add_argument("--strategies", default=",".join(FIGURE5_STRATEGIES), help=names)
    fit = "predict with a cluster fitted from one measured transfer, not with the one described"
    parser.add_argument("--fit", action="store_true", help=fit)


def run(args: argparse.Namespace) -> Output:
    """Measure every strategy on one pool of processes."""
    task = task_of(args)
    names = [choose("strategy", s.strip(), STRATEGIES) for s in args.strategies.split(",")]
    timeout_s = parse_seconds(args.timeout, "--timeout")
    stamps = []
    with Pool(devices=sorted({*task.src.mesh.devices, *task.dst.mesh.devices, 0, 1})) as pool:

        def measure(made: Plan) -> Measurement:
            measured = pool.run(made, args.repeats, args.warmup, timeout_s, args.seed)
            stamps.append(measured.environment)
            return measured

        basis = f"the cluster described: {task.cluster!r}"
        if args.fit:
            fit = fit_one_transfer(measure, max(task.nbytes, 1))
            task = _on(task, fit)
            basis = f"a cluster fitted from one measured transfer: {fit}"
        cases = [
            Case({}, plan(task, s, scheduler=args.scheduler, chunks=args.chunks, seed=args.seed))
            for s in names
        ]
        frame = compare(cases, measure)
    lines = [f"{name:<12} {words}" for name, words in environment_rows(stamps[0])]
    text = "\n".join([frame_text(frame, MEASURED), "", f"predicted on {basis}", *lines])
    data = {
        "task": task_data(task),
        "predicted_on": basis,
        "environment": stamps[0],
        "rows": frame.to_dict("records"),
    }
    return Output(text, data)


def _on(task: ReshardingTask, fit: Fit) -> ReshardingTask:
    """``task`` on a cluster of the same hosts with the speeds of ``fit``."""
    described = need_cluster([task])
    fitted = fit.cluster(described.hosts, described.devices_per_host)
    return ReshardingTask(task.shape, task.dtype, task.src, task.dst, fitted)
