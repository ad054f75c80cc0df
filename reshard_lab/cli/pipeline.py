"""``reshard-lab pipeline``: how long a pipeline takes, and what its stages wait for."""

import argparse
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reshard_lab.cli.common import Command, Output, facts_text, given, option, table_text
from reshard_lab.errors import ReshardError, check_choice, check_int, check_path, write_text
from reshard_lab.paper.pipelines import MODELS, cluster_for, model
from reshard_lab.pipelining import SCHEDULES, PipelineTimeline, device_speed, schedule, simulate
from reshard_lab.pipelining.timeline import Event
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_bytes, format_seconds

HELP = "simulate a training pipeline: makespan, bubble, exposed communication, memory"
_ARGUMENTS = {
    "forward": "forward_s",
    "backward": "backward_s",
    "weight": "weight_s",
    "transfer": "forward_transfer_s",
    "backward_transfer": "backward_transfer_s",
}
"""Options, and what the library calls them."""


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = f"{', '.join(SCHEDULES)} (default eager_1f1b)"
    add("--schedule", default="eager_1f1b", metavar="NAME", help=names)
    add("--stages", type=int, metavar="N", help="stages (default: the workload's)")
    add("--microbatches", type=int, metavar="N", help="microbatches (default: the workload's)")
    chunks = "pieces of the model a stage, for interleaved_1f1b (2)"
    add("--chunks", type=int, metavar="N", help=chunks)
    delay = "split backwards in two: send the input gradient before the weight gradient is made"
    add("--delay-weights", action="store_true", help=delay)
    block = "transfers block: they occupy the stages at both ends"
    add("--no-overlap", action="store_true", help=block)
    beside = "also 1F1B without overlap, 1F1B and eager-1F1B, on one time axis"
    add("--compare", action="store_true", help=beside)
    add = parser.add_argument_group(
        "times",
        "One for all, such as 1ms, or a list such as 1ms,2ms with one a stage (interleaved: one a "
        "piece of the model); of transfers one a link.",
    ).add_argument
    add("--forward", metavar="TIMES", help="of a forward of one microbatch")
    add("--backward", metavar="TIMES", help="of its whole backward")
    weight = "the part of the backward that makes weight gradients (half)"
    add("--weight", metavar="TIMES", help=weight)
    add("--transfer", metavar="TIMES", help="of an activation from stage to stage (0)")
    add("--backward-transfer", metavar="TIMES", help="of a gradient back (as forwards)")
    title = "or a model that the paper trains, in place of times"
    add = parser.add_argument_group(title).add_argument
    add("--workload", metavar="MODEL", help=f"{', '.join(MODELS)}")
    machine = "a described machine that states its speed (p3.8xlarge does, and is the default)"
    add("--preset", metavar="NAME", help=machine)
    how = f"how tensors cross: {', '.join(STRATEGIES)} or auto (default broadcast)"
    add("--strategy", help=how)
    again = "keep only inputs of layers, and run forwards again in the backward"
    add("--recompute", action="store_const", const=True, help=again)
    add = parser.add_argument_group("files").add_argument
    add("--svg", metavar="FILE", help="write the picture")
    add("--trace", metavar="FILE", help="write a trace that Perfetto opens")
    add("--csv", metavar="FILE", help="write every op and transfer, of all pipelines compared")


def run(args: argparse.Namespace) -> Output:
    """Simulate, write the files asked for, and print where the time went."""
    try:
        return _run(args)
    except ReshardError as error:
        raise ReshardError(_in_options(str(error))) from None


def _in_options(words: str) -> str:
    """An error of ``pipeline.simulate`` in the words of the command line.

    >>> _in_options("backward_s is missing")
    '--backward is missing'
    """
    options = {name: option(key) for key, name in _ARGUMENTS.items()}
    options["schedule('inference', ...)"] = "--schedule inference"
    for name, written in options.items():
        words = re.sub(rf"(?<![\w'-]){re.escape(name)}(?!\w)", written, words)
    return words


