"""The plan explorer, and several plans on one time axis."""

import re
from dataclasses import replace

import pytest

import reshard_lab as rl
from reshard_lab import paper, plots, widgets
from reshard_lab.plots.nic_rows import MIXED, TaskSpan, joined
from reshard_lab.units import format_seconds
from reshard_lab.widgets.plans import moments
from support.svg_pages import assert_readable, bars


def notes(explorer: widgets.Explorer) -> list[str]:
    return list(explorer.view.notes)


def charts(*schedulers: str, case: int = 9) -> dict:
    task = paper.suite_task(case)
    return {name: rl.plan(task, scheduler=name).gantt() for name in schedulers}


def test_plans_share_one_time_axis():
    """Case 9: naive takes three slots, exact two, on one scale of three slots in 620 pixels."""
    figure = plots.gantts(charts("naive", "exact"))
    page = assert_readable(figure.svg)
    boxes = bars(figure.svg)
    left = min(x for x, _, _ in boxes)
    assert {round(width) for _, _, width in boxes} == {207}
    ends = {round((x + width - left) / 206.67) for x, y, width in boxes if y > 190}
    assert ends == {1, 2}
    words = page.words()
    assert [w for w in words if w in ("naive", "exact")] == ["naive", "exact"]
    assert words.count("bound 859 ms") == 2
    assert {"end 1.295 s", "end 863.2 ms"} <= set(words)
    assert words.count("time") == 1
    assert "naive, 1.295 s; exact, 863.2 ms" in figure.caption
    assert "naive: 4 NIC sides" in figure.alt and "exact: 4 NIC sides" in figure.alt


@pytest.mark.parametrize("moment_s", [0.0, 0.2, "end of the first", 0.5, 1.0, 1.3])
def test_a_moment_tells_what_is_over_under_way_and_to_come(moment_s):
    """Counted from the plan's own bars, two rows a bar (one sender, one receiving host)."""
    chart = charts("naive")["naive"]
    if moment_s == "end of the first":
        moment_s = chart.deliveries[0].end_s
    page = assert_readable(plots.gantts({"naive": chart}, moment_s).svg)
    to_come = [r for r in page.rects if r.style.get("stroke-dasharray") == "2 2"]
    under_way = [r for r in page.rects if r.style.get("stroke-width") == "3"]
    assert len(to_come) == 2 * sum(b.start_s > moment_s for b in chart.deliveries)
    assert len(under_way) == 2 * sum(b.start_s <= moment_s < b.end_s for b in chart.deliveries)


def test_the_line_of_a_moment_stands_at_its_time():
    chart = charts("naive")["naive"]
    drawn = plots.gantts({"": chart}, chart.makespan_s / 2).svg
    x = float(re.search(r'<line x1="([\d.]+)"[^>]*stroke="#D55E00"', drawn)[1])
    left = min(x for x, _, _ in bars(drawn))
    assert x == pytest.approx(left + 310, abs=0.1)


def test_bars_that_overlap_too_often_are_drawn_as_one():
    row = [TaskSpan(0, 10 - i, i) for i in range(6)]
    assert joined([row], 10) == ([[TaskSpan(0, 10, MIXED)]], True)
    assert joined([sorted(row[:5])], 10) == ([sorted(row[:5])], False)
    assert joined([[TaskSpan(0, 1, 3), TaskSpan(1, 2, 3)]], 10) == ([[TaskSpan(0, 2, 3)]], False)


@pytest.mark.parametrize("case", range(1, 10))
def test_no_comparison_cuts_or_covers_text(case):
    three = charts("naive", "concurrent", "split", case=case)
    for moment_s in (None, 0.3):
        assert_readable(plots.gantts(three, moment_s).svg)


def test_it_starts_with_case_9_complete():
    explorer = widgets.plan_explorer()
    step = explorer.controls["step"]
    assert (step.value, step.max) == (3, 3)
    facts = explorer.facts.value
    assert "<b>broadcast, naive</b>&nbsp;1.295 s (1.507 × the bound), NICs 33% idle" in facts
    assert "<b>broadcast, auto</b>&nbsp;863.2 ms (1.005 × the bound), NICs 0% idle" in facts
    assert notes(explorer) == ["broadcast, naive: has ended.", "broadcast, auto: has ended."]


def test_every_step_gives_a_reason_for_each_wait():
    """Case 9, naive: task 0, then 1 and 2 side by side, then 3 (paper, figure 8)."""
    explorer = widgets.plan_explorer(methods=[("broadcast", "naive")])
    reasons = []
    for step in range(4):
        explorer.controls["step"].value = step
        reasons.append([line.partition("; ")[2] for line in notes(explorer)])
    assert reasons == [
        ["starts at once."],
        ["waits: NIC of host 2 busy with task 0.", "waits: NIC of host 0 busy with task 0."],
        ["waits: NIC of host 1 busy with task 1."],
        [""],
    ]
    explorer.controls["step"].value = 1
    assert notes(explorer)[0].startswith(
        "broadcast, naive: task 1, 512 MiB, NIC of host 1 -> NIC of host 2;"
    )
    assert "moment</b>&nbsp;431.6 ms, step 1 of 3" in explorer.facts.value


