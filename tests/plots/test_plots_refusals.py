"""Records, tables, times and files that pictures refuse."""

import math
import re
from functools import partial

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper, plots
from reshard_lab.pipelining.timeline import Event
from reshard_lab.plots.pipeline import MOST_BARS
from reshard_lab.simulation import one_sender
from reshard_lab.simulation.timeline import moving_parts
from support.measured import measured_table
from support.refusals import bad_calls, check_refusal

PIPELINE_PICTURES = plots.draw_pipeline, plots.draw_memory
TASK = paper.suite_task(9)
TIMELINE = rl.simulate(rl.plan(TASK, scheduler="load_balance"))
FIGURE_2 = paper.on_figure2("S01R", "S0R")
PLAN = rl.plan(FIGURE_2)
CUBE = rl.Layout(rl.Mesh(np.arange(8).reshape(2, 4)), "RS0S1")
LARGE = rl.Mesh(range(257))
TABLE = measured_table()


def cluster_of(hosts: int, devices: int) -> rl.Cluster:
    return rl.Cluster(hosts, devices, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)


def delivery(strategy: str, hosts: int, devices: int) -> rl.Timeline:
    return one_sender(strategy, 100, hosts, devices, cluster_of(hosts + 1, devices))


def event(**changes) -> Event:
    fields = {"row": "stage 0", "op": "F0", "what": "forward", "tensor": "", "microbatch": 0}
    return Event(**{**fields, "chunk": 0, "start_s": 0.0, "end_s": 1.0, **changes})


def seventeen_hosts() -> rl.Plan:
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh(range(1, 17)), "R")
    return rl.plan(rl.ReshardingTask((4,), "int8", src, dst, rl.Cluster(17, 1)), "send_recv")


def highlighted(draw):
    """Task 64 of 64, counted from 0."""
    cluster = rl.Cluster(hosts=4, devices_per_host=4)
    src, dst = rl.Layout(cluster.mesh((2, 4)), "RS0S1"), rl.Layout(cluster.mesh((2, 4), 2), "S01RR")
    return draw(rl.ReshardingTask((16, 8, 8), "float32", src, dst, cluster), highlight=64)


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
PIPELINES = [
    ({}, "there is no pipeline to draw"),
    (7, "int 7 is no pipeline over time; give what pipeline.simulate returns"),
    ("1f1b", "str '1f1b' is no pipeline over time"),
    ([], "pipeline '' has no op of any stage"),
    ({"a": [event(row="link 0>1", what="activation", tensor="0>1")]}, "'a' has no op of any"),
    ([event(what="forwards")], "unknown kind of event 'forwards'"),
    (
        [event()] * (MOST_BARS + 1),
        "has 20001 ops and transfers, but a picture shows 20000 at most",
    ),
]
ONE_AXIS_TWICE = "axes (1, 1) do not choose a plane of shape (4, 8, 8); give 2 different dimensions"
OTHER_THINGS = [3, "x", None, [], {}, [3], {"a": 3}, [(1, 2)], object]
MORE_ARGUMENTS = {
    "draw_layout": [(4, 4)],
    "layout_svg": [[3]],
    "export": ["a.svg"],
    "layout_panel": [3, (4,)],
}
NO_PICTURES = {"Figure", "LayoutPanel"}
FILE_NAMES = [None, 3, "a\0.svg", "\ud800.svg", ""]

