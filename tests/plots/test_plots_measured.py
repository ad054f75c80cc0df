"""Measured bars as SVG: heights, whiskers and marks against the table; where it was measured."""

import math
import re
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import plots
from reshard_lab.plots import svg
from reshard_lab.plots.bar_chart import METHODS, ChartBar, ChartLabels, bar_chart_svg, method_fill
from reshard_lab.plots.measured import table_rows
from support.measured import measured_table
from support.paths import RESULTS
from support.svg_pages import assert_readable
from support.svg_pages import read as page_of

SVG = "{http://www.w3.org/2000/svg}"
HIGH = 240


def bars(drawn: str) -> list[tuple[float, float, float]]:
    """(x, bottom, height) of the outlined bars, legend left out."""
    boxes = [
        [float(r.get(key)) for key in ("x", "y", "height")]
        for r in ET.fromstring(drawn).findall(f"{SVG}rect")
        if r.get("stroke")
    ]
    return [(x, y + high, high) for x, y, high in boxes]


def paths(drawn: str) -> list[list[float]]:
    """Numbers of the marks on the bars: whisker, diamond and cross of each."""
    marks = [p.get("d") for p in ET.fromstring(drawn).findall(f"{SVG}path")]
    return [[float(n) for n in re.findall(r"-?[0-9.]+", d)] for d in marks]


@pytest.mark.parametrize("what", ["time", "bandwidth"])
def test_bars_whiskers_and_marks_stand_where_the_table_says(what):
    frame = measured_table()
    unit = "s" if what == "time" else "Gbps"
    drawn = plots.draw_measured(frame, what).svg
    boxes = bars(drawn)
    (bottom,) = {y for _, y, _ in boxes}
    most = max(frame[f"{n}_{unit}"].max() for n in ("measured", "predicted", "simulated"))
    if what == "time":
        most = 5.0  # the slowest run
    else:
        most = max(most, frame.high_Gbps.max(), frame.bound_Gbps.max())
    scale = HIGH / most
    value = frame[f"measured_{unit}"]
    assert [high for _, _, high in boxes] == pytest.approx(list(value * scale), abs=0.02)
    centres = {t.text: float(t.get("x")) for t in ET.fromstring(drawn).iter(f"{SVG}text")}
    for group, (one, two) in zip("12", zip(boxes[::2], boxes[1::2], strict=True), strict=True):
        assert (one[0] + two[0]) / 2 + 17 == pytest.approx(centres[group])  # 34 wide
        assert two[0] - one[0] == 34
    low, high = ("fastest_s", "slowest_s") if what == "time" else ("low_Gbps", "high_Gbps")
    marks = paths(drawn)
    assert len(marks) == 12
    for i, row in frame.iterrows():
        whisker, diamond, cross = marks[3 * i : 3 * i + 3]
        # "M x low h6 M x low L x high M x high h6"
        assert whisker[1] == pytest.approx(bottom - row[low] * scale, abs=0.02)
        assert whisker[6] == pytest.approx(bottom - row[high] * scale, abs=0.02)
        assert diamond[1] == pytest.approx(bottom - row[f"predicted_{unit}"] * scale, abs=0.02)
        assert cross[1] + cross[3] / 2 == pytest.approx(
            bottom - row[f"simulated_{unit}"] * scale, abs=0.02
        )
    bounds = [
        (bottom - float(line.get("y1"))) / scale
        for line in ET.fromstring(drawn).findall(f"{SVG}line")
        if line.get("stroke-dasharray")
    ]
    name = "lower_bound_s" if what == "time" else "bound_Gbps"
    assert bounds == pytest.approx([frame[name][0], frame[name][2]], abs=0.02)


def test_the_picture_says_where_it_was_measured_and_what_the_signs_are():
    figure = plots.draw_measured(measured_table(), "time", "Figure 9")
    page = assert_readable(figure.svg)
    words = page.words()
    legend = {"send_recv", "broadcast", "predicted", "simulated", "fastest to slowest run", "bound"}
    assert legend <= set(words)
    said = "Measured: gloo, emulated 400 Mbit/s NICs, 2 cores, A processor."
    assert said in " ".join(words) and said in figure.alt
    assert {"Figure 9", "case of table 2", "time", "1", "2", "0 s", "5 s"} <= set(words)
    assert "send_recv: measured 4 s, predicted 3 s" in figure.alt
    assert figure.svg == plots.draw_measured(table_rows(measured_table()), "time", "Figure 9").svg


