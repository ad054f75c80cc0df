"""Training throughput of figures 7 and 9 drawn, and the paper's headline ratios beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reshard_lab.errors import ReshardError, check_choice, need
from reshard_lab.paper.files import check_rows
from reshard_lab.paper.pipelines import FIGURE7, PAPER, PAPER_OF_SIGNAL
from reshard_lab.pipelining import device_speed
from reshard_lab.plots.bar_chart import ChartBar, ChartLabels, bar_chart_svg
from reshard_lab.plots.svg import Figure
from reshard_lab.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
"""A row of figure 7 or 9."""
_VALUE, _SPEED = "throughput (TFLOP/s a device)", "speed of the device"
_BOUND = "signal (bound)"
TITLE7 = "Figure 7, simulated: training throughput on 2 pipeline stages"
TITLE9 = "Figure 9, simulated: throughput over microbatches of the same size"
_METHODS7 = (
    f"{', '.join(level.name for level in FIGURE7[:3])}: {FIGURE7[0].about}; "
    + "; ".join(f"{level.name}: {level.about}" for level in FIGURE7[3:])
    + "."
)
_METHODS9 = "overlap: 1F1B; eager_1f1b: eager-1F1B; ours: that with weights delayed."
APART = 0.10
"""Differences above this are explained."""
_COLUMNS = (
    *("model", "method", "devices", "microbatches", "makespan_s", "tflops_per_device"),
    *("device_tflops", "exposed_communication_share", "crossing_bytes", "compute_s"),
    "transfers_s",
)
"""Of the table that is read."""


def headlines(figure7: pd.DataFrame) -> pd.DataFrame:
    """Ours over Alpa's and over signal's throughput, beside the paper's (section 5.2).

    figure7: what ``figure7`` returns, with the methods ``alpa``, ``ours`` and ``signal``.

    Columns: ``model``, ``ratio`` (``"ours / alpa"``, ``"ours / signal"``), ``here``, ``paper``,
    ``difference`` (here over paper, less 1; of the second ratio only what is missing to the
    paper's least share) and ``why``: a sentence where that is over 10%, computed from the rows.
    """
    pandas = need("pandas", "notebooks", "the headlines")
    check_rows("figure7", figure7, _COLUMNS)
    by: dict[str, dict[str, Row]] = {}
    for row in figure7.to_dict("records"):
        by.setdefault(row["model"], {})[row["method"]] = row
    for name, methods in by.items():
        missing = [m for m in ("alpa", "ours", "signal") if m not in methods]
        if missing:
            raise ReshardError(
                f"the headlines of {name} compare alpa, ours and signal, but the table has no "
                f"{', '.join(missing)}; give all rows of figure7()"
            )
    gains = {name: _over(methods["ours"], methods["alpa"]) for name, methods in by.items()}
    rows = []
    for name, methods in by.items():
        gain, paper = gains[name], PAPER[_kind(name)]
        alike = [gains[other] for other in by if _kind(other) == _kind(name)]
        apart = gain / paper - 1
        why = _why(methods, paper, alike) if abs(apart) > APART else ""
        rows.append((name, "ours / alpa", gain, paper, apart, why))
        share = _over(methods["ours"], methods["signal"])
        apart = min(0.0, share / PAPER_OF_SIGNAL - 1)
        why = _why_short(methods["ours"]) if apart < -APART else ""
        rows.append((name, "ours / signal", share, PAPER_OF_SIGNAL, apart, why))
    columns = ["model", "ratio", "here", "paper", "difference", "why"]
    return pandas.DataFrame(rows, columns=columns)


def _kind(name: str) -> str:
    return check_choice("kind of model", str(name).rpartition("-")[0], PAPER)


def _over(one: Row, other: Row) -> float:
    """Ratio of two throughputs."""
    return one["tflops_per_device"] / other["tflops_per_device"]


def _why(methods: dict[str, Row], paper: float, alike: list[float]) -> str:
    """Which term makes the ratio: transfers, which Alpa waits for, over compute.

    Where ours hides all of them and there are many microbatches, the ratio tends to
    1 + transfers / compute, so the device speed at which it would be the paper's follows.
    """
    alpa, ours, signal = (methods[name] for name in ("alpa", "ours", "signal"))
    waits, computes, speed = alpa["transfers_s"], alpa["compute_s"], alpa["device_tflops"]
    exposed = (ours["makespan_s"] - signal["makespan_s"]) / ours["microbatches"]
    hidden = 1 - exposed / ours["transfers_s"]
    same = speed * (paper - 1) * computes / waits
    text = (
        f"Transfers, of which ours hides {hidden:.0%}, are {waits / computes:.0%} of compute here "
        f"and {paper - 1:.0%} by the paper's ratio: {format_seconds(waits)} a microbatch for "
        f"{format_bytes(alpa['crossing_bytes'])} each way through one NIC a host, beside "
        f"{format_seconds(computes)} of compute on {alpa['devices'] // 2} devices a stage at "
        f"{speed:.3g} TFLOP/s each, as assumed ({same:.3g} would give the paper's ratio)"
    )
    if len(alike) > 1:
        mean = f"{sum(alike) / len(alike):.2f}"
        text += f"; the paper states one ratio for {len(alike)} sizes, whose mean here is {mean}"
    return text + "."


def _why_short(ours: Row) -> str:
    return (
        f"Transfers of {format_seconds(ours['transfers_s'])} a microbatch do not fit beside "
        f"{format_seconds(ours['compute_s'])} of compute: {ours['exposed_communication_share']:.0%}"
        " of the time of all stages is exposed communication."
    )


def basis(preset: str, recompute: bool = True) -> tuple[str, dict[str, Any]]:
    """What figures 7 and 9 rest on, in words and in numbers with their sources."""
    speeds = {dtype: device_speed(preset, dtype) for dtype in ("float16", "float32")}
    stated = " and ".join(f"{s.flops_per_s / 1e12:.4g} ({dtype})" for dtype, s in speeds.items())
    again = "forwards recomputed and counted" if recompute else "activations kept"
    label = (
        f"Simulated, not measured: {preset}, compute at {stated} TFLOP/s a device, assumed as its "
        f"description says, transfers as planned for an otherwise idle network, {again}."
    )
    return label, {"preset": preset, "speeds": {k: s._asdict() for k, s in speeds.items()}}


def draw_figure7(frame: pd.DataFrame, preset: str = "p3.8xlarge") -> Figure:
    """The rows of ``figure7`` as bars, with the speed of the device as a line."""
    labels = ChartLabels(TITLE7, "model", _VALUE, _note(_METHODS7, frame, preset), _SPEED)
    rows = frame.to_dict("records")
    bars = [
        ChartBar("", r["model"], r["method"], r["tflops_per_device"], bound=r["device_tflops"])
        for r in rows
    ]
    return _chart(rows, "model", bars, labels)


def draw_figure9(frame: pd.DataFrame, preset: str = "p3.8xlarge") -> Figure:
    """The rows of ``figure9`` as bars, with the upper bound, signal, as a line."""
    labels = ChartLabels(TITLE9, "microbatches", _VALUE, _note(_METHODS9, frame, preset), _BOUND)
    rows = frame.to_dict("records")
    points = [(r["model"], r["microbatches"], r["method"], r["tflops_per_device"]) for r in rows]
    signal = {(model, count): value for model, count, method, value in points if method == "signal"}
    bars = [
        ChartBar(model, str(count), method, value, bound=signal.get((model, count)))
        for model, count, method, value in points
        if method != "signal"
    ]
    return _chart(rows, "microbatches", bars, labels)


def _note(methods: str, frame: pd.DataFrame, preset: str) -> str:
    return f"{methods} {basis(preset, bool(frame['recompute'].all()))[0]}"


def _chart(rows: list[Row], group: str, bars: list[ChartBar], labels: ChartLabels) -> Figure:
    """The bars with their alt text and their table."""
    keys = list(dict.fromkeys(("model", group, "method")))
    cells = [(*(str(r[key]) for key in keys), f"{r['tflops_per_device']:.1f}") for r in rows]
    listed = ". ".join(f"{', '.join(names)}: {value}" for *names, value in cells)
    alt = f"Bars, TFLOP/s a device. {listed}."
    caption = f"{labels.title}. {labels.note}"
    return Figure(bar_chart_svg(bars, labels, alt), caption, alt, [(*keys, _VALUE), *cells])
