"""The explorers of strategies, traffic, measurements and pipelines: controls against numbers."""

import re

import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper, pipeline, widgets
from reshard_lab.strategies import closed_form_s
from reshard_lab.units import format_seconds, parse_seconds
from reshard_lab.widgets.simulations import STEPS
from support.paths import RESULTS
from support.svg_pages import assert_readable


def words(explorer: widgets.Explorer) -> list[str]:
    """Texts inside the picture."""
    return re.findall(r"<text[^>]*>([^<]*)", explorer.picture.value)


def keeps_its_picture(explorer: widgets.Explorer, message: str, **bad: object) -> None:
    """Bad values say why in place, and the picture before them stays until they are mended."""
    before, good = explorer.picture.value, {name: explorer.controls[name].value for name in bad}
    explorer.set(**bad)
    assert message in explorer.error.value
    assert explorer.picture.value == before
    explorer.set(**good)
    assert "Not drawn" not in explorer.error.value
    assert explorer.picture.value == before


EXPLORERS = {
    "strategy": widgets.strategy_explorer,
    "traffic": widgets.traffic_explorer,
    "pipeline": widgets.pipeline_explorer,
    "measurement": lambda: widgets.measurement_explorer(results()),
}


def results() -> dict[str, pd.DataFrame]:
    return {f"Figure {n}, measured": pd.read_csv(RESULTS / f"figure{n}.csv") for n in (5, 6, 8)}


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_explorer_is_labelled_readable_and_the_same_every_time(name):
    explorer = EXPLORERS[name]()
    assert all(control.description for control in explorer.controls.values())
    assert_readable(explorer.figure.svg)
    assert repr(explorer) == repr(EXPLORERS[name]())
    assert explorer.figure.svg == EXPLORERS[name]().figure.svg
    explorer.show_table.value = True
    head, *rows = explorer.view.table
    assert rows and {len(row) for row in rows} == {len(head)}
    assert explorer.table.value.count("<tr>") == 1 + len(rows)


@pytest.mark.parametrize(
    "strategy", ["send_recv", "local_allgather", "global_allgather", "broadcast"]
)
def test_strategy_explorer_shows_closed_form_and_simulation(strategy):
    explorer = widgets.strategy_explorer(nic_latency_us=40)
    explorer.set(strategy=strategy, hosts=3, devices=2, chunks=10, size="32MiB")
    cluster = rl.Cluster(4, 2, nic="10Gbps", nic_latency="40us")
    src = rl.Layout(rl.Mesh([0]), "R")
    dst = rl.Layout(cluster.mesh((3, 2), first_host=1), "R")
    task = rl.ReshardingTask((2**25,), "uint8", src, dst, cluster)
    simulated = rl.simulate(rl.plan(task, strategy, chunks=10)).duration_s
    exact = closed_form_s(strategy, 2**25, 3, 2, cluster, 10)
    assert f"<b>simulated</b>&nbsp;{format_seconds(simulated)} " in explorer.facts.value
    assert f"<b>closed form</b>&nbsp;{format_seconds(exact)} " in explorer.facts.value
    assert f"end {format_seconds(simulated)}" in words(explorer)
    (row,) = (r for r in explorer.view.table if r[0] == words_of(strategy))
    assert row[3:5] == (format_seconds(exact), format_seconds(simulated))


def words_of(strategy: str) -> str:
    return widgets.simulations.NAMES[strategy]


