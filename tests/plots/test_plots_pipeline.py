"""Pipelines over time: bars where the events are, nothing cut, few elements, memory in steps."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshard_lab import pipeline, plots
from reshard_lab.pipelining.timeline import Event
from reshard_lab.plots import svg
from reshard_lab.plots.activation_memory import draw_memory
from reshard_lab.plots.pipeline import LOOKS, MOST_NUMBERS, draw_pipeline
from support.svg_pages import assert_readable

SVG = "{http://www.w3.org/2000/svg}"


def timeline(name="1f1b", stages=3, microbatches=4, transfer_s=0.5, **how):
    lists = pipeline.schedule(name, stages, microbatches, delay_weights=how.pop("halves", False))
    return pipeline.simulate(lists, 1, 2, transfer_s, **how)


def bars(drawn: str) -> dict[float, dict[str, list[tuple[float, float]]]]:
    """By y of a row, by colour, the outlined boxes as (x, width)."""
    boxes: dict[float, dict[str, list[tuple[float, float]]]] = {}
    for path in ET.fromstring(drawn).iter(f"{SVG}path"):
        if path.get("stroke") is None or path.get("fill") == "none":
            continue
        for x, y, wide in re.findall(r"M(\S+) (\S+)h(\S+)v", path.get("d")):
            colours = boxes.setdefault(float(y), {})
            colours.setdefault(path.get("fill"), []).append((float(x), float(wide)))
    return boxes


def ends_of_axis(drawn: str) -> tuple[float, float]:
    """x of time 0 and of the end of the axis, the longest level line."""
    lines = [
        (float(line.get("x1")), float(line.get("x2")))
        for line in ET.fromstring(drawn).iter(f"{SVG}line")
        if line.get("y1") == line.get("y2")
    ]
    return max(lines, key=lambda ends: ends[1] - ends[0])


def texts(drawn: str) -> list[str]:
    return [element.text for element in ET.fromstring(drawn).iter(f"{SVG}text")]


@pytest.mark.parametrize("how", [{}, {"overlap": False}, {"halves": True}, {"transfer_s": 0}])
@pytest.mark.parametrize("name", ["1f1b", "zero_bubble", "interleaved_1f1b", "inference"])
def test_bars_lie_where_the_events_are(name, how):
    record = timeline(name, **how)
    drawn = draw_pipeline(record).svg
    left, right = ends_of_axis(drawn)
    scale = (right - left) / record.makespan_s
    boxes = bars(drawn)
    rows = [r for r in record.rows if any(e.row == r for e in record.events)]
    assert len(boxes) == len(rows)
    for y, row in zip(sorted(boxes), rows, strict=True):
        events = [e for e in record.events if e.row == row]
        colours = {svg.fill(LOOKS[e.what]) for e in events}
        assert set(boxes[y]) == colours
        for colour in colours:
            expected = [
                (left + e.start_s * scale, (e.end_s - e.start_s) * scale)
                for e in events
                if svg.fill(LOOKS[e.what]) == colour
            ]
            for box, other in zip(sorted(boxes[y][colour]), sorted(expected), strict=True):
                assert box == pytest.approx(other, abs=0.011)


def test_several_pipelines_share_one_axis():
    both = {"slow": timeline(overlap=False), "quick": timeline("eager_1f1b")}
    figure = draw_pipeline(both)
    left, right = ends_of_axis(figure.svg)
    longest = both["slow"].makespan_s
    outlined = bars(figure.svg)
    ys = sorted(outlined)
    rows = len(both["slow"].rows)
    assert len(ys) == 2 * rows
    ends = [
        max(x + wide for y in part for boxes in outlined[y].values() for x, wide in boxes)
        for part in (ys[:rows], ys[rows:])
    ]
    for end, record in zip(ends, both.values(), strict=True):
        assert end == pytest.approx(left + (right - left) * record.makespan_s / longest, abs=0.02)
    # the makespan of each is a dashed line
    dashed = [
        float(line.get("x1"))
        for line in ET.fromstring(figure.svg).iter(f"{SVG}line")
        if line.get("stroke-dasharray")
    ]
    assert dashed == pytest.approx(ends, abs=0.02)
    for name, record in both.items():
        assert name in texts(figure.svg)
        share = f"bubble {record.bubble_share:.1%}"
        for words in (figure.caption, figure.alt, " ".join(texts(figure.svg))):
            assert share in words
            assert f"exposed communication {record.exposed_communication_share:.1%}" in words
    assert f"{name}: 3 stages and 4 links over time carry 4 microbatches in" in figure.alt


def test_kinds_differ_by_more_than_colour():
    """Every kind of the same row differs by its hatch from the others, and by colour."""
    on_stages = {svg.hatch(LOOKS[k]) for k in ("forward", "input gradient", "weight gradient")}
    assert len(on_stages) == 3
    assert svg.hatch(LOOKS["backward"]) not in {svg.hatch(LOOKS["forward"])}
    assert svg.hatch(LOOKS["activation"]) != svg.hatch(LOOKS["gradient"])
    assert len({svg.fill(look) for look in LOOKS.values()}) == len(LOOKS)
    words = texts(draw_pipeline(timeline(halves=True)).svg)
    assert {"F: forward", "I: input gradient", "W: weight gradient"} <= set(words)
    assert {"activation sent on", "gradient sent back"} <= set(words)
    assert "B: backward" not in words


def test_hatches_lie_over_their_bars():
    """The same boxes once more under the hatch of their kind, and none over plain kinds."""
    drawn = draw_pipeline(timeline(halves=True)).svg
    shapes: dict[str, list[str]] = {}
    for path in ET.fromstring(drawn).iter(f"{SVG}path"):
        shapes.setdefault(path.get("d"), []).append(path.get("fill"))
    for kind in ("forward", "input gradient", "weight gradient", "activation", "gradient"):
        look = LOOKS[kind]
        fills = [f for f in shapes.values() if f[0] == svg.fill(look) and len(f[0]) == 7]
        bars_of_kind = [f for f in fills if f[1:] == [svg.hatch(look)] * bool(svg.hatch(look))]
        assert len(bars_of_kind) >= 2, kind


def test_ops_carry_their_numbers():
    record = timeline(stages=2, microbatches=3)
    words = texts(draw_pipeline(record).svg)
    ops = [e.op for e in record.events if e.row.startswith("stage")]
    assert sorted(w for w in words if re.fullmatch(r"[FB]\d", w)) == sorted(ops)
    numbers = [e.op[1:] for e in record.events if e.row.startswith("link")]
    assert sorted(w for w in words if re.fullmatch(r"\d", w)) == sorted(numbers)
    for stage in (0, 1):
        idle = record.shares[stage]
        assert f"{idle.communication + idle.bubble:.0%} idle" in words


def test_many_ops_are_few_elements():
    """Numbers are left out, of the links first; bars of a kind are one path."""
    record = timeline(stages=8, microbatches=64)
    assert len(record.events) > 4 * MOST_NUMBERS
    drawn = draw_pipeline(record).svg
    assert len(list(ET.fromstring(drawn).iter())) < 256
    assert sum(len(b) for kinds in bars(drawn).values() for b in kinds.values()) == len(
        record.events
    )
    assert not any(re.fullmatch(r"[FB]?\d+", words) for words in texts(drawn))
    some = timeline(stages=8, microbatches=10, transfer_s=2)  # links have room for numbers
    assert len(some.events) > MOST_NUMBERS >= 2 * 8 * 10
    drawn = draw_pipeline(some).svg
    numbers = [words for words in texts(drawn) if re.fullmatch(r"\d+", words)]
    assert 0 < len(numbers) <= 2 * 8 * 10
    links = {y: kinds for y, kinds in bars(drawn).items() if svg.fill(LOOKS["gradient"]) in kinds}
    ys = [float(t.get("y")) for t in ET.fromstring(drawn).iter(f"{SVG}text") if t.text in numbers]
    assert max(ys) < min(links)


def test_events_alone_are_drawn_as_well():
    """As a measured run gives them: no record, so the caption has the idle time alone."""
    record = timeline(stages=2)
    alone = draw_pipeline({"measured": [tuple(e) for e in record.events]})
    assert bars(alone.svg) == bars(draw_pipeline({"measured": record}).svg)
    idle = sum(s.communication + s.bubble for s in record.shares) / 2
    assert f"measured: {record.makespan_s:.4g} s; stages idle {idle:.1%}" in alone.caption
    peaks = ", ".join(map(str, record.peak_live))
    assert draw_memory(record.events).caption.endswith(f"peaks: {peaks}.")


names = st.sampled_from(pipeline.SCHEDULES)


@given(names, st.integers(1, 6), st.integers(1, 20), st.sampled_from([0, 0.1, 3]), st.booleans())
@settings(max_examples=60)
def test_nothing_is_cut_or_covered(name, stages, microbatches, transfer_s, overlap):
    record = timeline(name, stages, microbatches, transfer_s, overlap=overlap)
    eager = timeline("eager_1f1b", stages, microbatches, transfer_s * 1e-3)
    for given_records in (record, {"one of two with a long name": record, "second": eager}):
        assert_readable(draw_pipeline(given_records).svg)
        assert_readable(draw_memory(given_records).svg)


def test_the_same_record_gives_the_same_picture():
    for draw in (draw_pipeline, draw_memory):
        one, other = (draw({"a": timeline(), "b": timeline("gpipe")}) for _ in range(2))
        assert (one.svg, one.caption, one.alt) == (other.svg, other.caption, other.alt)
        assert draw(timeline(), "mine").caption == "mine"


def steps(drawn: str) -> list[list[tuple[float, float]]]:
    """The corners of every step line as (x, y)."""
    staircases = []
    for path in ET.fromstring(drawn).iter(f"{SVG}path"):
        if path.get("fill") != "none":
            continue
        corners = [tuple(map(float, re.match(r"M(\S+) ([^H]+)", path.get("d")).groups()))]
        for x, y in re.findall(r"H(\S+?)V([^H]+)", path.get("d")):
            corners.append((float(x), float(y)))
        staircases.append(corners)
    return staircases


def test_memory_steps_are_the_live_microbatches():
    """1F1B, 2 stages, 2 microbatches, no transfers: 0 1 2 1 0 and 0 1 1 0, counted by hand."""
    record = timeline(stages=2, microbatches=2, transfer_s=0)
    figure = draw_memory(record)
    left, right = ends_of_axis(figure.svg)
    second = (right - left) / record.makespan_s
    first, last = steps(figure.svg)
    # stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7
    at = [round((x - left) / second, 2) for x, _ in first]
    floor = max(y for _, y in first)
    unit = (floor - min(y for _, y in first)) / 2
    assert at == [0, 1, 6, 9]
    assert [round((floor - y) / unit, 2) for _, y in first] == [1, 2, 1, 0]
    floor = max(y for _, y in last)
    assert [round((floor - y) / unit, 2) for _, y in last] == [0, 1, 1, 0]
    assert [round((x - left) / second, 2) for x, _ in last] == [0, 1, 4, 7]
    assert {"stage 0", "stage 1", "peak 2", "peak 1", "live microbatches"} <= set(texts(figure.svg))


def test_memory_in_bytes_where_they_are_known():
    sized = timeline(stages=2, activation_bytes=["1MiB", "3MiB"])
    figure = draw_memory(sized)
    assert "bytes of live activations" in texts(figure.svg)
    assert {"peak 2 MiB", "peak 3 MiB"} <= set(texts(figure.svg))
    assert figure.caption == "Bytes of live activations over time, by stage; peaks: 2 MiB, 3 MiB."
    mixed = draw_memory({"sized": sized, "other": timeline(stages=2)})
    assert "live microbatches" in texts(mixed.svg)
    assert "peak 2, 2" in texts(mixed.svg)
    tops = [min(y for _, y in corners) for corners in steps(figure.svg)]
    floors = [max(y for _, y in corners) for corners in steps(figure.svg)]
    heights = [floor - top for floor, top in zip(floors, tops, strict=True)]
    assert heights[0] / heights[1] == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize("name", pipeline.SCHEDULES)
def test_the_highest_step_is_the_peak(name):
    record = timeline(name, 4, 6)
    peaks = ", ".join(map(str, record.peak_live))
    assert draw_memory(record).caption.endswith(f"peaks: {peaks}.")
    for corners in steps(draw_memory(record).svg):
        assert all(a[0] < b[0] for a, b in pairwise(corners))  # one step a time


def test_a_pipeline_of_no_time_is_drawn():
    record = pipeline.simulate(pipeline.schedule("1f1b", 2, 2), 0, 0)
    assert_readable(draw_pipeline(record).svg)
    assert_readable(draw_memory(record).svg)


def test_plots_offers_both():
    assert plots.draw_pipeline is draw_pipeline
    assert plots.draw_memory is draw_memory


def test_only_stages_that_occur_have_a_panel():
    events = [Event(row, "F0", "forward", "", 0, 0, 0, 1) for row in ("stage 0", "stage 10000000")]
    drawn = draw_memory(events)
    assert drawn.svg.count("stage 10000000<") == 1
    assert "stage 1<" not in drawn.svg
    assert "for each of 2 stages" in drawn.alt


def test_ops_of_no_time_still_have_a_peak():
    record = pipeline.simulate(pipeline.schedule("1f1b", 2, 2), 0, 0, activation_bytes=[10, 20])
    assert record.peak_live == [2, 1]
    assert "peaks: 20 B, 20 B." in draw_memory(record).caption
    assert "peaks: 2, 1." in draw_memory(record.events).caption


def test_back_to_back_ops_do_not_raise_the_peak():
    record = pipeline.simulate(pipeline.schedule("1f1b", 2, 6), 1, 2)
    assert record.peak_live == [2, 1]
    assert "peaks: 2, 1." in draw_memory(record).caption
