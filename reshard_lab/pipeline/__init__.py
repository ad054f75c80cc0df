"""Pipelines: stage schedules, their check and their simulation (section 4).

>>> from reshard_lab import pipeline
>>> pipeline.schedule("1f1b", stages=2, microbatches=2)
[['F0', 'F1', 'B0', 'B1'], ['F0', 'B0', 'F1', 'B1']]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reshard_lab.pipeline.checking import Checked, check
from reshard_lab.pipeline.schedules import SCHEDULES, schedule
from reshard_lab.pipeline.simulation import Skip, simulate
from reshard_lab.pipeline.timeline import PipelineTimeline
from reshard_lab.pipeline.torch_csv import from_torch_csv, to_torch_csv, torch_runtime
from reshard_lab.pipeline.workloads import Workload, device_speed, gpt, u_transformer

if TYPE_CHECKING:
    from reshard_lab.training import Paced, TrainingRun, Transformer, UNet, train

__all__ = [
    "SCHEDULES",
    "Checked",
    "Paced",
    "PipelineTimeline",
    "Skip",
    "TrainingRun",
    "Transformer",
    "UNet",
    "Workload",
    "check",
    "device_speed",
    "from_torch_csv",
    "gpt",
    "schedule",
    "simulate",
    "to_torch_csv",
    "torch_runtime",
    "train",
    "u_transformer",
]

_TRAINING = ("Paced", "TrainingRun", "Transformer", "UNet", "train")


def __getattr__(name: str) -> Any:
    """Names of ``reshard_lab.training``, which stands on the floors above: the one way up."""
    if name not in _TRAINING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reshard_lab import training

    return getattr(training, name)
