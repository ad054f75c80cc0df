"""What a training run brought: losses, gradients, times, and how far they are from expected."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.pipeline.timeline import PipelineTimeline
from reshard_lab.training.transformer import Transformer
from reshard_lab.training.unet import UNet
from reshard_lab.units import format_seconds

RTOL = 1e-5
"""Largest error that passes: float32 sums in another order stay well below."""


@dataclass(frozen=True, repr=False)
class TrainingRun:
    """A model trained in stages on several processes; made by ``pipeline.train``."""

    model: Transformer | UNet
    schedule: list[list[str]]
    strategy: str
    compute: str
    """``"real"`` (torch) or ``"paced"`` (sleeps; nothing is learned)."""
    losses: tuple[float, ...]
    """By step, of the whole batch; none if paced."""
    gradients: dict[str, np.ndarray]
    """Of the last step's loss by every parameter, whole; none if paced."""
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
    def median_s(self) -> float:
        """Median time of a step."""
        return statistics.median(self.times_s)

    @property
    def min_s(self) -> float:
        """Shortest time of a step."""
        return min(self.times_s)

    @property
    def spread(self) -> float:
        """(longest - shortest) / median."""
        return (max(self.times_s) - self.min_s) / self.median_s

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


class Piece(NamedTuple):
    """A device's gradient of one parameter."""

    device: int
    name: str
    found: np.ndarray
    expected: np.ndarray


def compare(pieces: list[Piece], losses: tuple[float, ...], expected: np.ndarray) -> float:
    """The largest relative error; raises ReshardError if it is above ``RTOL``.

    Of a gradient: the largest difference of an element over the largest element of what is
    expected, on whichever device it is. Of a loss: the difference over the loss.
    """
    worst, where = 0.0, ""
    for step, (loss, other) in enumerate(zip(losses, expected.tolist(), strict=True)):
        error = abs(loss - other) / abs(other) if other else abs(loss)
        if not error <= worst:
            worst, where = error, f"the loss of step {step} is {loss!r}, alone {other!r}"
    for device, name, found, wanted in pieces:
        error = relative_error(found, wanted)
        if not error <= worst:
            worst, where = error, f"the gradient of {name} on device {device}"
    if not worst <= RTOL:
        raise ReshardError(
            f"the run does not equal a run on a single process: {where} is off by {worst:.3g} "
            f"(relative; {RTOL:g} is allowed)"
        )
    return worst


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference of an element over the largest element of ``expected``.

    >>> relative_error(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    """
    if found.shape != expected.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    scale = float(np.abs(expected).max())
    return float(np.abs(found - expected).max()) / (scale or 1.0)