def test_strategy_explorer_compares_every_strategy_with_the_paper():
    """t = 100 ms, A = 2, B = 3, K = 10; without latency the paper's send/recv is exact."""
    explorer = widgets.strategy_explorer(
        "send_recv", 2, 3, chunks=10, size="125MB", nic="10Gbps", nic_latency_us=0
    )
    rows = {row[0]: row[1:] for row in explorer.view.table[1:]}
    assert [(name, *row[:2]) for name, row in rows.items()] == [
        ("send/recv", "A·B·t", "600 ms"),
        ("send/recv + local all-gather", "A·t", "200 ms"),
        ("send/recv + global all-gather", "2t", "200 ms"),
        ("broadcast", "t + A·t/K", "120 ms"),
    ]
    assert "here A = 2, B = 3." in explorer.notes.value
    assert "<b>one copy through a NIC (t)</b>&nbsp;100 ms " in explorer.facts.value
    cluster = rl.Cluster(3, 3, nic="10Gbps", nic_latency=0)
    for name in ("send_recv", "broadcast"):
        explorer.set(strategy=name, nic_latency_us=0)
        exact = closed_form_s(name, 125_000_000, 2, 3, cluster, 10)
        assert f"<b>simulated / t</b>&nbsp;{exact / 0.1:.3f}" in explorer.facts.value

    # 5 bytes at a byte a second: chunks and parts are of whole bytes, closed forms are not.
    explorer.set(size="5B", nic="8bit/s", chunks=4, devices=2)
    apart = {}
    for name, *_, exact_text, found_text, shown in explorer.view.table[1:]:
        exact, simulated = (
            parse_seconds(text.replace(" ", "")) for text in (exact_text, found_text)
        )
        apart[name] = simulated / exact - 1
        assert float(shown[:-1]) / 100 == pytest.approx(apart[name], abs=2e-3)
    assert apart["send/recv"] == 0 and apart["broadcast"] > 0.1


def test_strategy_explorer_cuts_no_byte():
    """4 bytes are at most 4 chunks: t = 3.2 ns, and A·t/K half of that."""
    explorer = widgets.strategy_explorer(size="4B", chunks=8)
    assert "K = 4 chunks of 1 B." in explorer.notes.value
    assert explorer.view.table[4][2] == "4.8 ns"
    assert explorer.view.table == widgets.strategy_explorer(size="4B", chunks=4).view.table


def test_strategy_explorer_plays_the_moment():
    explorer = widgets.strategy_explorer(hosts=2, devices=1, chunks=4, nic_latency_us=0)
    shares = {}
    for step in range(0, STEPS + 1, 6):
        explorer.controls["moment"].value = step
        shares[step] = [int(w[:-1]) for w in words(explorer) if w.endswith("%")][:2]
    # K = 4, A = 2: 5 periods; the first host has all after 4, the second starts after 1.
    assert shares[0] == [0, 0] and shares[STEPS] == [100, 100]
    assert shares[12] == [25, 0] and shares[24] == [50, 25] and shares[36] == [75, 50]
    assert (explorer.player.min, explorer.player.max) == (0, STEPS)
    explorer.controls["moment"].value = 36
    duration_s = 5 * 2**24 / 1.25e9
    assert f"now {format_seconds(duration_s * 36 / STEPS)}" in words(explorer)


def test_strategy_explorer_follows_its_sliders():
    explorer = widgets.strategy_explorer()
    assert len([w for w in words(explorer) if w.endswith("takes in")]) == 4
    explorer.controls["devices"].value = 3
    assert len([w for w in words(explorer) if w.endswith("takes in")]) == 6
    explorer.controls["hosts"].value = 4
    assert len([w for w in words(explorer) if w.endswith("takes in")]) == 12
    before = explorer.facts.value
    explorer.controls["nic_latency_us"].value = 2000
    assert explorer.facts.value != before
    explorer.controls["chunks"].value = 100
    assert any("They are many" in w for w in words(explorer))
    keeps_its_picture(explorer, "size &#x27;64MB/s&#x27; is not a number of bytes", size="64MB/s")
    keeps_its_picture(explorer, "rate of a NIC &#x27;fast&#x27; is not a rate", nic="fast")
    keeps_its_picture(explorer, "0B at 10Gbps cannot be played; size is from 1B", size="0B")


