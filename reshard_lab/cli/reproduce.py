"""``reshard-lab reproduce``: the paper's figures 5, 6 and 8, measured on this machine."""

from __future__ import annotations

import argparse

from reshard_lab.cli.output import MEASURED, Output, Show, frame_text
from reshard_lab.cli.run import environment_rows
from reshard_lab.experiments.places import PLACES
from reshard_lab.experiments.reproduce import Reproduction, reproduce
from reshard_lab.experiments.tables import Table
from reshard_lab.units import format_seconds

HELP = "measure figures 5, 6 and 8 here, beside their predictions"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--out", default="out", metavar="DIR", help="folder written to (out)")
    place = "emulated or local (default: emulated where the machine allows it)"
    parser.add_argument("--where", choices=PLACES, help=place)
    patient = "measure only while other programs leave the cores idle"
    parser.add_argument("--patient", action="store_true", help=patient)
    size = parser.add_mutually_exclusive_group()
    quick = "small and few: to see that everything works, not to conclude from"
    size.add_argument("--quick", action="store_const", dest="size", const="quick", help=quick)
    full = "the paper's 3 warm-ups and 10 runs, larger tensors: some 20 minutes on two cores"
    size.add_argument("--full", action="store_const", dest="size", const="full", help=full)


def run(args: argparse.Namespace) -> Output:
    """Measure, write, and print the tables."""
    done = reproduce(args.out, args.size or "standard", args.where, patient=args.patient)
    data = {
        "label": done.label,
        "environment": done.environment,
        "predicted": done.place.about,
        "tables": {t.name: t.frame.to_dict("records") for t in done.tables},
        "files": [str(f) for t in done.tables for f in t.files],
    }
    return Output(_text(done), data)


def _text(done: Reproduction) -> str:
    blocks = [_table(table) for table in done.tables]
    lines = [f"{name:<12} {words}" for name, words in environment_rows(done.environment)]
    busy = done.environment["cpu_share"]
    lines.append(f"cores busy   {busy:.0%} at most, during timed runs")
    lines.append(f"predicted    {done.place.predicted}")
    if done.place.caution:
        lines.append(f"             {done.place.caution}")
    files = [f"written to   {', '.join(map(str, table.files))}" for table in done.tables]
    return "\n\n".join([*blocks, "\n".join([*lines, *files])])


def _table(table: Table) -> str:
    """The rows of one figure, those of each sweep under its name."""
    place = ("hosts", "devices") if table.name == "figure5" else ("case", "source", "destination")
    columns: dict[str, tuple[str, Show]] = {name: (name, str) for name in place}
    for name, (title, show) in MEASURED.items():
        if name == "strategy":
            columns["method"] = ("method", str)
            continue
        if name == "measured_s":
            columns["simulated_s"] = ("simulated", format_seconds)
        columns[name] = (title, show)
    if "sweep" not in table.frame:
        return f"{table.title}\n{frame_text(table.frame, columns)}"
    sweeps = table.frame.groupby("sweep", sort=False)
    parts = [f"one device -> {name}\n{frame_text(rows, columns)}" for name, rows in sweeps]
    return "\n\n".join([table.title, *parts])
