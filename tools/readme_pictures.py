"""The README's three pictures, drawn anew into docs/pictures/ (``make pictures``).

They follow one question through: the layouts of table 2's case 9, two schedules of its broadcasts,
and what was measured of it and the other cases (``data/results/``).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas

import reshard_lab as rl
from reshard_lab import paper, plots
from reshard_lab.plots.measured import draw_measured

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
METHODS = ("naive", "auto")
MEASURED = ("naive", "load_balance", "auto")


def question() -> rl.ReshardingTask:
    """Case 9 of table 2, every dimension a quarter of the paper's, between NICs of 400 Mbit/s."""
    cluster = rl.Cluster(4, 4, "400Mbit", nic_latency=0, intra="inf", intra_latency=0)
    src = rl.Layout(cluster.mesh((2, 4)), "RS0R")
    dst = rl.Layout(cluster.mesh((2, 4), first_host=2), "RRS0")
    return rl.ReshardingTask((256, 256, 128), "float32", src, dst, cluster)


def pictures() -> dict[str, plots.Figure]:
    """By file name."""
    task = question()
    charts = {name: rl.plan(task, "broadcast", name, chunks=32).gantt() for name in METHODS}
    table = paper.recorded("figure8").frame
    shown = pandas.concat(table[table["method"] == method] for method in MEASURED)
    return {
        "layouts.svg": plots.draw_layouts(task, axes=(1, 2)),
        "schedules.svg": plots.gantts(charts),
        "measured.svg": draw_measured(shown, title="Figure 8, measured: schedules of broadcasts"),
    }


def main() -> int:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, figure in pictures().items():
        print(figure.save(FOLDER / name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
