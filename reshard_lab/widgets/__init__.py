"""Explorers for notebooks: controls, and the picture that follows them.

Each is a function that returns an ``Explorer``; ipywidgets loads when one is made. What they draw
are the pictures of ``plots``.
"""

from reshard_lab.widgets.layouts import layout_explorer
from reshard_lab.widgets.measurement import measurement_explorer
from reshard_lab.widgets.panel import Explorer, View
from reshard_lab.widgets.plans import plan_explorer, traffic_explorer
from reshard_lab.widgets.simulations import pipeline_explorer, strategy_explorer

__all__ = [
    "Explorer",
    "View",
    "layout_explorer",
    "measurement_explorer",
    "pipeline_explorer",
    "plan_explorer",
    "strategy_explorer",
    "traffic_explorer",
]
