"""Tasks and options that planning refuses, and pieces that do not fit their plan."""

import re
from functools import partial

import numpy as np

import reshard_lab as rl
from reshard_lab import paper
from support.reference_cases import one_sender, pieces_of
from support.refusals import bad_calls, check_refusal

FIGURE_2 = paper.on_figure2("S01R", "S0R")
PLAN = rl.plan(FIGURE_2)
PIECES = pieces_of(FIGURE_2.src, np.zeros((4, 4), "float32"))
FOUR_DEVICES = rl.Cluster(hosts=2, devices_per_host=2)
A = rl.Mesh([[0, 1], [2, 3]])


def copy_on(cluster: rl.Cluster) -> rl.ReshardingTask:
    return rl.ReshardingTask((4,), "float32", rl.Layout(A, "R"), rl.Layout(A, "R"), cluster)


def plan_of(**options) -> rl.Plan:
    return rl.plan(FIGURE_2, **options)


def sent(**options) -> rl.Plan:
    return rl.plan(one_sender(2, 1, 64, rl.Cluster(3, 1)), **options)


def execute_with(changes: dict) -> object:
    return rl.execute(PLAN, PIECES | changes)


REFUSALS = {
    "plan": [
        (lambda: rl.plan([]), "no task given"),
        (lambda: rl.plan(["x"]), "expected a ReshardingTask, not 'x'"),
        (lambda: rl.plan(None), "expected a ReshardingTask or a list of them, not None"),
        (
            lambda: rl.plan([copy_on(FOUR_DEVICES), copy_on(rl.Cluster(3, 2))]),
            "share one cluster, but these differ",
        ),
        (
            partial(plan_of, strategy="brodcast"),
            re.compile("unknown strategy 'brodcast'; .* did you mean 'broadcast'"),
        ),
        (partial(plan_of, scheduler="best"), "unknown scheduler 'best'; allowed are naive"),
        (partial(plan_of, chunks=0), "chunks must be at least 1, not 0"),
        (partial(plan_of, chunks=2.5), "chunks must be a whole number"),
        (
            partial(plan_of, chunks="many"),
            "chunks must be a whole number of at least 1 or 'auto', not 'many'",
        ),
        (partial(plan_of, seed=-1), "seed must be at least 0"),
        *[
            (
                partial(sent, strategy="send_recv", scheduler=name),
                f"scheduler '{name}' goes with strategy",
            )
            for name in ("split", "concurrent")
        ],
    ],
    "to_json": [(lambda: PLAN.to_json(programs="no"), "programs must be True or False, not 'no'")],
    "execute": [
        (lambda: rl.execute(PLAN, {}), "no piece given for device 0, which holds shape"),
        (
            lambda: rl.execute(rl.plan([FIGURE_2] * 2), PIECES),
            "the plan has 2 tasks, but pieces for 1 were given",
        ),
        (
            lambda: rl.execute(plan_of(strategy="signal"), {}),
            "'signal' delivers no data",
        ),
        (
            partial(execute_with, {9: PIECES[0]}),
            "piece given for device 9, which is not in Mesh",
        ),
        (
            partial(execute_with, {0: PIECES[0].astype("float64")}),
            "piece of device 0 is float64, the task is float32",
        ),
        (
            partial(
                execute_with,
                {1: np.zeros((2, 4), "float32"), 3: np.zeros((1, 3), "float32")},
            ),
            re.compile(r"device 1 has \(2, 4\), .* device 3 has \(1, 3\)"),
        ),
        *[(partial(rl.execute, PLAN, bad), "pieces must be") for bad in ([[1, 2]], None, 5)],
        (partial(execute_with, {2: None}), "piece of device 2 must be an array, not None"),
        (
            partial(execute_with, {"a": PIECES[0], 9: PIECES[0]}),
            "piece given for device a, which is not in Mesh",
        ),
        (lambda: rl.execute(FIGURE_2, PIECES), "plan must be a Plan"),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)
