"""Carrying plans out: in memory, and on real processes with torch.distributed."""

from reshard_lab.runtime.arrays import execute
from reshard_lab.runtime.launch import EmulatedCluster, run
from reshard_lab.runtime.measure import Measurement, to_frame
from reshard_lab.runtime.pool import Pool
from reshard_lab.runtime.rank import prepare, run_rank

__all__ = [
    "EmulatedCluster",
    "Measurement",
    "Pool",
    "execute",
    "prepare",
    "run",
    "run_rank",
    "to_frame",
]
