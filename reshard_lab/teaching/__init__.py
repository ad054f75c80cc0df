"""What the notebooks tabulate, and exercises that check a reader's prediction."""

from reshard_lab.teaching.exercise import Verdict, predict
from reshard_lab.teaching.tables import (
    deliver,
    model_cluster,
    schedulers,
    strategy_times,
    two_readings,
    uneven,
    unit_tasks,
)

__all__ = [
    "Verdict",
    "deliver",
    "model_cluster",
    "predict",
    "schedulers",
    "strategy_times",
    "two_readings",
    "uneven",
    "unit_tasks",
]
