"""Bad values end at once in a ReshardError that says what is wrong, wherever they are given."""

import json
import math
import sys
import tempfile
import xml.dom.minidom

import numpy as np
import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper, pipeline, plots, teaching, widgets
from reshard_lab.errors import short
from reshard_lab.paper.reproduce import reproduce
from reshard_lab.pipelining.timeline import Event
from reshard_lab.planning.nics import traffic
from reshard_lab.plots.time_axis import round_steps
from reshard_lab.runtime.process import PoolProcess
from support.commands import refused

TWO = pipeline.schedule("1f1b", 2, 2)


@pytest.fixture(scope="module")
def plan():
    cluster = rl.Cluster(4, 2)
    src, dst = cluster.mesh((2, 2)), cluster.mesh((2, 2), first_host=2)
    task = rl.ReshardingTask(
        (4, 4), "float32", rl.Layout(src, "S0R"), rl.Layout(dst, "RS0"), cluster
    )
    return rl.plan(task)


def says(words, call, *args, **kwargs):
    """Calls, and checks what the error says."""
    with pytest.raises(rl.ReshardError) as caught:
        call(*args, **kwargs)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", pipeline.SCHEDULES)
@pytest.mark.parametrize("sizes", [(99_999_999_999, 4), (4, 10**5000), (np.int64(2**40),) * 2])
def test_a_schedule_without_end_is_refused_at_once(name, sizes):
    says("are too many: a schedule has up to 2000000 ops", pipeline.schedule, name, *sizes)


def test_chunks_count_too_and_large_schedules_remain():
    says("x 1000000 chunks are", pipeline.schedule, "interleaved_1f1b", 2, 2, 10**6)
    lists = pipeline.schedule("interleaved_1f1b", 64, 1024, 2)
    assert sum(map(len, lists)) == 64 * 1024 * 2 * 2
    says("which is not an op", pipeline.simulate, [["F" + "9" * 5000, "B0"]], 1, 2)
    says("skips must be a Sequence, not 3", pipeline.simulate, TWO, 1, 2, skips=3)
    says("at most 10000", pipeline.gpt, "1.3B", stages=10**9)


