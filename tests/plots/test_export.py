"""Anything to a file in one call: pictures, tables, timelines."""

import io
import json
import struct
import sys
import xml.etree.ElementTree as ET
import zlib

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper, plots, widgets
from reshard_lab.planning.nics import traffic
from reshard_lab.plots.records import export, png
from support.measured import measurement, training

TASK = paper.suite_task(9)
PLAN = rl.plan(TASK, scheduler="load_balance")
TIMELINE = rl.simulate(PLAN)
PIPELINE = rl.pipeline.simulate(rl.pipeline.schedule("1f1b", stages=2, microbatches=3), 1, 2, 0.5)


def pixels(data: bytes) -> np.ndarray:
    """Rows × columns × channels of a PNG, read by its specification (8 bits, not interlaced)."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            wide, high, depth, colour = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            packed += body
        at += 12 + length
    channels = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(high, 1 + wide * channels)
    rows = np.zeros((high, wide * channels), np.int64)
    for y in range(high):
        rows[y] = unfiltered(raw[y, 0], raw[y, 1:].tolist(), rows[y - 1] if y else None, channels)
    return rows.reshape(high, wide, channels)


def unfiltered(kind: int, line: list[int], above: np.ndarray | None, channels: int) -> list[int]:
    up = [0] * len(line) if above is None else above.tolist()
    out: list[int] = []
    for i, value in enumerate(line):
        left = out[i - channels] if i >= channels else 0
        corner = up[i - channels] if i >= channels else 0
        guess = left + up[i] - corner
        near = min((left, up[i], corner), key=lambda c: abs(guess - c))
        add = (0, left, up[i], (left + up[i]) // 2, near)[kind]
        out.append((value + add) % 256)
    return out


def test_a_picture_as_svg_is_the_figure_itself(tmp_path):
    figure = plots.draw_layouts(TASK)
    path = export(figure, tmp_path / "a.svg")
    assert path.read_text(encoding="utf-8") == figure.svg


@pytest.mark.parametrize(
    "thing",
    [
        *(TASK.src.mesh, TASK.src, TASK, PLAN, PLAN.gantt(), TIMELINE, PIPELINE),
        *(measurement(), training()),
    ],
)
def test_the_picture_of_any_record(tmp_path, thing):
    path = export(thing, str(tmp_path / "a.svg"))
    assert path.read_text(encoding="utf-8") == plots.draw_record(thing).svg
    ET.fromstring(path.read_text(encoding="utf-8"))


def test_a_png_has_the_colours_of_the_picture_at_twice_its_size(tmp_path):
    from reshard_lab.plots import svg

    cells = [svg.cell(0, 0, 10, 10, 0), svg.cell(10, 0, 10, 10, 4)]
    figure = plots.Figure(svg.document(20, 10, cells, "alt"), "two cells", "alt")
    image = pixels(export(figure, tmp_path / "a.png").read_bytes())
    assert image.shape[:2] == (20, 40)
    assert image[10, 10, :3].tolist() == [0xE6, 0x9F, 0x00]
    assert image[10, 30, :3].tolist() == [0x00, 0x72, 0xB2]


def test_text_and_hatches_are_in_the_png():
    """Also on a machine that has no fonts of its own."""
    from reshard_lab.plots import svg

    def dark(parts: list[str]) -> int:
        figure = plots.Figure(svg.document(60, 20, parts, "alt"), "a", "alt")
        return int((pixels(png(figure, 1))[..., :3].sum(axis=-1) < 600).sum())

    assert dark([]) == 0
    assert dark([svg.label(2, 15, "Words", 14)]) > 40
    assert dark([svg.rect(0, 0, 60, 20, fill=svg.hatch(7))]) > 40


def test_the_same_picture_gives_the_same_png():
    figure = plots.draw_record(PLAN)
    assert png(figure) == png(figure)


def test_charts_of_matplotlib(tmp_path):
    figure = matplotlib.figure.Figure()
    figure.subplots().plot([1, 2])
    first = export(figure, tmp_path / "a.svg").read_bytes()
    assert first == export(figure, tmp_path / "b.svg").read_bytes()
    ET.fromstring(first)
    assert pixels(export(figure, tmp_path / "a.png").read_bytes()).shape[:2] == (768, 1024)


def test_an_explorer_is_exported_as_it_stands(tmp_path):
    explorer = widgets.layout_explorer()
    explorer.controls["unit"].value = 2
    path = export(explorer, tmp_path / "a.svg")
    assert path.read_text(encoding="utf-8") == plots.draw_layouts(paper.figure2(1), None, 2).svg
    table = pd.read_csv(export(explorer, tmp_path / "a.csv"))
    assert table["box"].tolist() == ["[0:1, 0:4]", "[1:2, 0:4]", "[2:3, 0:4]", "[3:4, 0:4]"]


@pytest.mark.parametrize("thing", [PLAN.gantt(), TIMELINE, PIPELINE])
def test_the_table_of_a_record(tmp_path, thing):
    table = pd.read_csv(export(thing, tmp_path / "a.csv"), keep_default_na=False)
    frame = thing.to_frame()
    assert list(table.columns) == list(frame.columns)
    assert table["start_s"].tolist() == pytest.approx(frame["start_s"].tolist(), rel=1e-12)


def test_tables_keep_an_index_that_has_a_name(tmp_path):
    frame = pd.DataFrame({"a": [1, 2]})
    assert export(frame, tmp_path / "a.csv").read_text() == "a\n1\n2\n"
    named = frame.set_index(pd.Index([7, 8], name="case"))
    assert export(named, tmp_path / "b.csv").read_text() == "case,a\n7,1\n8,2\n"


def test_a_measurement_as_table_and_as_json(tmp_path):
    row = pd.read_csv(export(measurement(), tmp_path / "a.csv")).iloc[0]
    assert (row["median_s"], row["link"]) == (0.51, "gloo, loopback, 2 cores")
    data = json.loads(export(measurement(), tmp_path / "a.json").read_text())
    assert data["times_s"] == [0.5, 0.51, 0.6]


@pytest.mark.parametrize("thing", [TIMELINE, PIPELINE])
def test_a_timeline_as_a_trace(tmp_path, thing):
    path = export(thing, tmp_path / "a.json")
    assert path.read_text(encoding="utf-8") == thing.to_chrome_trace()
    events = json.loads(path.read_text())["traceEvents"]
    ends = [e["ts"] + e["dur"] for e in events if e["ph"] == "X"]
    total = thing.duration_s if thing is TIMELINE else thing.makespan_s
    assert max(ends) == pytest.approx(1e6 * total, rel=1e-6)


def test_the_trace_of_a_training_run_is_what_was_measured(tmp_path):
    run = training()
    assert export(run, tmp_path / "a.json").read_text() == run.timeline.to_chrome_trace()


def test_a_plan_as_json_can_be_read_again(tmp_path):
    again = rl.Plan.from_json(export(PLAN, tmp_path / "a.json"))
    assert again.transfers == PLAN.transfers


def test_axes_of_matplotlib_are_written_as_their_chart(tmp_path):
    axes = matplotlib.figure.Figure().subplots()
    assert export(axes, tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_endings_may_be_in_capitals(tmp_path):
    assert export(TASK, tmp_path / "a.PNG").read_bytes()[:4] == b"\x89PNG"
    figure = matplotlib.figure.Figure()
    assert export(figure, tmp_path / "b.SVG").read_bytes().lstrip()[:5] == b"<?xml"


def test_a_png_names_the_extra_that_draws_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(rl.ReshardError, match=r"resvg_py.*pip install 'reshard-lab\[notebooks\]'"):
        export(TASK, tmp_path / "a.png")


def test_what_the_png_reader_of_these_tests_reads_is_right():
    image = pytest.importorskip("PIL.Image")
    data = png(plots.draw_record(TASK.src.mesh), 1)
    assert np.array_equal(pixels(data), np.asarray(image.open(io.BytesIO(data))))


def test_traffic_is_exported(tmp_path):
    table = plots.export(traffic(PLAN), tmp_path / "a.csv").read_text()
    assert table.startswith("source,destination,nbytes\n")
    assert "<svg" in plots.export(traffic(PLAN), tmp_path / "a.svg").read_text()