def test_the_values_stand_in_a_table_beside_the_picture():
    figure = plots.draw_measured(measured_table(), "time")
    head, *rows = figure.rows
    names = ("measured", "fastest run", "slowest run", "predicted", "simulated", "bound")
    assert head == ("case of table 2", "method", *names)
    assert rows[0] == ("1", "send_recv", "4 s", "3.5 s", "5 s", "3 s", "3.25 s", "1 s")
    assert [row[:3] for row in rows[1:]] == [
        ("1", "broadcast", "2 s"),
        ("2", "send_recv", "3 s"),
        ("2", "broadcast", "1 s"),
    ]
    page = figure._repr_html_()
    element = ET.fromstring(page[page.index("<table>") : page.index("</details>")])
    cells = [tuple(cell.text for cell in row) for row in element.iter("tr")]
    assert cells == list(figure.rows)
    rates = plots.draw_measured(measured_table().drop(columns="simulated_Gbps")).rows
    assert rates[0][2:5] == ("measured (Gbit/s)", "fastest run (Gbit/s)", "slowest run (Gbit/s)")
    assert "simulated (Gbit/s)" not in rates[0]
    # 2 Gbit in 4 s; at best in 3.5 s, at worst in 5 s.
    assert rates[1][2:5] == ("0.5", "0.571", "0.4")


def test_of_many_bars_the_ends_of_every_method_are_told():
    table = measured_table()
    many = pd.concat([table.assign(case=table.case + 2 * i) for i in range(5)])
    many.iloc[-1, many.columns.get_loc("measured_s")] = 0.125
    alt = plots.draw_measured(many, "time").alt
    assert (
        "send_recv: measured 3 s (2) to 4 s (1); broadcast: measured 125 ms (10) to 2 s (1)" in alt
    )
    few = plots.draw_measured(many.iloc[:16], "time").alt
    assert few.count("measured") == 16 and "8, broadcast: measured 1 s, predicted 1 s" in few
    alike = plots.draw_measured(many.assign(measured_s=2.0), "time").alt
    assert "send_recv: measured 2 s (1);" in alike


def test_a_label_says_where_it_was_measured():
    labelled = measured_table().drop(columns=["link", "cpu"]).assign(label="Measured: over there.")
    assert "Measured: over there." in page_of(plots.draw_measured(labelled).svg).words()


def test_infinite_bounds_and_missing_simulations_are_left_out():
    frame = measured_table().drop(columns="simulated_Gbps").assign(bound_Gbps=math.inf)
    drawn = plots.draw_measured(frame).svg
    words = page_of(drawn).words()
    assert "simulated" not in words and "bound" not in words
    assert len(paths(drawn)) == 8


def test_bounds_far_above_all_bars_are_left_out():
    """The slowest run took 5 s: a bound of 9.9 s stretches the axis, one of 10 s does not."""
    for far, drawn_to in ((9.9, 9.9), (10.0, 5.0)):
        frame = measured_table().assign(lower_bound_s=[1.0, 1.0, far, far])
        figure = plots.draw_measured(frame, "time")
        boxes = bars(figure.svg)
        assert [high for _, _, high in boxes] == pytest.approx(
            [value * HIGH / drawn_to for value in frame.measured_s], abs=0.02
        )
        lines = [
            float(line.get("y1"))
            for line in ET.fromstring(figure.svg).findall(f"{SVG}line")
            if line.get("stroke-dasharray")
        ]
        (bottom,) = {y for _, y, _ in boxes}
        shown = [b for b in (1.0, far) if b <= drawn_to]
        assert [(bottom - y) * drawn_to / HIGH for y in lines] == pytest.approx(shown, abs=0.02)
        assert figure.rows[-1][-1] == f"{far:g} s"


def test_measurements_are_drawn_as_they_are():
    environment = {"link": "gloo, loopback, 2 cores", "cpu": "A processor"}
    one = rl.Measurement(
        *("broadcast", "auto", ((4,),), 125_000_000, 100, (1.0, 4.0, 2.0), True, 1.5, 1.0),
        environment=environment,
        predicted_here=True,
    )
    figure = plots.draw_measured([one], "bandwidth")
    assert "broadcast, auto: measured 0.5 Gbit/s, predicted 0.667 Gbit/s" in figure.alt
    assert "Measured: gloo, loopback, 2 cores, A processor." in figure.alt
    assert {"119.2 MiB", "broadcast, auto"} <= set(assert_readable(figure.svg).words())


