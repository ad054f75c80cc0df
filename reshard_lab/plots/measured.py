"""Tables of measured, predicted and simulated times as bars, with where they were measured."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from reshard_lab.errors import ReshardError, check_choice, short
from reshard_lab.plots import svg
from reshard_lab.plots.bar_chart import ChartBar, ChartLabels, bar_chart_svg
from reshard_lab.runtime.measure import Measurement
from reshard_lab.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

MOST_LISTED = 16
"""As many bars stand one by one in the alt text."""
MOST_BARS = 256
"""More bars than this are not drawn: choose some cases or methods."""
_RATE = " Gbit/s"
_MODELS = "predicted", "simulated"
_AXES = {"bandwidth": "effective bandwidth (Gbit/s)", "time": "time"}
_COLUMNS = {
    "bandwidth": [f"{n}_Gbps" for n in ("measured", "low", "high", *_MODELS, "bound")],
    "time": [f"{n}_s" for n in ("measured", "fastest", "slowest", *_MODELS, "lower_bound")],
}
"""Columns of the tables of ``paper.compare``, in the order of ``ChartBar``'s values."""
_FAR = 2  # times the highest bar: bounds beyond that are not drawn

Table: TypeAlias = "pd.DataFrame | Sequence[Mapping[str, Any]] | Sequence[Measurement]"
"""A table, its rows as dictionaries, or measurements."""
_TABLES = "give a table of paper.compare, its rows as dictionaries, or measurements"


class TableCase(NamedTuple):
    """Which case a row is, and what the axis of cases is called."""

    panel: str
    group: str
    axis: str


def draw_measured(
    table: Table, what: str = "bandwidth", title: str = "", note: str = ""
) -> svg.Figure:
    """Measured bars with the spread of their runs, what was predicted and simulated, the bound.

    table:
        rows as ``paper.compare`` makes them and data/results/ keeps them, with columns that
        say where they were measured (or such rows as dictionaries); or measurements.
    what:
        ``"bandwidth"`` (of the tensor, section 5) or ``"time"``.
    note:
        stands below the picture, before the words on where the rows were measured.

    Raises ReshardError for rows that were not measured, or do not say where.
    """
    rows = table_rows(table)
    bars = _bars(rows, what)
    if len(bars) > MOST_BARS:
        raise ReshardError(
            f"a picture shows up to {MOST_BARS} bars, not {len(bars)}; choose cases or methods"
        )
    label = _where(rows)
    name = title or f"Measured{' beside predicted' * any(b.predicted is not None for b in bars)}"
    axis = case_of(rows[0]).axis
    alt = _alt(bars, what, axis, label)
    below = f"{note} {label}" if note else label
    labels = ChartLabels(name, axis, _AXES[what], below, in_seconds=what == "time")
    most = max(max(v or 0.0 for v in (b.high, b.predicted, b.simulated)) for b in bars) or 1.0
    near = [b._replace(bound=None) if (b.bound or 0.0) >= _FAR * most else b for b in bars]
    caption = f"{name}. Bars: median; whiskers: the fastest and the slowest run."
    return svg.Figure(bar_chart_svg(near, labels, alt), caption, alt, _values(bars, what, axis))


def table_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of ``table`` as dictionaries."""
    if hasattr(table, "to_dict"):
        return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
    if isinstance(table, str) or not isinstance(table, Sequence):
        raise ReshardError(f"{short(table)} is no table; {_TABLES}")
    return [dict(row) if isinstance(row, Mapping) else _measurement_row(row) for row in table]


def case_of(row: Mapping[str, Any]) -> TableCase:
    """Which case a row is, from the columns that say so.

    >>> case_of({"case": 3, "method": "alpa"})
    TableCase(panel='', group='3', axis='case of table 2')
    """
    if "case" in row:
        return TableCase("", str(row["case"]), "case of table 2")
    if "hosts" in row and "devices" in row:
        group = f"{row['hosts']}×{row['devices']}"
        return TableCase(str(row.get("sweep", "")), group, "receiving hosts × devices on each")
    if "group" in row:
        return TableCase("", str(row["group"]), "size")
    raise ReshardError(
        "the table does not say which case a row is; it needs a column 'case', or 'hosts' and "
        f"'devices', but has {', '.join(row)}"
    )


def _measurement_row(m: Any) -> dict[str, Any]:
    if not isinstance(m, Measurement):
        raise ReshardError(f"{short(m)} is no row of a table; {_TABLES}")
    here = m.predicted_here  # times predicted of another network say nothing about this one
    times = {
        ("measured", "measured"): m.median_s,
        ("fastest", "high"): min(m.times_s),
        ("slowest", "low"): max(m.times_s),
        ("predicted", "predicted"): m.predicted_s if here else None,
        ("lower_bound", "bound"): m.lower_bound_s if here else None,
    }
    method = f"{m.strategy}, {m.scheduler}"
    row: dict[str, Any] = {"group": format_bytes(m.nbytes), "method": method}
    for (time, rate), value in times.items():
        gbps = None if value is None else 8 * m.nbytes / value / 1e9 if value > 0 else math.inf
        row |= {f"{time}_s": value, f"{rate}_Gbps": gbps}
    return row | {"link": m.environment["link"], "cpu": m.environment["cpu"]}


def _where(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where all rows were measured: from the column ``label``, or from ``link`` and ``cpu``."""
    labels = []
    for row in rows:
        if isinstance(row.get("label"), str):
            labels.append(row["label"])
        elif isinstance(row.get("link"), str) and isinstance(row.get("cpu"), str):
            labels.append(f"Measured: {row['link']}, {row['cpu']}.")
        else:
            raise ReshardError(
                "the table does not say where it was measured; give it a column 'label', or "
                "'link' (backend, network, cores) and 'cpu', as in data/results/"
            )
    return " ".join(dict.fromkeys(labels))


