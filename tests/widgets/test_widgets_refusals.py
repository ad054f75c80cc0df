"""What explorers cannot show: refused when they are made, and told beside the field later."""

from functools import partial

import pytest

from reshard_lab import widgets
from support.refusals import bad_calls, check_refusal

REFUSALS = {
    "strategy_explorer": [
        (
            partial(widgets.strategy_explorer, strategy="x"),
            "strategy cannot be 'x'; it is one of send",
        ),
        (
            partial(widgets.strategy_explorer, size=64),
            "size must be text, as it stands in the field",
        ),
        (
            partial(widgets.strategy_explorer, hosts=99),
            "A: receiving hosts must be at most 6, not 99",
        ),
        (
            partial(widgets.strategy_explorer, hosts=0),
            "A: receiving hosts must be at least 1, not 0",
        ),
        (
            partial(widgets.strategy_explorer, chunks=0),
            "K: chunks of a broadcast must be at least 1",
        ),
        (partial(widgets.strategy_explorer, nic="inf"), "rate of a NIC from 8bit/s to 1000 Tbit/s"),
        (partial(widgets.strategy_explorer, size="0B"), "size is from 1B to 1024 TiB"),
    ],
    "pipeline_explorer": [
        (
            partial(widgets.pipeline_explorer, name="x"),
            "schedule cannot be 'x'; it is one of gpipe",
        ),
        (partial(widgets.pipeline_explorer, stages=99), "stages must be at most 8, not 99"),
        (partial(widgets.pipeline_explorer, transfer_ms="x"), "must be from 0 to 10, not 'x'"),
        (partial(widgets.pipeline_explorer, forward="1e308s"), "the times add up to more than"),
        (
            partial(widgets.pipeline_explorer, overlap="no"),
            "overlap transfers must be True or False, not 'no'",
        ),
        (
            partial(widgets.pipeline_explorer, overlap=1),
            "overlap transfers must be True or False, not 1",
        ),
        (
            partial(widgets.pipeline_explorer, overlap=None),
            "overlap transfers must be True or False, not None",
        ),
    ],
    "traffic_explorer": [
        (partial(widgets.traffic_explorer, strategy="x"), "strategy cannot be 'x'"),
        (partial(widgets.traffic_explorer, tasks=3), "tasks must be a Mapping, not 3"),
        (
            partial(widgets.traffic_explorer, tasks={"a": 3}),
            "task 'a' must be a ReshardingTask, not 3",
        ),
        (partial(widgets.traffic_explorer, tasks={}), "got no tasks"),
    ],
    "measurement_explorer": [
        (partial(widgets.measurement_explorer, tables=None), "None is no table"),
        (partial(widgets.measurement_explorer, tables=[3]), "3 is no row of a table"),
        (partial(widgets.measurement_explorer, tables={}), "got no table"),
    ],
    "layout_explorer": [
        (partial(widgets.layout_explorer, task="x"), "task must be a ReshardingTask, not 'x'"),
        (partial(widgets.layout_explorer, highlight=4), "highlight must be at most 3, not 4"),
    ],
    "plan_explorer": [
        (partial(widgets.plan_explorer, task="x"), "task must be a ReshardingTask, not 'x'"),
        (
            partial(widgets.plan_explorer, methods=["ab"]),
            "a method is (strategy, scheduler), not 'ab'",
        ),
        (partial(widgets.plan_explorer, chunks=0), "chunks must be at least 1, not 0"),
        (partial(widgets.plan_explorer, methods=[]), "one to 3 methods to compare, not 0"),
        (
            partial(widgets.plan_explorer, methods=[("broadcast", "auto")] * 4),
            "one to 3 methods to compare, not 4",
        ),
        (
            partial(widgets.plan_explorer, methods=[("brodcast", "naive")]),
            "unknown strategy 'brodcast'",
        ),
        (
            partial(widgets.plan_explorer, methods=[("broadcast", "best")]),
            "unknown scheduler 'best'",
        ),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)


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
    explorer = getattr(widgets, name)()
    explorer.set(**change)
    assert words in explorer.error.value
    assert len(explorer.error.value) < 900
