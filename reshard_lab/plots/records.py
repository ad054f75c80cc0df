"""The picture of any record: what a notebook shows of it, and what ``export`` writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from reshard_lab.errors import ReshardError
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.planning.gantt import Gantt
from reshard_lab.planning.record import Plan
from reshard_lab.planning.traffic import Traffic
from reshard_lab.plots.device_grid import draw_mesh, shape_text
from reshard_lab.plots.gantt import draw_timeline, gantt
from reshard_lab.plots.layouts import draw_layout, draw_layouts, layout_title
from reshard_lab.plots.measured import draw_measured
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.svg import Figure, figure
from reshard_lab.plots.traffic import draw_traffic
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.measure import Measurement
from reshard_lab.simulation.timeline import Timeline
from reshard_lab.training.results import TrainingRun
from reshard_lab.units import format_seconds

_WHOLE = 4
"""Size of the dimensions that an example tensor has beside those that are cut."""


def draw_record(record: object) -> Figure:
    """The picture of a mesh, layout, task, plan, timeline, traffic, measurement or training run."""
    if isinstance(record, Figure):
        return record
    for kind, draw in _PICTURES.items():
        if isinstance(record, kind):
            return draw(record)
    names = ", ".join(kind.__name__ for kind in _PICTURES)
    raise ReshardError(
        f"there is no picture of a {type(record).__name__}; there is one of {names} and of what "
        "reshard_lab.plots draws"
    )


def record_html(record: object) -> str | None:
    """The picture of ``record`` for a notebook; None where one of its size cannot be drawn."""
    try:
        return draw_record(record)._repr_html_()
    except ReshardError:  # too large to read: the notebook shows its line of text
        return None


def _layout(layout: Layout) -> Figure:
    """A layout alone has no tensor: drawn is the smallest that it cuts evenly."""
    sizes = [math.prod(layout.mesh.shape[a] for a in axes) for axes in layout.spec.dims]
    cut = zip(sizes, layout.spec.dims, strict=True)
    shape = tuple(n if axes else _WHOLE for n, axes in cut)
    made = draw_layout(layout, shape)
    words = f"{layout_title(layout)}, on a tensor of {shape_text(shape)} as an example. "
    return figure(made.svg, words + made.caption.partition(". ")[2], made.alt)


def _task(task: ReshardingTask) -> Figure:
    made = draw_layouts(task)
    count = len(task.unit_tasks)
    words = f"{count} unit task{'s' * (count != 1)}. {made.caption}"
    return figure(made.svg, words, made.alt)


def _plan(plan: Plan) -> Figure:
    made = gantt(plan.gantt())
    return figure(made.svg, f"{plan.strategy}, {plan.scheduler}. {made.caption}", made.alt)


def _measurement(measured: Measurement) -> Figure:
    return draw_measured([measured], "time", f"{measured.strategy}, {measured.scheduler}: measured")


def _training(run: TrainingRun) -> Figure:
    made = draw_pipeline({"measured": run.timeline}, where=run.label)
    steps = len(run.times_s)
    median = f"{format_seconds(run.median_s)}, the median of {steps} step{'s' * (steps != 1)}"
    return figure(made.svg, f"{run.label}. {median}; {made.caption}", made.alt)


_PICTURES: dict[type, Callable[[Any], Figure]] = {
    Mesh: draw_mesh,
    Layout: _layout,
    ReshardingTask: _task,
    Plan: _plan,
    Gantt: gantt,
    Timeline: draw_timeline,
    PipelineTimeline: draw_pipeline,
    Measurement: _measurement,
    Traffic: draw_traffic,
    TrainingRun: _training,
}
