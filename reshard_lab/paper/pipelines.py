"""Figures 4, 7 and 9 of the paper: pipelines whose transfers overlap with compute, simulated.

Nothing here is measured: compute takes FLOPs over a stated device speed, transfers take their
plan's time on the described cluster (section 4; the overlap levels are the authors').
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import check_choice, check_int, check_type, need
from reshard_lab.paper.files import several
from reshard_lab.pipelining import PipelineTimeline, Workload, device_speed, gpt, schedule, simulate
from reshard_lab.pipelining import u_transformer as u_net
from reshard_lab.pipelining.loads import Moves, Times
from reshard_lab.units import ITEMSIZE

if TYPE_CHECKING:
    import pandas as pd

MODELS = ("GPT-1.3B", "GPT-2.6B", "U-Transformer-1B", "U-Transformer-2B")


class Level(NamedTuple):
    """A bar of every group: how tensors cross, and how the pipeline is scheduled."""

    name: str
    strategy: str
    schedule: str
    overlap: bool
    delay_weights: bool
    about: str


FIGURE7 = (
    Level("send_recv", "send_recv", "1f1b", False, False, "1F1B, transfers block"),
    Level("alpa", "alpa", "1f1b", False, False, "1F1B, transfers block"),
    Level("broadcast", "broadcast", "1f1b", False, False, "1F1B, transfers block"),
    Level("ours", "broadcast", "eager_1f1b", True, True, "overlapped eager-1F1B, weights delayed"),
    Level("signal", "signal", "eager_1f1b", True, True, "as ours, but no data: the upper bound"),
)
FIGURE9 = (
    FIGURE7[2],
    Level("overlap", "broadcast", "1f1b", True, False, "1F1B, overlapped"),
    Level("eager_1f1b", "broadcast", "eager_1f1b", True, False, "eager-1F1B, overlapped"),
    *FIGURE7[3:],
)
"""Each adds one step to the one before it; ``ours`` adds backward weight delaying."""
PAPER = {"GPT": 1.1, "U-Transformer": 1.5}
"""Throughput of ours over Alpa's, as the paper states it for each kind of model (section 5.2)."""
PAPER_OF_SIGNAL = 0.75
"""Least share of the throughput of signal that the paper states for ours."""


class Figure4(NamedTuple):
    """1F1B and eager-1F1B on the same work."""

    timelines: dict[str, PipelineTimeline]
    frame: pd.DataFrame


def figure4(
    stages: int = 4,
    microbatches: int = 8,
    forward_s: Times = 1.0,
    backward_s: Times = 2.0,
    forward_transfer_s: Moves = 0.5,
    backward_transfer_s: Moves | None = None,
    delay_weights: bool = False,
) -> Figure4:
    """1F1B beside eager-1F1B (figure 4), transfers overlapped: timelines, and a row a stage.

    Times as ``pipeline.simulate`` takes them: one for all, or one a stage or link.

    Columns: ``schedule``, ``stage``, ``makespan_s`` (of the whole pipeline), the stage's shares
    ``compute``, ``communication`` (exposed) and ``bubble``, and ``peak_live`` microbatches.

    >>> figure4().timelines["eager-1F1B"]
    PipelineTimeline(4 stages, 8 microbatches, overlapped: 36 s, bubble 27.1%, ...)
    """
    names = {"1F1B": "1f1b", "eager-1F1B": "eager_1f1b"}
    times = forward_s, backward_s, forward_transfer_s, backward_transfer_s
    timelines = {
        shown: simulate(schedule(name, stages, microbatches, delay_weights=delay_weights), *times)
        for shown, name in names.items()
    }
    rows = []
    for name, timeline in timelines.items():
        for share, live in zip(timeline.shares, timeline.peak_live, strict=True):
            row = {"schedule": name, "stage": share.stage, "makespan_s": timeline.makespan_s}
            rows.append(row | share._asdict() | {"peak_live": live})
    return Figure4(timelines, need("pandas", "notebooks", "figure 4").DataFrame(rows))


def model(name: str, recompute: bool = False, **changes: Any) -> Workload:
    """One of ``MODELS``, by its name in any case; ``changes`` are settings of the workload.

    >>> model("gpt-1.3b").name
    'GPT-1.3B'
    """
    names = {known.lower(): known for known in MODELS}
    key = names.get(str(name).lower().replace("_", "-"), name)  # what is no text is refused below
    kind, _, size = check_choice("workload", key, MODELS).rpartition("-")
    return {"GPT": gpt, "U-Transformer": u_net}[kind](size, recompute, **changes)