def test_moments_are_the_starts_of_all_plans_and_the_end():
    both = charts("naive", "exact")
    times = moments(both)
    assert times == pytest.approx([0, 0.4316, 0.8632, 1.2948], abs=1e-3)
    assert times[-1] == max(c.makespan_s for c in both.values())


def test_starts_that_differ_by_rounding_are_one_moment():
    chart = charts("naive")["naive"]
    late = [bar._replace(start_s=bar.start_s * (1 + 1e-13)) for bar in chart.deliveries]
    assert len(moments({"a": chart, "b": replace(chart, deliveries=tuple(late))})) == 4


def test_a_third_plan_and_another_task():
    explorer = widgets.plan_explorer()
    explorer.controls["strategy3"].value = "send_recv"
    assert "<b>send_recv, auto</b>&nbsp;3.436 s (4 × the bound)" in explorer.facts.value
    explorer.controls["strategy2"].value = "none"
    assert "broadcast, auto" not in explorer.facts.value
    before = explorer.figure
    explorer.set(dst_spec="S0RR", src_spec="S0RR")
    assert explorer.figure != before
    titles = [w for w in assert_readable(explorer.figure.svg).words() if ", " in w]
    assert titles == ["broadcast, naive", "send_recv, auto"]


def test_fewer_chunks_take_longer():
    explorer = widgets.plan_explorer(methods=[("broadcast", "auto")])
    short = rl.plan(paper.suite_task(9)).makespan_s
    explorer.controls["chunks"].value = 2
    long = rl.plan(paper.suite_task(9), chunks=2).makespan_s
    assert long > short
    assert f"broadcast, auto</b>&nbsp;{format_seconds(long)} (" in explorer.facts.value


def test_the_same_method_twice_is_drawn_once():
    explorer = widgets.plan_explorer(methods=[("broadcast", "naive"), ("broadcast", "naive")])
    assert explorer.figure.caption.count("broadcast, naive") == 1


def test_bad_input_shows_the_librarys_words_and_the_last_picture_stays():
    explorer = widgets.plan_explorer()
    picture = explorer.picture.value
    explorer.controls["strategy2"].value = "alpa"
    explorer.controls["scheduler2"].value = "split"
    assert "scheduler &#x27;split&#x27; goes with strategy" in explorer.error.value
    explorer.controls["strategy2"].value = "broadcast"
    explorer.controls["scheduler2"].value = "auto"
    assert "Not drawn" not in explorer.error.value
    explorer.controls["src_spec"].value = "S0S0S0"
    assert "uses mesh axis 0 twice" in explorer.error.value
    assert explorer.picture.value == picture


def test_more_unit_tasks_than_can_follow_a_slider_are_refused():
    explorer = widgets.plan_explorer()
    picture = explorer.picture.value
    explorer.set(src_mesh="8x8", dst_mesh="8x8", src_spec="RS01R", dst_spec="S01RR")
    assert "up to 1024 unit tasks, but here are 4096" in explorer.error.value
    assert explorer.picture.value == picture


def test_plans_are_kept_while_stepping(monkeypatch):
    from reshard_lab.widgets import plans

    explorer = widgets.plan_explorer(chunks=37)
    calls = []
    monkeypatch.setattr(plans, "plan", lambda *a, **k: calls.append(a))
    explorer.controls["step"].value = 1
    explorer.controls["step"].value = 2
    assert not calls


def test_nothing_over_the_network():
    cluster = rl.Cluster(hosts=1, devices_per_host=2)
    layouts = rl.Layout(cluster.mesh(2), "S0"), rl.Layout(cluster.mesh(2), "R")
    explorer = widgets.plan_explorer(rl.ReshardingTask((4,), "int8", *layouts, cluster))
    assert "nothing crosses the network" in explorer.figure.svg
    explorer.controls["dst_spec"].value = "S0"  # not even inside the host
    assert "Not drawn" not in explorer.error.value
    assert "nothing begins now" in explorer.notes.value or "has ended" in explorer.notes.value


def test_the_table_lists_the_deliveries_of_all_plans():
    explorer = widgets.plan_explorer()
    head, *rows = explorer.view.table
    assert head[:3] == ("plan", "start (s)", "end (s)")
    assert [row[0] for row in rows] == ["broadcast, naive"] * 4 + ["broadcast, auto"] * 4
    assert rows[1][-1] == "waits: NIC of host 2 busy with task 0"


def test_all_rows_of_all_plans_are_there_to_export():
    cluster = rl.Cluster(hosts=8, devices_per_host=4)
    layouts = rl.Layout(cluster.mesh((16,)), "S0R"), rl.Layout(cluster.mesh((16,), 4), "RS0")
    task = rl.ReshardingTask((64, 64), "int8", *layouts, cluster)
    methods = [("send_recv", "naive"), ("broadcast", "naive"), ("broadcast", "load_balance")]
    explorer = widgets.plan_explorer(task, methods, 1)
    assert dict(explorer.to_frame()["plan"].value_counts()) == dict.fromkeys(
        map(", ".join, methods), 256
    )
