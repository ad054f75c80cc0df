"""``reshard-lab pipeline``: its words, its files, and what it refuses."""

from __future__ import annotations

import csv
import json
import re

import pytest

import reshard_lab as rl
from reshard_lab import pipeline
from reshard_lab.cli import app, main
from reshard_lab.paper.pipelines import figure7
from support.commands import ask
from support.reference_cases import read

TIMES = ["--forward", "1ms", "--backward", "2ms", "--transfer", "0.5ms"]
SMALL = ["pipeline", "--stages", "2", "--microbatches", "2", *TIMES]

# 1F1B, by hand: F0 0-1, F1 1-2 on stage 0; F0 1.5-2.5, B0 2.5-4.5, F1 4.5-5.5, B1 5.5-7.5 on
# stage 1; gradients arrive at 5 and 8; B0 5-7, B1 8-10 on stage 0. Stage 0 is idle 2-5 and 7-8;
# it waits for gradients that are on their way 4.5-5 and 7.5-8; stage 1 for an activation 1-1.5.
SMALL_TEXT = """\
schedule     1f1b; 2 stages, 2 microbatches
makespan     10 ms, simulated
bubble       32.5% of the time of all stages
exposed      7.5%, communication not hidden

stage  compute  exposed  bubble  peak live
0      60.0%    10.0%    30.0%   2
1      60.0%    5.0%     35.0%   1
"""


def test_a_small_pipeline_as_counted_by_hand(capsys):
    assert ask(capsys, *SMALL, "--schedule", "1f1b") == SMALL_TEXT


@pytest.mark.parametrize("case", read("pipelines")[::4], ids=lambda c: c["schedule"])
def test_handed_pipelines(capsys, case):
    def listed(name: str) -> list[str]:
        if not case[name]:
            return []
        option = name.removesuffix("_s").replace("forward_transfer", "transfer").replace("_", "-")
        return [f"--{option}", ",".join(f"{seconds}s" for seconds in case[name])]

    argv = ["pipeline", "--schedule", case["schedule"], "--stages", str(case["stages"])]
    argv += ["--microbatches", str(case["microbatches"])]
    for name in ("forward_s", "backward_s", "forward_transfer_s", "backward_transfer_s"):
        argv += listed(name)
    expected = case["expected"]
    for more, key in ([], "overlapped_makespan_s"), (["--no-overlap"], "blocking_makespan_s"):
        data = json.loads(ask(capsys, *argv, *more, "--json"))
        assert data["makespan_s"] == pytest.approx(expected[key], abs=1e-9)
        peaks = [share["peak_live"] for share in data["shares"]]
        assert peaks == expected["peak_live_microbatches"]
        assert data["overlap"] == (not more)
        assert max(event["end_s"] for event in data["events"]) == data["makespan_s"]


def test_compare_puts_the_papers_schedules_beside_it(capsys, tmp_path):
    file = tmp_path / "all.csv"
    argv = [*SMALL[:1], "--stages", "4", "--microbatches", "8", *TIMES, "--compare"]
    text = ask(capsys, *argv, "--csv", str(file), "--svg", str(tmp_path / "a.svg"))
    names = ["eager_1f1b", "1f1b, no overlap", "1f1b"]
    rows = re.findall(r"^(\S.*?)  +(\S+ ms) +(\d+)% ", text, flags=re.MULTILINE)
    assert [name for name, _, _ in rows] == names
    ends = {}
    with open(file, newline="") as opened:
        for row in csv.DictReader(opened):
            ends[row["pipeline"]] = max(ends.get(row["pipeline"], 0.0), float(row["end_s"]))
    assert list(ends) == names
    for name, schedule in zip(names, ("eager_1f1b", "1f1b", "1f1b"), strict=True):
        lists = pipeline.schedule(schedule, 4, 8)
        how = {"overlap": "no overlap" not in name}
        timeline = pipeline.simulate(lists, "1ms", "2ms", "0.5ms", **how)
        assert ends[name] == timeline.makespan_s
    for name, shown, share in rows:
        assert shown == f"{1000 * ends[name]:.4g} ms"
        assert int(share) == round(100 * ends[name] / ends["eager_1f1b"])
    picture = (tmp_path / "a.svg").read_text()
    assert all(f">{name}</text>" in picture for name in names)
    data = json.loads(ask(capsys, *argv, "--json"))
    assert [c["name"] for c in data["compared"]] == names
    assert [c["makespan_s"] for c in data["compared"]] == pytest.approx(list(ends.values()))
    # Asked for one of them, it stands there once.
    again = json.loads(ask(capsys, *argv, "--schedule", "1f1b", "--json"))
    assert [c["name"] for c in again["compared"]] == ["1f1b", "1f1b, no overlap", "eager_1f1b"]


