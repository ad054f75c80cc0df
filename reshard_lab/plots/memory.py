"""What the stages of pipelines keep for their backwards, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reshard_lab.plots import svg
from reshard_lab.plots.pipeline import Shown, shown
from reshard_lab.plots.times import LEFT, SIZE, TimeScale
from reshard_lab.units import format_bytes

_WIDE, _HIGH, _GAP = 660.0, 54.0, 12.0
_LINES = (("#0072B2", None), ("#D55E00", "7 4"), ("#009E73", "2 3"), ("#000000", "10 3 2 3"))
"""Colour and dashes of the first, second, ... pipeline; after four they repeat."""


class Curve(NamedTuple):
    """What one stage keeps: ``values[i]`` from ``times_s[i]`` on."""

    times_s: tuple[float, ...]
    values: tuple[int, ...]


def draw_memory(timeline: Any, caption: str | None = None) -> svg.Figure:
    """Live activations of every stage over time; several pipelines share the axes.

    timeline:
        as of ``draw_pipeline``. Bytes are shown where every pipeline knows them, else live
        microbatches (times chunks, where a stage has several pieces of the model).

    >>> from reshard_lab import pipeline
    >>> one = pipeline.simulate(pipeline.schedule("1f1b", 2, 4), 1, 2, 0.5)
    >>> draw_memory(one)
    Figure('Live microbatches over time, by stage; peaks: 2, 1.')
    """
    drawn = shown(timeline)
    sized = all(getattr(one.record, "peak_bytes", None) is not None for one in drawn)
    curves = [_curves(one, sized) for one in drawn]
    unit = "bytes of live activations" if sized else "live microbatches"
    peaks = [
        f"{one.name}: " * bool(one.name)
        + ", ".join(_text(max(curve.values), sized) for curve in stages)
        for one, stages in zip(drawn, curves, strict=True)
    ]
    said = caption or f"{unit[0].upper()}{unit[1:]} over time, by stage; peaks: {'; '.join(peaks)}."
    alt = f"Steps over time, one panel for each of {max(map(len, curves))} stages: {unit}. Peaks by"
    alt += f" stage: {'; '.join(peaks)}."
    return svg.figure(_svg(drawn, curves, sized, unit, alt), said, alt)


def _curves(one: Shown, sized: bool) -> list[Curve]:
    """The curve of every stage; changes at one time are one step."""
    stages = 1 + max(int(row.split()[1]) for row in one.rows() if row.startswith("stage"))
    if sized:
        steps = [{m.time_s: m.nbytes for m in entries} for entries in one.record.memory]
        return [Curve(tuple(step), tuple(step.values())) for step in steps]
    trains = any(event.what in ("backward", "weight gradient") for event in one.events)
    frees = ("backward", "weight gradient") if trains else ("forward",)
    changes: list[dict[float, int]] = [{0.0: 0} for _ in range(stages)]
    for event in one.events:
        if event.row.startswith("stage"):
            change = changes[int(event.row.split()[1])]
            if event.what == "forward":
                change[event.start_s] = change.get(event.start_s, 0) + 1
            if event.what in frees:
                change[event.end_s] = change.get(event.end_s, 0) - 1
    return [_summed(change) for change in changes]


def _summed(changes: dict[float, int]) -> Curve:
    times, values, live = [], [], 0
    for time_s in sorted(changes):
        live += changes[time_s]
        times.append(time_s)
        values.append(live)
    return Curve(tuple(times), tuple(values))


def _svg(
    drawn: Sequence[Shown], curves: Sequence[Sequence[Curve]], sized: bool, unit: str, alt: str
) -> str:
    peak = max(max(curve.values) for stages in curves for curve in stages) or 1
    count = max(map(len, curves))
    top_text = _text(peak, sized)
    names = svg.widest([f"stage {s}" for s in range(count)], SIZE)
    before = names + 10 + svg.text_width(top_text, SIZE) + 8
    left = max(LEFT, 12 + before)
    scale = TimeScale(left, _WIDE, max(one.end_s for one in drawn) or 1.0)
    parts, y = _legend(drawn, unit, left)
    right = 0.0
    for s in range(count):
        bottom = y + _HIGH
        parts += [svg.label(left - before, y + _HIGH / 2 + 4, f"stage {s}", SIZE)]
        parts += scale.grid(y, bottom)
        parts += [svg.line(left, bottom, scale.right, bottom), svg.line(left, y, left, bottom)]
        parts += [svg.label(left - 6, bottom + 3, "0", SIZE, "end")]
        parts += [svg.label(left - 6, y + 8, top_text, SIZE, "end")]
        here = [stages[s] for stages in curves if s < len(stages)]
        for i, curve in enumerate(here):
            parts.append(_steps(curve, scale, bottom, _HIGH / peak, i))
        words = f"peak {', '.join(_text(max(curve.values), sized) for curve in here)}"
        parts.append(svg.label(scale.right + 10, y + _HIGH / 2 + 4, words, SIZE))
        right = max(right, svg.text_width(words, SIZE))
        y = bottom + _GAP
    width = max(scale.right + 10 + max(right, 40) + 12, left + _legend_width(drawn, unit) + 12)
    return svg.document(width, y + 44, [*parts, *scale.axis(y)], alt)


def _legend(drawn: Sequence[Shown], unit: str, left: float) -> tuple[list[str], float]:
    parts = [svg.label(left, 22, unit, SIZE, font_weight="bold")]
    x = left + svg.text_width(unit, SIZE) * 1.15 + 14
    for i, one in enumerate(drawn):
        if one.name:
            color, dashes = _LINES[i % len(_LINES)]
            style = {"stroke": color, "stroke_dasharray": dashes, "stroke_width": 2.5}
            parts.append(svg.line(x, 18, x + 28, 18, **style))
            parts.append(svg.label(x + 34, 22, one.name, SIZE))
            x += 34 + svg.text_width(one.name, SIZE) + 16
    return parts, 38.0


def _legend_width(drawn: Sequence[Shown], unit: str) -> float:
    names = [34 + svg.text_width(one.name, SIZE) + 16 for one in drawn if one.name]
    return svg.text_width(unit, SIZE) * 1.15 + 14 + sum(names)


def _steps(curve: Curve, scale: TimeScale, bottom: float, unit: float, index: int) -> str:
    """The curve as a line of steps, ``unit`` pixels high for each one."""
    color, dashes = _LINES[index % len(_LINES)]
    n = svg.number
    path = ""
    for time_s, value in zip(curve.times_s, curve.values, strict=True):
        x, y = n(scale.x(time_s)), n(bottom - value * unit)
        path += f"H{x}V{y}" if path else f"M{x} {y}"
    style = {"stroke": color, "stroke_dasharray": dashes, "stroke_width": 2 if dashes else 2.5}
    return f'<path d="{path}"{svg.attributes(fill="none", **style)}/>'


def _text(value: int, sized: bool) -> str:
    return format_bytes(value) if sized else str(value)
