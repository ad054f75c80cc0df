"""``reshard-lab reproduce``: the paper's figures 5 and 6, measured on this machine."""

from __future__ import annotations

import argparse

from reshard_lab.cli.output import MEASURED, Output, frame_text
from reshard_lab.cli.run import environment_rows
from reshard_lab.experiments.reproduce import QUICK, STANDARD, Reproduction, Table, reproduce

HELP = "measure figure 5 and the nine cases of table 2 here, beside their predictions"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--out", default="out", metavar="DIR", help="folder written to (out)")
    quick = "small and few: to see that everything works, not to conclude from"
    parser.add_argument("--quick", action="store_true", help=quick)


def run(args: argparse.Namespace) -> Output:
    """Measure, write, and print the tables."""
    done = reproduce(args.out, QUICK if args.quick else STANDARD)
    data = {
        "label": done.label,
        "environment": done.environment,
        "fitted_bandwidth_Bps": done.fit.bandwidth_Bps,
        "tables": {t.name: t.frame.to_dict("records") for t in done.tables},
        "files": [str(f) for t in done.tables for f in t.files],
    }
    return Output(_text(done), data)


def _text(done: Reproduction) -> str:
    blocks = [_table(table) for table in done.tables]
    lines = [f"{name:<12} {words}" for name, words in environment_rows(done.environment)]
    lines += [
        f"predicted    with a cluster fitted from one measured transfer: {done.fit}",
        "             every link is carried by the same cores here, which no prediction knows",
    ]
    files = [f"written to   {', '.join(map(str, table.files))}" for table in done.tables]
    return "\n\n".join([*blocks, "\n".join([*lines, *files])])


def _table(table: Table) -> str:
    """The rows of one figure, those of each sweep under its name."""
    place = ("hosts", "devices") if table.name == "figure5" else ("case", "source", "destination")
    columns = {name: (name, str) for name in place} | MEASURED
    if "sweep" not in table.frame:
        return f"{table.title}\n{frame_text(table.frame, columns)}"
    sweeps = table.frame.groupby("sweep", sort=False)
    parts = [f"one device -> {name}\n{frame_text(rows, columns)}" for name, rows in sweeps]
    return "\n\n".join([table.title, *parts])
