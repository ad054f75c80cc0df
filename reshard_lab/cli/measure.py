"""``reshard-lab run``, ``bench`` and ``reproduce``: what is carried out and timed."""

import argparse
import contextlib
import sys
from typing import Any

from reshard_lab.cli import common
from reshard_lab.cli.common import Command, Output, facts_text, table_text
from reshard_lab.cli.plans import plan_data
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.paper.figures import FIGURE5_STRATEGIES, LEAST_CHUNK, chunks_of
from reshard_lab.paper.files import FigureTable
from reshard_lab.paper.measuring import Case, compare, fit_one_transfer
from reshard_lab.paper.reproduce import Reproduction, reproduce
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask, need_cluster
from reshard_lab.runtime import Measurement
from reshard_lab.runtime import run as run_plan
from reshard_lab.runtime.launch import LAUNCH_TARGETS, POOL_TARGETS, open_pool
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_bytes, format_rate, format_seconds, parse_seconds

RUN = "carry a resharding out on processes of this machine, check it and time it"
BENCH = "time several strategies on one resharding, predicted and measured side by side"
REPRODUCE = "measure figures 5, 6 and 8 here, beside their predictions; simulate 4, 7 and 9"


def _add_run(parser: argparse.ArgumentParser) -> None:
    common.add_plan_file(parser)
    common.add_run(parser, LAUNCH_TARGETS)


def run_run(args: argparse.Namespace) -> Output:
    """Run the plan of a file, or the one that the options describe."""
    plan = common.plan_or_file(args)
    with contextlib.redirect_stdout(sys.stderr):  # a line a run, under torchrun
        timeout_s = parse_seconds(args.timeout, "--timeout")
        measured = run_plan(plan, args.where, args.repeats, args.warmup, timeout_s, args.seed)
    data = {"plan": plan_data(plan), "measurement": measured.to_dict()}
    return Output(_measurement_text(plan, measured), data)


def _measurement_text(plan: Plan, measured: Measurement) -> str:
    times = measured.times_s
    low, middle, high = map(format_seconds, (min(times), measured.median_s, max(times)))
    checked = "every result checked" if measured.verified else "delivers no data: nothing to check"
    carried = f"{len(plan.units)} unit tasks, {format_bytes(plan.nbytes)}"
    facts = [
        ("plan", f"{plan.strategy}, scheduler {plan.scheduler}, {carried}"),
        ("predicted", f"{format_seconds(plan.makespan_s)} on the cluster described"),
        ("lower bound", f"{format_seconds(plan.lower_bound_s)} on that cluster, {plan.cluster!r}"),
        ("measured", f"{middle}, the median of {len(times)} ({low} to {high}); {checked}"),
        ("bandwidth", f"{format_rate(measured.bandwidth_Bps)}, bits of the tensor over that time"),
    ]
    return facts_text(facts + environment_facts(measured.environment))


def environment_facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """The stamp of a measurement as two lines."""
    names = ("python", "torch", "reshard_lab", "commit")
    software = ", ".join(f"{name} {environment[name]}" for name in names)
    machine = f"{environment['link']}; {environment['cpu']}, {environment['system']}"
    return [("measured on", machine), ("with", software)]


def _add_bench(parser: argparse.ArgumentParser) -> None:
    common.add_task(parser)
    common.add_plan(parser, strategy=False)
    common.add_run(parser, tuple(POOL_TARGETS))
    names = f"a list such as send_recv,broadcast (default {','.join(FIGURE5_STRATEGIES)})"
    parser.add_argument("--strategies", default=",".join(FIGURE5_STRATEGIES), help=names)
    fit = "predict with a cluster fitted from one measured transfer, not with the one described"
    parser.add_argument("--fit", action="store_true", help=fit)


def run_bench(args: argparse.Namespace) -> Output:
    """Measure every strategy on one pool of processes."""
    task = common.task_of(args)
    names = [check_choice("strategy", s.strip(), STRATEGIES) for s in args.strategies.split(",")]
    timeout_s = parse_seconds(args.timeout, "--timeout")
    stamps = []
    if args.where == "emulated" and args.fit:
        raise ReshardError(
            "--fit is for --where local: an emulated cluster has the speed it is given"
        )
    devices = {*task.src.mesh.devices, *task.dst.mesh.devices} | ({0, 1} if args.fit else set())
    described = need_cluster([task])
    with open_pool(args.where, described, sorted(devices)) as pool:

        def measure(plan: Plan) -> Measurement:
            measured = pool.run(plan, args.repeats, args.warmup, timeout_s, args.seed)
            stamps.append(measured.environment)
            return measured

        basis = f"the cluster described: {described!r}"
        if pool.cluster is not None:
            task = _on(task, pool.cluster)
            basis = f"the emulated cluster: {task.cluster!r}"
        if args.fit:
            fit = fit_one_transfer(measure, max(task.nbytes, 1))
            task = _on(task, fit.cluster(described.hosts, described.devices_per_host))
            basis = f"a cluster fitted from one measured transfer: {fit}"
        chunks = args.chunks
        if chunks == "auto" and (pool.cluster or args.fit):  # a cluster whose latency is not known
            chunks = chunks_of(task, LEAST_CHUNK)
            basis += f"; K = {chunks}, chunks of at least {format_bytes(LEAST_CHUNK)}"
        how = {"scheduler": args.scheduler, "chunks": chunks, "seed": args.seed}
        frame = compare([Case({}, plan(task, name, **how)) for name in names], measure)
    rows, stamp = frame.to_dict("records"), stamps[0]
    text = f"{_bench_text(rows)}\n\npredicted on {basis}\n"
    text += facts_text(environment_facts(stamp))
    data = {"task": common.task_data(task), "predicted_on": basis}
    return Output(text, {**data, "environment": stamp, "rows": rows})


