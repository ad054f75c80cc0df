"""The command line: what it prints, what it refuses, and how it ends."""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import reshard_lab as rl
from reshard_lab.cli import app, main
from reshard_lab.cli.common import Output
from support.commands import ask, refused
from support.paths import ROOT

FIGURE2 = shlex.split("--shape 4,4 --src-mesh 2x2 --src-spec S01R --dst-mesh 2x2 --dst-spec S0R")
COMMAND = [sys.executable, "-m", "reshard_lab"]


def with_options(**changed: str) -> list[str]:
    """Figure 2's options with some values changed (``src_mesh="4"``), or left out (None)."""
    options = dict(zip(FIGURE2[::2], FIGURE2[1::2], strict=True))
    for key, value in changed.items():
        options[f"--{key.replace('_', '-')}"] = value
    return [word for pair in options.items() if pair[1] is not None for word in pair]


# Figure 2 of the paper, task 1, as people would want to read it.
FIGURE2_TEXT = """\
tensor 4x4 float32

source: S01R on 2x2                              destination: S0R on 2x2
          +---------------+---------------+                +---------------+---------------+
  host 0  | 0  [0:1, 0:4] | 1  [1:2, 0:4] |        host 2  | 4  [0:2, 0:4] | 5  [0:2, 0:4] |
          +---------------+---------------+                +---------------+---------------+
  host 1  | 2  [2:3, 0:4] | 3  [3:4, 0:4] |        host 3  | 6  [2:4, 0:4] | 7  [2:4, 0:4] |
          +---------------+---------------+                +---------------+---------------+

4 unit tasks, one an intersection of a source slice and a destination slice
task  box         elements  bytes  from      to
0     [0:1, 0:4]  4         16 B   0     ->  4,5
1     [1:2, 0:4]  4         16 B   1     ->  4,5
2     [2:3, 0:4]  4         16 B   2     ->  6,7
3     [3:4, 0:4]  4         16 B   3     ->  6,7

tensor: 16 elements, 64 B
to devices that do not hold it yet: 128 B
into hosts, each box once a host: 64 B
"""


def test_explain_prints_figure_2(capsys):
    assert ask(capsys, "explain", *FIGURE2) == FIGURE2_TEXT


def test_the_readme_shows_what_explain_prints():
    readme = (ROOT / "README.md").read_text()
    command, _, shown = readme.partition("```console\n$ ")[2].partition("```")[0].partition("\n")
    assert shlex.split(command) == [".venv/bin/reshard-lab", "explain", *FIGURE2]
    assert shown == FIGURE2_TEXT


def test_explain_json_has_the_same_facts(capsys):
    data = json.loads(ask(capsys, "explain", *FIGURE2, "--json"))
    assert [(u["box"], u["nbytes"], u["senders"], u["receivers"]) for u in data["unit_tasks"]] == [
        ([[0, 1], [0, 4]], 16, [0], [4, 5]),
        ([[1, 2], [0, 4]], 16, [1], [4, 5]),
        ([[2, 3], [0, 4]], 16, [2], [6, 7]),
        ([[3, 4], [0, 4]], 16, [3], [6, 7]),
    ]
    assert data["destination"]["boxes"]["7"] == [[2, 4], [0, 4]]


def test_explain_shows_the_other_reading(capsys):
    text = ask(capsys, "explain", *with_options(src_spec="S0R", dst_spec="RS0"), "--whole-slices")
    assert "2 unit tasks, one a source slice, sent whole" in text
    assert text.count("-> ") == 2
    assert text.count("4-7  (of it needed: 16 B)") == 2
    assert "256 B, of which 128 B not needed" in text


def test_explain_marks_what_stays(capsys):
    ids = "[[0,1],[2,3]]"
    options = with_options(src_mesh=ids, src_spec="S0R", dst_mesh=ids, dst_spec="RR")
    text = ask(capsys, "explain", *options)
    assert "0-3  (0,1 already hold it)" in text
    assert "to devices that do not hold it yet: 128 B" in text
    assert "into hosts, each box once a host: 64 B" in text


def test_explain_limits_its_list(capsys):
    options = with_options(shape="64,64", dst_spec="RS01")
    assert ask(capsys, "explain", *options).count("-> ") == 16
    short = ask(capsys, "explain", *options, "--limit", "3")
    assert short.count("-> ") == 3
    assert "... and 13 more" in short
    assert ask(capsys, "explain", *options, "--limit", "0").count("-> ") == 16