def _run(args: argparse.Namespace) -> Output:
    _check(args)
    work = _times if args.workload is None else _workload
    stages, microbatches, arguments, about = work(args)

    def simulated(name: str, overlap: bool, delay: bool, chunks: int | None) -> PipelineTimeline:
        lists = schedule(name, stages, microbatches, chunks, delay)
        return simulate(lists, **arguments, overlap=overlap)

    timeline = simulated(args.schedule, not args.no_overlap, args.delay_weights, args.chunks)
    own = f"{args.schedule}{', weights delayed' * args.delay_weights}"
    own += ", no overlap" * args.no_overlap
    named = {own: timeline}
    data = {"schedule": args.schedule, **about, **pipeline_data(timeline)}
    data["events"] = [event._asdict() for event in timeline.events]
    parts = [_text(timeline, own, about)]
    if args.compare:
        for name, overlap in (("1f1b", False), ("1f1b", True), ("eager_1f1b", True)):
            title = name + ", no overlap" * (not overlap)
            if title not in named:
                named[title] = simulated(name, overlap, False, None)
        data["compared"] = [{"name": n, **pipeline_data(t)} for n, t in named.items()]
        parts.append(_compared_text(timeline, named))
    return Output("\n\n".join([*parts, *_write(args, timeline, named)]), data)


def _check(args: argparse.Namespace) -> None:
    """Refuse what does not go together, in the words of the command line."""
    check_choice("--schedule", args.schedule, SCHEDULES)
    for name, count in given(args, "stages", "microbatches", "chunks").items():
        check_int(f"--{name}", count, 1)
    if args.compare and args.schedule in ("interleaved_1f1b", "inference"):
        raise ReshardError(
            f"--compare puts 1F1B beside other schedules of the same work, but {args.schedule} "
            "differs in it (pieces of the model, or no backward); leave --compare out"
        )
    if args.chunks not in (None, 1) and args.schedule != "interleaved_1f1b":
        raise ReshardError(
            f"--chunks {args.chunks} needs --schedule interleaved_1f1b: with {args.schedule} a "
            "stage has one piece of the model"
        )
    written: dict[Path, str] = {}
    for name, file in given(args, "svg", "trace", "csv").items():
        path = check_path(f"--{name}", file).resolve()
        if path in written:
            raise ReshardError(
                f"--{written[path]} and --{name} both write {file!r}; give each its own file"
            )
        written[path] = name


Work = tuple[int, int, dict[str, Any], dict[str, str]]
"""Stages, microbatches, what else ``pipeline.simulate`` takes, and that in words."""


def _times(args: argparse.Namespace) -> Work:
    alone = given(args, "preset", "strategy", "recompute")
    if alone:
        raise ReshardError(
            f"{', '.join(map(option, alone))} describes a workload, but --workload is missing; "
            f"give one of {', '.join(MODELS)}"
        )
    wanted = ("stages", "microbatches", "forward")
    missing = [f"--{key}" for key in wanted if getattr(args, key) is None]
    if missing:
        raise ReshardError(
            f"{', '.join(missing)} must be given, or --workload with one of {', '.join(MODELS)}"
        )

    arguments = {}
    for key, name in _ARGUMENTS.items():
        text = getattr(args, key)
        listed = text and "," in text  # one for each, not one for all
        arguments[name] = [t.strip() for t in text.split(",")] if listed else text
    arguments["forward_transfer_s"] = arguments["forward_transfer_s"] or 0.0
    return args.stages, args.microbatches, arguments, {}


def _workload(args: argparse.Namespace) -> Work:
    times = given(args, *_ARGUMENTS)
    if times:
        raise ReshardError(f"give --workload or {', '.join(map(option, times))}, not both")
    if args.stages is not None and not args.workload.lower().startswith("gpt"):
        raise ReshardError(
            f"--stages cannot change {args.workload}: only GPT can be cut anywhere; leave it out"
        )
    sizes = given(args, "stages", "microbatches")
    work = model(args.workload, bool(args.recompute), **sizes)
    preset = args.preset or "p3.8xlarge"
    speed = device_speed(preset, work.dtype)
    arguments = work.arguments(cluster_for(work, preset), speed.flops_per_s)
    arguments["strategy"] = args.strategy or "broadcast"
    about = {
        "model": repr(work).removeprefix("Workload(").removesuffix(")"),
        "machine": f"{preset}, {speed.flops_per_s / 1e12:.4g} TFLOP/s a device "
        f"({speed.source.partition(';')[0]})",
        "transfers": f"planned as {arguments['strategy']}",
    }
    return len(work.stages), work.microbatches, arguments, about


