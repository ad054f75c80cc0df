"""``reshard-lab bench``: the strategies on one resharding, predicted and measured."""

from __future__ import annotations

import argparse

from reshard_lab.cli.arguments import add_plan, add_run, add_task, task_data, task_of
from reshard_lab.cli.output import MEASURED, Output, frame_text
from reshard_lab.cli.run import environment_rows
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.paper.compare import Case, compare, fit_one_transfer
from reshard_lab.paper.figures import FIGURE5_STRATEGIES, LEAST_CHUNK, chunks_of
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask, need_cluster
from reshard_lab.runtime import Measurement
from reshard_lab.runtime.launch import POOL_TARGETS, open_pool
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_bytes, parse_seconds

HELP = "time several strategies on one resharding, predicted and measured side by side"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_task(parser)
    add_plan(parser, strategy=False)
    add_run(parser, POOL_TARGETS)
    names = f"a list such as send_recv,broadcast (default {','.join(FIGURE5_STRATEGIES)})"
    parser.add_argument("--strategies", default=",".join(FIGURE5_STRATEGIES), help=names)
    fit = "predict with a cluster fitted from one measured transfer, not with the one described"
    parser.add_argument("--fit", action="store_true", help=fit)


def run(args: argparse.Namespace) -> Output:
    """Measure every strategy on one pool of processes."""
    task = task_of(args)
    names = [check_choice("strategy", s.strip(), STRATEGIES) for s in args.strategies.split(",")]
    timeout_s = parse_seconds(args.timeout, "--timeout")
    stamps = []
    if args.where == "emulated" and args.fit:
        raise ReshardError(
            "--fit is for --where local: an emulated cluster has the speed it is given"
        )
    devices = {*task.src.mesh.devices, *task.dst.mesh.devices} | ({0, 1} if args.fit else set())
    with open_pool(args.where, need_cluster([task]), sorted(devices)) as pool:

        def measure(made: Plan) -> Measurement:
            measured = pool.run(made, args.repeats, args.warmup, timeout_s, args.seed)
            stamps.append(measured.environment)
            return measured

        basis = f"the cluster described: {task.cluster!r}"
        if pool.cluster is not None:
            task = _on(task, pool.cluster)
            basis = f"the emulated cluster: {task.cluster!r}"
        if args.fit:
            fit = fit_one_transfer(measure, max(task.nbytes, 1))
            described = need_cluster([task])
            task = _on(task, fit.cluster(described.hosts, described.devices_per_host))
            basis = f"a cluster fitted from one measured transfer: {fit}"
        chunks = args.chunks
        knows_latency = pool.cluster is None and not args.fit
        if chunks == "auto" and not knows_latency:
            chunks = chunks_of(task, LEAST_CHUNK)
            basis += f"; K = {chunks}, chunks of at least {format_bytes(LEAST_CHUNK)}"
        cases = [
            Case({}, plan(task, s, scheduler=args.scheduler, chunks=chunks, seed=args.seed))
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


def _on(task: ReshardingTask, cluster: Cluster) -> ReshardingTask:
    """``task`` on a cluster of the same hosts with other speeds."""
    return ReshardingTask(task.shape, task.dtype, task.src, task.dst, cluster)