@pytest.mark.parametrize(
    ("options", "src", "dst"),
    [
        # a row a host; the destination on the next
        ({"src_mesh": "2x2", "dst_mesh": "2x2"}, [[0, 1], [2, 3]], [[4, 5], [6, 7]]),
        # the longest row sets the host: short rows leave devices unused
        ({"src_mesh": "1x1", "dst_mesh": "2x4"}, [[0]], [[4, 5, 6, 7], [8, 9, 10, 11]]),
        ({"src_mesh": "1x4", "dst_mesh": "2x2"}, [[0, 1, 2, 3]], [[4, 5], [8, 9]]),
        # a row longer than a host goes on on the next
        (
            {"src_mesh": "1x4", "dst_mesh": "1x4", "devices_per_host": "2"},
            [[0, 1, 2, 3]],
            [[4, 5, 6, 7]],
        ),
        (
            {"src_mesh": "2x2", "dst_mesh": "2x2", "first_host": "1"},
            [[0, 1], [2, 3]],
            [[2, 3], [4, 5]],
        ),
        # explicit ids as given; the next host after the highest of them
        ({"src_mesh": "[[3,1],[2,0]]", "dst_mesh": "1x2"}, [[3, 1], [2, 0]], [[4, 5]]),
        # a preset says how many devices a host has
        (
            {"src_mesh": "2x2", "dst_mesh": "1x2", "cluster": "p3.8xlarge"},
            [[0, 1], [4, 5]],
            [[8, 9]],
        ),
        ({"src_mesh": "2x1x2", "dst_mesh": "2x2"}, [[[0, 1]], [[2, 3]]], [[4, 5], [6, 7]]),
    ],
)
def test_meshes_are_placed_a_row_a_host(capsys, options, src, dst):
    argv = with_options(src_spec="RR", dst_spec="RR", **options)
    data = json.loads(ask(capsys, "explain", *argv, "--json"))
    assert data["source"]["mesh"] == src
    assert data["destination"]["mesh"] == dst


def test_cluster_options_reach_the_cluster(capsys):
    options = with_options(
        nic="25Gbps",
        nic_latency="3us",
        intra="1GB/s",
        intra_latency="1us",
        nics_per_host="2",
        hosts="9",
    )
    cluster = json.loads(ask(capsys, "explain", *options, "--json"))["cluster"]
    assert rl.Cluster(**cluster) == rl.Cluster(
        9, 2, nic="25Gbps", nics_per_host=2, nic_latency="3us", intra="1GB/s", intra_latency="1us"
    )


def test_a_preset_gives_speeds_and_options_override_them(capsys):
    options = with_options(cluster="p3.8xlarge", nic="1Gbps")
    cluster = json.loads(ask(capsys, "explain", *options, "--json"))["cluster"]
    described = rl.Cluster.preset("p3.8xlarge", hosts=4).to_dict()
    assert cluster == {**described, "nic": 1.25e8}


def test_the_rule_holds_at_both_ends(capsys):
    options = with_options(
        shape="6,6", src_mesh="1x4", src_spec="S1R", dst_mesh="1x4", dst_spec="RS1"
    )
    data = json.loads(ask(capsys, "explain", *options, "--rule", "balanced", "--json"))
    rows = [box[0] for box in data["source"]["boxes"].values()]
    columns = [box[1] for box in data["destination"]["boxes"].values()]
    assert rows == columns == [[0, 2], [2, 4], [4, 5], [5, 6]]


