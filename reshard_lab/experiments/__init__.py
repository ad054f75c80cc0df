"""One function a figure or table, each returning a tidy DataFrame."""

from __future__ import annotations

from reshard_lab.experiments.compare import Case, Fit, compare, fit_one_transfer
from reshard_lab.experiments.exercise import Verdict, predict
from reshard_lab.experiments.figures import (
    FIGURE5,
    FIGURE6,
    FIGURE8,
    Method,
    figure5,
    figure5_cases,
    figure6,
    figure8,
    suite_cases,
)
from reshard_lab.experiments.headlines import headlines
from reshard_lab.experiments.here import (
    Results,
    Skipped,
    gpus,
    measure_here,
    on_gpus,
    on_this_machine,
    overlap_here,
    ranking,
    recorded,
    recorded_on_gpus,
)
from reshard_lab.experiments.lessons import (
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
from reshard_lab.experiments.overlap import overlap_levels
from reshard_lab.experiments.pipelines import figure4, figure7, figure9
from reshard_lab.experiments.simulated import draw_figure7, draw_figure9
from reshard_lab.experiments.studies import (
    figure3,
    full_duplex,
    scaling,
    slow_host,
    strategy_map,
)
from reshard_lab.experiments.suite import SUITE, Scale, SuiteCase, suite_task, table2
from reshard_lab.experiments.sweep import evaluate, sweep
from reshard_lab.experiments.teaching import (
    figure2,
    on_figure2,
    pieces,
    two_readings,
    uneven,
    unit_tasks,
)

__all__ = [
    "FIGURE5",
    "FIGURE6",
    "FIGURE8",
    "SUITE",
    "Case",
    "Fit",
    "Method",
    "Results",
    "Scale",
    "Skipped",
    "SuiteCase",
    "Verdict",
    "chunk_times",
    "compare",
    "deliver",
    "draw_figure7",
    "draw_figure9",
    "evaluate",
    "figure2",
    "figure3",
    "figure4",
    "figure5",
    "figure5_cases",
    "figure6",
    "figure7",
    "figure8",
    "figure9",
    "fit_one_transfer",
    "full_duplex",
    "gpus",
    "headlines",
    "live_microbatches",
    "measure_here",
    "model_cluster",
    "on_figure2",
    "on_gpus",
    "on_machines",
    "on_this_machine",
    "overlap_here",
    "overlap_levels",
    "overlap_steps",
    "pieces",
    "predict",
    "ranking",
    "recorded",
    "recorded_on_gpus",
    "rows_to_columns",
    "scaling",
    "schedulers",
    "slow_host",
    "steady_state",
    "strategy_map",
    "strategy_times",
    "suite_cases",
    "suite_task",
    "sweep",
    "table2",
    "two_readings",
    "uneven",
    "unit_tasks",
]