def pipeline_data(timeline: PipelineTimeline) -> dict[str, Any]:
    """``timeline`` in plain values, without its events."""
    keys = ("overlap", "makespan_s", "bubble_share", "exposed_communication_share")
    peaks: Sequence[int | None] = timeline.peak_bytes or [None] * timeline.stages
    return {
        "stages": timeline.stages,
        "microbatches": timeline.lists.microbatches,
        **{key: getattr(timeline, key) for key in keys},
        "shares": [
            {**share._asdict(), "peak_live": live, "peak_bytes": nbytes}
            for share, live, nbytes in zip(timeline.shares, timeline.peak_live, peaks, strict=True)
        ],
    }


def _text(timeline: PipelineTimeline, name: str, about: dict[str, str]) -> str:
    """Where the time of all stages went, then a row a stage."""
    size = f"{timeline.stages} stages, {timeline.lists.microbatches} microbatches"
    sized = timeline.peak_bytes is not None
    facts = [
        ("schedule", f"{name}; {size}"),
        *about.items(),
        ("makespan", f"{format_seconds(timeline.makespan_s)}, simulated"),
        ("bubble", f"{timeline.bubble_share:.1%} of the time of all stages"),
        ("exposed", f"{timeline.exposed_communication_share:.1%}, communication not hidden"),
        *[("peak bytes", "of activations on each device; weights come on top")] * sized,
    ]
    rows = [("stage", "compute", "exposed", "bubble", "peak live", *["peak bytes"] * sized)]
    for i, (share, live) in enumerate(zip(timeline.shares, timeline.peak_live, strict=True)):
        nbytes = [format_bytes(timeline.peak_bytes[i])] if timeline.peak_bytes else []
        rows.append((str(share.stage), *(f"{part:.1%}" for part in share[1:]), str(live), *nbytes))
    return f"{facts_text(facts)}\n\n{table_text(rows)}"


def _compared_text(first: PipelineTimeline, compared: dict[str, PipelineTimeline]) -> str:
    rows = [("compared", "makespan", "of the first", "bubble", "exposed", "peak live")]
    for name, timeline in compared.items():
        ratio = f"{timeline.makespan_s / first.makespan_s if first.makespan_s else 1:.0%}"
        bubble, exposed = timeline.bubble_share, timeline.exposed_communication_share
        shares = f"{bubble:.1%}", f"{exposed:.1%}"
        live = str(max(timeline.peak_live))
        rows.append((name, format_seconds(timeline.makespan_s), ratio, *shares, live))
    return table_text(rows)


def _write(
    args: argparse.Namespace, timeline: PipelineTimeline, named: dict[str, PipelineTimeline]
) -> list[str]:
    """Write the files asked for; what was written, in words: nothing, or one paragraph."""
    written = []
    if args.svg:
        draw_pipeline(named).save(args.svg)
        written.append(f"picture written to {args.svg}")
    if args.csv:
        rows = io.StringIO()
        writer = csv.writer(rows, lineterminator="\n")
        writer.writerow(("pipeline", *Event._fields))
        for name, drawn in named.items():
            writer.writerows((name, *event) for event in drawn.events)
        write_text("table", args.csv, rows.getvalue())
        written.append(f"table written to {args.csv}")
    if args.trace:
        timeline.to_chrome_trace(args.trace)
        written.append(f"trace written to {args.trace}; open it at https://ui.perfetto.dev")
    return ["\n".join(written)] if written else []


COMMANDS = {"pipeline": Command(HELP, _add_pipeline, run)}