def test_run_refuses_before_it_starts_anything(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("reshard_lab.cli.measure.run_plan", lambda *a, **k: pytest.fail("it ran"))
    newer = tmp_path / "newer.json"
    newer.write_text('{"schema": "reshard_lab.plan", "version": 99}')
    assert "version 99" in refused(capsys, "run", str(newer))
    assert "cannot read plan file" in refused(capsys, "run", str(tmp_path / "none.json"))
    assert "no plan file, and without one --shape" in refused(capsys, "run")
    assert "give a plan file or --shape" in refused(capsys, "run", str(newer), *FIGURE2)
    assert "--timeout 'soon' is not a time" in refused(capsys, "run", *FIGURE2, "--timeout", "soon")
    assert "invalid choice: 'moon'" in refused(capsys, "run", *FIGURE2, "--where", "moon")


def test_help_names_every_command_that_works(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    listed = set(re.findall(r"^    (\w+)(?: |$)", text, flags=re.MULTILINE))
    assert listed == set(app.COMMANDS)
    for name in app.COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0
        assert "--json" in capsys.readouterr().out


def test_plan_prints_and_saves_the_plan(capsys, tmp_path):
    path = tmp_path / "plan.json"
    text = ask(capsys, "plan", *FIGURE2, "--strategy", "local_allgather", "-o", str(path))
    saved = rl.Plan.from_json(path)
    saved.verify()
    assert (saved.strategy, len(saved.units)) == ("local_allgather", 4)
    assert text == f"{saved.explain()}\nwritten to {path}\n"


def test_simulate_names_the_task_of_a_step(capsys):
    (line,) = re.findall(r".*transfer 2 .*-> 4 .*", ask(capsys, "simulate", *FIGURE2))
    assert "transfer 2 (task 1), device 1 -> 4" in line


def test_plan_is_verified_before_it_is_shown(capsys, monkeypatch):
    def wrong(plan):
        raise rl.ReshardError("transfer 3 is wrong")

    monkeypatch.setattr(rl.Plan, "verify", wrong)
    assert refused(capsys, "plan", *FIGURE2) == "transfer 3 is wrong"


def test_plan_json_has_times_bound_and_units(capsys):
    argv = [
        *FIGURE2,
        "--nic",
        "16B/s",
        "--nic-latency",
        "0s",
        "--intra",
        "inf",
        "--intra-latency",
        "0s",
    ]
    data = json.loads(ask(capsys, "plan", *argv, "--strategy", "send_recv", "--json"))
    # A row of 16 bytes lasts 1 s on a NIC of 16 B/s; each host takes two rows, twice.
    assert data["makespan_s"] == pytest.approx(4)
    assert data["lower_bound_s"] == pytest.approx(2)
    assert [u["sender"] for u in data["units"]] == [0, 1, 2, 3]


def test_ctrl_c_ends_quietly(capsys, monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setitem(app.COMMANDS, "explain", app.COMMANDS["explain"]._replace(run=interrupted))
    assert main(["explain", *FIGURE2]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_is_no_error():
    options = shlex.split(
        "--shape 64,64 --src-mesh 8x8 --src-spec S01R --dst-mesh 8x8 --dst-spec RS01"
    )
    command = [*COMMAND, "explain", *options, "--limit", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(6) == b"tensor"
        process.stdout.close()  # 4096 lines do not fit into the pipe: the writer is still there
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 141


def test_the_module_is_the_command_line():
    done = subprocess.run(
        [*COMMAND, "explain", *FIGURE2], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == (FIGURE2_TEXT, "")
    done = subprocess.run(
        [*COMMAND, "explain", "--shape", "4"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


TWO = shlex.split("--shape 64 --src-mesh 1 --src-spec R --dst-mesh 1 --dst-spec R")
FEW = ["--repeats", "2", "--warmup", "0"]


@pytest.mark.distributed
def test_run_measures_a_plan_and_says_where(capsys, tmp_path):
    path = tmp_path / "plan.json"
    ask(capsys, "plan", *TWO, "-o", str(path))
    text = ask(capsys, "run", str(path), *FEW)
    for words in ("predicted", "lower bound", "the median of 2", "every result checked"):
        assert words in text
    assert re.search(r"measured on +gloo, loopback \(unshaped\), \d+ cores?; ", text)
    data = json.loads(ask(capsys, "run", *TWO, *FEW, "--strategy", "signal", "--json"))
    assert data["plan"]["strategy"] == "signal"
    assert data["measurement"]["verified"] is False
    assert len(data["measurement"]["times_s"]) == 2
    assert data["measurement"]["environment"]["backend"] == "gloo"


@pytest.mark.distributed
def test_bench_puts_strategies_side_by_side(capsys):
    options = [*TWO, *FEW, "--strategies", "send_recv,broadcast", "--fit"]
    data = json.loads(ask(capsys, "bench", *options, "--json"))
    assert [row["strategy"] for row in data["rows"]] == ["send_recv", "broadcast"]
    assert all(row["verified"] for row in data["rows"])
    assert "fitted from one measured transfer" in data["predicted_on"]
    # No latency is known there to weigh, so chunks are kept from being all latency.
    assert "K = 1, chunks of at least 256 KiB" in data["predicted_on"]
    assert "unknown strategy 'all'" in refused(capsys, "bench", *TWO, "--strategies", "all")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.distributed
def test_ctrl_c_while_running_leaves_nothing_behind():
    command = [*COMMAND, "run", *TWO, "--repeats", "1000000", "--warmup", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started: set[int] = set()
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            deadline = time.monotonic() + 60
            while len(started) < 3:  # what forks the devices, and two devices
                assert process.poll() is None
                assert time.monotonic() < deadline
                started = descendants(process.pid)
                time.sleep(0.1)
            time.sleep(1)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            out, err = process.communicate(timeout=30)
            assert (process.returncode, out, err) == (130, b"", b"")
            assert started & {pid for pid, _ in processes()} == set()
        finally:
            process.kill()
            for pid in started & {pid for pid, _ in processes()}:
                os.kill(pid, signal.SIGKILL)


def processes() -> list[tuple[int, int]]:
    """Every living process and its parent."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            pids.append((int(entry.name), int(fields[1])))
    return pids


def descendants(ancestor: int) -> set[int]:
    """Children of a process, their children, and so on."""
    living = processes()
    pids: set[int] = set()
    while more := {pid for pid, parent in living if parent in pids | {ancestor}} - pids:
        pids |= more
    return pids


def test_json_has_no_numbers_that_json_lacks():
    text = Output("", {"a": [math.nan, 1.5], "b": (math.inf,)}).render(as_json=True)
    assert json.loads(text) == {"a": [None, 1.5], "b": [None]}
