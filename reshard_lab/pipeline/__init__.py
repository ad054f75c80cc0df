"""Pipelines: stage schedules, their check and their simulation (section 4).

>>> from reshard_lab import pipeline
>>> pipeline.schedule("1f1b", stages=2, microbatches=2)
[['F0', 'F1', 'B0', 'B1'], ['F0', 'B0', 'F1', 'B1']]
"""

from __future__ import annotations

from reshard_lab.pipeline.checking import Checked, check
from reshard_lab.pipeline.schedules import SCHEDULES, schedule
from reshard_lab.pipeline.simulation import Skip, simulate
from reshard_lab.pipeline.timeline import PipelineTimeline
from reshard_lab.pipeline.torch_csv import from_torch_csv, to_torch_csv, torch_runtime
from reshard_lab.pipeline.workloads import Workload, device_speed, gpt, u_transformer

__all__ = [
    "SCHEDULES",
    "Checked",
    "PipelineTimeline",
    "Skip",
    "Workload",
    "check",
    "device_speed",
    "from_torch_csv",
    "gpt",
    "schedule",
    "simulate",
    "to_torch_csv",
    "torch_runtime",
    "u_transformer",
]
