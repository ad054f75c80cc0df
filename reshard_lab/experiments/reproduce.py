"""The main job: figure 5 and the suite measured here, beside their predictions, into a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, need
from reshard_lab.experiments.compare import Case, Fit, compare, fit_one_transfer
from reshard_lab.experiments.figures import ONE_HOST, TWO_DEVICES, figure5_cases, figure6_cases
from reshard_lab.experiments.suite import Scale
from reshard_lab.plots.bars import Columns, Words, bars, save
from reshard_lab.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

    from reshard_lab.experiments.compare import Measure


class Size(NamedTuple):
    """How much a reproduction moves, and how often."""

    nbytes: int
    """Of figure 5's tensor, and of the transfer that the cluster is fitted from."""
    scale: Scale
    """Of the suite's cases."""
    chunks: int
    """K of the broadcasts."""
    repeats: int
    warmup: int


STANDARD = Size(16 * 2**20, Scale(shrink=4, most_devices=16), chunks=16, repeats=10, warmup=3)
"""Fits two cores and 16 processes: the paper's repeats, its tensors scaled down.

Fewer chunks than the paper's 100, whose tensors are 64 times as large: what a chunk costs beside
its bytes would drown them.
"""
QUICK = Size(2**20, Scale(shrink=16, most_devices=16), chunks=4, repeats=3, warmup=1)
"""To see that everything works: too small and too few to conclude from."""
DEVICES = 16
_MARK = "predicted, with a cluster fitted from one transfer"


class Table(NamedTuple):
    """One figure's rows, what they are, and the files that hold them."""

    name: str
    title: str
    frame: pd.DataFrame
    files: tuple[Path, ...]


class Reproduction(NamedTuple):
    """What a reproduction gave."""

    fit: Fit
    environment: dict[str, Any]
    label: str
    """Backend, link, machine, and where the predictions come from; stands on everything."""
    tables: tuple[Table, ...]


def reproduce(out: str | Path = "out", size: Size = STANDARD, quiet: bool = False) -> Reproduction:
    """Measure figure 5's two sweeps and the nine cases of table 2 on this machine's loopback.

    One pool of processes serves all of it. Predictions are for a cluster fitted from one
    measured transfer, and everything written says so. Writes a CSV, a PNG, an SVG and the
    environment (JSON) for each figure into ``out``; ``quiet`` leaves out the progress bar.
    """
    from reshard_lab.runtime import Pool

    folder = _folder(out)
    tqdm = need("tqdm", "run", "a progress bar").tqdm
    need("pandas", "notebooks", "a reproduction"), need("matplotlib", "notebooks", "a chart")
    with Pool(devices=DEVICES) as pool:
        stamps: list[dict[str, Any]] = []

        def measure(plan: Any) -> Any:
            measured = pool.run(plan, repeats=size.repeats, warmup=size.warmup)
            stamps.append(measured.environment)
            return measured

        fit = fit_one_transfer(measure, size.nbytes)
        figures = {
            "figure5": figure5_cases(fit.cluster, size.nbytes, chunks=size.chunks),
            "figure6": figure6_cases(fit.cluster, size.scale, chunks=size.chunks),
        }
        total = sum(map(len, figures.values()))
        with tqdm(total=total, desc="measuring", unit="plan", disable=quiet) as bar:
            frames = {
                name: _measured(cases, measure, bar.update) for name, cases in figures.items()
            }
    environment = stamps[0]
    label = _label(environment, fit)
    words = {"figure5": _figure5_words(size, label), "figure6": _figure6_words(size, label)}
    tables = tuple(
        _write(folder, name, frames[name], words[name], environment, fit) for name in figures
    )
    return Reproduction(fit, environment, label, tables)


def _measured(cases: list[Case], measure: Measure, update: Callable[[int], object]) -> pd.DataFrame:
    return compare(cases, measure, lambda _: update(1))


def _label(environment: dict[str, Any], fit: Fit) -> str:
    """What was measured where, and what predictions rest on."""
    return (
        f"Measured: {environment['link']}, {environment['cpu']}; every result checked. "
        f"Predicted: a cluster fitted from one measured transfer ({fit}). "
        "Here every link is carried by the same cores, which such a prediction does not know."
    )


def _figure5_words(size: Size, label: str) -> Words:
    return Words(
        f"Figure 5 on this machine: one sender, {format_bytes(size.nbytes)} (paper: 1 GiB), "
        f"broadcast in {size.chunks} chunks",
        {ONE_HOST: "devices on the host", TWO_DEVICES: "hosts of 2 devices"},
        "effective bandwidth (Gbit/s)",
        _MARK,
        label,
    )


def _figure6_words(size: Size, label: str) -> Words:
    return Words(
        f"Figure 6 on this machine: the cases of table 2, every dimension 1/{size.scale.shrink} of "
        f"the paper's, broadcast in {size.chunks} chunks",
        "case (7 and 8 are the same; 6 on hosts of 2 devices)",
        "effective bandwidth (Gbit/s)",
        _MARK,
        label,
    )


def _write(
    folder: Path,
    name: str,
    frame: pd.DataFrame,
    words: Words,
    environment: dict[str, Any],
    fit: Fit,
) -> Table:
    """The CSV, the environment and the two pictures of one figure."""
    stamped = frame.assign(
        predicted_from=f"a cluster fitted from one measured transfer: {fit}",
        **{key: environment[key] for key in ("link", "cpu", "torch", "commit")},
    )
    drawn = frame
    if name == "figure5":
        drawn = frame.assign(
            count=frame["devices"].where(frame["sweep"] == ONE_HOST, frame["hosts"])
        )
    columns = Columns(
        group="count" if name == "figure5" else "case",
        series="strategy",
        value="measured_Gbps",
        low="low_Gbps",
        high="high_Gbps",
        mark="predicted_Gbps",
        panel="sweep" if name == "figure5" else None,
    )
    table, stamp = folder / f"{name}.csv", folder / f"{name}.json"
    runs = f"Bars: median of {frame['runs'].iloc[0]} runs; whiskers: the slowest and the fastest."
    note = "\n".join([runs, *words.note.replace(". ", ".\n").split("\n")])
    wrapped = words._replace(note=note)
    about = {"figure": words.title, "label": words.note, "environment": environment}
    about["fit"] = {
        "nbytes": fit.nbytes,
        "seconds": fit.seconds,
        "bandwidth_Bps": fit.bandwidth_Bps,
    }
    try:
        stamped.to_csv(table, index=False)
        stamp.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        pictures = save(bars(drawn, columns, wrapped), folder / name)
    except OSError as error:
        raise ReshardError(f"cannot write into {str(folder)!r}: {error.strerror}") from None
    return Table(name, words.title, frame, (table, stamp, *pictures))


def _folder(out: str | Path) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReshardError(f"cannot make folder {str(out)!r}: {error.strerror}") from None
    return folder
