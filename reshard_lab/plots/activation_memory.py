"""What the stages of pipelines keep for their backwards, over time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from reshard_lab.plots import svg
from reshard_lab.plots.pipeline import DrawnPipeline, read_pipelines
from reshard_lab.plots.time_axis import LEFT, SIZE, TimeScale
from reshard_lab.units import format_bytes

_WIDE, _HIGH, _GAP = 660.0, 54.0, 12.0
_LINES = (("#0072B2", None), ("#D55E00", "7 4"), ("#009E73", "2 3"), ("#000000", "10 3 2 3"))
"""Colour and dashes of the first, second, ... pipeline; after four they repeat."""


Curve: TypeAlias = Sequence[tuple[float, int]]
"""What one stage keeps: from when on, in seconds, and how much; the last of one time counts."""


def draw_memory(timeline: Any, caption: str | None = None) -> svg.Figure:
    """Live activations of every stage over time; several pipelines share the axes.

    timeline:
        as of ``draw_pipeline``. Bytes are shown where every pipeline knows them, else live
        microbatches (times chunks, where a stage has several model chunks).

    >>> from reshard_lab import pipeline
    >>> one = pipeline.simulate(pipeline.schedule("1f1b", 2, 4), 1, 2, 0.5)
    >>> draw_memory(one)
    Figure('Live microbatches over time, by stage; peaks: 2, 1.')
    """
    drawn = read_pipelines(timeline)
    sized = all(getattr(one.record, "peak_bytes", None) is not None for one in drawn)
    text = format_bytes if sized else str
    curves = [_curves(one, sized) for one in drawn]
    unit = "bytes of live activations" if sized else "live microbatches"
    peaks = [
        f"{one.name}: " * bool(one.name)
        + ", ".join(text(_peak(curve)) for curve in stages.values())
        for one, stages in zip(drawn, curves, strict=True)
    ]
    shown = f"{unit[0].upper()}{unit[1:]} over time, by stage; peaks: {'; '.join(peaks)}."
    alt = f"Steps over time, one panel for each of {len(set().union(*curves))} stages: {unit}. "
    alt += f"Peaks by stage: {'; '.join(peaks)}."
    return svg.Figure(_svg(drawn, curves, text, unit, alt), caption or shown, alt)


def _curves(one: DrawnPipeline, sized: bool) -> dict[int, Curve]:
    """The curve of every stage that has ops; changes at one time are one step."""
    if sized:
        stages = enumerate(one.record.memory)
        return {s: [(m.time_s, m.nbytes) for m in entries] for s, entries in stages}
    trains = any(event.what in ("backward", "weight gradient") for event in one.events)
    frees = ("backward", "weight gradient") if trains else ("forward",)
    live: dict[int, list[tuple[float, int]]] = {}
    for event in sorted(one.events, key=lambda e: (e.start_s, e.end_s)):  # a stage's do not overlap
        if event.row.startswith("stage"):
            entries = live.setdefault(int(event.row.split()[1]), [(0.0, 0)])
            if event.what == "forward":
                entries.append((event.start_s, entries[-1][1] + 1))
            if event.what in frees:
                entries.append((event.end_s, entries[-1][1] - 1))
    return {s: live[s] for s in sorted(live)}


def _svg(
    drawn: Sequence[DrawnPipeline],
    curves: Sequence[Mapping[int, Curve]],
    text: Callable[[int], str],
    unit: str,
    alt: str,
) -> str:
    peak = max(_peak(curve) for by_stage in curves for curve in by_stage.values()) or 1
    top_text = text(peak)
    stages = sorted(set().union(*curves))
    names = svg.widest([f"stage {s}" for s in stages], SIZE)
    before = names + 10 + svg.text_width(top_text, SIZE) + 8
    left = max(LEFT, 12 + before)
    scale = TimeScale(left, _WIDE, max(one.end_s for one in drawn) or 1.0)
    parts, legend_end = _legend(drawn, unit, left)
    y, right = 38.0, 0.0
    for s in stages:
        bottom = y + _HIGH
        parts += [svg.label(left - before, y + _HIGH / 2 + 4, f"stage {s}", SIZE)]
        parts += scale.grid(y, bottom)
        parts += [svg.line(left, bottom, scale.right, bottom), svg.line(left, y, left, bottom)]
        parts += [svg.label(left - 6, bottom + 3, "0", SIZE, "end")]
        parts += [svg.label(left - 6, y + 8, top_text, SIZE, "end")]
        here = {i: by_stage[s] for i, by_stage in enumerate(curves) if s in by_stage}
        for i, curve in here.items():
            parts.append(_steps(curve, scale, bottom, _HIGH / peak, i))
        words = f"peak {', '.join(text(_peak(curve)) for curve in here.values())}"
        parts.append(svg.label(scale.right + 10, y + _HIGH / 2 + 4, words, SIZE))
        right = max(right, svg.text_width(words, SIZE))
        y = bottom + _GAP
    width = max(scale.right + 10 + max(right, 40) + 12, legend_end + 12)
    return svg.document(width, y + 44, [*parts, *scale.axis(y)], alt)


def _legend(drawn: Sequence[DrawnPipeline], unit: str, left: float) -> tuple[list[str], float]:
    """The unit and the lines of the pipelines, and where they end."""
    parts = [svg.label(left, 22, unit, SIZE, font_weight="bold")]
    x = left + svg.text_width(unit, SIZE) * 1.15 + 14
    for i, one in enumerate(drawn):
        if one.name:
            color, dashes = _LINES[i % len(_LINES)]
            style = {"stroke": color, "stroke_dasharray": dashes, "stroke_width": 2.5}
            parts.append(svg.line(x, 18, x + 28, 18, **style))
            parts.append(svg.label(x + 34, 22, one.name, SIZE))
            x += 34 + svg.text_width(one.name, SIZE) + 16
    return parts, x


def _steps(curve: Curve, scale: TimeScale, bottom: float, unit: float, index: int) -> str:
    """The curve as a line of steps, ``unit`` pixels high for each one."""
    color, dashes = _LINES[index % len(_LINES)]
    n = svg.number
    path = ""
    for time_s, value in dict(curve).items():
        x, y = n(scale.x(time_s)), n(bottom - value * unit)
        path += f"H{x}V{y}" if path else f"M{x} {y}"
    style = {"stroke": color, "stroke_dasharray": dashes, "stroke_width": 2 if dashes else 2.5}
    return svg.path(path, fill="none", **style)


def _peak(curve: Curve) -> int:
    """Also where it lasts for no time at all."""
    return max(value for _, value in curve)
