"""Stage schedules, their check and their simulation (section 4); ``reshard_lab.pipeline`` is the
public face."""

from reshard_lab.pipelining.gpt import gpt
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.pipelining.ops import Checked, check
from reshard_lab.pipelining.schedules import (
    SCHEDULES,
    from_torch_csv,
    schedule,
    to_torch_csv,
    torch_runtime,
)
from reshard_lab.pipelining.simulation import simulate
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.pipelining.u_transformer import u_transformer
from reshard_lab.pipelining.workload import Workload, device_speed

__all__ = [
    "SCHEDULES",
    "BoundaryTensor",
    "Checked",
    "PipelineTimeline",
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
