"""The layout explorer: two layouts of a tensor, and the unit tasks between them."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

from reshard_lab.boxes import box_text
from reshard_lab.errors import check_int, check_type
from reshard_lab.paper_cases import figure2
from reshard_lab.planning.explain import device_list
from reshard_lab.plots.layouts import draw_layouts
from reshard_lab.resharding import ReshardingTask
from reshard_lab.widgets.controls import menu, slider
from reshard_lab.widgets.panel import Explorer, View, explorer
from reshard_lab.widgets.tasks import task_controls, task_of, totals, unit_words


def layout_explorer(task: ReshardingTask | None = None, highlight: int = 0) -> Explorer:
    """Source and destination side by side; a chosen unit task stands out with its devices.

    task:
        what is shown first (default: task 1 of figure 2). Its cluster gives the links of all
        that follow.
    highlight:
        the unit task chosen first.

    The picture is ``plots.draw_layouts``. Controls: ``shape``, ``dtype``, ``src_mesh``,
    ``src_spec``, ``src_rule``, ``dst_mesh``, ``dst_spec``, ``dst_rule``, ``axes``, ``unit``.
    """
    start = figure2(1) if task is None else check_type("task", task, ReshardingTask)
    most = max(len(start.unit_tasks) - 1, 0)
    groups = task_controls(start)
    groups["Show"] = {
        "unit": slider("unit task", check_int("highlight", highlight, 0, most), 0, most),
        "axes": menu("dimensions drawn", _planes(len(start.shape)), (), "20em"),
    }

    def draw(unit: int, axes: tuple[int, ...], **described: str) -> View:
        return _view(task_of(start.cluster, **described), unit, axes)

    return explorer("layout explorer", groups, draw)


def _view(task: ReshardingTask, unit: int, axes: tuple[int, ...]) -> View:
    units = task.unit_tasks
    planes = _planes(len(task.shape))
    chosen = min(unit, len(units) - 1)
    axes = axes if axes in [plane for _, plane in planes] else ()
    settings: dict[str, dict[str, Any]] = {
        "unit": {"max": max(len(units) - 1, 0)},
        "axes": {"options": planes},
    }
    note = unit_words(chosen, units[chosen]) if units else "The tensor is empty."
    figure = draw_layouts(task, axes or None, chosen if units else None)
    return View(figure, _rows(task), totals(task), [note], settings)


@lru_cache(maxsize=4)
def _rows(task: ReshardingTask) -> list[tuple[object, ...]]:
    """The unit tasks as a table; another one chosen changes nothing in it."""
    head = "unit task", "box", "bytes", "from", "to"
    return [head] + [
        (i, box_text(u.box), u.nbytes, device_list(u.senders), device_list(u.receivers))
        for i, u in enumerate(task.unit_tasks)
    ]


def _planes(ndim: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The choices of two dimensions."""
    pairs = itertools.combinations(range(ndim), 2) if ndim > 2 else ()
    return (("those cut most", ()), *((f"{a} down, {b} across", (a, b)) for a, b in pairs))
