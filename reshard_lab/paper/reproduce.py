"""The main job: figures 5, 6 and 8 measured here, 4, 7 and 9 simulated, into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, check_bool, check_choice, check_path, need
from reshard_lab.paper.compare import compare
from reshard_lab.paper.figures import (
    FIGURE5,
    FIGURE6,
    FIGURE8,
    LEAST_CHUNK,
    TWO_DEVICES,
    figure5_cases,
    suite_cases,
)
from reshard_lab.paper.places import Place, find_place, label_of, opened
from reshard_lab.paper.simulated import simulated
from reshard_lab.paper.tables import Picture, Table, write
from reshard_lab.paper_cases import Scale
from reshard_lab.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd


class Size(NamedTuple):
    """How much a reproduction moves, and how often."""

    nbytes: int
    """Of figure 5's tensor."""
    scale: Scale
    """Of the suite's cases."""
    chunk_nbytes: int
    """Least size of a chunk of a broadcast; K is 100 at most, as in the paper."""
    repeats: int
    warmup: int


MiB = 2**20
SIZES = {
    ("emulated", "full"): Size(32 * MiB, Scale(4, 20), LEAST_CHUNK, repeats=10, warmup=3),
    ("emulated", "standard"): Size(8 * MiB, Scale(5, 20), LEAST_CHUNK, repeats=5, warmup=1),
    ("emulated", "quick"): Size(MiB, Scale(16, 20), LEAST_CHUNK, repeats=2, warmup=1),
    ("local", "full"): Size(64 * MiB, Scale(4, 16), MiB, repeats=10, warmup=3),
    ("local", "standard"): Size(16 * MiB, Scale(4, 16), MiB, repeats=10, warmup=3),
    ("local", "quick"): Size(MiB, Scale(16, 16), LEAST_CHUNK, repeats=3, warmup=1),
}
"""``full``: the paper's repeats. ``standard``: a few minutes on two cores. ``quick``: to see that
everything works, not to conclude from. The paper's tensors are scaled down in all of them."""
METHODS = tuple(dict.fromkeys((*FIGURE6, *FIGURE8)))
"""Of the suite; what figures 6 and 8 share is measured once."""


class Reproduction(NamedTuple):
    """What a reproduction gave."""

    place: Place
    environment: dict[str, Any]
    label: str
    """Backend, link, machine, and where the predictions come from; stands on everything."""
    tables: tuple[Table, ...]


def reproduce(
    out: str | Path = "out",
    size: str = "standard",
    where: str | None = None,
    quiet: bool = False,
    patient: bool = False,
) -> Reproduction:
    """Measure figure 5's two sweeps and the nine cases of table 2 on this machine.

    On an emulated cluster where the machine allows it, else over its loopback, and everything
    written says which; ``where`` chooses. Writes a CSV, a PNG, an SVG and the environment (JSON)
    for each figure into ``out``. Figures 4, 7 and 9 are simulated before that, which takes
    seconds, and say so (see ``simulated``). ``size`` is one of ``quick``, ``standard`` and
    ``full``; ``quiet`` leaves out the progress bar; ``patient`` waits for other programs to leave
    the cores.
    """
    check_choice("size", size, dict.fromkeys(size for _, size in SIZES))
    check_bool("quiet", quiet), check_bool("patient", patient)
    folder = _folder(out)
    tqdm = need("tqdm", "run", "a progress bar").tqdm
    need("pandas", "notebooks", "a reproduction"), need("resvg_py", "notebooks", "a picture")
    name, why = find_place(where)
    how = SIZES[name, size]
    tables = simulated(folder)
    with opened(name, why, how.nbytes, how.repeats, how.warmup, patient) as (place, done):
        figure5 = figure5_cases(place.make, how.nbytes, FIGURE5, how.chunk_nbytes)
        suite = suite_cases(place.make, how.scale, METHODS, how.chunk_nbytes)
        total = len(figure5) + len(suite)
        with tqdm(total=total, desc="measuring", unit="plan", disable=quiet) as bar:
            frames = [
                compare(cases, place.measure, lambda _: bar.update(1)) for cases in (figure5, suite)
            ]
    environment, label = label_of(place, done)
    pictures = _pictures(frames[0], frames[1], how)
    about = {"environment": environment, "predicted": place.about}
    tables += tuple(write(folder, picture, label, about) for picture in pictures)
    return Reproduction(place, environment, label, tuple(sorted(tables, key=lambda t: t.name)))


def _pictures(figure5: pd.DataFrame, suite: pd.DataFrame, size: Size) -> list[Picture]:
    """Figures 5, 6 and 8 as tables, and how they are drawn."""
    chunks = f"broadcast in chunks of at least {format_bytes(size.chunk_nbytes)}"
    scaled = f"every dimension 1/{size.scale.shrink} of the paper's, {chunks}"
    widest = figure5[(figure5["sweep"] == TWO_DEVICES) & (figure5["hosts"] == 4)]
    return [
        Picture(
            "figure5",
            f"Figure 5 on this machine: one sender, {format_bytes(size.nbytes)} (paper: 1 GiB), "
            f"{chunks}",
            figure5,
            {"split", "concurrent"},  # one task: the same broadcast
            f"broadcast to 4 hosts of 2 devices: {_gain(widest, 'broadcast', 'send_recv')}",
        ),
        Picture(
            "figure6",
            f"Figure 6 on this machine: the cases of table 2 (7 and 8 are the same), {scaled}",
            _of(suite, FIGURE6),
            set(),
            f"broadcast, over the cases: {_gain(suite, 'broadcast', 'alpa')}",
        ),
        Picture(
            "figure8",
            f"Figure 8 on this machine: schedules of broadcasts, {scaled}",
            _of(suite, FIGURE8),
            set(),
            f"ensemble, over the cases: {_gain(suite, 'ensemble', 'naive')}",
        ),
    ]


def _gain(rows: pd.DataFrame, method: str, other: str) -> str:
    """How many times as fast ``method`` is as ``other``, measured and predicted, in words."""

    def ratios(column: str) -> str:
        slow, fast = (
            rows[rows["method"] == name][column].reset_index(drop=True) for name in (other, method)
        )
        low, high = f"{min(slow / fast):.2f}", f"{max(slow / fast):.2f}"
        return low if low == high else f"{low} to {high}"

    measured, predicted = ratios("measured_s"), ratios("predicted_s")
    return f"{measured} times as fast as {other} (predicted {predicted})"


def _of(suite: pd.DataFrame, methods: tuple[Any, ...]) -> pd.DataFrame:
    return suite[suite["method"].isin([m.name for m in methods])].reset_index(drop=True)


def _folder(out: str | Path) -> Path:
    folder = check_path("out", out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReshardError(f"cannot make folder {str(folder)!r}: {error.strerror}") from None
    return folder
