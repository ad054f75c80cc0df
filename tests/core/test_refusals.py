"""Bad values end at once in a ReshardError that says what is wrong, wherever they are given."""

import json
import math
import sys
import tempfile

import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper, widgets
from reshard_lab.paper.reproduce import reproduce
from reshard_lab.runtime.process import PoolProcess
from support.commands import refused


def says(words, call, *args, **kwargs):
    """Calls, and checks what the error says."""
    with pytest.raises(rl.ReshardError) as caught:
        call(*args, **kwargs)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


YES_OR_NO = [
    (lambda v: paper.figure7("GPT-1.3B", recompute=v), "recompute"),
    (lambda v: paper.figure9("U-Transformer-1B", 2, recompute=v), "recompute"),
    (lambda v: reproduce("o", quiet=v), "quiet"),
    (lambda v: widgets.pipeline_explorer(overlap=v), "overlap transfers"),
]


@pytest.mark.parametrize(("call", "name"), YES_OR_NO)
@pytest.mark.parametrize("value", ["no", 1, None])
def test_only_true_and_false_are_yes_and_no(call, name, value):
    says(f"{name} must be True or False, not {value!r}", call, value)


def test_times_that_add_up_beyond_all_numbers_are_refused(capsys):
    argv = ["pipeline", "--stages", "2", "--microbatches", "4", "--forward", "1s"]
    assert "add up to more than" in refused(capsys, *argv, "--backward", "1e308s", "--json")


def test_json_has_no_numbers_that_json_lacks():
    from reshard_lab.cli.common import Output

    text = Output("", {"a": [math.nan, 1.5], "b": (math.inf,)}).render(as_json=True)
    assert json.loads(text) == {"a": [None, 1.5], "b": [None]}


