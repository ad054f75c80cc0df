"""One function a figure or table, each returning a tidy DataFrame."""

from __future__ import annotations

from reshard_lab.experiments.compare import Case, Fit, compare, fit_one_transfer
from reshard_lab.experiments.exercise import Verdict, predict
from reshard_lab.experiments.figures import figure5, figure6, figure8
from reshard_lab.experiments.suite import SUITE, Scale, SuiteCase, suite_task, table2
from reshard_lab.experiments.teaching import (
    figure2,
    on_figure2,
    pieces,
    two_readings,
    uneven,
    unit_tasks,
)

__all__ = [
    "SUITE",
    "Case",
    "Fit",
    "Scale",
    "SuiteCase",
    "Verdict",
    "compare",
    "figure2",
    "figure5",
    "figure6",
    "figure8",
    "fit_one_transfer",
    "on_figure2",
    "pieces",
    "predict",
    "suite_task",
    "table2",
    "two_readings",
    "uneven",
    "unit_tasks",
]