REFUSALS = {
    "draw_layout": [
        *[
            (partial(plots.draw_layout, CUBE, (4, 8, 8), axes=axes), words)
            for axes, words in [
                ((0, 3), "axis 3 is not in shape (4, 8, 8); its dimensions are 0 to 2"),
                ((1, 1), ONE_AXIS_TWICE),
                ((0,), "axes (0,) do not choose a plane"),
                ((0, -1), "axis must be at least 0, not -1"),
            ]
        ],
        (
            lambda: plots.draw_layout(rl.Layout(LARGE, "S0"), (514,)),
            "up to 256 devices, but 'S0 on a mesh of 257' has 257",
        ),
    ],
    "highlight": [
        (partial(highlighted, draw), "highlight must be at most 63, not 64")
        for draw in (plots.draw_layouts, plots.draw_unit_tasks)
    ],
    "draw_mesh": [(lambda: plots.draw_mesh(LARGE), "up to 256 devices")],
    "draw_record": [
        (lambda: plots.draw_record(3), "no picture of a int; there is one of Mesh, Layout")
    ],
    "Figure": [
        (lambda: plots.Figure("<svg/>", "", "x"), "a figure needs caption text"),
        (lambda: plots.Figure("<svg/>", "x", " "), "a figure needs alt text"),
    ],
    "gantts": [
        (lambda: plots.gantts({}), "no plan to draw"),
        *[
            (
                partial(plots.gantts, {"a": PLAN.gantt()}, moment),
                "moment_s must be a time of at least 0 s",
            )
            for moment in (math.nan, math.inf, -1, "x")
        ],
    ],
    "draw_traffic": [
        (lambda: plots.draw_traffic({}), "there is no plan to draw"),
        (
            lambda: plots.draw_traffic(seventeen_hosts()),
            "up to 16 hosts, but the plan has 17",
        ),
    ],
    "draw_pipeline and draw_memory": [
        (partial(draw, record), words)
        for draw in PIPELINE_PICTURES
        for record, words in [*PIPELINES, *[([one], words) for one, words in EVENTS]]
    ],
    "draw_measured": [
        (
            lambda: plots.draw_measured(TABLE.drop(columns="link")),
            "does not say where it was measured",
        ),
        (
            lambda: plots.draw_measured(TABLE.assign(cpu=math.nan)),
            "does not say where it was measured",
        ),
        (lambda: plots.draw_measured(TABLE.iloc[:0], "time"), "there are no rows"),
        (
            lambda: plots.draw_measured(TABLE.drop(columns="measured_s"), "time"),
            "no column measured_s; give a table",
        ),
        (
            lambda: plots.draw_measured(TABLE.drop(columns="case"), "time"),
            "does not say which case a row is",
        ),
        (
            lambda: plots.draw_measured(TABLE.assign(measured_s=[1, 2, math.inf, 4]), "time"),
            "send_recv in case of table 2 2 has",
        ),
        (
            lambda: plots.draw_measured(pd.concat([TABLE] * 65), "time"),
            "up to 256 bars, not 260",
        ),
        (
            lambda: plots.draw_measured(TABLE, "tim"),
            re.compile("unknown quantity 'tim'.*did you mean 'time'"),
        ),
    ],
    "deliveries": [
        (
            lambda: moving_parts(rl.simulate(PLAN)),
            re.compile(r"only one unit task .* not 4 of shape \(4, 4\)"),
        ),
        (
            lambda: one_sender("broadcast", 10, 3, 2, cluster_of(3, 2)),
            re.compile("3 hosts of 2 devices .* cluster has 3 hosts of 2"),
        ),
        (
            lambda: one_sender("broadcast", 10, 2, 3, cluster_of(3, 2)),
            "2 hosts of 3 devices",
        ),
        (
            lambda: one_sender("broadcast", 0, 1, 1, cluster_of(9, 8)),
            "nbytes must be at least 1",
        ),
    ],
    "draw_strategy": [
        (
            lambda: plots.draw_strategy(delivery("send_recv", 9, 1)),
            "up to 8 receiving hosts of 8 devices, not 9 of 1",
        ),
        (lambda: plots.draw_strategy(delivery("send_recv", 1, 9)), "not 1 of 9"),
        *[
            (
                partial(plots.draw_strategy, delivery("broadcast", 1, 1), **{name: bad}),
                f"{name} must be a time of at least 0 s",
            )
            for name in ("at_s", "until_s")
            for bad in (-1.0, math.nan, math.inf)
        ],
    ],
    "files": [
        (partial(save, path), "must be the name of a file or folder")
        for save in (partial(plots.export, PLAN), plots.draw_pipeline([event()]).save)
        for path in FILE_NAMES
    ],
    "other things": [
        (partial(getattr(plots, name), thing, *MORE_ARGUMENTS.get(name, ())), "")
        for name in sorted(set(plots.__all__) - NO_PICTURES)
        for thing in OTHER_THINGS
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)


@pytest.mark.parametrize(
    ("thing", "name", "words"),
    [
        (TASK, "a.pdf", r"cannot tell from '.*a\.pdf' what to write; endings are \.svg"),
        (TASK, "a", "cannot tell from"),
        (TASK, "a.csv", "a ReshardingTask is not a table; give a DataFrame"),
        (TASK, "a.json", "a ReshardingTask cannot be written as JSON; give a timeline"),
        (3, "a.svg", "there is no picture of a int"),
        (3, "a.png", "there is no picture of a int"),
        (pd.DataFrame({"figure": [5, 6]}), "a.svg", "there is no picture of a DataFrame"),
        (TASK, "none/a.svg", r"cannot write picture '.*a\.svg': No such file"),
        (TASK, "none/a.png", r"cannot write picture '.*a\.png': No such file"),
        (matplotlib.figure.Figure(), "none/a.png", r"cannot write picture '.*a\.png': No such"),
        (TIMELINE, "none/a.csv", r"cannot write table '.*a\.csv': No such file"),
        (TIMELINE, "none/a.json", r"cannot write file '.*a\.json': No such file"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, thing, name, words):
    check_refusal(lambda: plots.export(thing, tmp_path / name), re.compile(words))
    assert not list(tmp_path.iterdir())
