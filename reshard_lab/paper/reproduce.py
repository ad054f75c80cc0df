"""The main job: figures 5, 6 and 8 measured here, 4, 7 and 9 simulated, into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import check_bool, check_choice, check_path, need, os_errors
from reshard_lab.paper import figures, measuring, throughput
from reshard_lab.paper.figures import FIGURE5, FIGURE6, FIGURE8, LEAST_CHUNK, TWO_DEVICES
from reshard_lab.paper.files import FigureTable, stamp_rows, write_figure
from reshard_lab.paper.measuring import MeasuringTarget, compare, open_target
from reshard_lab.paper.pipelines import figure4, figure7, figure9
from reshard_lab.paper_cases import Scale
from reshard_lab.plots.activation_memory import draw_memory
from reshard_lab.plots.measured import draw_measured
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.svg import Figure
from reshard_lab.units import format_bytes, format_seconds

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
_TIMES4 = "forwards of 1 s, backwards of 2 s, transfers of 0.5 s each way"
METHODS = tuple(dict.fromkeys((*FIGURE6, *FIGURE8)))
"""Of the suite; what figures 6 and 8 share is measured once."""


class Reproduction(NamedTuple):
    """What a reproduction gave."""

    place: MeasuringTarget
    environment: dict[str, Any]
    label: str
    """Backend, link, machine, and where the predictions come from; stands on everything."""
    tables: tuple[FigureTable, ...]


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
    folder = check_path("out", out)
    with os_errors(f"make folder {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
    tqdm = need("tqdm", "run", "a progress bar").tqdm
    need("pandas", "notebooks", "a reproduction"), need("resvg_py", "notebooks", "a picture")
    name, why = measuring.choose_target(where)
    how = SIZES[name, size]
    tables = simulated(folder)
    with open_target(name, why, how.nbytes, how.repeats, how.warmup, patient) as (place, done):
        figure5 = figures.figure5_cases(place.make, how.nbytes, FIGURE5, how.chunk_nbytes)
        suite = figures.suite_cases(place.make, how.scale, METHODS, how.chunk_nbytes)
        total = len(figure5) + len(suite)
        with tqdm(total=total, desc="measuring", unit="plan", disable=quiet) as bar:
            frames = [compare(c, place.measure, lambda _: bar.update()) for c in (figure5, suite)]
    environment, label = measuring.label_of(place, done)
    stamp = {"label": label, "environment": environment, "predicted": place.about}
    note = f"Bars: median of {how.repeats} runs; whiskers: the slowest and the fastest."
    for table, left_out in _measured_figures(frames[0], frames[1], how):
        rows = stamp_rows(table.frame, label, environment)
        shown = rows[~rows["method"].isin(left_out)]
        drawn = draw_measured(shown, title=table.title, note=note)
        tables.append(write_figure(folder, table, rows, _png_and_svg(table.name, drawn), stamp))
    return Reproduction(place, environment, label, tuple(sorted(tables, key=lambda t: t.name)))


def _png_and_svg(name: str, drawn: Figure) -> dict[str, Figure]:
    return {f"{name}.png": drawn, f"{name}.svg": drawn}


def _measured_figures(
    figure5: pd.DataFrame, suite: pd.DataFrame, size: Size
) -> list[tuple[FigureTable, set[str]]]:
    """Figures 5, 6 and 8, and for each the methods that are in its table but not drawn."""
    chunks = f"broadcast in chunks of at least {format_bytes(size.chunk_nbytes)}"
    scaled = f"every dimension 1/{size.scale.shrink} of the paper's, {chunks}"
    widest = figure5[(figure5["sweep"] == TWO_DEVICES) & (figure5["hosts"] == 4)]
    sent = f"{format_bytes(size.nbytes)} (paper: 1 GiB)"
    title5 = f"one sender, {sent}, {chunks}"
    title6 = f"the cases of table 2 (7 and 8 are the same), {scaled}"
    title8 = f"schedules of broadcasts, {scaled}"
    gain5 = f"broadcast to 4 hosts of 2 devices: {_gain(widest, 'broadcast', 'send_recv')}"
    gain6 = f"broadcast, over the cases: {_gain(suite, 'broadcast', 'alpa')}"
    gain8 = f"ensemble, over the cases: {_gain(suite, 'ensemble', 'naive')}"

    def table(number: int, title: str, rows: pd.DataFrame, gain: str) -> FigureTable:
        title = f"Figure {number} on this machine: {title}"
        return FigureTable(f"figure{number}", title, rows, gain, "measured")

    # Of one task, split and concurrent are the same broadcast.
    return [
        (table(5, title5, figure5, gain5), {"split", "concurrent"}),
        (table(6, title6, _rows_of(suite, FIGURE6), gain6), set()),
        (table(8, title8, _rows_of(suite, FIGURE8), gain8), set()),
    ]


def _gain(rows: pd.DataFrame, method: str, other: str) -> str:
    """How many times as fast ``method`` is as ``other``, measured and predicted, in words."""
    fast, slow = (rows[rows["method"] == name].reset_index(drop=True) for name in (method, other))
    measured, predicted = (_range(slow[key] / fast[key]) for key in ("measured_s", "predicted_s"))
    return f"{measured} times as fast as {other} (predicted {predicted})"


def _rows_of(suite: pd.DataFrame, methods: tuple[Any, ...]) -> pd.DataFrame:
    return suite[suite["method"].isin([m.name for m in methods])].reset_index(drop=True)


def simulated(folder: Path, preset: str = "p3.8xlarge") -> list[FigureTable]:
    """Figures 4, 7 and 9 and the headlines of 7, written into ``folder``; takes seconds.

    Each has a CSV, its pictures, and a JSON that says what the simulation rests on.
    """
    timelines, rows4 = figure4()
    one, eager = timelines.values()
    named = {f"{name}, simulated": timeline for name, timeline in timelines.items()}
    drawn4 = {"figure4.svg": draw_pipeline(named), "figure4_memory.svg": draw_memory(named)}
    headline4 = (
        f"eager-1F1B ends after {format_seconds(eager.makespan_s)}, 1F1B after "
        f"{format_seconds(one.makespan_s)}; stage 0 keeps {eager.peak_live[0]} and "
        f"{one.peak_live[0]} microbatches"
    )
    stamp4 = {"label": f"Simulated: {_TIMES4}, overlapped."}
    label, about = throughput.basis(preset)
    stamp = {"label": label, **about}
    bars7, bars9 = figure7(preset=preset), figure9(preset=preset)
    drawn7 = _png_and_svg("figure7", throughput.draw_figure7(bars7, preset))
    drawn9 = _png_and_svg("figure9", throughput.draw_figure9(bars9, preset))
    ratios, title7 = throughput.headlines(bars7), "Headlines of figure 7, here and in the paper"
    apart = int((ratios["why"] != "").sum())
    said = f"{apart} of {len(ratios)} ratios are over 10% from the paper's, and say why"
    tables = []
    for name, title, rows, headline, drawn, basis_of in (
        ("figure4", "Figure 4: 1F1B and eager-1F1B", rows4, headline4, drawn4, stamp4),
        ("figure7", throughput.TITLE7, bars7, _figure7_headline(bars7), drawn7, stamp),
        ("figure7_headlines", title7, ratios, said, {}, stamp),
        ("figure9", throughput.TITLE9, bars9, _figure9_headline(bars9), drawn9, stamp),
    ):
        table = FigureTable(name, title, rows, headline, "simulated")
        stamped = rows.assign(label=basis_of["label"])
        tables.append(write_figure(folder, table, stamped, drawn, basis_of if drawn else None))
    return tables


def _figure7_headline(frame: pd.DataFrame) -> str:
    by = frame.pivot(index="model", columns="method", values="tflops_per_device")
    gains, shares = _range(by["ours"] / by["alpa"]), _range(by["ours"] / by["signal"])
    return f"ours / alpa {gains}, ours / signal {shares}; beside the paper's in figure7_headlines"


def _figure9_headline(frame: pd.DataFrame) -> str:
    most = frame[frame["microbatches"] == frame["microbatches"].max()]
    by = most.pivot(index="model", columns="method", values="tflops_per_device")
    steps = ", ".join(
        f"{name} {_range(by[name] / by['broadcast'])}" for name in ("overlap", "eager_1f1b", "ours")
    )
    return f"at {most['microbatches'].iloc[0]} microbatches, over broadcast: {steps}"


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"
