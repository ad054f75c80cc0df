"""The Gantt chart: bars where the record says, the bound as a line, few enough to draw."""

import re
import xml.etree.ElementTree as ET

import pytest

import reshard_lab as rl
from reshard_lab import plots
from reshard_lab.plots.nic_rows import MOST_BARS
from reshard_lab.plots.time_axis import round_steps
from support.reference_cases import read, tasks_of
from support.svg_pages import SVG, bars

CASES = {case["name"]: case for case in read("schedules")}


def chart_of(name: str, scheduler: str):
    return rl.plan(tasks_of(CASES[name], nic=1.25e9), scheduler=scheduler).gantt()


def texts(drawn: str) -> list[str]:
    return [element.text for element in ET.fromstring(drawn).iter(f"{SVG}text")]


def test_bars_lie_where_the_record_says():
    """Suite case 3, naive: 4 tasks in 3 slots on 4 sides of NICs."""
    drawn = plots.gantt(chart_of("2x4:RS0R->2x4:S0RR", "naive")).svg
    boxes = bars(drawn)
    left = min(x for x, _, _ in boxes)
    third = {round(width, 1) for _, _, width in boxes}
    assert third == {206.7}  # 620 wide
    slots = [
        [round((x - left) / 206.67) for x, y, _ in boxes if y == row]
        for row in sorted({y for _, y, _ in boxes})
    ]
    assert slots == [[0, 1], [1, 2], [0, 1], [1, 2]]
    words = texts(drawn)
    assert [w for w in words if w.startswith("NIC")] == [
        "NIC of host 0 sends",
        "NIC of host 1 sends",
        "NIC of host 2 receives",
        "NIC of host 3 receives",
    ]
    assert words.count("33% idle") == 4
    assert {"bound 214.7 ms", "end 322.1 ms", "time"} <= set(words)
    assert not any("run together" in w for w in words)
    dashed = [
        line for line in ET.fromstring(drawn).iter(f"{SVG}line") if line.get("stroke-dasharray")
    ]
    assert [round(float(line.get("x1")) - left) for line in dashed] == [round(620 * 2 / 3)]


def test_a_chart_is_the_same_every_time_and_says_what_it_shows():
    chart = chart_of("3x8:RRR->5x8:S0RR", "split")
    figure = plots.gantt(chart)
    assert figure.svg == plots.gantt(chart_of("3x8:RRR->5x8:S0RR", "split")).svg
    assert figure.alt.startswith("8 NIC sides over time carry 5 unit tasks in the order")
    assert "lower bound" in figure.alt and "idle" in figure.alt
    assert "dashed" in figure.caption
    assert plots.gantt(chart, "mine").caption == "mine"


def test_tasks_without_an_order_share_a_row():
    chart = chart_of("3x8:RRR->5x8:S0RR", "concurrent")
    rows: dict[float, list] = {}
    drawn = plots.gantt(chart).svg
    for x, y, width in bars(drawn):
        for other, wide in rows.setdefault(y, []):
            assert x >= other + wide - 0.02 or other >= x + width - 0.02
        rows[y].append((x, width))
    assert "sharing the NICs" in plots.gantt(chart).alt


@pytest.mark.parametrize("name", ["5x8:RS1S0->7x8:S10RR", "2x8:S1S0R->3x8(2, 12):S1RR"])
def test_large_plans_are_drawn_with_few_bars(name):
    scheduler = "split" if "12" in name else "exact"
    chart = chart_of(name, scheduler)
    assert len(chart.deliveries) > 2 * MOST_BARS
    drawn = plots.gantt(chart).svg
    assert len(bars(drawn)) <= 2 * MOST_BARS  # a hatch is a rectangle of its own
    assert any("run together" in words for words in texts(drawn))
    assert re.search(r'fill="#dddddd"', drawn)


def test_nothing_over_the_network():
    cluster = rl.Cluster(hosts=1, devices_per_host=2)
    layouts = rl.Layout(cluster.mesh(2), "S0"), rl.Layout(cluster.mesh(2), "R")
    chart = rl.plan(rl.ReshardingTask((4,), "int8", *layouts, cluster)).gantt()
    assert "nothing crosses the network" in texts(plots.gantt(chart).svg)
    assert "what happens inside hosts uses no NIC and is not drawn" in texts(plots.gantt(chart).svg)


@pytest.mark.parametrize("longest", [5e-324, 1e-320, 1e-301])
def test_axes_of_almost_no_length_have_one_tick(longest):
    assert round_steps(longest) == [0.0]
    assert round_steps(3e-300, 3) == [0.0, 1e-300, 2e-300, 3e-300]
