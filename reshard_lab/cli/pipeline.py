"""``reshard-lab pipeline``: how long a pipeline takes, and what its stages wait for."""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reshard_lab.cli.common import Command, Output
from reshard_lab.errors import ReshardError, check_choice, check_int, check_path, write_text
from reshard_lab.paper.pipelines import MODELS, cluster_for, model
from reshard_lab.pipelining import SCHEDULES, PipelineTimeline, device_speed, schedule, simulate
from reshard_lab.pipelining.timeline import Event
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_bytes, format_seconds, table

HELP = "simulate a training pipeline: makespan, bubble, exposed communication, memory"
_TIMES = ("forward", "backward", "weight", "transfer", "backward_transfer")
_OPTIONS = {
    "forward_s": "--forward",
    "backward_s": "--backward",
    "weight_s": "--weight",
    "forward_transfer_s": "--transfer",
    "backward_transfer_s": "--backward-transfer",
    "schedule('inference', ...)": "--schedule inference",
}
"""What the library calls an argument, and what it is called here."""
_OF_WORKLOAD = ("preset", "strategy", "recompute")


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    names = f"{', '.join(SCHEDULES)} (default eager_1f1b)"
    parser.add_argument("--schedule", default="eager_1f1b", metavar="NAME", help=names)
    parser.add_argument("--stages", type=int, metavar="N", help="stages (default: the workload's)")
    count = "microbatches (default: the workload's)"
    parser.add_argument("--microbatches", type=int, metavar="N", help=count)
    chunks = "pieces of the model a stage, for interleaved_1f1b (2)"
    parser.add_argument("--chunks", type=int, metavar="N", help=chunks)
    delay = "split backwards in two: send the input gradient before the weight gradient is made"
    parser.add_argument("--delay-weights", action="store_true", help=delay)
    block = "transfers block: they occupy the stages at both ends"
    parser.add_argument("--no-overlap", action="store_true", help=block)
    beside = "also 1F1B without overlap, 1F1B and eager-1F1B, on one time axis"
    parser.add_argument("--compare", action="store_true", help=beside)
    times = parser.add_argument_group(
        "times",
        "One for all, such as 1ms, or a list such as 1ms,2ms with one a stage (interleaved: one a "
        "piece of the model); of transfers one a link.",
    )
    for name, words in (
        ("forward", "of a forward of one microbatch"),
        ("backward", "of its whole backward"),
        ("weight", "the part of the backward that makes weight gradients (half)"),
        ("transfer", "of an activation from stage to stage (0)"),
        ("backward-transfer", "of a gradient back (as forwards)"),
    ):
        times.add_argument(f"--{name}", metavar="TIMES", help=words)
    work = parser.add_argument_group("or a model that the paper trains, in place of times")
    work.add_argument("--workload", metavar="MODEL", help=f"{', '.join(MODELS)}")
    machine = "a described machine that states its speed (p3.8xlarge does, and is the default)"
    work.add_argument("--preset", metavar="NAME", help=machine)
    how = f"how tensors cross: {', '.join(STRATEGIES)} or auto (default broadcast)"
    work.add_argument("--strategy", help=how)
    again = "keep only inputs of layers, and run forwards again in the backward"
    work.add_argument("--recompute", action="store_const", const=True, help=again)
    files = parser.add_argument_group("files")
    files.add_argument("--svg", metavar="FILE", help="write the picture")
    files.add_argument("--trace", metavar="FILE", help="write a trace that Perfetto opens")
    rows = "write every op and transfer, of all pipelines compared"
    files.add_argument("--csv", metavar="FILE", help=rows)


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
    for name, option in _OPTIONS.items():
        words = re.sub(rf"(?<![\w'-]){re.escape(name)}(?!\w)", option, words)
    return words


def _run(args: argparse.Namespace) -> Output:
    _check(args)
    stages, microbatches, arguments, about = _work(args)
    overlapped = not args.no_overlap

    def simulated(name: str, overlap: bool, delay: bool, chunks: int | None) -> PipelineTimeline:
        lists = schedule(name, stages, microbatches, chunks, delay)
        return simulate(lists, **arguments, overlap=overlap)

    made = simulated(args.schedule, overlapped, args.delay_weights, args.chunks)
    own = f"{args.schedule}{', weights delayed' * args.delay_weights}"
    own += ", no overlap" * args.no_overlap
    named = {own: made}
    if args.compare:
        for name, overlap in (("1f1b", False), ("1f1b", True), ("eager_1f1b", True)):
            title = name + ", no overlap" * (not overlap)
            if title not in named:
                named[title] = simulated(name, overlap, False, None)
    text = _text(made, own, about, named if args.compare else {})
    text += _write(args, made, named)
    data = {"schedule": args.schedule, **about, **pipeline_data(made)}
    data["events"] = [event._asdict() for event in made.events]
    if args.compare:
        data["compared"] = [{"name": n, **pipeline_data(t)} for n, t in named.items()]
    return Output(text, data)


def _check(args: argparse.Namespace) -> None:
    """Refuse what does not go together, in the words of the command line."""
    check_choice("--schedule", args.schedule, SCHEDULES)
    for name in ("stages", "microbatches", "chunks"):
        if getattr(args, name) is not None:
            check_int(f"--{name}", getattr(args, name), 1)
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
    for name in ("svg", "trace", "csv"):
        given = getattr(args, name)
        if given is not None:
            path = check_path(f"--{name}", given).resolve()
            if path in written:
                raise ReshardError(
                    f"--{written[path]} and --{name} both write {given!r}; give each its own file"
                )
            written[path] = name