def test_a_prediction_for_another_network_is_not_drawn_beside_a_measurement():
    environment = {"link": "gloo, loopback, 2 cores", "cpu": "A processor"}
    fields = "broadcast", "auto", ((4,),), 125_000_000, 100, (1.0, 4.0, 2.0), True, 1.5, 1.0
    there, here = (rl.Measurement(*fields, environment, known) for known in (False, True))
    alone, beside = (plots.draw_measured([one], "time") for one in (there, here))
    assert "predicted" not in alone.alt and "predicted 1.5 s" in beside.alt
    assert {"predicted", "bound"} <= set(page_of(beside.svg).words())
    assert not {"predicted", "bound"} & set(page_of(alone.svg).words())
    assert alone.caption.startswith("Measured. ")
    assert len(paths(beside.svg)) == len(paths(alone.svg)) + 1  # the diamond on the bar


LABELS = ChartLabels("title", "microbatches", "TFLOP/s", "Simulated, not measured.", "signal")


def test_bars_alone_have_no_whiskers_and_stand_in_their_panels_under_their_bounds():
    rows = [("x", "1", "alpa", 2.0), ("x", "1", "ours", 3.0), ("y", "1", "ours", 9.0)]
    drawn = bar_chart_svg([ChartBar(*row, bound=row[3] + 1) for row in rows], LABELS, "alt")
    page = assert_readable(drawn)
    boxes = bars(drawn)
    assert [high for _, _, high in boxes] == pytest.approx([HIGH * v / 10 for v in (2, 3, 9)])
    assert not paths(drawn)
    lines = [
        (bottom - float(line.get("y1"))) * 10 / HIGH
        for line in ET.fromstring(drawn).findall(f"{SVG}line")
        for bottom in (boxes[0][1],)
        if line.get("stroke-dasharray")
    ]
    assert lines == pytest.approx([4, 10], abs=0.01)  # the highest of a group
    words = {"title", "microbatches", "TFLOP/s", "Simulated, not measured.", "signal", "x", "y"}
    assert words | {"alpa", "ours"} <= set(page.words())
    assert not {"fastest to slowest run", "predicted", "bound"} & set(page.words())


def test_a_long_title_is_not_cut():
    long = LABELS._replace(title="Figure 5 on this machine: " * 8)
    assert_readable(bar_chart_svg([ChartBar("", "1", "alpa", 2.0)], long, "alt"))


def test_a_note_stands_before_where_it_was_measured():
    words = " ".join(page_of(plots.draw_measured(measured_table(), note="Of 10 runs.").svg).words())
    assert "Of 10 runs. Measured: gloo, emulated 400 Mbit/s NICs" in words


FIGURES = [
    ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa", "auto"),
    ("send_recv", "alpa", "broadcast", "auto", "split", "concurrent"),
    ("send_recv", "alpa", "broadcast", "ours", "signal"),
    ("naive", "load_balance", "ensemble", "auto", "split", "concurrent"),
    ("broadcast", "overlap", "eager_1f1b", "ours"),
]


@pytest.mark.parametrize("methods", FIGURES, ids=["5", "6", "7", "8", "9"])
def test_methods_of_a_figure_differ_by_colour_and_by_hatch(methods):
    looks = [method_fill(name, 0) for name in methods]
    assert len(set(map(svg.fill, looks))) == len(set(map(svg.hatch, looks))) == len(methods)


def test_a_method_looks_the_same_wherever_it_stands():
    assert method_fill("alpa", 0) == method_fill("alpa", 5) == METHODS["alpa"]
    same = [name for name, index in METHODS.items() if index == method_fill("broadcast", 0)]
    assert same == ["broadcast", "ensemble"]  # the same plans
    assert len(set(METHODS.values())) == len(METHODS) - 1
    assert len({method_fill("a series of its own", i) for i in range(7)}) == 7


def test_every_method_of_the_measured_figures_has_its_look():
    from reshard_lab.paper import figures, pipelines

    methods = {m.name for m in (*figures.FIGURE5, *figures.FIGURE6, *figures.FIGURE8)}
    methods |= {level.name for level in (*pipelines.FIGURE7, *pipelines.FIGURE9)}
    assert methods <= set(METHODS)


@pytest.mark.parametrize("name", ["figure5", "figure6", "figure8"])
@pytest.mark.parametrize("what", ["time", "bandwidth"])
def test_kept_results_can_be_read(name, what):
    frame = pd.read_csv(RESULTS / f"{name}.csv")
    figure = plots.draw_measured(frame, what)
    assert_readable(figure.svg)
    assert len(bars(figure.svg)) == len(frame)
