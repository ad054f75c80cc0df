"""What a training run brought: the record, put together from what the devices saved."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.pipelining.graph import carry_out
from reshard_lab.pipelining.loads import Load, transfer_load
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.planning import Plan
from reshard_lab.runtime.measure import Timed
from reshard_lab.runtime.pool import Reports
from reshard_lab.training.config import TrainingConfig, parallel_groups
from reshard_lab.training.executor import RESULT, UNCUT
from reshard_lab.training.models import Transformer, UNet
from reshard_lab.units import format_seconds

RTOL = 1e-5
"""Largest error that passes: float32 sums in another order stay well below."""
FLOOR = 1e-2
"""Share of the model's largest gradient: errors of smaller gradients are measured against that."""
LATER_RTOL = 1e-3
"""The same for losses of later steps: what rounding changed in the weights grows as they learn."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, repr=False)
class TrainingRun(Timed):
    """A model trained in stages on several processes; made by ``pipeline.train``."""

    model: Transformer | UNet
    schedule: list[list[str]]
    strategy: str
    compute: str
    """``"real"`` (torch) or ``"paced"`` (sleeps; nothing is learned)."""
    losses: tuple[float, ...]
    """By step, of the whole batch; none if paced."""
    gradients: dict[str, np.ndarray]
    """Of the first step's loss by every parameter, whole; none if paced."""
    max_error: float | None
    """Largest difference from the run on a single process, relative (see ``compare``); None if
    there was no comparison."""
    verified: bool
    """Real: equal to the single process within rtol 1e-5. Paced: every tensor came whole."""
    times_s: tuple[float, ...]
    """By step, warm-ups left out: from a barrier of all devices to the end of the slowest, the
    sum of gradients over data-parallel devices included."""
    timeline: PipelineTimeline
    """Ops and transfers of the step of median time, as measured."""
    simulated: PipelineTimeline
    """The same simulated: ops as paced (real: as long as measured, by kind and stage), transfers
    as their plans predict."""
    environment: dict[str, Any]
    """Where it was measured: backend, link, machine, versions, commit."""

    @property
    def label(self) -> str:
        """What was measured, in words: goes beside every number and picture."""
        how = {"real": "compute real (torch)", "paced": "compute paced (sleeps)"}[self.compute]
        checked = "verified" if self.verified else "not verified"
        return f"{self.environment['link']}, {how}, {checked}"

    def to_frame(self) -> Any:
        """The measured ops and transfers, one row each (``PipelineTimeline.to_frame``)."""
        return self.timeline.to_frame()

    def __repr__(self) -> str:
        error = "" if self.max_error is None else f", largest error {self.max_error:.1e}"
        loss = f", loss {self.losses[-1]:.6g}" if self.losses else ""
        how = "overlapped" if self.timeline.overlap else "blocking"
        return (
            f"TrainingRun({type(self.model).__name__}, {self.timeline.stages} stages, {how}: "
            f"{format_seconds(self.median_s)} a step, spread {self.spread:.0%} of "
            f"{len(self.times_s)}{loss}{error}; {self.label})"
        )


class DeviceResults(NamedTuple):
    """What the devices saved and said."""

    devices: dict[int, Arrays]
    uncut: Arrays | None
    """Of the run on a single process, if there was one."""
    cpu: list[Any]
    """``(busy ticks, all ticks)`` of the cores during timed steps."""


class StepTimes(NamedTuple):
    """Of timed steps, in seconds of the machine's clock: rows are steps, columns items."""

    began: np.ndarray
    durations: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def read_results(config: TrainingConfig, folder: Path, reports: Reports) -> DeviceResults:
    """What the devices saved in the pool's folder, which is then rid of it."""

    def read(name: str) -> Arrays:
        with np.load(folder / name) as file:
            arrays = dict(file)
        (folder / name).unlink()
        return arrays

    devices = {device: read(RESULT.format(device)) for device in config.devices}
    timed = [r["cpu"] for of_device in reports.values() for r in of_device[1 + config.warmup :]]
    return DeviceResults(devices, read(UNCUT) if config.reference else None, timed)