def _work(args: argparse.Namespace) -> tuple[int, int, dict[str, Any], dict[str, str]]:
    """Stages, microbatches, what else ``pipeline.simulate`` takes, and that in words."""
    times = [f"--{key.replace('_', '-')}" for key in _TIMES if getattr(args, key) is not None]
    if args.workload is not None:
        if times:
            raise ReshardError(f"give --workload or {', '.join(times)}, not both")
        return _workload(args)
    alone = [f"--{key}" for key in _OF_WORKLOAD if getattr(args, key) is not None]
    if alone:
        raise ReshardError(
            f"{', '.join(alone)} describes a workload, but --workload is missing; give one of "
            f"{', '.join(MODELS)}"
        )
    wanted = ("stages", "microbatches", "forward")
    missing = [f"--{key}" for key in wanted if getattr(args, key) is None]
    if missing:
        raise ReshardError(
            f"{', '.join(missing)} must be given, or --workload with one of {', '.join(MODELS)}"
        )
    arguments = {
        "forward_s": _list(args.forward),
        "backward_s": _list(args.backward),
        "weight_s": _list(args.weight),
        "forward_transfer_s": _list(args.transfer) or 0.0,
        "backward_transfer_s": _list(args.backward_transfer),
    }
    return args.stages, args.microbatches, arguments, {}


def _list(text: str | None) -> str | list[str] | None:
    """``"1ms"`` as it is, ``"1ms,2ms"`` as a list."""
    if text is None or "," not in text:
        return text
    return [part.strip() for part in text.split(",")]


def _workload(args: argparse.Namespace) -> tuple[int, int, dict[str, Any], dict[str, str]]:
    if args.stages is not None and not args.workload.lower().startswith("gpt"):
        raise ReshardError(
            f"--stages cannot change {args.workload}: only GPT can be cut anywhere; leave it out"
        )
    given = {key: getattr(args, key) for key in ("stages", "microbatches")}
    changes = {key: value for key, value in given.items() if value is not None}
    work = model(args.workload, bool(args.recompute), **changes)
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
    peaks: Sequence[int | None] = timeline.peak_bytes or [None] * timeline.stages
    return {
        "stages": timeline.stages,
        "microbatches": timeline.lists.microbatches,
        "overlap": timeline.overlap,
        "makespan_s": timeline.makespan_s,
        "bubble_share": timeline.bubble_share,
        "exposed_communication_share": timeline.exposed_communication_share,
        "shares": [
            {**share._asdict(), "peak_live": live, "peak_bytes": nbytes}
            for share, live, nbytes in zip(timeline.shares, timeline.peak_live, peaks, strict=True)
        ],
    }


def _text(
    timeline: PipelineTimeline,
    name: str,
    about: dict[str, str],
    compared: dict[str, PipelineTimeline],
) -> str:
    size = f"{timeline.stages} stages, {timeline.lists.microbatches} microbatches"
    rows = [
        ("schedule", f"{name}; {size}"),
        *about.items(),
        ("makespan", f"{format_seconds(timeline.makespan_s)}, simulated"),
        ("bubble", f"{timeline.bubble_share:.1%} of the time of all stages"),
        ("exposed", f"{timeline.exposed_communication_share:.1%}, communication not hidden"),
    ]
    sized = timeline.peak_bytes is not None
    if sized:
        rows.append(("peak bytes", "of activations on each device; weights come on top"))
    parts = ["\n".join(f"{key:<12} {words}" for key, words in rows)]
    head = ("stage", "compute", "exposed", "bubble", "peak live", *["peak bytes"] * sized)
    lines = [
        (
            str(share.stage),
            *(f"{part:.1%}" for part in share[1:]),
            str(live),
            *[format_bytes(nbytes or 0)] * sized,
        )
        for share, live, nbytes in zip(
            timeline.shares,
            timeline.peak_live,
            timeline.peak_bytes or [0] * timeline.stages,
            strict=True,
        )
    ]
    parts.append("\n".join(table([head, *lines])))
    if compared:
        parts.append("\n".join(table(_compared(timeline, compared))))
    return "\n\n".join(parts)


def _compared(
    first: PipelineTimeline, compared: dict[str, PipelineTimeline]
) -> Sequence[tuple[str, ...]]:
    head = ("compared", "makespan", "of the first", "bubble", "exposed", "peak live")
    return [
        head,
        *(
            (
                name,
                format_seconds(made.makespan_s),
                f"{made.makespan_s / first.makespan_s if first.makespan_s else 1:.0%}",
                f"{made.bubble_share:.1%}",
                f"{made.exposed_communication_share:.1%}",
                str(max(made.peak_live)),
            )
            for name, made in compared.items()
        ),
    ]


def _write(
    args: argparse.Namespace, made: PipelineTimeline, named: dict[str, PipelineTimeline]
) -> str:
    """The files asked for; returns what was written, in words."""
    written = []
    if args.svg:
        draw_pipeline(named).save(args.svg)
        written.append(f"picture written to {args.svg}")
    if args.csv:
        write_text("table", args.csv, _csv(named))
        written.append(f"table written to {args.csv}")
    if args.trace:
        made.to_chrome_trace(args.trace)
        written.append(f"trace written to {args.trace}; open it at https://ui.perfetto.dev")
    return "\n\n" * bool(written) + "\n".join(written)


def _csv(named: dict[str, PipelineTimeline]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("pipeline", *Event._fields))
    for name, timeline in named.items():
        writer.writerows((name, *event) for event in timeline.events)
    return text.getvalue()


COMMANDS = {"pipeline": Command(HELP, add, run)}
