"""``reshard-lab reproduce``: the paper's figures, measured on this machine or simulated."""

from __future__ import annotations

import argparse

from reshard_lab.cli.output import Output
from reshard_lab.cli.run import environment_rows
from reshard_lab.paper.places import PLACES
from reshard_lab.paper.reproduce import Reproduction, reproduce
from reshard_lab.paper.tables import Table
from reshard_lab.planning.explain import table

HELP = "measure figures 5, 6 and 8 here, beside their predictions; simulate 4, 7 and 9"


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
    return Output(_text(done), data)


def _text(done: Reproduction) -> str:
    """A line a figure, the headlines beside the paper's, and where it all comes from."""
    rows = [(t.name, t.kind, t.headline) for t in done.tables]
    files = [str(file) for t in done.tables for file in t.files]
    lines = environment_rows(done.environment)
    busy = done.environment["cpu_share"]
    said = "not known" if busy is None else f"{busy:.0%} at most, during timed runs"
    lines.append(("cores busy", said))
    lines.append(("predicted", done.place.predicted))
    if done.place.caution:
        lines.append(("", done.place.caution))
    lines.append(("written to", f"{files[0].rpartition('figure')[0] or '.'}: {_names(files)}"))
    return "\n\n".join(
        [
            "\n".join(table(rows)),
            *(_headlines(t) for t in done.tables if t.name == "figure7_headlines"),
            "\n".join(f"{name:<12} {words}" for name, words in lines),
        ]
    )


def _names(files: list[str]) -> str:
    """``figure5.csv .json .png .svg, ...``: every stem once."""
    kinds: dict[str, list[str]] = {}
    for file in files:
        stem, _, kind = file.rpartition("/")[2].rpartition(".")
        kinds.setdefault(stem, []).append(f".{kind}")
    return ", ".join(stem + " ".join(ends) for stem, ends in sorted(kinds.items()))


def _headlines(shown: Table) -> str:
    """Throughput ratios of figure 7 here and in the paper, and why they differ."""
    rows = [("figure 7", "", "here", "paper")]
    reasons = []
    for row in shown.frame.to_dict("records"):
        least = "at least " * (row["ratio"] == "ours / signal")
        rows.append((row["model"], row["ratio"], f"{row['here']:.2f}", f"{least}{row['paper']:g}"))
        if row["why"]:
            reasons.append(f"{row['model']}: {row['why']}")
    return "\n".join([*table(rows), *reasons])
