"""Writing a figure: its rows, its pictures, and the stamp that says where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, short
from reshard_lab.plots.measured import draw_measured
from reshard_lab.plots.records import export

if TYPE_CHECKING:
    import pandas as pd


class Picture(NamedTuple):
    """A figure's rows and how they are drawn."""

    name: str
    title: str
    frame: pd.DataFrame
    left_out: set[str]
    """Methods that are in the table but not drawn."""
    headline: str = ""
    """What it says, in one line."""


class Table(NamedTuple):
    """One figure's rows, what they are, and the files that hold them."""

    name: str
    title: str
    frame: pd.DataFrame
    files: tuple[Path, ...]
    headline: str
    """What it says, in one line."""
    kind: str
    """``"measured"`` or ``"simulated"``."""


def check_rows(what: str, frame: Any, columns: Iterable[str]) -> None:
    """Raise ReshardError unless ``frame`` is a DataFrame with rows and with ``columns``."""
    if not hasattr(frame, "to_dict") or not hasattr(frame, "columns"):
        raise ReshardError(f"{what} must be a DataFrame, not {short(frame)}")
    missing = [short(name) for name in columns if name not in frame.columns]
    if missing:
        has = ", ".join(map(str, frame.columns))
        raise ReshardError(f"{what} has no column {', '.join(missing)}; it has {has or 'none'}")
    if not len(frame):
        raise ReshardError(f"{what} has no rows; give all rows of the function that makes it")


def stamp_rows(frame: pd.DataFrame, label: str, environment: Mapping[str, Any]) -> pd.DataFrame:
    """``frame`` with columns that say, on every row, where it was measured."""
    keys = ("where", "link", "cpu", "torch", "commit")
    return frame.assign(label=label, **{key: environment[key] for key in keys})


def write(folder: Path, picture: Picture, label: str, about: Mapping[str, Any]) -> Table:
    """The CSV, the stamp (JSON) and the two pictures of one figure.

    ``label`` says on all of them what was measured where, and what predictions rest on;
    ``about`` holds the same in numbers.
    """
    frame = picture.frame
    stamped = stamp_rows(frame, label, about["environment"])
    runs = f"Bars: median of {frame['runs'].iloc[0]} runs; whiskers: the slowest and the fastest."
    drawn = draw_measured(
        stamped[~stamped["method"].isin(picture.left_out)], title=picture.title, note=runs
    )
    table, stamp = folder / f"{picture.name}.csv", folder / f"{picture.name}.json"
    try:
        stamped.to_csv(table, index=False)
        said = {"figure": picture.title, "label": label, **about}
        stamp.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
        pictures = [export(drawn, folder / f"{picture.name}.{kind}") for kind in ("png", "svg")]
    except OSError as error:
        raise ReshardError(f"cannot write into {str(folder)!r}: {error.strerror}") from None
    files = (table, stamp, *pictures)
    return Table(picture.name, picture.title, frame, files, picture.headline, "measured")