def _bench_text(rows: list[dict[str, Any]]) -> str:
    times = ("predicted", "measured", "fastest", "slowest")
    lines = [("strategy", *times, "measured/predicted", "Gbit/s", "checked")]
    for row in rows:
        ratio, rate = f"{row['measured_over_predicted']:.2f}", f"{row['measured_Gbps']:.2f}"
        shown = [format_seconds(row[f"{name}_s"]) for name in times]
        checked = "yes" if row["verified"] else "no data"
        lines.append((row["strategy"], *shown, ratio, rate, checked))
    return table_text(lines)


def _on(task: ReshardingTask, cluster: Cluster) -> ReshardingTask:
    """``task`` on a cluster of the same hosts with other speeds."""
    return ReshardingTask(task.shape, task.dtype, task.src, task.dst, cluster)


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="out", metavar="DIR", help="folder written to (out)")
    place = "emulated or local (default: emulated where the machine allows it)"
    parser.add_argument("--where", choices=tuple(POOL_TARGETS), help=place)
    patient = "measure only while other programs leave the cores idle"
    parser.add_argument("--patient", action="store_true", help=patient)
    size = parser.add_mutually_exclusive_group()
    quick = "small and few: to see that everything works, not to conclude from"
    size.add_argument("--quick", action="store_const", dest="size", const="quick", help=quick)
    full = "the paper's 3 warm-ups and 10 runs, larger tensors: some 20 minutes on two cores"
    size.add_argument("--full", action="store_const", dest="size", const="full", help=full)


def run_reproduce(args: argparse.Namespace) -> Output:
    """Measure, write, and print what came out, in short; the tables are in the files."""
    done = reproduce(args.out, args.size or "standard", args.where, patient=args.patient)
    data = {
        "label": done.label,
        "environment": done.environment,
        "predicted": done.place.about,
        "tables": {t.name: t.frame.to_dict("records") for t in done.tables},
        "headlines": {t.name: t.headline for t in done.tables},
        "files": [str(f) for t in done.tables for f in t.files],
    }
    return Output(_reproduction_text(done), data)


def _reproduction_text(done: Reproduction) -> str:
    """A line a figure, the headlines beside the paper's, and where it all comes from."""
    files = [file for t in done.tables for file in t.files]
    kinds: dict[str, list[str]] = {}
    for file in files:
        kinds.setdefault(file.stem, []).append(file.suffix)
    names = ", ".join(stem + " ".join(ends) for stem, ends in sorted(kinds.items()))
    busy = done.environment["cpu_share"]
    facts = [
        *environment_facts(done.environment),
        ("cores busy", "not known" if busy is None else f"{busy:.0%} at most, during timed runs"),
        ("predicted", done.place.predicted),
        *[("", done.place.caution)] * bool(done.place.caution),
        ("written to", f"{str(files[0]).rpartition('figure')[0] or '.'}: {names}"),
    ]
    parts = [table_text([(t.name, t.kind, t.headline) for t in done.tables])]
    parts += [_headlines_text(t) for t in done.tables if t.name == "figure7_headlines"]
    return "\n\n".join([*parts, facts_text(facts)])


def _headlines_text(headlines: FigureTable) -> str:
    """Throughput ratios of figure 7 here and in the paper, and why they differ."""
    rows = [("figure 7", "", "here", "paper")]
    records = headlines.frame.to_dict("records")
    for row in records:
        least = "at least " * (row["ratio"] == "ours / signal")
        rows.append((row["model"], row["ratio"], f"{row['here']:.2f}", f"{least}{row['paper']:g}"))
    reasons = [f"{row['model']}: {row['why']}" for row in records if row["why"]]
    return "\n".join([table_text(rows), *reasons])


COMMANDS = {
    "run": Command(RUN, _add_run, run_run),
    "bench": Command(BENCH, _add_bench, run_bench),
    "reproduce": Command(REPRODUCE, _add_reproduce, run_reproduce),
}