def _bars(rows: Sequence[Mapping[str, Any]], what: str) -> list[ChartBar]:
    """The bars of ``rows``, in their order; all of them measured."""
    names = _COLUMNS[check_choice("quantity", what, _COLUMNS)]
    if not rows:
        raise ReshardError("there are no rows to draw; choose other cases or methods")
    missing = [name for name in ("method", *names[:4]) if name not in rows[0]]
    if missing:
        raise ReshardError(
            f"the table has no column {', '.join(missing)}; give a table of paper.compare "
            "with measure=..., or measurements"
        )
    return [_chart_bar(row, names) for row in rows]


def _chart_bar(row: Mapping[str, Any], names: Sequence[str]) -> ChartBar:
    case = case_of(row)
    *times, predicted, simulated, bound = (row.get(name) for name in names)
    needed: list[Any] = [*times, 0.0 if predicted is None else predicted]
    if not all(isinstance(value, numbers.Real) for value in needed):
        raise ReshardError(f"{case.axis} {case.group} has {short(times)} in place of its times")
    if not all(map(math.isfinite, needed)):
        raise ReshardError(
            f"{row['method']} in {case.axis} {case.group} has no finite "
            f"{names[0]}, whiskers or prediction; leave the row out"
        )
    values = (*times, predicted, simulated, bound)
    known: list[Any] = [float(v) if v is not None and math.isfinite(v) else None for v in values]
    return ChartBar(case.panel, case.group, str(row["method"]), *known)


def _text(value: float | None, what: str, unit: str = "") -> str:
    if value is None:
        return ""
    return format_seconds(value) if what == "time" else f"{value:.3g}{unit}"


def _alt(bars: Sequence[ChartBar], what: str, axis: str, label: str) -> str:
    """Every bar where there are few, else the ends of every method; the table has them all."""
    if len(bars) <= MOST_LISTED:
        lines = [
            f"{b.case}, {b.method}: measured {_text(b.value, what, _RATE)}"
            + ("" if b.predicted is None else f", predicted {_text(b.predicted, what, _RATE)}")
            for b in bars
        ]
    else:
        lines = [
            f"{name}: measured {_ends([b for b in bars if b.method == name], what)}"
            for name in dict.fromkeys(b.method for b in bars)
        ]
    return f"Bars of {_AXES[what]} by {axis} and method. {'; '.join(lines)}. {label}"


def _ends(bars: Sequence[ChartBar], what: str) -> str:
    low, high = min(bars, key=lambda b: b.value), max(bars, key=lambda b: b.value)
    ends = [f"{_text(b.value, what, _RATE)} ({b.case})" for b in (low, high)]
    return " to ".join(dict.fromkeys(ends))


def _values(bars: Sequence[ChartBar], what: str, axis: str) -> list[tuple[str, ...]]:
    """What each bar shows, as text; what is unknown of all of them has no column."""
    names = ["measured", "fastest run", "slowest run", "predicted", "simulated", "bound"]
    if what == "bandwidth":  # the fastest run has the highest
        values = [(b.value, b.high, b.low, *b[6:]) for b in bars]
        names = [f"{name} (Gbit/s)" for name in names]
    else:
        values = [b[3:] for b in bars]
    known = [i for i in range(len(names)) if any(row[i] is not None for row in values)]
    rows = [(axis, "method", *(names[i] for i in known))]
    for bar, row in zip(bars, values, strict=True):
        rows.append((bar.case, bar.method, *(_text(row[i], what) for i in known)))
    return rows
