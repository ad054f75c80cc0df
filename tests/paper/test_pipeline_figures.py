"""Figures 4, 7 and 9: against handed pipelines, a slow simulator, closed forms and own FLOPs."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

import reshard_lab as rl
from oracles import pipeline_slow as slow
from reshard_lab import paper, pipeline
from reshard_lab.paper.pipelines import (
    FIGURE7,
    FIGURE9,
    MODELS,
    cluster_for,
    figure4,
    figure7,
    figure9,
    model,
    run_level,
)
from reshard_lab.paper.reproduce import simulated
from reshard_lab.paper.throughput import headlines
from support.reference_cases import read


@pytest.fixture(scope="module")
def table7() -> pd.DataFrame:
    return figure7()


@pytest.fixture(scope="module")
def table9() -> pd.DataFrame:
    return figure9()


def row(table: pd.DataFrame, **labels: object) -> dict:
    for key, value in labels.items():
        table = table[table[key] == value]
    (values,) = table.to_dict("records")
    return values


HANDED = [case for case in read("pipelines") if case["schedule"] != "gpipe"]


@pytest.mark.parametrize("case", HANDED, ids=lambda c: f"{c['schedule']}-{c['stages']}")
def test_figure_4_is_the_handed_pipelines(case):
    names = ("forward_s", "backward_s", "forward_transfer_s", "backward_transfer_s")
    times = {name: case[name] for name in names}
    figure = figure4(case["stages"], case["microbatches"], **times)
    name = {"1f1b": "1F1B", "eager_1f1b": "eager-1F1B"}[case["schedule"]]
    rows = figure.frame[figure.frame["schedule"] == name]
    expected = case["expected"]
    assert rows["makespan_s"].to_numpy() == pytest.approx(expected["overlapped_makespan_s"])
    assert rows["peak_live"].tolist() == expected["peak_live_microbatches"]
    assert rows["stage"].tolist() == list(range(case["stages"]))


@pytest.mark.parametrize("transfer_s", [0.5, 1.5])
def test_figure_4_in_the_steady_state(transfer_s):
    """Section 4: t_F + t_B + 2c(1 - 1/S) a microbatch under 1F1B, t_F + t_B under eager-1F1B."""
    ends = [
        figure4(microbatches=m, forward_transfer_s=transfer_s)
        .frame.groupby("schedule")["makespan_s"]
        .first()
        for m in (64, 128)
    ]
    each = (ends[1] - ends[0]) / 64
    assert each["1F1B"] == pytest.approx(3 + 2 * transfer_s * 3 / 4)
    assert each["eager-1F1B"] == pytest.approx(3)


def test_figure_4_says_what_the_earlier_forwards_cost():
    """2(S-s)-1 and S-s microbatches live on stage s (section 4)."""
    figure = figure4(stages=4, microbatches=8)
    peaks = {name: t.peak_live for name, t in figure.timelines.items()}
    assert peaks == {"1F1B": [4, 3, 2, 1], "eager-1F1B": [7, 5, 3, 1]}
    shares = figure.frame[["compute", "communication", "bubble"]].sum(axis=1)
    assert shares.to_numpy() == pytest.approx(1)
    whole, halves = figure4(), figure4(delay_weights=True)
    for name in whole.timelines:
        assert halves.timelines[name].makespan_s < whole.timelines[name].makespan_s


GPT_13 = {"layers": 24, "h": 2048, "s": 1024, "V": 51200, "b": 16, "M": 4, "devices": 4}
GPT_26 = {"layers": 32, "h": 2560, "s": 1024, "V": 51200, "b": 8, "M": 4, "devices": 8}


def by_hand(sizes: dict) -> tuple[list[float], float, float]:
    """Forward seconds by stage, seconds of a transfer, FLOPs of a batch: from the formulas alone.

    A block: 24 b s h^2 + 4 b s^2 h; the output 2 b s h V. Half of the devices hold a stage.
    """
    h, s, b = sizes["h"], sizes["s"], sizes["b"]
    block = 24 * b * s * h**2 + 4 * b * s**2 * h
    half = sizes["layers"] // 2 * block
    flops = [half, half + 2 * b * s * h * sizes["V"]]
    forward = [f / (37.5e12 * sizes["devices"] / 2) for f in flops]
    return forward, b * s * h * 2 / 1.25e9, 4 * sum(flops) * sizes["M"]


@pytest.mark.parametrize(
    ("name", "sizes"), [("GPT-1.3B", GPT_13), ("GPT-2.6B", GPT_26)], ids=["1.3B", "2.6B"]
)
class TestThroughputByHand:
    """FLOPs and times from the formulas of a block, carried out by the slow simulator (in ms)."""

    def lasts(self, sizes):
        """Recomputed, the forward comes again before I; products of two activations have no W."""
        forward, _, _ = by_hand(sizes)
        h, s, b = sizes["h"], sizes["s"], sizes["b"]
        scores = sizes["layers"] // 2 * 4 * b * s**2 * h / (37.5e12 * sizes["devices"] / 2)

        def lasts(kind: str, piece: int) -> int:
            whole, weights = forward[piece], forward[piece] - scores
            return round(
                1000 * {"F": whole, "B": 3 * whole, "I": 3 * whole - weights}.get(kind, weights)
            )

        return lasts

    def test_alpa_blocks(self, table7, name, sizes):
        _, moves, flops = by_hand(sizes)
        tensors = slow.neighbours(2, [round(1000 * moves)], [round(1000 * moves)])
        lists = pipeline.schedule("1f1b", 2, sizes["M"])
        took = slow.blocking(lists, self.lasts(sizes), tensors) / 1000
        alpa = row(table7, model=name, method="alpa")
        assert alpa["makespan_s"] == pytest.approx(took, rel=3e-3)
        expected = flops / took / sizes["devices"] / 1e12
        assert alpa["tflops_per_device"] == pytest.approx(expected, rel=3e-3)
        assert alpa["tflops"] == pytest.approx(expected * sizes["devices"], rel=3e-3)
        assert alpa["transfers_s"] == pytest.approx(2 * moves, rel=0.02)
        assert alpa["crossing_bytes"] == moves * 1.25e9
        assert alpa["compute_s"] == pytest.approx(4 * by_hand(sizes)[0][1])

    def test_send_recv_sends_to_every_device(self, table7, name, sizes):
        """Replicated over two devices of one host: twice through one NIC."""
        _, moves, _ = by_hand(sizes)
        send_recv = row(table7, model=name, method="send_recv")
        assert send_recv["transfers_s"] == pytest.approx(2 * 2 * moves, rel=0.01)

    def test_signal_only_computes(self, table7, name, sizes):
        lists = pipeline.schedule("eager_1f1b", 2, sizes["M"], delay_weights=True)
        done = slow.overlapped(lists, self.lasts(sizes), slow.neighbours(2, [0], [0]))
        took = max(end for _, end in done.values()) / 1000
        signal = row(table7, model=name, method="signal")
        assert signal["makespan_s"] == pytest.approx(took, rel=3e-3)

    def test_ours_overlaps(self, table7, name, sizes):
        """A broadcast costs little more than the bytes, so ours lies between two slow runs."""
        _, moves, _ = by_hand(sizes)
        lists = pipeline.schedule("eager_1f1b", 2, sizes["M"], delay_weights=True)
        took = []
        for factor in (1.0, 1.15):
            ticks = [round(1000 * factor * moves)]
            done = slow.overlapped(lists, self.lasts(sizes), slow.neighbours(2, ticks, ticks))
            took.append(max(end for _, end in done.values()) / 1000)
        ours = row(table7, model=name, method="ours")
        assert took[0] - 0.005 <= ours["makespan_s"] <= took[1] + 0.005


def test_figure_7_has_every_model_and_method(table7):
    assert list(dict.fromkeys(table7["model"])) == list(MODELS)
    assert table7["method"].tolist() == [level.name for level in FIGURE7] * len(MODELS)
    for name, part in table7.groupby("model"):
        by = part.set_index("method")["tflops_per_device"]
        assert by["send_recv"] < by["alpa"] < by["ours"] <= by["signal"], name
        assert by["broadcast"] < by["ours"], name
    assert (table7["tflops_per_device"] < table7["device_tflops"]).all()
    batch = table7["tflops"] * 1e12 * table7["makespan_s"]
    for name in MODELS:  # every method does the same work
        works = batch[table7["model"] == name]
        assert works.to_numpy() == pytest.approx(works.iloc[0])


def test_without_recompute_the_papers_devices_are_too_small(table7):
    """16 GB a device: what figure7 says of itself."""
    kept = figure7(recompute=False)
    ours = kept[kept["method"] == "ours"]["peak_activation_bytes"] / 2**30
    assert (ours.min(), ours.max()) == pytest.approx((15.375, 40.5))
    assert (table7["peak_activation_bytes"] < 3 * 2**30).all()
    # A block keeps its input alone: b s h elements of 2 bytes, 12 of them, 3 microbatches live.
    first = row(table7, model="GPT-1.3B", method="ours")
    assert first["peak_activation_bytes"] == 3 * 12 * 16 * 1024 * 2048 * 2


def test_headlines_beside_the_papers(table7):
    ratios = headlines(table7)
    assert len(ratios) == 2 * len(MODELS)
    for name in MODELS:
        gain = row(ratios, model=name, ratio="ours / alpa")
        ours, alpa = (row(table7, model=name, method=m)["makespan_s"] for m in ("ours", "alpa"))
        assert gain["here"] == pytest.approx(alpa / ours)
        assert gain["paper"] == (1.1 if name.startswith("GPT") else 1.5)
        assert gain["difference"] == pytest.approx(gain["here"] / gain["paper"] - 1)
        assert bool(gain["why"]) == (abs(gain["difference"]) > 0.1)
        share = row(ratios, model=name, ratio="ours / signal")
        assert 0.75 <= share["here"] <= 1
        assert (share["paper"], share["difference"], share["why"]) == (0.75, 0, "")
    by = ratios[ratios["ratio"] == "ours / alpa"].set_index("model")["here"]
    assert by.tolist() == pytest.approx([1.101, 1.112, 1.330, 1.664], abs=1e-3)


def test_what_is_said_of_a_difference_is_computed(table7):
    (why,) = headlines(table7)["why"][lambda w: w.str.contains("4 devices a stage")]
    alpa = row(table7, model="U-Transformer-2B", method="alpa")
    share = alpa["transfers_s"] / alpa["compute_s"]
    assert f"are {share:.0%} of compute here and 50% by the paper's ratio" in why
    assert "for 630.7 MiB each way through one NIC a host" in why
    assert "one ratio for 2 sizes, whose mean here is 1.50" in why
    changed = table7.assign(transfers_s=table7["transfers_s"] / 2)
    assert any(f"are {share / 2:.0%} of compute" in w for w in headlines(changed)["why"])
    # At the speed that it names, and with many microbatches, the ratio is the paper's.
    speed = float(re.search(r"\((\S+) would give the paper's ratio\)", why)[1]) * 1e12
    work = model("U-Transformer-2B", recompute=True, microbatches=128, batch=64 * 128)
    arguments = work.arguments(cluster_for(work), speed)
    took = {
        level.name: pipeline.simulate(
            pipeline.schedule(level.schedule, 2, 128, delay_weights=level.delay_weights),
            **arguments,
            strategy=level.strategy,
            overlap=level.overlap,
        ).makespan_s
        for level in FIGURE7
        if level.name in ("alpa", "ours")
    }
    assert took["alpa"] / took["ours"] == pytest.approx(1.5, rel=0.015)


def test_a_share_of_signal_below_the_papers_is_explained(table7):
    low = table7.copy()
    low.loc[low["method"] == "ours", "tflops_per_device"] *= 0.5
    rows = headlines(low)
    shares = rows[rows["ratio"] == "ours / signal"]
    assert (shares["difference"] < -0.1).all()
    assert shares["why"].str.contains("of the time of all stages is exposed communication").all()


def test_headlines_need_the_methods_they_compare(table7):
    with pytest.raises(rl.ReshardError, match=r"GPT-1.3B compare .* the table has no alpa, signal"):
        headlines(table7[table7["method"] == "ours"])


def test_figure_9_is_step_by_step(table9):
    assert table9["method"].tolist()[:5] == [level.name for level in FIGURE9]
    for labels, part in table9.groupby(["model", "microbatches"]):
        by = part.set_index("method")["makespan_s"]
        assert by["broadcast"] > by["overlap"] >= by["eager_1f1b"] > by["ours"] > by["signal"], (
            labels
        )
    # With few microbatches the last forward follows at once: eager-1F1B is 1F1B.
    two = table9[table9["microbatches"] == 2].set_index(["model", "method"])["makespan_s"]
    for name in MODELS[2:]:
        assert two[name, "overlap"] == two[name, "eager_1f1b"]
    # Every method gains from more microbatches of the same size: fill and drain weigh less.
    for labels, part in table9.groupby(["model", "method"]):
        assert part["tflops_per_device"].is_monotonic_increasing, labels


def test_figures_7_and_9_agree_where_they_overlap(table7, table9):
    for name in MODELS[2:]:
        for method in ("broadcast", "ours", "signal"):
            one = row(table7, model=name, method=method)
            other = row(table9, model=name, method=method, microbatches=32)
            assert one == other


def test_a_microbatch_more_costs_what_the_busiest_stage_does_under_signal(table9):
    for name in MODELS[2:]:
        part = table9[(table9["model"] == name) & (table9["method"] == "signal")]
        by = part.set_index("microbatches")["makespan_s"]
        each = (by[32] - by[16]) / 16
        assert each == pytest.approx(part["compute_s"].iloc[0], rel=2e-3)


def test_models_go_by_their_names_in_any_case():
    assert model("u_transformer-2b") == model("U-Transformer-2B")
    assert run_level(model("gpt-1.3b"), FIGURE7[-1]).lists.microbatches == 4


def test_simulated_figures_as_files(tmp_path):
    tables = simulated(tmp_path)
    assert [t.name for t in tables] == ["figure4", "figure7", "figure7_headlines", "figure9"]
    assert {t.kind for t in tables} == {"simulated"}
    files = [file.name for t in tables for file in t.files]
    kinds = {"figure7": ("csv", "json", "png", "svg"), "figure9": ("csv", "json", "png", "svg")}
    expected = [f"{name}.{kind}" for name, ends in kinds.items() for kind in ends]
    expected += ["figure4.csv", "figure4.json", "figure4.svg", "figure4_memory.svg"]
    expected.append("figure7_headlines.csv")
    assert sorted(files) == sorted(expected) == sorted(p.name for p in tmp_path.iterdir())
    for name in ("figure4", "figure7", "figure7_headlines", "figure9"):
        written = pd.read_csv(tmp_path / f"{name}.csv")
        assert written["label"].str.startswith("Simulated").all()
    stamp = json.loads((tmp_path / "figure7.json").read_text())
    assert stamp["speeds"]["float32"]["source"].startswith("assumed")
    assert "11 (float32) TFLOP/s a device" in stamp["label"]
    (four, seven, _, nine) = (t.headline for t in tables)
    assert four.startswith("eager-1F1B ends after 36 s, 1F1B after 41 s; stage 0 keeps 7 and 4")
    assert seven.startswith("ours / alpa 1.10 to 1.66, ours / signal 0.98 to 0.99")
    assert nine.startswith("at 32 microbatches, over broadcast: overlap 1.30 to 1.33")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(rl.ReshardError, match="cannot write"):
        simulated(tmp_path / "none")


def test_reproduce_prints_a_line_a_figure(tmp_path, table7):
    """What the command prints, here with one measured figure that nobody measured."""
    from types import SimpleNamespace

    from reshard_lab.cli.measure import _reproduction_text
    from reshard_lab.paper.files import FigureTable
    from reshard_lab.paper.reproduce import Reproduction

    frame = headlines(table7)
    tables = (
        FigureTable(
            "figure6", "", table7, "2.00 times as fast", "measured", (tmp_path / "figure6.csv",)
        ),
        FigureTable(
            "figure7_headlines", "", frame, "said below", "simulated", (tmp_path / "a.csv",)
        ),
    )
    names = ("link", "cpu", "system", "python", "torch", "reshard_lab", "commit")
    environment = {**dict.fromkeys(names, "?"), "cpu_share": 0.5}
    place = SimpleNamespace(predicted="a NIC", caution="")
    lines = _reproduction_text(Reproduction(place, environment, "label", tables)).splitlines()
    assert lines[:2] == [
        "figure6            measured   2.00 times as fast",
        "figure7_headlines  simulated  said below",
    ]
    shown = [line.split() for line in lines if line.startswith(MODELS)]
    assert ["GPT-1.3B", "ours", "/", "alpa", "1.10", "1.1"] in shown
    assert ["GPT-1.3B", "ours", "/", "signal", "0.98", "at", "least", "0.75"] in shown
    assert sum(line.startswith("U-Transformer-2B: Transfers, of which") for line in lines) == 1
    assert lines[-1] == f"written to   {tmp_path}/: a.csv, figure6.csv"
    assert len(lines) < 25


def test_figures_7_and_9_as_pictures():
    rows = paper.figure7(["GPT-1.3B"])
    picture = paper.draw_figure7(rows)
    assert picture.svg == paper.draw_figure7(rows).svg
    assert picture.svg.startswith("<svg")
    ours = rows.set_index("method")["tflops_per_device"]["ours"]
    assert f"GPT-1.3B, ours: {ours:.1f}" in picture.alt
    assert picture.rows[0] == ("model", "method", "throughput (TFLOP/s a device)")
    assert ("GPT-1.3B", "ours", f"{ours:.1f}") in picture.rows
    assert "Simulated, not measured" in picture.caption
    assert "37.5 (float16) and 11 (float32) TFLOP/s a device, assumed" in picture.caption
    assert picture.caption.endswith("forwards recomputed and counted.")
    kept = paper.draw_figure7(paper.figure7(["GPT-1.3B"], recompute=False))
    assert kept.caption.endswith("activations kept.")
    steps = paper.figure9(["GPT-1.3B"], microbatches=[2, 4])
    drawn = paper.draw_figure9(steps)
    assert "GPT-1.3B, 4, overlap: " in drawn.alt
    assert drawn.rows[0][:3] == ("model", "microbatches", "method")
    assert "overlap: 1F1B; eager_1f1b: eager-1F1B;" in drawn.caption


def test_one_model_or_number_stands_for_a_list_of_one():
    assert list(figure7("GPT-1.3B")["model"].unique()) == ["GPT-1.3B"]
    assert list(figure9("U-Transformer-1B", 4)["microbatches"].unique()) == [4]
