"""What a training run brought: losses, gradients, times, and how far they are from expected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.runtime.measure import Timed
from reshard_lab.training.transformer import Transformer
from reshard_lab.training.unet import UNet
from reshard_lab.units import format_seconds

RTOL = 1e-5
"""Largest error that passes: float32 sums in another order stay well below."""
FLOOR = 1e-2
"""Share of the model's largest gradient: errors of smaller gradients are measured against that."""
LATER_RTOL = 1e-3
"""The same for losses of later steps: what rounding changed in the weights grows as they learn."""


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


class Compared(NamedTuple):
    """A device's gradient of one parameter, beside what it should be."""

    device: int
    name: str
    found: np.ndarray
    expected: np.ndarray
    largest: float
    """Largest element of the whole gradient that is expected."""


def compare(gradients: list[Compared], losses: tuple[float, ...], expected: np.ndarray) -> float:
    """The largest relative error of the first step; raises ReshardError if it is above ``RTOL``,
    or that of a later loss above ``LATER_RTOL``.

    Of a gradient: the largest difference of an element, on whichever device it is, over the
    largest element of the whole gradient (or over ``FLOOR`` of the largest of all gradients:
    smaller ones are what is left of larger terms, and hold their rounding). Of a loss: the
    difference over the loss.
    """
    found = [(0.0, "")]
    floor = FLOOR * max((g.largest for g in gradients), default=0.0)
    for step, (loss, other) in enumerate(zip(losses, expected.tolist(), strict=True)):
        error = abs(loss - other) / abs(other) if other else abs(loss)
        text = f"the loss of step {step} is {loss!r}, alone {other!r}, which"
        if step and not error <= LATER_RTOL:
            raise _unequal(text, error, LATER_RTOL)
        if not step:
            found.append((error, text))
    for device, name, got, wanted, largest in gradients:
        error = relative_error(got, wanted, max(largest, floor))
        found.append((error, f"the gradient of {name} on device {device}"))
    worst, where = max(found, key=lambda one: math.inf if math.isnan(one[0]) else one[0])
    if not worst <= RTOL:
        raise _unequal(where, worst, RTOL)
    return worst


def _unequal(what: str, error: float, allowed: float) -> ReshardError:
    return ReshardError(
        f"the run does not equal a run on a single process: {what} is off by {error:.3g} "
        f"(relative; {allowed:g} is allowed). Where layers are narrow and samples few, rounding "
        "alone can do that: compare with a wider model, or more samples"
    )


def relative_error(found: np.ndarray, expected: np.ndarray, largest: float) -> float:
    """Largest difference of an element over ``largest``.

    >>> relative_error(np.array([1.0, 2.5]), np.array([1.0, 2.0]), 2.0)
    0.25
    """
    if found.shape != expected.shape:
        return float("inf")
    return largest_of(found - expected) / (largest or 1.0)


def largest_of(array: np.ndarray) -> float:
    """The largest absolute value; 0 of none."""
    return float(np.abs(array).max()) if array.size else 0.0
