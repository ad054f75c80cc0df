"""``reshard-lab explain``: who holds what, and the unit tasks between the two layouts."""

from __future__ import annotations

import argparse

from reshard_lab.cli.arguments import add_task, task_data, task_of
from reshard_lab.cli.output import Output
from reshard_lab.errors import check_int
from reshard_lab.layout import Layout
from reshard_lab.plots.device_grid import layout_panel
from reshard_lab.plots.text import mesh_text, side_by_side, unit_tasks_text
from reshard_lab.resharding import ReshardingTask

HELP = "print the unit tasks of a resharding: each box, who holds it, who needs it"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_task(parser)
    parser.add_argument(
        "--whole-slices",
        action="store_true",
        help="the paper's text instead of its code: a source slice travels whole",
    )
    limit = "unit tasks printed at most, 0 for all (default 64)"
    parser.add_argument("--limit", type=int, default=64, metavar="N", help=limit)


def run(args: argparse.Namespace) -> Output:
    """Print the two meshes, then the unit tasks."""
    task = task_of(args)
    limit = check_int("--limit", args.limit) or None
    units = task.whole_slice_tasks if args.whole_slices else task.unit_tasks
    data = {
        **task_data(task),
        "reading": "whole slices" if args.whole_slices else "intersections",
        "unit_tasks": [unit._asdict() for unit in units],
    }
    meshes = side_by_side(_mesh(task, task.src, "source"), _mesh(task, task.dst, "destination"))
    head = f"tensor {'x'.join(map(str, task.shape))} {task.dtype}"
    text = f"{head}\n\n{meshes}\n\n{unit_tasks_text(task, args.whole_slices, limit)}"
    return Output(text, data)


def _mesh(task: ReshardingTask, layout: Layout, end: str) -> str:
    axes = "x".join(map(str, layout.mesh.shape))
    rule = "" if layout.rule == "chunk" else f", rule {layout.rule}"
    return mesh_text(
        layout_panel(f"{end}: {layout.spec} on {axes}{rule}", layout, task.shape, task.cluster)
    )