@pytest.mark.parametrize("executable", ["/nowhere/python", None, ""])
def test_a_process_that_cannot_start_leaves_no_folder(monkeypatch, tmp_path, executable):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", executable)
    says(
        "cannot start the processes of a run",
        PoolProcess,
        [sys.executable, "-m", "reshard_lab.worker"],
        {},
    )
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_place_for_temporary_files_says_so(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    says(
        "name one that can be written to in TMPDIR",
        PoolProcess,
        [sys.executable, "-m", "reshard_lab.worker"],
        {},
    )


def test_a_reproduction_is_refused_before_anything_is_made(tmp_path):
    says("unknown size 'huge'", reproduce, tmp_path / "o", "huge")
    says("out must be the name of a file or folder, not None", reproduce, None)
    assert not list(tmp_path.iterdir())


def test_one_model_or_number_stands_for_a_list_of_one():
    assert list(paper.figure7("GPT-1.3B")["model"].unique()) == ["GPT-1.3B"]
    assert list(paper.figure9("U-Transformer-1B", 4)["microbatches"].unique()) == [4]


FRAME = pd.DataFrame({"method": ["a"], "predicted_s": [1.0], "measured_s": [1.0], "p": [1]})
TABLES = [
    (lambda: paper.figure7([]), "models is empty"),
    (lambda: paper.figure7(3), "unknown workload 3"),
    (lambda: paper.figure7("GPT-1.3B", levels=[3]), "each of levels must be a Level, not 3"),
    (lambda: paper.figure9("U-Transformer-1B", []), "microbatches is empty"),
    (
        lambda: paper.figure9("U-Transformer-1B", "x"),
        "microbatches must be a whole number, not 'x'",
    ),
    (lambda: paper.headlines(None), "figure7 must be a DataFrame, not None"),
    (lambda: paper.headlines(pd.DataFrame()), "figure7 has no column 'model'"),
    (lambda: paper.headlines(paper.figure7("GPT-1.3B").iloc[:0]), "figure7 has no rows"),
    (lambda: paper.ranking(FRAME, "x"), "frame has no column 'x'; it has method, predicted_s"),
    (lambda: paper.ranking(None, "p"), "frame must be a DataFrame"),
    (lambda: paper.ranking(FRAME, []), "by is empty"),
]


@pytest.mark.parametrize(("call", "words"), TABLES)
def test_tables_of_nothing_are_refused(call, words):
    says(words, call)


EXPLORERS = [
    (widgets.strategy_explorer, {"strategy": "x"}, "strategy cannot be 'x'; it is one of send"),
    (widgets.strategy_explorer, {"size": 64}, "size must be text, as it stands in the field"),
    (widgets.strategy_explorer, {"hosts": 99}, "A: receiving hosts must be at most 6, not 99"),
    (widgets.strategy_explorer, {"hosts": 0}, "A: receiving hosts must be at least 1, not 0"),
    (widgets.strategy_explorer, {"chunks": 0}, "K: chunks of a broadcast must be at least 1"),
    (widgets.strategy_explorer, {"nic": "inf"}, "rate of a NIC from 8bit/s to 1000 Tbit/s"),
    (widgets.strategy_explorer, {"size": "0B"}, "size is from 1B to 1024 TiB"),
    (widgets.pipeline_explorer, {"name": "x"}, "schedule cannot be 'x'; it is one of gpipe"),
    (widgets.pipeline_explorer, {"stages": 99}, "stages must be at most 8, not 99"),
    (widgets.pipeline_explorer, {"transfer_ms": "x"}, "must be from 0 to 10, not 'x'"),
    (widgets.pipeline_explorer, {"forward": "1e308s"}, "the times add up to more than"),
    (widgets.traffic_explorer, {"strategy": "x"}, "strategy cannot be 'x'"),
    (widgets.traffic_explorer, {"tasks": 3}, "tasks must be a Mapping, not 3"),
    (widgets.traffic_explorer, {"tasks": {"a": 3}}, "task 'a' must be a ReshardingTask, not 3"),
    (widgets.measurement_explorer, {"tables": None}, "None is no table"),
    (widgets.measurement_explorer, {"tables": [3]}, "3 is no row of a table"),
    (widgets.layout_explorer, {"task": "x"}, "task must be a ReshardingTask, not 'x'"),
    (widgets.plan_explorer, {"task": "x"}, "task must be a ReshardingTask, not 'x'"),
    (widgets.plan_explorer, {"methods": ["ab"]}, "a method is (strategy, scheduler), not 'ab'"),
    (widgets.plan_explorer, {"chunks": 0}, "chunks must be at least 1, not 0"),
]


@pytest.mark.parametrize(("make", "given", "words"), EXPLORERS)
def test_an_explorer_is_not_made_of_what_it_cannot_show(make, given, words):
    says(words, make, **given)


CHANGES = [
    ("strategy_explorer", {"nic": "inf"}, "inf cannot be played"),
    ("strategy_explorer", {"nic": "1e-320bps"}, "1e-320bps cannot be played"),
    ("strategy_explorer", {"size": "1e300B"}, "1e300B"),
    ("pipeline_explorer", {"forward": "1e308s"}, "the times add up"),
    ("layout_explorer", {"src_spec": "S9"}, "source: spec"),
    ("layout_explorer", {"dst_spec": "foo"}, "destination: spec"),
    ("layout_explorer", {"dst_mesh": "[[0,0]]"}, "destination mesh [[0, 0]] lists device 0 twice"),
    ("layout_explorer", {"src_mesh": "9" * 5000}, "9999 ... 9999999"),
    ("layout_explorer", {"src_mesh": "x".join("1" * 99)}, "has 99 axes; 32 at most"),
    ("layout_explorer", {"src_mesh": "[" * 9000}, "is not a list of device ids"),
    ("layout_explorer", {"shape": "9" * 5000}, "is not a list of sizes"),
    ("layout_explorer", {"src_spec": f"S^{{{'9' * 5000},}}R"}, "unknown mesh axis"),
    ("layout_explorer", {"src_spec": "S^{1 0,}R"}, "unknown mesh axis"),
]


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_a_bad_value_in_a_field_is_told_beside_it(name, change, words):
    made = getattr(widgets, name)()
    made.set(**change)
    assert words in made.error.value
    assert len(made.error.value) < 900


def test_times_of_zero_are_explored():
    made = widgets.pipeline_explorer(forward="0s", backward="0s", transfer_ms=0)
    assert made.error.value.count("Not drawn") == 0


PIPELINE = ["pipeline", "--stages", "2", "--microbatches", "2", "--forward", "1ms"]
OPTIONS = [
    (["--stages", "99999999999", "--backward", "2ms"], "are too many"),
    (
        [],
        "--backward is missing, but the schedule has backward ops; give their seconds, or use --s",
    ),
    (["--backward", "1ms,2ms,3ms"], "--backward has 3 entries"),
    (["--backward", "1ms", "--svg", ""], "--svg must be the name of a file"),
    (["--backward", "1ms", "--svg", "a", "--csv", "./a"], "--svg and --csv both write './a'"),
    (["--backward", "1ms", "--chunks", "3"], "--chunks 3 needs --schedule interleaved_1f1b"),
]


@pytest.mark.parametrize(("argv", "words"), OPTIONS)
def test_errors_of_the_command_line_name_its_options(capsys, argv, words):
    assert words in refused(capsys, *PIPELINE, *argv)


@pytest.mark.parametrize("command", [["plan", "--output"], ["simulate", "--trace"]])
def test_a_file_without_a_name_is_refused_rather_than_left_unwritten(capsys, command):
    tensor = ["--shape=4", "--src-mesh=2", "--src-spec=S0", "--dst-mesh=2", "--dst-spec=R"]
    what, option = command
    words = refused(capsys, what, *tensor, option, "")
    assert words.startswith(f"{option} must be the name of a file or folder, not ''")