def test_a_workload_is_figure_7s(capsys):
    rows = figure7(["U-Transformer-2B"]).set_index("method")["makespan_s"]
    argv = ["pipeline", "--workload", "u_transformer-2b", "--recompute", "--json"]
    ours = json.loads(ask(capsys, *argv, "--delay-weights"))
    assert ours["makespan_s"] == rows["ours"]
    alpa = json.loads(
        ask(capsys, *argv, "--schedule", "1f1b", "--strategy", "alpa", "--no-overlap")
    )
    assert alpa["makespan_s"] == rows["alpa"]
    assert alpa["shares"][0]["peak_bytes"] > 0
    text = ask(capsys, *argv[:-1])
    assert "model        U-Transformer-2B: 2.59 billion parameters" in text
    assert "machine      p3.8xlarge, 11 TFLOP/s a device (assumed: 70% of" in text
    assert "peak bytes   of activations on each device" in text


def test_a_workload_in_other_numbers(capsys):
    data = json.loads(ask(capsys, "pipeline", "--workload", "GPT-1.3B", "--stages", "4", "--json"))
    assert (data["stages"], data["microbatches"]) == (4, 4)
    argv = ["pipeline", "--workload", "GPT-2.6B", "--microbatches", "8", "--json"]
    assert json.loads(ask(capsys, *argv))["microbatches"] == 8


def test_files_hold_every_event(capsys, tmp_path):
    table, trace = tmp_path / "t.csv", tmp_path / "t.json"
    text = ask(capsys, *SMALL, "--csv", str(table), "--trace", str(trace))
    assert f"table written to {table}" in text
    assert f"trace written to {trace}; open it at https://ui.perfetto.dev" in text
    lists = pipeline.schedule("eager_1f1b", 2, 2)
    timeline = pipeline.simulate(lists, "1ms", "2ms", "0.5ms")
    assert trace.read_text() == timeline.to_chrome_trace()
    with open(table, newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [(r["row"], r["op"], float(r["start_s"])) for r in rows] == [
        (e.row, e.op, e.start_s) for e in timeline.events
    ]


def test_the_version_is_the_packages(capsys, monkeypatch):
    from importlib.metadata import PackageNotFoundError, version

    def printed() -> str:
        with pytest.raises(SystemExit) as stop:
            main(["--version"])
        assert stop.value.code == 0
        return capsys.readouterr().out

    assert printed() == f"reshard-lab {version('reshard-lab')}\n"

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(app, "version", missing)
    assert printed() == "reshard-lab, not installed\n"


def test_files_that_cannot_be_written_or_read_are_clear_errors(tmp_path):
    lists = pipeline.schedule("1f1b", 2, 2)
    timeline = pipeline.simulate(lists, 1, 2)
    nowhere = tmp_path / "no" / "such"
    with pytest.raises(rl.ReshardError, match=r"cannot write trace .*such.*No such file"):
        timeline.to_chrome_trace(nowhere)
    with pytest.raises(rl.ReshardError, match=r"cannot write schedule .*: Is a directory"):
        pipeline.to_torch_csv(lists, tmp_path)
    with pytest.raises(rl.ReshardError, match=r"cannot read schedule .*such.*No such file"):
        pipeline.from_torch_csv(nowhere)
    cluster = rl.Cluster(hosts=2, devices_per_host=1)
    ends = (rl.Layout(rl.Mesh([d]), "R") for d in (0, 1))
    plan = rl.plan(rl.ReshardingTask((8,), "int8", *ends, cluster))
    with pytest.raises(rl.ReshardError, match=r"cannot write trace .*such.*No such file"):
        rl.simulate(plan).to_chrome_trace(nowhere)
