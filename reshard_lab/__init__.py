"""Cross-mesh resharding: see it, plan it with proof, simulate it, run it, teach it."""

from typing import Any

from reshard_lab import pipeline, runtime, scheduling
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning import Plan, plan
from reshard_lab.planning.nics import Gantt, Traffic
from reshard_lab.plots.records import record_html
from reshard_lab.resharding import ReshardingTask, UnitTask
from reshard_lab.runtime import EmulatedCluster, Measurement, execute, run
from reshard_lab.simulation import Calibration, Timeline, calibrate, simulate
from reshard_lab.spec import ShardingSpec
from reshard_lab.training.results import TrainingRun

__all__ = [
    "Calibration",
    "Cluster",
    "EmulatedCluster",
    "Layout",
    "Measurement",
    "Mesh",
    "Plan",
    "ReshardError",
    "ReshardingTask",
    "ShardingSpec",
    "Timeline",
    "UnitTask",
    "calibrate",
    "execute",
    "pipeline",
    "plan",
    "run",
    "runtime",
    "scheduling",
    "simulate",
]


# Records know nothing of the pictures on the floor above them. This file, which stands above all
# floors, lets them show theirs in a notebook.
_RECORDS: tuple[Any, ...] = (
    *(Gantt, Layout, Measurement, Mesh, Plan, ReshardingTask, Timeline, Traffic),
    *(pipeline.PipelineTimeline, TrainingRun),
)
for _record in _RECORDS:
    _record._repr_html_ = record_html
