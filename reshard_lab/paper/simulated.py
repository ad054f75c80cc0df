"""The figures on pipelines, simulated, as files: 4, 7 and 9."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import ReshardError
from reshard_lab.paper.headlines import headlines
from reshard_lab.paper.pipelines import FIGURE7, Figure4, figure4, figure7, figure9
from reshard_lab.paper.tables import Table
from reshard_lab.pipelining import device_speed
from reshard_lab.plots.activation_memory import draw_memory
from reshard_lab.plots.bar_chart import ChartBar, ChartLabels, bar_chart_svg
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.records import export
from reshard_lab.plots.svg import Figure, figure
from reshard_lab.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

_VALUE = "throughput (TFLOP/s a device)"
_TITLE7 = "Figure 7, simulated: training throughput on 2 pipeline stages"
_TITLE9 = "Figure 9, simulated: throughput over microbatches of the same size"
_METHODS7 = (
    f"{', '.join(level.name for level in FIGURE7[:3])}: {FIGURE7[0].about}; "
    + "; ".join(f"{level.name}: {level.about}" for level in FIGURE7[3:])
    + "."
)
_METHODS9 = "overlap: 1F1B; eager_1f1b: eager-1F1B; ours: that with weights delayed."


def simulated(folder: Path, preset: str = "p3.8xlarge") -> tuple[Table, ...]:
    """Figures 4, 7 and 9 and the headlines of 7, written into ``folder``; takes seconds.

    Each has a CSV, its pictures, and a JSON that says what the simulation rests on.
    """
    label, about = _basis(preset)
    bars7, bars9 = figure7(preset=preset), figure9(preset=preset)
    try:
        return (
            _write4(folder, figure4()),
            _write7(folder, bars7, label, about),
            _write_headlines(folder, headlines(bars7), label),
            _write9(folder, bars9, label, about),
        )
    except OSError as error:
        raise ReshardError(f"cannot write into {str(folder)!r}: {error.strerror}") from None


def _basis(preset: str, recompute: bool = True) -> tuple[str, dict[str, Any]]:
    """What figures 7 and 9 rest on, in words and in numbers with their sources."""
    speeds = {dtype: device_speed(preset, dtype) for dtype in ("float16", "float32")}
    stated = " and ".join(f"{s.flops_per_s / 1e12:.4g} ({dtype})" for dtype, s in speeds.items())
    again = "forwards recomputed and counted" if recompute else "activations kept"
    label = (
        f"Simulated, not measured: {preset}, compute at {stated} TFLOP/s a device, assumed as its "
        f"description says, transfers as planned for an otherwise idle network, {again}."
    )
    return label, {"preset": preset, "speeds": {k: s._asdict() for k, s in speeds.items()}}


def _write4(folder: Path, made: Figure4) -> Table:
    one, eager = made.timelines.values()
    label = "Simulated: forwards of 1 s, backwards of 2 s, transfers of 0.5 s each way, overlapped."
    named = {f"{name}, simulated": timeline for name, timeline in made.timelines.items()}
    pictures = (
        draw_pipeline(named).save(folder / "figure4.svg"),
        draw_memory(named).save(folder / "figure4_memory.svg"),
    )
    headline = (
        f"eager-1F1B ends after {format_seconds(eager.makespan_s)}, 1F1B after "
        f"{format_seconds(one.makespan_s)}; stage 0 keeps {eager.peak_live[0]} and "
        f"{one.peak_live[0]} microbatches"
    )
    title = "Figure 4: 1F1B and eager-1F1B"
    files = _rows(folder, "figure4", title, made.frame, label, {})
    return Table("figure4", title, made.frame, (*files, *pictures), headline, "simulated")


def _write7(folder: Path, frame: pd.DataFrame, label: str, about: dict[str, Any]) -> Table:
    title = _TITLE7
    drawn = _chart7(frame, label)
    pictures = [export(drawn, folder / f"figure7.{kind}") for kind in ("png", "svg")]
    by = frame.pivot(index="model", columns="method", values="tflops_per_device")
    gains, shares = by["ours"] / by["alpa"], by["ours"] / by["signal"]
    headline = (
        f"ours / alpa {_range(gains)}, ours / signal {_range(shares)}; "
        "beside the paper's in figure7_headlines"
    )
    files = _rows(folder, "figure7", title, frame, label, about)
    return Table("figure7", title, frame, (*files, *pictures), headline, "simulated")


def _write_headlines(folder: Path, frame: pd.DataFrame, label: str) -> Table:
    title = "Headlines of figure 7, here and in the paper"
    file = folder / "figure7_headlines.csv"
    frame.assign(label=label).to_csv(file, index=False)
    apart = int((frame["why"] != "").sum())
    headline = f"{apart} of {len(frame)} ratios are over 10% from the paper's, and say why"
    return Table("figure7_headlines", title, frame, (file,), headline, "simulated")


def _write9(folder: Path, frame: pd.DataFrame, label: str, about: dict[str, Any]) -> Table:
    title = _TITLE9
    drawn = _chart9(frame, label)
    pictures = [export(drawn, folder / f"figure9.{kind}") for kind in ("png", "svg")]
    most = frame[frame["microbatches"] == frame["microbatches"].max()]
    by = most.pivot(index="model", columns="method", values="tflops_per_device")
    steps = ", ".join(
        f"{name} {_range(by[name] / by['broadcast'])}" for name in ("overlap", "eager_1f1b", "ours")
    )
    headline = f"at {most['microbatches'].iloc[0]} microbatches, over broadcast: {steps}"
    files = _rows(folder, "figure9", title, frame, label, about)
    return Table("figure9", title, frame, (*files, *pictures), headline, "simulated")


def draw_figure7(frame: pd.DataFrame, preset: str = "p3.8xlarge") -> Figure:
    """The rows of ``figure7`` as bars, with the speed of the device as a line."""
    return _chart7(frame, _basis(preset, bool(frame["recompute"].all()))[0])


def draw_figure9(frame: pd.DataFrame, preset: str = "p3.8xlarge") -> Figure:
    """The rows of ``figure9`` as bars, with the upper bound, signal, as a line."""
    return _chart9(frame, _basis(preset, bool(frame["recompute"].all()))[0])


def _chart7(frame: pd.DataFrame, label: str) -> Figure:
    bars = [
        ChartBar("", r["model"], r["method"], r["tflops_per_device"], bound=r["device_tflops"])
        for r in frame.to_dict("records")
    ]
    labels = ChartLabels(_TITLE7, "model", _VALUE, f"{_METHODS7} {label}", "speed of the device")
    return _figure(frame, "model", bars, labels)


def _chart9(frame: pd.DataFrame, label: str) -> Figure:
    rows = frame.to_dict("records")
    signal = {
        (r["model"], r["microbatches"]): r["tflops_per_device"]
        for r in rows
        if r["method"] == "signal"
    }
    bars = [
        ChartBar(
            *(r["model"], str(r["microbatches"]), r["method"], r["tflops_per_device"]),
            bound=signal.get((r["model"], r["microbatches"])),
        )
        for r in rows
        if r["method"] != "signal"
    ]
    labels = ChartLabels(_TITLE9, "microbatches", _VALUE, f"{_METHODS9} {label}", "signal (bound)")
    return _figure(frame, "microbatches", bars, labels)


def _figure(
    frame: pd.DataFrame, group: str, bars: Sequence[ChartBar], labels: ChartLabels
) -> Figure:
    keys = list(dict.fromkeys(("model", group, "method")))
    rows = [
        (*(str(row[key]) for key in keys), f"{row['tflops_per_device']:.1f}")
        for row in frame.to_dict("records")
    ]
    listed = [f"{', '.join(names)}: {value}" for *names, value in rows]
    alt = f"Bars, TFLOP/s a device. {'. '.join(listed)}."
    drawn = bar_chart_svg(bars, labels, alt)
    return figure(drawn, f"{labels.title}. {labels.note}", alt, [(*keys, _VALUE), *rows])


def _rows(
    folder: Path, name: str, title: str, frame: pd.DataFrame, label: str, about: dict[str, Any]
) -> tuple[Path, Path]:
    """The CSV, and the JSON that says what it rests on."""
    table, stamp = folder / f"{name}.csv", folder / f"{name}.json"
    frame.assign(label=label).to_csv(table, index=False)
    said = {"figure": title, "label": label, **about}
    stamp.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return table, stamp


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"
