"""Pictures of plain records: what they draw can be made with no device at all.

All are SVG written here: the same bytes for the same record, and fast enough to follow a slider.
"""

from reshard_lab.plots.activation_memory import draw_memory
from reshard_lab.plots.device_grid import LayoutPanel, draw_mesh, layout_panel
from reshard_lab.plots.layouts import draw_layout, draw_layouts, layout_svg
from reshard_lab.plots.measured import draw_measured
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.plans import draw_timeline, draw_traffic, gantt, gantts
from reshard_lab.plots.records import draw_record, export
from reshard_lab.plots.strategy import draw_strategy
from reshard_lab.plots.svg import Figure, stacked
from reshard_lab.plots.unit_tasks import draw_unit_tasks

__all__ = [
    "Figure",
    "LayoutPanel",
    "draw_layout",
    "draw_layouts",
    "draw_measured",
    "draw_memory",
    "draw_mesh",
    "draw_pipeline",
    "draw_record",
    "draw_strategy",
    "draw_timeline",
    "draw_traffic",
    "draw_unit_tasks",
    "export",
    "gantt",
    "gantts",
    "layout_panel",
    "layout_svg",
    "stacked",
]
