"""From what the devices saved to the record of the run."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.pipelining.engine import carry_out
from reshard_lab.pipelining.graph import Graph
from reshard_lab.pipelining.loads import Load, load
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.planning import Plan
from reshard_lab.runtime.pool import Reports
from reshard_lab.training.job import Job, group_with, groups_of
from reshard_lab.training.member import REFERENCE, RESULT
from reshard_lab.training.models import full_name
from reshard_lab.training.record import Compared, TrainingRun, compare, largest_of

Arrays = dict[str, np.ndarray]


class Results(NamedTuple):
    """What the devices saved and said."""

    devices: dict[int, Arrays]
    alone: Arrays | None
    """Of the run on a single process, if there was one."""
    cpu: list[Any]
    """``(busy ticks, all ticks)`` of the cores during timed steps."""


class Timing(NamedTuple):
    """Of timed steps, in seconds of the machine's clock: rows are steps, columns items."""

    began: np.ndarray
    lasted: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def read(job: Job, folder: Path, reports: Reports) -> Results:
    """What the devices saved in the pool's folder, which is then rid of it."""

    def taken(name: str) -> Arrays:
        with np.load(folder / name) as file:
            found = dict(file)
        (folder / name).unlink()
        return found

    devices = {device: taken(RESULT.format(device)) for device in job.devices}
    timed = [report["cpu"] for found in reports.values() for report in found[1 + job.warmup :]]
    return Results(devices, taken(REFERENCE) if job.reference else None, timed)


def record(
    job: Job, plans: list[Plan], strategy: str, results: Results, environment: dict[str, Any]
) -> TrainingRun:
    """The record; raises ReshardError if the run does not equal that on a single process."""
    times = _times(job, results)
    moves = [_moves(numbers, plans, strategy) for numbers in job.plans]
    graph = job.graph_with(_durations(job, times), moves)
    median = int(np.argsort(times.lasted, kind="stable")[(len(times.lasted) - 1) // 2])
    measured = [part[median] - times.began[median] for part in (times.starts, times.ends)]
    losses = _losses(job, results)
    error = None
    if results.alone is not None:
        error = compare(_compared(job, results), losses, results.alone["losses"])
    whole = all(made.delivers for made in plans)
    return TrainingRun(
        model=job.model,
        schedule=job.schedule,
        strategy=strategy,
        compute="real" if job.paced is None else "paced",
        losses=losses,
        gradients=_gradients(job, results),
        max_error=error,
        verified=error is not None if job.paced is None else whole,
        times_s=tuple(times.lasted.tolist()),
        timeline=_timeline(job, graph, *(part.tolist() for part in measured)),
        simulated=_timeline(job, graph, *carry_out(graph)),
        environment=environment,
    )


def _times(job: Job, results: Results) -> Timing:
    """An item starts when all devices that take part have begun it. It ends, an op, when all have
    ended it; a transfer, when all of the target stage have what they need.
    """
    found = [results.devices[device] for device in job.devices]
    began = np.min([r["began"] for r in found], axis=0)
    lasted = np.max([r["ended"] for r in found], axis=0) - began
    starts = np.array([r["starts"] for r in found])  # nan where a device takes no part
    ends = np.array([r["ends"] for r in found])
    stages, targets = np.array(job.graph.stages), np.array(job.graph.targets)
    at = np.array([job.stage_of(device) for device in job.devices])
    done = at[:, None] == np.where(targets < 0, stages, targets)
    begins = np.nanmax(starts, axis=0)
    over = np.max(np.where(done[:, None, :], ends, -np.inf), axis=0)
    return Timing(*(part[job.warmup :] for part in (began, lasted, np.minimum(begins, over), over)))


def _durations(job: Job, times: Timing) -> dict[tuple[str, int], float]:
    """Seconds of ops by kind and piece: as paced, else the median of what was measured."""
    if job.paced is not None:
        return {(k, p): t for k, given in job.paced.items() for p, t in enumerate(given)}
    found: dict[tuple[str, int], list[float]] = {}
    for item, (op, stage, target) in enumerate(
        zip(job.graph.ops, job.graph.stages, job.graph.targets, strict=True)
    ):
        if target < 0:
            lasted = (times.ends[:, item] - times.starts[:, item]).tolist()
            found.setdefault((op.kind, op.chunk * job.stages + stage), []).extend(lasted)
    return {key: statistics.median(lasted) for key, lasted in found.items()}


def _moves(numbers: list[int | None], plans: list[Plan], strategy: str) -> tuple[Load, Load]:
    there, back = (Load(0.0) if n is None else load("plan", plans[n], strategy) for n in numbers)
    return there, back


def _timeline(job: Job, graph: Graph, starts: list[float], ends: list[float]) -> PipelineTimeline:
    names = tuple(way.name for way in job.ways)
    return PipelineTimeline(
        job.checked.lists, job.overlap, graph, tuple(starts), tuple(ends), names, None
    )


def _losses(job: Job, results: Results) -> tuple[float, ...]:
    """Of the whole batch: the sum over the data group of the last stage; none if paced."""
    if job.paced is not None:
        return ()
    last = (len(job.pieces) - 1) % job.stages
    firsts = [group[0] for group in groups_of(job.layouts[last])[0]]
    total = np.sum([results.devices[device]["losses"] for device in firsts], axis=0)
    return tuple(total[job.warmup :].tolist())


def _compared(job: Job, results: Results) -> list[Compared]:
    """Every device's gradients, each with what it should be."""
    assert results.alone is not None
    compared = []
    for device in job.devices:
        stage = job.stage_of(device)
        group = group_with(groups_of(job.layouts[stage])[0], device)
        cuts = _cuts(job, stage)
        for name, cut in cuts.items():
            expected = results.alone[name]
            largest = largest_of(expected)
            if cut is not None:
                expected = np.split(expected, len(group), cut)[group.index(device)]
            found = results.devices[device][f"gradient {name}"]
            compared.append(Compared(device, name, found, expected, largest))
    return compared


def _cuts(job: Job, stage: int) -> dict[str, int | None]:
    """Parameters on a stage, and the dimension along which its operator group shares them."""
    pieces = range(stage, len(job.pieces), job.stages)
    layers = [job.built.layers[n] for piece in pieces for n in job.pieces[piece]]
    return {full_name(layer, p): p.cut for layer in layers for p in layer.params}


def _gradients(job: Job, results: Results) -> Arrays:
    """Whole gradients, in the order of the model's parameters; none if paced."""
    if job.paced is not None:
        return {}
    found: Arrays = {}
    for stage, layout in enumerate(job.layouts):
        group = groups_of(layout)[0][0]
        for name, cut in _cuts(job, stage).items():
            parts = [results.devices[device][f"gradient {name}"] for device in group]
            found[name] = parts[0] if cut is None else np.concatenate(parts, cut)
    order = [full_name(layer, p) for layer in job.built.layers for p in layer.params]
    return {name: found[name] for name in order}
