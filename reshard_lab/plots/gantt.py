"""A plan over time: a row for each side of each NIC, with the lower bound as a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reshard_lab.planning.gantt import Gantt
from reshard_lab.plots import svg
from reshard_lab.units import format_seconds

MOST_BARS = 256
"""More bars than this are drawn with neighbours run together."""
_WIDE, _ROW, _GAP, _SIZE = 620.0, 22.0, 6.0, 11
_TOP = 34.0
_MIXED = -1
"""Task of a run of short bars of several tasks."""


class _Span(NamedTuple):
    start: float
    end: float
    task: int


def gantt(chart: Gantt, caption: str | None = None) -> svg.Figure:
    """``chart`` (see ``Plan.gantt``) as a figure; its table is ``chart.to_frame()``."""
    words = caption or (
        f"Predicted {format_seconds(chart.makespan_s)}; lower bound "
        f"{format_seconds(chart.lower_bound_s)} (dashed). A bar is a unit task on a NIC, numbered; "
        "the share of the time in which the NIC lies idle stands at the right."
    )
    return svg.figure(gantt_svg(chart), words, _alt(chart))


def gantt_svg(chart: Gantt) -> str:
    """SVG of ``chart``: time to the right, senders above receivers."""
    rows = _rows(chart)
    names = [_name(chart, nic, side) for nic, side in rows]
    left = 12 + svg.widest(names, _SIZE) + 8
    longest = max(chart.makespan_s, chart.lower_bound_s) or 1.0
    scale = _WIDE / longest
    drawn = _joined(list(rows.values()), longest)
    idle = {(i.nic, i.side): i.share for i in chart.idle}
    parts: list[str] = []
    y = _TOP
    for key, name, spans in zip(rows, names, drawn, strict=True):
        parts.append(svg.label(left - 8, y + 0.7 * _ROW, name, _SIZE, "end"))
        parts += _bars(spans, left, y, scale)
        share = f"{idle[key]:.0%} idle"
        parts.append(svg.label(left + _WIDE + 10, y + 0.7 * _ROW, share, _SIZE))
        y += _ROW + _GAP
    if not rows:
        parts.append(svg.label(left, y + 14, "nothing crosses the network", _SIZE))
        y += _ROW
    parts += _axis(chart, left, y, scale)
    notes = []
    if sum(map(len, drawn)) < sum(map(len, rows.values())):
        notes.append("neighbouring short bars are run together; grey: of several unit tasks")
    if any(bar.sender_nic is None for bar in chart.bars):
        notes.append("what happens inside hosts uses no NIC and is not drawn")
    for words in notes:
        parts.append(svg.label(left, y + 54, words, _SIZE, font_style="italic"))
        y += 16
    width = left + _WIDE + 10 + svg.text_width("100% idle", _SIZE) + 12
    return svg.document(width, y + 44, parts, _alt(chart))


def _rows(chart: Gantt) -> dict[tuple[int, str], list[_Span]]:
    """The bars of every side of a NIC: those that send by NIC, then those that receive."""
    found: dict[tuple[int, str], list[_Span]] = {}
    for bar in chart.bars:
        if bar.sender_nic is not None:
            span = _Span(bar.start_s, bar.end_s, bar.task)
            for key in [(bar.sender_nic, "tx"), *((nic, "rx") for nic in bar.receiver_nics)]:
                found.setdefault(key, []).append(span)
    return {key: found[key] for key in sorted(found, key=lambda k: (k[1] == "rx", k[0]))}


def _name(chart: Gantt, nic: int, side: str) -> str:
    return f"{chart.nic_text(nic)} {'sends' if side == 'tx' else 'receives'}"


def _joined(rows: Sequence[list[_Span]], longest: float) -> list[list[_Span]]:
    """The rows with neighbouring bars run together until there are few enough to draw."""
    least = 0.0
    made = [_join(row, least) for row in rows]
    while sum(map(len, made)) > MOST_BARS and least < longest:
        least = 2 * least or longest / 4096
        made = [_join(row, least) for row in rows]
    return made


def _join(row: list[_Span], least: float) -> list[_Span]:
    """Bars of one task that touch are one; so are neighbours shorter than ``least``."""
    made: list[_Span] = []
    for span in sorted(row):
        if made:
            before = made[-1]
            touches = abs(span.start - before.end) <= least or span.start == before.end
            same = before.task == span.task
            short = max(before.end - before.start, span.end - span.start) < least
            if touches and (same or short):
                task = span.task if same else _MIXED
                made[-1] = _Span(before.start, max(before.end, span.end), task)
                continue
        made.append(span)
    return made


def _bars(spans: Sequence[_Span], left: float, y: float, scale: float) -> list[str]:
    """One row; bars that overlap, as without an order, lie under each other."""
    lanes: list[float] = []
    placed = []
    for span in spans:
        lane = next((i for i, until in enumerate(lanes) if until <= span.start), len(lanes))
        lanes[lane : lane + 1] = [span.end]
        placed.append((span, lane))
    high = _ROW / max(1, len(lanes))
    parts = []
    for span, lane in placed:
        x, wide, top = left + span.start * scale, (span.end - span.start) * scale, y + lane * high
        if span.task == _MIXED:
            parts.append(svg.rect(x, top, wide, high, fill="#dddddd", stroke=svg.INK))
            words = "several"
        else:
            parts.append(svg.cell(x, top, wide, high, span.task))
            words = str(span.task)
        size = min(_SIZE, high - 2)
        if size >= 7 and svg.text_width(words, size) + 4 < wide:
            index = 0 if span.task == _MIXED else span.task
            parts += svg.centred(x + wide / 2, top + high / 2, words, size, index)
    return parts


def _axis(chart: Gantt, left: float, y: float, scale: float) -> list[str]:
    """The time axis below, and the bound and the makespan as lines through all rows."""
    parts = [svg.line(left, y, left + _WIDE, y)]
    bound, end = (left + t * scale for t in (chart.lower_bound_s, chart.makespan_s))
    parts.append(svg.line(bound, _TOP - 8, bound, y + 4, stroke_dasharray="5 3", stroke_width=1.5))
    parts.append(svg.line(end, _TOP - 8, end, y + 4))
    bound_words = f"bound {format_seconds(chart.lower_bound_s)}"
    end_words = f"end {format_seconds(chart.makespan_s)}"
    apart = svg.text_width(bound_words, _SIZE) + svg.text_width(end_words, _SIZE) + 12
    anchors = ("end", "end") if end - bound > apart else ("end", "start")
    parts.append(svg.label(bound - 3, _TOP - 12, bound_words, _SIZE, anchors[0]))
    if chart.makespan_s > chart.lower_bound_s * (1 + 1e-9):
        x = end - 3 if anchors[1] == "end" else end + 3
        parts.append(svg.label(x, _TOP - 12, end_words, _SIZE, anchors[1]))
    for i in range(5):
        x = left + _WIDE * i / 4
        parts.append(svg.line(x, y, x, y + 4))
        words = format_seconds(_WIDE * i / 4 / scale)
        parts.append(svg.label(x, y + 17, words, _SIZE, "middle"))
    parts.append(svg.label(left + _WIDE / 2, y + 34, "time", _SIZE, "middle"))
    return parts


def _alt(chart: Gantt) -> str:
    rows = _rows(chart)
    order = "in the order of the plan" if chart.ordered else "side by side, sharing the NICs"
    text = (
        f"{len(rows)} NIC sides over time carry {len({b.task for b in chart.bars})} unit tasks "
        f"{order}; predicted {format_seconds(chart.makespan_s)}, "
        f"lower bound {format_seconds(chart.lower_bound_s)}"
    )
    shares = [f"{_name(chart, i.nic, i.side)}: {i.share:.0%} idle" for i in chart.idle[:8]]
    return ". ".join([text, *shares]) + ("." if len(chart.idle) <= 8 else ", and so on.")
