"""The pipeline explorer: a schedule with its transfers and its memory, beside a second one."""

from __future__ import annotations

from reshard_lab.pipelining import SCHEDULES, PipelineTimeline, schedule, simulate
from reshard_lab.plots.activation_memory import draw_memory
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.svg import stacked
from reshard_lab.units import format_seconds, parse_seconds
from reshard_lab.widgets.controls import checkbox, fine_slider, menu, slider, text
from reshard_lab.widgets.panel import Explorer, View

_NONE = "nothing"
_CHUNKS = {"interleaved_1f1b": 2}
"""Chunks of the model a stage holds, where it is more than one."""


def pipeline_explorer(
    name: str = "eager_1f1b",
    other: str = "1f1b",
    stages: int = 4,
    microbatches: int = 8,
    forward: str = "1ms",
    backward: str = "2ms",
    transfer_ms: float = 0.5,
    overlap: bool = True,
    delay_weights: bool = False,
) -> Explorer:
    """Stages, links and memory of a pipeline over time, with another schedule on the same axis.

    ``forward`` and ``backward`` are the times of one microbatch on one stage (t_F, t_B),
    ``transfer_ms`` that of a transfer to a neighbouring stage, each way (c).
    """
    groups = {
        "Schedules": {
            "name": menu("schedule", SCHEDULES, name),
            "other": menu("compare with", (_NONE, *SCHEDULES), other),
            "overlap": checkbox("overlap transfers", overlap),
            "delay_weights": checkbox("delay weight gradients", delay_weights),
        },
        "Size": {
            "stages": slider("stages", stages, 1, 8),
            "microbatches": slider("microbatches", microbatches, 1, 32),
        },
        "Times": {
            "forward": text("t_F: a forward", forward),
            "backward": text("t_B: a backward", backward),
            "transfer_ms": fine_slider("c: a transfer (ms)", transfer_ms, 10.0),
        },
    }
    return Explorer("pipeline explorer", groups, _view)


def _view(
    name: str,
    other: str,
    stages: int,
    microbatches: int,
    forward: str,
    backward: str,
    transfer_ms: float,
    overlap: bool,
    delay_weights: bool,
) -> View:
    forward_s, backward_s = parse_seconds(forward, "t_F"), parse_seconds(backward, "t_B")
    timelines = {}
    for one in dict.fromkeys((name, other)):
        if one != _NONE:
            lists = schedule(one, stages, microbatches, delay_weights=delay_weights)
            chunks = _CHUNKS.get(one, 1)  # which do the work of t_F and t_B together
            durations = forward_s / chunks, backward_s / chunks, transfer_ms / 1e3
            timelines[one] = simulate(lists, *durations, overlap=overlap)
    notes = [
        f"In {one} a stage holds {chunks} pieces of the model, which take t_F/{chunks} and "
        f"t_B/{chunks} each; live microbatches are counted a piece."
        for one, chunks in _CHUNKS.items()
        if one in timelines
    ]
    figure = stacked(draw_pipeline(timelines), draw_memory(timelines))
    return View(figure, _table(timelines), _facts(timelines), notes)


def _facts(timelines: dict[str, PipelineTimeline]) -> dict[str, str]:
    facts = {
        name: f"{format_seconds(one.makespan_s)}, bubble {one.bubble_share:.1%}, exposed "
        f"communication {one.exposed_communication_share:.1%}, at most {max(one.peak_live)} live"
        for name, one in timelines.items()
    }
    if len(timelines) == 2:
        (_, one), (name, two) = timelines.items()
        if two.makespan_s:
            facts["time over that of " + name] = f"{one.makespan_s / two.makespan_s:.3f}"
    return facts


def _table(timelines: dict[str, PipelineTimeline]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("schedule", "row", "op", "what", "start", "end")]
    for name, one in timelines.items():
        rows += [
            (name, e.row, e.op, e.what, format_seconds(e.start_s), format_seconds(e.end_s))
            for e in one.events
        ]
    return rows
