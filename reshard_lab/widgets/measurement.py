"""The measurement explorer: measured tables, case by case and method by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reshard_lab.errors import ReshardError
from reshard_lab.plots.measured import Table, case_of, draw_measured, table_rows
from reshard_lab.units import format_seconds
from reshard_lab.widgets.controls import menu
from reshard_lab.widgets.panel import Explorer, View

ALL = "all"
_QUANTITIES = [("effective bandwidth", "bandwidth"), ("time", "time")]


def measurement_explorer(tables: Table | Mapping[str, Table], what: str = "bandwidth") -> Explorer:
    """Bars of measured tables beside predicted and simulated times, for chosen cases and methods.

    tables:
        a table as ``paper.figure5`` and the like return it when they measure, or as
        data/results/ keeps it; or several by name. Each says where it was measured.
    """
    named = dict(tables) if isinstance(tables, Mapping) else {"measured": tables}
    if not named:
        raise ReshardError("measurement_explorer got no table; give one, or several by name")
    rows = {name: table_rows(table) for name, table in named.items()}
    first = next(iter(rows))
    cases, methods = _choices(rows[first])
    groups = {
        "Table": {
            "figure": menu("figure", list(rows), first, "24em"),
            "what": menu("show", _QUANTITIES, what, "24em"),
        },
        "Rows": {
            "case": menu("case", [ALL, *cases], ALL, "24em"),
            "method": menu("method", [ALL, *methods], ALL, "24em"),
        },
    }

    def draw(figure: str, case: str, method: str, what: str) -> View:
        return _view(figure, rows[figure], case, method, what)

    return Explorer("measurement explorer", groups, draw)


def _view(
    figure: str, rows: Sequence[Mapping[str, Any]], case: str, method: str, what: str
) -> View:
    """Cases and methods that this figure does not have count as all."""
    cases, methods = _choices(rows)
    case, method = case if case in cases else ALL, method if method in methods else ALL
    chosen = [row for row in rows if case in (ALL, _case(row)) and method in (ALL, row["method"])]
    if not chosen:
        raise ReshardError(f"{figure} has no row of case {case!r} and method {method!r}")
    settings = {
        "case": {"options": [ALL, *cases], "value": case},
        "method": {"options": [ALL, *methods], "value": method},
    }
    drawn = draw_measured(chosen, what, figure)
    return View(drawn, _table(chosen), _facts(chosen), settings=settings)


def _case(row: Mapping[str, Any]) -> str:
    case = case_of(row)
    return f"{case.panel}: {case.group}" if case.panel else case.group


def _choices(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The cases and the methods of ``rows``."""
    return list(dict.fromkeys(map(_case, rows))), list(dict.fromkeys(r["method"] for r in rows))


_TIMES = "predicted", "simulated", "measured", "fastest", "slowest"


def _table(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [("case", "method", *_TIMES, "over predicted")]
    for row in rows:
        seconds = [row.get(f"{name}_s") for name in _TIMES]
        times = ("" if value is None else format_seconds(value) for value in seconds)
        over = _over([row], "predicted")
        lines.append((_case(row), str(row["method"]), *times, f"{over[0]:.3f}" if over else ""))
    return lines


def _over(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Measured time over the predicted or simulated one, of the rows that have it."""
    return [r["measured_s"] / r[f"{name}_s"] for r in rows if r.get(f"{name}_s") is not None]


def _facts(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    facts = {}
    for name in ("predicted", "simulated"):
        over = _over(rows, name)
        if len(over) == len(rows):
            facts[f"measured / {name}"] = f"{min(over):.3f} to {max(over):.3f}"
    spread = max((row["slowest_s"] - row["fastest_s"]) / row["measured_s"] for row in rows)
    return {**facts, "widest spread of runs": f"{spread:.0%} of the median"}