YES_OR_NO = [
    (lambda v: pipeline.simulate(TWO, 1, 2, overlap=v), "overlap"),
    (lambda v: pipeline.schedule("1f1b", 2, 2, delay_weights=v), "delay_weights"),
    (lambda v: pipeline.gpt("1.3B", recompute=v), "recompute"),
    (lambda v: pipeline.u_transformer("1B", recompute=v), "recompute"),
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
    for overlap in (True, False):
        says("add up to more than", pipeline.simulate, TWO, 1e308, 1e308, overlap=overlap)
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


def event(**changes):
    given = {"row": "stage 0", "op": "F0", "what": "forward", "tensor": "", "microbatch": 0}
    return Event(**{**given, "chunk": 0, "start_s": 0.0, "end_s": 1.0, **changes})


EVENTS = [
    (event(start_s=math.nan), "from nan s to 1.0 s, cannot be drawn"),
    (event(end_s=math.inf), "to inf s, cannot be drawn"),
    (event(start_s=-1.0), "from -1.0 s"),
    (event(start_s=2.0), "not before its start"),
    (event(start_s="a"), "is no event"),
    (event(row="stage x"), "row 'stage x'; rows are 'stage 0' and 'link 0>1'"),
    (event(row="foo"), "row 'foo'"),
    (event(row=3), "row 3"),
    (event(op=3), "an op such as 'F0'"),
    (event(microbatch=[]), "microbatch of an event must be a whole number"),
    ((1, 2), "(1, 2) is no event; give Event(row, op,"),
    (3, "3 is no event"),
]


@pytest.mark.parametrize("draw", [plots.draw_pipeline, plots.draw_memory])
@pytest.mark.parametrize(("given", "words"), EVENTS)
def test_an_event_that_cannot_be_drawn_is_named(draw, given, words):
    says(words, draw, [given])


def test_only_stages_that_occur_have_a_panel():
    drawn = plots.draw_memory([event(), event(row="stage 10000000")])
    assert drawn.svg.count("stage 10000000<") == 1
    assert "stage 1<" not in drawn.svg
    assert "for each of 2 stages" in drawn.alt


def test_what_lasts_for_no_time_is_still_a_peak():
    made = pipeline.simulate(TWO, 0, 0, activation_bytes=[10, 20])
    assert made.peak_live == [2, 1]
    assert "peaks: 20 B, 20 B." in plots.draw_memory(made).caption
    assert "peaks: 2, 1." in plots.draw_memory(made.events).caption


def test_back_to_back_ops_do_not_raise_the_peak():
    made = pipeline.simulate(pipeline.schedule("1f1b", 2, 6), 1, 2)
    assert made.peak_live == [2, 1]
    assert "peaks: 2, 1." in plots.draw_memory(made).caption


@pytest.mark.parametrize("moment", [math.nan, math.inf, -1, "x"])
def test_a_moment_is_a_time(plan, moment):
    says("moment_s must be a time of at least 0 s", plots.gantts, {"a": plan.gantt()}, moment)


def test_names_with_characters_that_xml_lacks_are_still_drawn(plan):
    name = "a\x00b\x1b[1m\ud800"
    timeline = pipeline.simulate(TWO, 1, 2)
    for drawn in (
        plots.gantts({name: plan.gantt()}, caption=name),
        plots.draw_pipeline({name: timeline}, name),
        plots.draw_memory({name: timeline, "b": timeline}),
        plots.draw_traffic({name: plan}),
    ):
        xml.dom.minidom.parseString(drawn.svg.encode())
        assert "a�b�[1m�" in drawn.svg
        assert drawn._repr_html_().isprintable()


@pytest.mark.parametrize("longest", [5e-324, 1e-320, 1e-301])
def test_axes_of_almost_no_length_have_one_tick(longest):
    assert round_steps(longest) == [0.0]
    assert round_steps(3e-300, 3) == [0.0, 1e-300, 2e-300, 3e-300]


KINDS = [3, "x", None, [], {}, [3], {"a": 3}, [(1, 2)], object]


NO_PICTURES = {"Figure", "LayoutPanel"}


@pytest.mark.parametrize("name", sorted(set(plots.__all__) - NO_PICTURES))
def test_pictures_of_other_things_are_refused(name):
    rest = {"draw_layout": [(4, 4)], "layout_svg": [[3]], "export": ["a.svg"]}
    rest["layout_panel"] = [3, (4,)]
    for given in KINDS:
        says("", getattr(plots, name), given, *rest.get(name, ()))


@pytest.mark.parametrize("path", [None, 3, "a\0.svg", "\ud800.svg", ""])
def test_a_file_has_a_name(plan, path):
    says("must be the name of a file or folder", plots.export, plan, path)
    says("must be the name of a file or folder", plots.draw_pipeline([event()]).save, path)


def test_traffic_is_exported(plan, tmp_path):
    table = plots.export(traffic(plan), tmp_path / "a.csv").read_text()
    assert table.startswith("source,destination,nbytes\n")
    assert "<svg" in plots.export(traffic(plan), tmp_path / "a.svg").read_text()


def test_a_reproduction_is_refused_before_anything_is_made(tmp_path):
    says("unknown size 'huge'", reproduce, tmp_path / "o", "huge")
    says("out must be the name of a file or folder, not None", reproduce, None)
    assert not list(tmp_path.iterdir())


SAME = [
    (np.array([1, 2]), [1, 2], True),
    ([1, 2], np.array([1, 2]), True),
    (pd.Series([1, 2]), (1, 2), True),
    (np.array([1, 2]), 3, False),
    ([1, 2, 3], [1, 2], False),
    ("True", True, False),
    (True, "True", False),
    (np.bool_(True), True, True),
    (True, np.bool_(True), True),
    (np.bool_(False), True, False),
    (1, True, False),
    (0.1 + 0.2, 0.3, True),
    (0.3001, 0.3, False),
    (1e-12, 0.0, False),
    ({"a": 1.0}, {"a": 1 + 1e-12}, True),
    ({"a": 1.0}, {"b": 1.0}, False),
    pytest.param(10**400, 1.0, False, id="beyond-floats"),
]


@pytest.mark.parametrize(("given", "answer", "right"), SAME)
def test_a_prediction_is_right_if_it_says_the_same(given, answer, right):
    assert teaching.predict(given, lambda: answer).right is right


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


def test_what_was_given_is_repeated_in_short():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    assert (short("S0R"), short(Odd()), short(10**5000)) == ("'S0R'", "<Odd>", "<int>")
    assert len(short(list(range(1000)))) == 80
    says("... ", rl.ShardingSpec, "x" * 1000)


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