def test_traffic_explorer_compares_strategies_of_a_task():
    tasks = {f"task {n}": paper.figure2(n) for n in (1, 2)}
    explorer = widgets.traffic_explorer(tasks, scheduler="naive")
    assert "<b>send_recv</b>&nbsp;128 B over the network" in explorer.facts.value
    assert "<b>broadcast</b>&nbsp;64 B over the network" in explorer.facts.value
    assert explorer.view.table[1] == ("send_recv", "host 0", "host 2", 64, "64 B")
    explorer.controls["task"].value = "task 2"
    assert explorer.view.table[1] == ("send_recv", "host 2", "host 0", 64, "64 B")
    explorer.controls["other"].value = "nothing"
    assert "broadcast" not in explorer.facts.value and "broadcast" not in words(explorer)
    keeps_its_picture(explorer, "Not drawn: ", scheduler="split")
    labels = dict(explorer.controls["scheduler"].options)
    only = {label.removesuffix(" (broadcast only)") for label in labels if "only" in label}
    for name in labels.values():
        explorer.set(scheduler=name, strategy="send_recv")
        assert ("goes with strategy" in explorer.error.value) == (name in only)


def test_traffic_explorer_shows_bytes_and_times_of_its_plans():
    task = paper.suite_task(3)
    explorer = widgets.traffic_explorer(task, scheduler="naive")
    plans = {name: rl.plan(task, name, "naive") for name in ("send_recv", "broadcast")}
    crossing = {"send_recv": "8 GiB", "broadcast": "2 GiB"}  # to each device, to each host
    assert explorer.view.facts == {
        name: f"{crossing[name]} over the network, predicted {format_seconds(one.makespan_s)}"
        for name, one in plans.items()
    }
    half = 2**29  # every host has a quarter for every other one
    rows = [row for row in explorer.view.table if row[0] == "broadcast" and row[1] != row[2]]
    assert rows == [
        ("broadcast", f"host {a}", f"host {b}", half, "512 MiB") for a in (0, 1) for b in (2, 3)
    ]


def test_traffic_explorer_takes_one_task_or_none():
    explorer = widgets.traffic_explorer(paper.figure2(1))
    assert explorer.controls["task"].options == ("S01R to S0R, 4×4 float32",)
    assert "2 GiB" in " ".join(words(widgets.traffic_explorer()))


def drawn_bars(explorer: widgets.Explorer) -> int:
    """Whiskers in the picture; one more is in the legend."""
    return len(re.findall(r'<path d="M[0-9. ]+h6M', explorer.picture.value)) - 1


def test_measurement_explorer_chooses_figure_case_and_method():
    tables = results()
    explorer = widgets.measurement_explorer(tables)
    five, six = tables["Figure 5, measured"], tables["Figure 6, measured"]
    assert drawn_bars(explorer) == len(five)
    explorer.controls["case"].value = "1–4 hosts × 2 devices: 3×2"
    chosen = five[(five.hosts == 3) & (five.devices == 2)]
    assert drawn_bars(explorer) == len(chosen)
    over = chosen.measured_s / chosen.predicted_s
    assert f"<b>measured / predicted</b>&nbsp;{over.min():.3f} to {over.max():.3f}" in (
        explorer.facts.value
    )
    explorer.controls["figure"].value = "Figure 6, measured"
    assert explorer.controls["case"].value == "all" and "9" in explorer.controls["case"].options
    assert drawn_bars(explorer) == len(six)
    explorer.set(case="4", method="alpa")
    assert drawn_bars(explorer) == 1
    (row,) = explorer.view.table[1:]
    (kept,) = six[(six["case"] == 4) & (six.method == "alpa")].to_dict("records")
    assert row[:2] == ("4", "alpa") and row[4] == format_seconds(kept["measured_s"])
    explorer.controls["what"].value = "time"
    assert "time" in words(explorer) and "effective bandwidth (Gbit/s)" not in words(explorer)
    assert "Measured: gloo, emulated 400 Mbit/s NICs, 2 cores" in " ".join(words(explorer))


