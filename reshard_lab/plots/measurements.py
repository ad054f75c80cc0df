"""Rows of measured tables, read for drawing: what each bar is, and where it was measured."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from reshard_lab.errors import ReshardError, check_choice, short
from reshard_lab.plots.bars import Columns
from reshard_lab.runtime.measure import Measurement
from reshard_lab.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd


QUANTITIES = {
    "bandwidth": Columns(
        *("group", "method", "measured_Gbps", "low_Gbps", "high_Gbps", "predicted_Gbps"),
        cross="simulated_Gbps",
        bound="bound_Gbps",
    ),
    "time": Columns(
        *("group", "method", "measured_s", "fastest_s", "slowest_s", "predicted_s"),
        cross="simulated_s",
        bound="lower_bound_s",
    ),
}
"""Columns of the tables of ``experiments.compare`` for effective bandwidth (section 5) and time;
``group`` is made of the columns that say which case a row is."""


class Bar(NamedTuple):
    """One measured case of one method; Gbit/s or seconds. What is unknown is None."""

    panel: str
    group: str
    series: str
    value: float
    low: float
    high: float
    predicted: float | None
    simulated: float | None
    bound: float | None


class Case(NamedTuple):
    """Which case a row is, and what the axis of cases is called."""

    panel: str
    group: str
    axis: str


Table: TypeAlias = "pd.DataFrame | Sequence[Mapping[str, Any]] | Sequence[Measurement]"
"""A table, its rows as dictionaries, or measurements."""
_TABLES = "give a table of experiments.compare, its rows as dictionaries, or measurements"


def records(table: Table) -> list[dict[str, Any]]:
    """The rows of ``table`` as dictionaries."""
    if hasattr(table, "to_dict"):
        return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
    if isinstance(table, str) or not isinstance(table, Sequence):
        raise ReshardError(f"{short(table)} is no table; {_TABLES}")
    return [dict(row) if isinstance(row, Mapping) else _of_measurement(row) for row in table]


def _of_measurement(m: Any) -> dict[str, Any]:
    if not isinstance(m, Measurement):
        raise ReshardError(f"{short(m)} is no row of a table; {_TABLES}")

    def rate(seconds: float) -> float:
        return 8 * m.nbytes / seconds / 1e9 if seconds > 0 else math.inf

    times = m.median_s, min(m.times_s), max(m.times_s), m.predicted_s, m.lower_bound_s
    names = "measured_s", "fastest_s", "slowest_s", "predicted_s", "lower_bound_s"
    rates = "measured_Gbps", "high_Gbps", "low_Gbps", "predicted_Gbps", "bound_Gbps"
    shown: dict[str, float | None] = dict(zip(names, times, strict=True))
    shown |= dict(zip(rates, map(rate, times), strict=True))
    if not m.predicted_here:  # of another network, which says nothing about this one
        for name in ("predicted_s", "lower_bound_s", "predicted_Gbps", "bound_Gbps"):
            shown[name] = None
    return {
        "group": format_bytes(m.nbytes),
        "method": f"{m.strategy}, {m.scheduler}",
        **shown,
        "link": m.environment["link"],
        "cpu": m.environment["cpu"],
    }


def where(rows: Sequence[Mapping[str, Any]]) -> str:
    """Backend, link and machine of all rows, in words.

    From the column ``label``, as data/results/ has it, or from ``link`` and ``cpu``. Raises
    ReshardError for rows that do not say.
    """
    found = []
    for row in rows:
        if isinstance(row.get("label"), str):
            found.append(row["label"])
        elif isinstance(row.get("link"), str) and isinstance(row.get("cpu"), str):
            found.append(f"Measured: {row['link']}, {row['cpu']}.")
        else:
            raise ReshardError(
                "the table does not say where it was measured; give it a column 'label', or "
                "'link' (backend, network, cores) and 'cpu', as in data/results/"
            )
    return " ".join(dict.fromkeys(found))


def case_of(row: Mapping[str, Any]) -> Case:
    """Which case a row is, from the columns that say so.

    >>> case_of({"case": 3, "method": "alpa"})
    Case(panel='', group='3', axis='case of table 2')
    """
    if "case" in row:
        return Case("", str(row["case"]), "case of table 2")
    if "hosts" in row and "devices" in row:
        panel, group = str(row.get("sweep", "")), f"{row['hosts']}×{row['devices']}"
        return Case(panel, group, "receiving hosts × devices on each")
    if "group" in row:
        return Case("", str(row["group"]), "size")
    raise ReshardError(
        "the table does not say which case a row is; it needs a column 'case', or 'hosts' and "
        f"'devices', but has {', '.join(row)}"
    )


def read(rows: Sequence[Mapping[str, Any]], what: str) -> list[Bar]:
    """The bars of ``rows``, in their order. Raises ReshardError for rows without measurements."""
    columns = QUANTITIES[check_choice("quantity", what, QUANTITIES)]
    if not rows:
        raise ReshardError("there are no rows to draw; choose other cases or methods")
    needed = [columns.series, columns.value, columns.low, columns.high, columns.mark]
    missing = [name for name in needed if name is not None and name not in rows[0]]
    if missing:
        raise ReshardError(
            f"the table has no column {', '.join(missing)}; give a table of experiments.compare "
            "with measure=..., or measurements"
        )
    return [_bar(row, columns) for row in rows]


def _bar(row: Mapping[str, Any], columns: Columns) -> Bar:
    case = case_of(row)
    needed: list[Any] = [row.get(str(n)) for n in (columns.value, columns.low, columns.high)]
    mark = row.get(str(columns.mark))
    if not all(isinstance(v, numbers.Real) for v in (*needed, 0.0 if mark is None else mark)):
        raise ReshardError(f"{case.axis} {case.group} has {short(needed)} in place of its times")
    value, low, high = map(float, needed)
    if not all(map(math.isfinite, (value, low, high, 0.0 if mark is None else mark))):
        raise ReshardError(
            f"{row[columns.series]} in {case.axis} {case.group} has no finite "
            f"{columns.value}, whiskers or prediction; leave the row out"
        )
    cross, bound = (_maybe(row.get(str(name))) for name in (columns.cross, columns.bound))
    ends = value, low, high, _maybe(mark), cross, bound
    return Bar(case.panel, case.group, str(row[columns.series]), *ends)


def _maybe(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