def cluster_for(work: Workload, preset: str = "p3.8xlarge") -> Cluster:
    """As many hosts of ``preset`` as the stages of ``work`` need, each starting on its own."""
    each = Cluster.preset(preset).devices_per_host
    hosts = len(work.stages) * math.ceil(work.data * work.operator / each)
    return Cluster.preset(preset, hosts=hosts)


def figure7(
    models: str | Sequence[str] = MODELS,
    preset: str = "p3.8xlarge",
    recompute: bool = True,
    levels: Sequence[Level] = FIGURE7,
) -> pd.DataFrame:
    """Training throughput by how tensors cross between two stages (section 5.2), simulated.

    recompute:
        run forwards again in the backward. Without it, ours would keep 15 to 41 GiB of
        activations on a device of the paper's, which has 16 GB (see ``peak_activation_bytes``).

    A row a model and method. ``tflops_per_device`` counts recomputed forwards, as hardware does;
    ``tflops`` is of all devices. ``compute_s`` is forward and backward of one microbatch on the
    stage that takes longest, ``transfers_s`` everything that crosses for it, both ways.
    """
    works = [(name, model(name, recompute)) for name in several("models", models)]
    return _throughput("figure 7", works, preset, recompute, levels)


def figure9(
    models: str | Sequence[str] = MODELS[2:],
    microbatches: int | Sequence[int] = (2, 4, 8, 16, 32),
    preset: str = "p3.8xlarge",
    recompute: bool = True,
    levels: Sequence[Level] = FIGURE9,
) -> pd.DataFrame:
    """Throughput over the number of microbatches, step by step from no overlap to ours (5.3.2).

    A microbatch keeps its size: more of them are a larger batch. Columns as of ``figure7``.
    """
    works = []
    for name in several("models", models):
        default = model(name, recompute)
        samples = default.batch // default.microbatches
        for count in several("microbatches", microbatches):
            batch = samples * check_int("microbatches", count, 1)
            works.append((name, model(name, recompute, microbatches=count, batch=batch)))
    return _throughput("figure 9", works, preset, recompute, levels)


def _throughput(
    what: str, works: list[tuple[str, Workload]], preset: str, recompute: bool, levels: Any
) -> pd.DataFrame:
    levels = [check_type("each of levels", level, Level) for level in several("levels", levels)]
    rows = [_row(name, work, level, preset, recompute) for name, work in works for level in levels]
    return need("pandas", "notebooks", what).DataFrame(rows)


def run_level(work: Workload, level: Level, preset: str = "p3.8xlarge") -> PipelineTimeline:
    """``work`` under ``level`` on hosts of ``preset``, at the speed stated there."""
    speed = device_speed(preset, work.dtype).flops_per_s
    lists = schedule(
        level.schedule, len(work.stages), work.microbatches, delay_weights=level.delay_weights
    )
    arguments = work.arguments(cluster_for(work, preset), speed)
    return simulate(lists, **arguments, strategy=level.strategy, overlap=level.overlap)


def _row(name: str, work: Workload, level: Level, preset: str, recompute: bool) -> dict[str, Any]:
    timeline = run_level(work, level, preset)
    speed = device_speed(preset, work.dtype).flops_per_s
    moved = sum(e.end_s - e.start_s for e in timeline.events if e.row.startswith("link"))
    busiest = max(stage.forward_flops + stage.backward_flops for stage in work.stages)
    elements = sum(math.prod(tensor.shape) for tensor in work.tensors)
    row = {"model": name, "method": level.name, "about": level.about}
    row |= {key: getattr(level, key) for key in Level._fields[1:-1]}
    return row | {
        "recompute": recompute,
        "devices": work.devices,
        "microbatches": work.microbatches,
        "makespan_s": timeline.makespan_s,
        "tflops_per_device": work.flops / timeline.makespan_s / work.devices / 1e12,
        "tflops": work.flops / timeline.makespan_s / 1e12,
        "device_tflops": speed / 1e12,
        **{key: getattr(timeline, key) for key in ("bubble_share", "exposed_communication_share")},
        "peak_live": max(timeline.peak_live),
        "peak_activation_bytes": max(timeline.peak_bytes or [0]),
        "crossing_bytes": elements * ITEMSIZE[work.dtype],
        "compute_s": busiest / speed / (work.data * work.operator),
        "transfers_s": moved / work.microbatches,
    }