def measured_rows() -> list[dict[str, object]]:
    """Two methods in two cases; every ratio is another one."""
    names = "case", "method", "predicted_s", "simulated_s", "measured_s", "fastest_s", "slowest_s"
    times = [
        (1, "send_recv", 2.0, 2.5, 4.0, 3.0, 6.0),
        (1, "broadcast", 1.0, 1.25, 1.5, 1.5, 1.75),
        (2, "send_recv", 4.0, 3.0, 6.0, 5.0, 7.0),
        (2, "broadcast", 3.0, 3.5, 3.6, 3.0, 4.0),
    ]
    rows = [dict(zip(names, row, strict=True)) for row in times]
    for row in rows:
        row |= {"link": "gloo, emulated", "cpu": "A processor"}
        pairs = ("measured", "measured"), ("low", "slowest"), ("high", "fastest")
        row |= {f"{rate}_Gbps": 1 / row[f"{time}_s"] for rate, time in pairs}
        row["predicted_Gbps"] = 1 / row["predicted_s"]
    return rows


def test_measurement_explorer_shows_every_time_and_ratio_of_its_rows():
    rows = measured_rows()
    explorer = widgets.measurement_explorer(rows)
    assert explorer.view.table[1:] == [
        ("1", "send_recv", "2 s", "2.5 s", "4 s", "3 s", "6 s", "2.000"),
        ("1", "broadcast", "1 s", "1.25 s", "1.5 s", "1.5 s", "1.75 s", "1.500"),
        ("2", "send_recv", "4 s", "3 s", "6 s", "5 s", "7 s", "1.500"),
        ("2", "broadcast", "3 s", "3.5 s", "3.6 s", "3 s", "4 s", "1.200"),
    ]
    assert explorer.view.facts == {
        "measured / predicted": "1.200 to 2.000",
        "measured / simulated": "1.029 to 2.000",  # 3.6/3.5, 6/3
        "widest spread of runs": "75% of the median",  # 3 s of 4
    }
    explorer.controls["method"].value = "broadcast"
    assert explorer.view.facts == {
        "measured / predicted": "1.200 to 1.500",
        "measured / simulated": "1.029 to 1.200",
        "widest spread of runs": "28% of the median",  # 1 s of 3.6
    }


def test_measurement_explorer_leaves_out_ratios_to_what_is_not_known():
    rows = measured_rows()
    del rows[1]["simulated_s"], rows[2]["simulated_s"]
    explorer = widgets.measurement_explorer(rows)
    assert list(explorer.view.facts) == ["measured / predicted", "widest spread of runs"]
    assert [row[3] for row in explorer.view.table[1:]] == ["2.5 s", "", "", "3.5 s"]


def test_measurement_explorer_keeps_a_method_that_both_figures_have():
    explorer = widgets.measurement_explorer(results())
    explorer.controls["method"].value = "alpa"
    explorer.controls["figure"].value = "Figure 6, measured"
    assert explorer.controls["method"].value == "alpa" and drawn_bars(explorer) == 9
    explorer.controls["figure"].value = "Figure 8, measured"
    assert explorer.controls["method"].value == "all"


def test_measurement_explorer_refuses_what_it_cannot_draw():
    unplaced = results()["Figure 6, measured"].drop(columns=["label", "link"])
    with pytest.raises(rl.ReshardError, match="does not say where it was measured"):
        widgets.measurement_explorer(unplaced)
    tables = {"good": results()["Figure 6, measured"], "bad": unplaced}
    keeps_its_picture(
        widgets.measurement_explorer(tables), "does not say where it was measured", figure="bad"
    )


def test_pipeline_explorer_shows_two_schedules_on_one_axis():
    explorer = widgets.pipeline_explorer(stages=3, microbatches=6, transfer_ms=0.4)
    for name in ("eager_1f1b", "1f1b"):
        lists = pipeline.schedule(name, 3, 6)
        one = pipeline.simulate(lists, 1e-3, 2e-3, 0.4e-3)
        assert (
            f"<b>{name}</b>&nbsp;{format_seconds(one.makespan_s)}, bubble {one.bubble_share:.1%}"
            in (explorer.facts.value)
        )
        assert f"at most {max(one.peak_live)} live" in explorer.facts.value
    texts = words(explorer)
    assert texts.count("stage 0") == 3  # twice over time, once in memory
    assert texts.count("link 0&gt;1") == 2
    assert "live microbatches" in texts
    explorer.controls["other"].value = "nothing"
    assert "1f1b</b>" in explorer.facts.value and words(explorer).count("stage 0") == 2


