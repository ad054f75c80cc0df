"""Writing a figure: its rows, its pictures, and the stamp that says where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, must_be, os_errors, short
from reshard_lab.plots.records import export
from reshard_lab.plots.svg import Figure

if TYPE_CHECKING:
    import pandas as pd


class FigureTable(NamedTuple):
    """One figure's rows, what they are, and the files that hold them."""

    name: str
    title: str
    frame: pd.DataFrame
    headline: str
    """What it says, in one line."""
    kind: str
    """``"measured"`` or ``"simulated"``."""
    files: tuple[Path, ...] = ()


def check_rows(what: str, frame: Any, columns: Iterable[str]) -> None:
    """Raise ReshardError unless ``frame`` is a DataFrame with rows and with ``columns``."""
    if not hasattr(frame, "to_dict") or not hasattr(frame, "columns"):
        raise must_be(what, "a DataFrame", frame)
    missing = [short(name) for name in columns if name not in frame.columns]
    if missing:
        has = ", ".join(map(str, frame.columns))
        raise ReshardError(f"{what} has no column {', '.join(missing)}; it has {has or 'none'}")
    if not len(frame):
        raise ReshardError(f"{what} has no rows; give all rows of the function that makes it")


def several(what: str, given: Any) -> list[Any]:
    """The entries of a list, or the one thing (a text, a record) that was given in place of one.

    >>> several("models", "GPT-1.3B"), several("microbatches", (2, 4))
    (['GPT-1.3B'], [2, 4])
    """
    single = isinstance(given, str) or hasattr(given, "_fields") or not isinstance(given, Iterable)
    entries = [given] if single else list(given)
    if not entries:
        raise ReshardError(f"{what} is empty; give at least one, or leave it out")
    return entries


def stamp_rows(frame: pd.DataFrame, label: str, environment: Mapping[str, Any]) -> pd.DataFrame:
    """``frame`` with columns that say, on every row, where it was measured."""
    keys = ("where", "link", "cpu", "torch", "commit")
    return frame.assign(label=label, **{key: environment[key] for key in keys})


def write_figure(
    folder: Path,
    table: FigureTable,
    stamped: pd.DataFrame,
    pictures: Mapping[str, Figure],
    stamp: Mapping[str, Any] | None,
) -> FigureTable:
    """Write a figure's CSV (the rows ``stamped`` with their origin), JSON and pictures.

    pictures:
        file name -> picture, PNG or SVG by its ending.
    stamp:
        what the figure rests on, in words and numbers; None = no JSON.
    """
    files = [folder / f"{table.name}.csv"]
    with os_errors(f"write into {str(folder)!r}"):
        stamped.to_csv(files[0], index=False)
        if stamp is not None:
            files.append(folder / f"{table.name}.json")
            text = json.dumps({"figure": table.title, **stamp}, indent=2)
            files[1].write_text(text + "\n", encoding="utf-8")
        files += [export(drawn, folder / name) for name, drawn in pictures.items()]
    return table._replace(files=tuple(files))
