"""What the notebooks tabulate, and exercises that check a reader's prediction."""

from __future__ import annotations

from reshard_lab.teaching.exercise import Verdict, predict
from reshard_lab.teaching.layout_tables import pieces, two_readings, uneven, unit_tasks
from reshard_lab.teaching.lessons import (
    chunk_times,
    deliver,
    live_microbatches,
    model_cluster,
    on_machines,
    overlap_steps,
    rows_to_columns,
    schedulers,
    steady_state,
    strategy_times,
)

__all__ = [
    "Verdict",
    "chunk_times",
    "deliver",
    "live_microbatches",
    "model_cluster",
    "on_machines",
    "overlap_steps",
    "pieces",
    "predict",
    "rows_to_columns",
    "schedulers",
    "steady_state",
    "strategy_times",
    "two_readings",
    "uneven",
    "unit_tasks",
]
