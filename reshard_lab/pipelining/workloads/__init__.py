"""Models to cut into stages: what they compute, keep and send (section 5.2)."""

from __future__ import annotations

from reshard_lab.pipelining.workloads.gpt import GPT_SIZES, gpt
from reshard_lab.pipelining.workloads.record import (
    Speed,
    StageWork,
    Workload,
    device_speed,
)
from reshard_lab.pipelining.workloads.u_transformer import U_TRANSFORMER_SIZES, u_transformer

__all__ = [
    "GPT_SIZES",
    "U_TRANSFORMER_SIZES",
    "Speed",
    "StageWork",
    "Workload",
    "device_speed",
    "gpt",
    "u_transformer",
]