def test_pipeline_explorer_shows_the_figures_of_both_schedules():
    """Transfers that block: the figures of each, and the one time over the other."""
    explorer = widgets.pipeline_explorer(
        "gpipe", "1f1b", 3, 6, "1ms", "2ms", transfer_ms=1.0, overlap=False
    )
    figures = {
        name: pipeline.simulate(pipeline.schedule(name, 3, 6), 1e-3, 2e-3, 1e-3, overlap=False)
        for name in ("gpipe", "1f1b")
    }
    ratio = figures["gpipe"].makespan_s / figures["1f1b"].makespan_s
    assert ratio > 1.02  # not to be mistaken for its inverse
    assert explorer.view.facts == {
        **{
            name: f"{format_seconds(one.makespan_s)}, bubble {one.bubble_share:.1%}, exposed "
            f"communication {one.exposed_communication_share:.1%}, at most {live} live"
            for (name, one), live in zip(figures.items(), (6, 3), strict=True)
        },
        "time over that of 1f1b": f"{ratio:.3f}",
    }
    for name, one in figures.items():
        rows = [row[1:] for row in explorer.view.table if row[0] == name]
        assert rows == [
            (e.row, e.op, e.what, format_seconds(e.start_s), format_seconds(e.end_s))
            for e in one.events
        ]


def test_pipeline_explorer_follows_every_control():
    explorer = widgets.pipeline_explorer()
    seen = {explorer.picture.value}
    changes = {
        "name": "zero_bubble",
        "other": "gpipe",
        "stages": 3,
        "microbatches": 5,
        "forward": "1.5ms",
        "backward": "4ms",
        "transfer_ms": 1.2,
        "overlap": False,
        "delay_weights": True,
    }
    assert changes.keys() == explorer.controls.keys()
    for name, value in changes.items():
        explorer.controls[name].value = value
        assert "Not drawn" not in explorer.error.value
        assert explorer.picture.value not in seen
        seen.add(explorer.picture.value)
    lists = pipeline.schedule("gpipe", 3, 5, delay_weights=True)
    one = pipeline.simulate(lists, 1.5e-3, 4e-3, 1.2e-3, overlap=False)
    assert f"<b>gpipe</b>&nbsp;{format_seconds(one.makespan_s)}, " in explorer.facts.value
    keeps_its_picture(explorer, "t_B &#x27;2 parsecs&#x27; is not a time", backward="2 parsecs")


def test_pipeline_explorer_draws_every_schedule():
    explorer = widgets.pipeline_explorer(other="nothing")
    for name in pipeline.SCHEDULES:
        explorer.controls["name"].value = name
        assert "Not drawn" not in explorer.error.value and name in words(explorer)


def test_pipeline_explorer_gives_every_schedule_the_same_work():
    """With free transfers a stage computes M (t_F + t_B), whatever the number of its pieces."""
    explorer = widgets.pipeline_explorer(stages=4, microbatches=8, transfer_ms=0.0)
    shares = {}
    for name in ("1f1b", "interleaved_1f1b"):
        explorer.set(name=name, other="nothing")
        rows = [row for row in explorer.view.table[1:] if row[1] == "stage 0"]
        total = sum(
            parse_seconds(end.replace(" ", "")) - parse_seconds(start.replace(" ", ""))
            for *_, start, end in rows
        )
        assert total == pytest.approx(8 * 3e-3)
        shares[name] = re.search(r"bubble ([0-9.]+)%", explorer.facts.value)[1]
    # (S - 1)/(M + S - 1), and half as many slots with two pieces a stage
    assert shares == {"1f1b": "27.3", "interleaved_1f1b": "15.8"}
    assert "a stage holds 2 pieces" in explorer.notes.value


def test_times_of_zero_are_explored():
    explorer = widgets.pipeline_explorer(forward="0s", backward="0s", transfer_ms=0)
    assert explorer.error.value.count("Not drawn") == 0