def gather_run(
    config: TrainingConfig,
    plans: list[Plan],
    strategy: str,
    results: DeviceResults,
    environment: dict[str, Any],
) -> TrainingRun:
    """The record; raises ReshardError if the run does not equal that on a single process."""
    times = step_times(config, results)
    loads = [transfer_load("plan", plan, strategy) for plan in plans]
    transfers = [
        (Load(0.0) if a is None else loads[a], Load(0.0) if b is None else loads[b])
        for a, b in config.plan_numbers
    ]
    graph = config.graph_with(op_durations(config, times), transfers)
    names = tuple(tensor.name for tensor in config.boundary_tensors)

    def timeline(starts: list[float], ends: list[float]) -> PipelineTimeline:
        lists, overlap = config.checked.lists, config.overlap
        return PipelineTimeline(lists, overlap, graph, tuple(starts), tuple(ends), names, None)

    median = int(np.argsort(times.durations, kind="stable")[(len(times.durations) - 1) // 2])
    starts, ends = (part[median] - times.began[median] for part in (times.starts, times.ends))
    losses: tuple[float, ...] = ()
    gradients: Arrays = {}
    pairs: list[GradientPair] = []
    error = None
    if config.paced is None:
        # Of the whole batch: the sum over the data-parallel devices of the last stage
        last = (len(config.chunk_layers) - 1) % config.stages
        firsts = [group[0] for group in parallel_groups(config.layouts[last])[0]]
        total = np.sum([results.devices[device]["loss"] for device in firsts], axis=0)
        losses = tuple(total[config.warmup :].tolist())
        gradients, pairs = _gradients(config, results)
    if results.uncut is not None:
        error = compare(pairs, losses, results.uncut["losses"])
    return TrainingRun(
        model=config.sizes,
        schedule=config.schedule,
        strategy=strategy,
        compute="real" if config.paced is None else "paced",
        losses=losses,
        gradients=gradients,
        max_error=error,
        verified=all(p.delivers for p in plans) if config.paced else error is not None,
        times_s=tuple(times.durations.tolist()),
        timeline=timeline(starts.tolist(), ends.tolist()),
        simulated=timeline(*carry_out(graph)),
        environment=environment,
    )


def step_times(config: TrainingConfig, results: DeviceResults) -> StepTimes:
    """An item starts when all devices that take part have begun it. It ends, an op, when all have
    ended it; a transfer, when all of the target stage have what they need.
    """
    saved = [results.devices[device] for device in config.devices]
    began = np.min([r["began"] for r in saved], axis=0)
    durations = np.max([r["ended"] for r in saved], axis=0) - began
    starts = np.array([r["starts"] for r in saved])  # nan where a device takes no part
    ends = np.array([r["ends"] for r in saved])
    stages, targets = np.array(config.graph.stages), np.array(config.graph.targets)
    at = np.array([config.stage_of(device) for device in config.devices])
    last = at[:, None] == np.where(targets < 0, stages, targets)
    ended = np.max(np.where(last[:, None, :], ends, -np.inf), axis=0)
    started = np.minimum(np.nanmax(starts, axis=0), ended)
    return StepTimes(*(part[config.warmup :] for part in (began, durations, started, ended)))


def op_durations(config: TrainingConfig, times: StepTimes) -> dict[tuple[str, int], float]:
    """Seconds of ops by kind and model chunk: as paced, else the median of what was measured."""
    if config.paced is not None:
        return {(k, c): t for k, given in config.paced.items() for c, t in enumerate(given)}
    measured: dict[tuple[str, int], list[float]] = {}
    for item, op, stage in config.graph.computed():
        seconds = (times.ends[:, item] - times.starts[:, item]).tolist()
        measured.setdefault((op.kind, op.chunk * config.stages + stage), []).extend(seconds)
    return {key: statistics.median(seconds) for key, seconds in measured.items()}


class GradientPair(NamedTuple):
    """A device's gradient of one parameter, beside what it should be."""

    device: int
    name: str
    gradient: np.ndarray
    expected: np.ndarray
    largest: float
    """Largest element of the whole gradient that is expected."""


def _gradients(config: TrainingConfig, results: DeviceResults) -> tuple[Arrays, list[GradientPair]]:
    """Whole gradients, in the order of the model's parameters, and those of every device."""
    whole: Arrays = {}
    pairs = []
    for stage, layout in enumerate(config.layouts):
        groups = parallel_groups(layout)[0]
        for name, p in config.model.params(config.layers_of(stage)).items():
            for group in groups:
                shards = [results.devices[device][f"gradient {name}"] for device in group]
                if group == groups[0]:
                    whole[name] = shards[0] if p.cut is None else np.concatenate(shards, p.cut)
                if results.uncut is None:
                    continue
                parts = [results.uncut[name]] * len(group)
                largest = _largest(parts[0])
                if p.cut is not None:
                    parts = np.split(parts[0], len(group), p.cut)
                for device, shard, part in zip(group, shards, parts, strict=True):
                    pairs.append(GradientPair(device, name, shard, part, largest))
    return {name: whole[name] for name in config.model.params()}, pairs


def compare(pairs: list[GradientPair], losses: tuple[float, ...], expected: np.ndarray) -> float:
    """The largest relative error of the first step; raises ReshardError if it is above ``RTOL``,
    or that of a later loss above ``LATER_RTOL``.

    Of a gradient: the largest difference of an element, on whichever device it is, over the
    largest element of the whole gradient (or over ``FLOOR`` of the largest of all gradients:
    smaller ones are what is left of larger terms, and hold their rounding). Of a loss: the
    difference over the loss.
    """
    errors = [(0.0, "")]
    floor = FLOOR * max((pair.largest for pair in pairs), default=0.0)
    for step, (loss, other) in enumerate(zip(losses, expected.tolist(), strict=True)):
        error = abs(loss - other) / abs(other) if other else abs(loss)
        text = f"the loss of step {step} is {loss!r}, alone {other!r}, which"
        if step and not error <= LATER_RTOL:
            raise _unequal(text, error, LATER_RTOL)
        if not step:
            errors.append((error, text))
    for pair in pairs:
        error = math.inf
        if pair.gradient.shape == pair.expected.shape:
            scale = max(pair.largest, floor) or 1.0
            error = _largest(pair.gradient - pair.expected) / scale
        errors.append((error, f"the gradient of {pair.name} on device {pair.device}"))
    worst, where = max(errors, key=lambda one: math.inf if math.isnan(one[0]) else one[0])
    if not worst <= RTOL:
        raise _unequal(where, worst, RTOL)
    return worst


def _unequal(what: str, error: float, allowed: float) -> ReshardError:
    return ReshardError(
        f"the run does not equal a run on a single process: {what} is off by {error:.3g} "
        f"(relative; {allowed:g} is allowed). Where layers are narrow and samples few, rounding "
        "alone can do that: compare with a wider model, or more samples"
    )


def _largest(array: np.ndarray) -> float:
    """The largest absolute value; 0 of none."""
    return float(np.abs(array).max()) if array.size else 0.0
