"""What a command gives back: text for people and the same facts for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.planning.explain import table
from reshard_lab.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd


class Output(NamedTuple):
    """The result of a command."""

    text: str
    data: Any
    """Printed as JSON under ``--json``; a number that is not finite, which JSON lacks, as null."""

    def render(self, as_json: bool) -> str:
        """What goes to standard output."""
        return json.dumps(_finite(self.data), indent=2, allow_nan=False) if as_json else self.text


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


Show = Callable[[Any], str]


def frame_text(frame: pd.DataFrame, columns: Mapping[str, tuple[str, Show]]) -> str:
    """The ``columns`` of a table as aligned text, each under its heading."""
    rows = [tuple(heading for heading, _ in columns.values())]
    for record in frame.to_dict("records"):
        rows.append(tuple(show(record[name]) for name, (_, show) in columns.items()))
    return "\n".join(table(rows))


MEASURED: dict[str, tuple[str, Show]] = {
    "strategy": ("strategy", str),
    "predicted_s": ("predicted", format_seconds),
    "measured_s": ("measured", format_seconds),
    "fastest_s": ("fastest", format_seconds),
    "slowest_s": ("slowest", format_seconds),
    "measured_over_predicted": ("measured/predicted", lambda ratio: f"{ratio:.2f}"),
    "measured_Gbps": ("Gbit/s", lambda rate: f"{rate:.2f}"),
    "verified": ("checked", lambda ok: "yes" if ok else "no data"),
}
"""Columns of ``paper.compare`` that a terminal shows."""
