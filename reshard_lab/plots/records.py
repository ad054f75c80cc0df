"""The picture of any record: what a notebook shows of it, and what ``export`` writes.

Pictures, tables and timelines go into files, the kind of file chosen by the ending of its name.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reshard_lab.errors import ReshardError, check_path, need, write_text, writing
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.planning import Plan
from reshard_lab.planning.nics import Gantt, Traffic
from reshard_lab.plots.device_grid import draw_mesh, shape_text
from reshard_lab.plots.layouts import draw_layout, draw_layouts, layout_title
from reshard_lab.plots.measured import draw_measured
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.plans import draw_timeline, draw_traffic, gantt
from reshard_lab.plots.svg import Figure
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.measure import Measurement, to_frame
from reshard_lab.simulation import Timeline
from reshard_lab.training.results import TrainingRun
from reshard_lab.units import format_seconds

_KINDS = {
    ".svg": "a picture",
    ".png": "a picture",
    ".csv": "a table",
    ".json": "a Perfetto trace of a timeline, a plan, or a measurement",
}
_UNCUT = 4
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
    shape = tuple(n if axes else _UNCUT for n, axes in cut)
    drawn = draw_layout(layout, shape)
    words = f"{layout_title(layout)}, on a tensor of {shape_text(shape)} as an example. "
    return replace(drawn, caption=words + drawn.caption.partition(". ")[2])


def _task(task: ReshardingTask) -> Figure:
    drawn = draw_layouts(task)
    count = len(task.unit_tasks)
    return replace(drawn, caption=f"{count} unit task{'s' * (count != 1)}. {drawn.caption}")


def _plan(plan: Plan) -> Figure:
    drawn = gantt(plan.gantt())
    return replace(drawn, caption=f"{plan.strategy}, {plan.scheduler}. {drawn.caption}")


def _measurement(measured: Measurement) -> Figure:
    return draw_measured([measured], "time", f"{measured.strategy}, {measured.scheduler}: measured")


def _training(run: TrainingRun) -> Figure:
    drawn = draw_pipeline({"measured": run.timeline}, where=run.label)
    steps = len(run.times_s)
    median = f"{format_seconds(run.median_s)}, the median of {steps} step{'s' * (steps != 1)}"
    return replace(drawn, caption=f"{run.label}. {median}; {drawn.caption}")


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


def export(thing: Any, path: str | Path) -> Path:
    """Write ``thing`` to ``path`` and return it; the ending says as what.

    ``.svg``, ``.png``: a figure, a chart of matplotlib, an explorer's picture as it stands, or
    the picture of a record (see ``draw_record``).
    ``.csv``: a DataFrame, or the table of a record that has ``to_frame``.
    ``.json``: a timeline, or that of a training run, as a Chrome trace, which Perfetto opens; a
    plan as ``Plan.from_json`` reads it; a measurement.
    """
    target = check_path("path", path)
    ending = target.suffix.lower()
    if ending not in _KINDS:
        known = ", ".join(f"{key} ({what})" for key, what in _KINDS.items())
        raise ReshardError(f"cannot tell from {str(path)!r} what to write; endings are {known}")
    if ending == ".csv":
        return write_text("table", target, _csv(thing))
    if ending == ".json":
        return write_text("file", target, _json(thing))
    inner = getattr(thing, "figure", None)  # of an explorer, or of axes of matplotlib
    chart = next((c for c in (thing, inner) if hasattr(c, "savefig")), None)
    if chart is not None:  # of matplotlib; the same chart gives the same bytes
        matplotlib = need("matplotlib", "notebooks", "a chart")
        how: dict[str, Any] = {"metadata": {"Date": None, "Creator": None}}
        if ending == ".png":
            how = {"metadata": {"Software": None}, "dpi": 160}
        fixed = {"svg.hashsalt": "reshard_lab", "svg.fonttype": "path"}
        with writing("picture", target), matplotlib.rc_context(fixed):
            chart.savefig(target, **how)
        return target
    figure = inner if isinstance(inner, Figure) else draw_record(thing)
    if ending == ".svg":
        return figure.save(target)
    data = png(figure)
    with writing("picture", target):
        target.write_bytes(data)
    return target


def png(figure: Figure, scale: float = 2) -> bytes:
    """``figure`` as PNG, ``scale`` pixels to one of the SVG; the same figure, the same bytes."""
    resvg = need("resvg_py", "notebooks", "a PNG of a picture")
    matplotlib = need("matplotlib", "notebooks", "a PNG of a picture")
    # Its fonts are there wherever it is, so the picture is the same on every machine.
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return bytes(
        resvg.svg_to_bytes(
            svg_string=figure.svg,
            zoom=scale,
            skip_system_fonts=True,
            font_dirs=[str(fonts)],
            font_family="DejaVu Sans",
            sans_serif_family="DejaVu Sans",
        )
    )


def _csv(thing: Any) -> str:
    frame = to_frame([thing]) if isinstance(thing, Measurement) else thing
    frame = frame.to_frame() if hasattr(frame, "to_frame") else frame
    if not hasattr(frame, "to_csv"):
        raise ReshardError(
            f"a {type(thing).__name__} is not a table; give a DataFrame, or a timeline, a plan's "
            "gantt() or a measurement"
        )
    named = any(name is not None for name in frame.index.names)
    return str(frame.to_csv(index=named, lineterminator="\n"))


def _json(thing: Any) -> str:
    for kind, write in _JSON.items():
        if isinstance(thing, kind):
            return write(thing)
    raise ReshardError(
        f"a {type(thing).__name__} cannot be written as JSON; give a timeline (as a trace), a plan "
        "or a measurement"
    )


_JSON: dict[type, Callable[[Any], str]] = {
    Timeline: Timeline.to_chrome_trace,
    PipelineTimeline: PipelineTimeline.to_chrome_trace,
    TrainingRun: lambda run: run.timeline.to_chrome_trace(),
    Plan: Plan.to_json,
    Measurement: lambda measured: json.dumps(measured.to_dict(), indent=2) + "\n",
}
