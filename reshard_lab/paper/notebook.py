"""Measuring in a notebook: a few plans on this machine, and results recorded before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reshard_lab.errors import ReshardError, check_choice, need
from reshard_lab.paper.files import check_rows, several, stamp_rows
from reshard_lab.paper.measuring import (
    Case,
    MakeCluster,
    choose_target,
    compare,
    label_of,
    open_target,
)
from reshard_lab.paper.overlap import overlap_levels
from reshard_lab.planning import Plan
from reshard_lab.runtime import Measurement, run
from reshard_lab.runtime.context import devices_of
from reshard_lab.runtime.launch import SlowError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
_PACKAGE = Path(__file__).resolve().parents[1]
_RESULTS = (_PACKAGE / "_data" / "results", _PACKAGE.parent / "data" / "results")
_FIT = 2**23
"""Bytes of the transfer that a prediction for loopback is fitted from."""


@dataclass(frozen=True, repr=False)
class Results:
    """A measured table, and what was measured where."""

    frame: pd.DataFrame
    """One row a plan (see ``compare``), each saying where it was measured."""
    label: str
    """Backend, link, machine, and what predictions rest on."""
    place: str
    """``"emulated"`` or ``"local"``."""

    def __repr__(self) -> str:
        return f"Results({len(self.frame)} rows; {self.label})"

    def _repr_html_(self) -> str:
        return f"{self.frame.to_html(notebook=True)}<p>{escape(self.label)}</p>"


@dataclass(frozen=True, repr=False)
class Skipped:
    """Stands for what was not run, and says why."""

    why: str

    def __repr__(self) -> str:
        return f"skipped: {self.why}"


def measure_here(
    cases: Callable[[MakeCluster], Iterable[Case]],
    repeats: int = 3,
    warmup: int = 1,
    where: str | None = None,
) -> Results:
    """Measure ``cases(make)`` on this machine; ``make`` gives the cluster to plan for.

    On an emulated cluster; over loopback where this machine refuses namespaces or is too busy to
    carry the speed of the NICs, and then the label says so. ``where``: one of the two and no other.
    """

    def measured(name: str, why: str) -> Results:
        with open_target(name, why, _FIT, repeats, warmup) as (place, done):
            frame = compare(cases(place.make), place.measure)
        environment, label = label_of(place, done)
        return Results(stamp_rows(frame, label, environment), label, name)

    return _emulated_or_local(measured, where)


def on_this_machine(work: Callable[[str], T]) -> T:
    """``work("emulated")``, or ``work("local")`` where this machine cannot emulate a cluster now.

    For what starts processes of its own, such as ``lambda where: run(plan, where)``; its result
    says where it ran, and a line that is printed why not on an emulated cluster.
    """

    def explained(name: str, why: str) -> T:
        if why:
            print(why)
        return work(name)

    return _emulated_or_local(explained)


def _emulated_or_local(work: Callable[[str, str], T], where: str | None = None) -> T:
    """``work(name of the place, why it is not an emulated cluster)``; see ``measure_here``."""
    name, why = choose_target(where)
    try:
        return work(name, why)
    except SlowError as error:  # raised on entry, before anything is measured
        if where is not None or name != "emulated":
            raise
        why = f"Not on an emulated cluster: {_reason(error)}."
    return work("local", why)


def _reason(error: ReshardError) -> str:
    """What an error says, without its advice on what to ask for in place of that."""
    return str(error).partition(";")[0]


def ranking(frame: pd.DataFrame, by: str | Sequence[str], apart: float = 0.25) -> pd.DataFrame:
    """Whether the methods came in as predicted: one row a point, its columns named in ``by``.

    Columns: ``1``, ``2`` and so on, the methods as measured, from the fastest to the slowest, and
    ``as_predicted``: no two of them changed places whose predictions are more than ``apart`` of
    the shorter one apart. Closer ones may.
    """
    names = several("by", by)
    check_rows("frame", frame, [*names, "method", "predicted_s", "measured_s"])
    key = names if len(names) > 1 else names[0]
    rows = {}
    for point, part in frame.groupby(key, sort=False):
        times = part[["method", "predicted_s", "measured_s"]].to_dict("records")
        held = all(
            a["measured_s"] <= b["measured_s"]
            for a, b in itertools.permutations(times, 2)
            if a["predicted_s"] * (1 + apart) < b["predicted_s"]
        )
        times.sort(key=lambda row: row["measured_s"])
        order = {str(place): row["method"] for place, row in enumerate(times, 1)}
        rows[point] = {**order, "as_predicted": held}
    pandas = need("pandas", "notebooks", "a table")
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis(key)


def recorded(figure: str) -> Results:
    """What ``reshard-lab reproduce`` measured once and ``data/results/`` keeps, by figure.

    Measured on the machine that the label names, which is not this one.
    """
    pandas = need("pandas", "notebooks", "a table")
    files = _recorded()
    frame = pandas.read_csv(files[check_choice("recorded figure", figure, sorted(files))])
    return Results(frame, *map(str, frame.loc[0, ["label", "where"]]))


def _recorded() -> dict[str, Path]:
    folder = next((f for f in _RESULTS if f.is_dir()), _RESULTS[0])
    return {f.stem: f for f in folder.glob("*.csv")}


def overlap_here(**how: Any) -> Results | Skipped:
    """``overlap_levels(**how)`` in few columns, where this machine can emulate a cluster now."""
    name, why = choose_target(None)
    if name != "emulated":
        return Skipped(why)
    try:
        frame = overlap_levels(**how)
    except SlowError as error:
        return Skipped(_reason(error))
    shown = ["level", "about", "simulated_s", "measured_s", "fastest_s", "slowest_s", "ratio"]
    label = "; ".join(dict.fromkeys(frame["label"][frame["verified"]]))
    bare = ", ".join(frame["level"][~frame["verified"]])
    label += f" ({bare}: no data, so not verified)" if bare else ""
    return Results(frame[shown].set_index("level").round(3), label, name)


def gpus() -> tuple[str, ...]:
    """The names of this machine's GPUs, as torch sees them."""
    cuda = need("torch", "run", "looking for GPUs").cuda
    return tuple(cuda.get_device_name(i) for i in range(cuda.device_count()))


def on_gpus(plan: Plan, repeats: int = 10, warmup: int = 3) -> Measurement | Skipped:
    """Carry ``plan`` out with NCCL, one process a GPU, where this machine has enough of them."""
    here, needed = len(gpus()), len(devices_of(plan))
    if here < needed:
        count = f"{here} GPUs" if here > 1 else "one GPU" if here else "no GPU"
        return Skipped(f"the plan has {needed} devices, and this machine has {count}")
    return run(plan, "torchrun", repeats, warmup)


def recorded_on_gpus() -> pd.DataFrame | Skipped:
    """The measurements on GPUs that ``data/results/`` keeps in ``gpu.csv``, if there are any."""
    if "gpu" not in _recorded():
        return Skipped("nothing measured on a GPU has been recorded")
    return recorded("gpu").frame
