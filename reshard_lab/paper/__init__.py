"""The paper's figures and tables: one function each, returning a tidy DataFrame."""

from reshard_lab.paper.figures import (
    FIGURE5,
    FIGURE6,
    FIGURE8,
    Method,
    figure3,
    figure5,
    figure5_cases,
    figure6,
    figure8,
    strategy_map,
    suite_cases,
    table2,
)
from reshard_lab.paper.measuring import Case, LinkFit, compare, fit_one_transfer
from reshard_lab.paper.notebook import (
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
from reshard_lab.paper.overlap import overlap_levels
from reshard_lab.paper.pipelines import figure4, figure7, figure9
from reshard_lab.paper.sweeps import evaluate, sweep
from reshard_lab.paper.throughput import draw_figure7, draw_figure9, headlines
from reshard_lab.paper_cases import SUITE, Scale, SuiteCase, figure2, on_figure2, suite_task

__all__ = [
    "FIGURE5",
    "FIGURE6",
    "FIGURE8",
    "SUITE",
    "Case",
    "LinkFit",
    "Method",
    "Results",
    "Scale",
    "Skipped",
    "SuiteCase",
    "compare",
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
    "gpus",
    "headlines",
    "measure_here",
    "on_figure2",
    "on_gpus",
    "on_this_machine",
    "overlap_here",
    "overlap_levels",
    "ranking",
    "recorded",
    "recorded_on_gpus",
    "strategy_map",
    "suite_cases",
    "suite_task",
    "sweep",
    "table2",
]
