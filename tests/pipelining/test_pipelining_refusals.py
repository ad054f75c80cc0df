"""Schedules, times, transfers and workloads that pipelines refuse."""

import math
import re
from functools import partial

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab import pipeline
from support.refusals import bad_calls, check_refusal

TWO_STAGES = pipeline.schedule("1f1b", 2, 2)
THREE_STAGES = pipeline.schedule("1f1b", 3, 4)
TOO_MANY = [(99_999_999_999, 4), (4, 10**5000), (np.int64(2**40),) * 2]
NO_BOOLS = ["no", 1, None]


def one_to_one(hosts: int, source: int, target: int) -> rl.ReshardingTask:
    """A tensor from one device to another, a second through idle NICs."""
    cluster = rl.Cluster(hosts, 1, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)
    layouts = rl.Layout(rl.Mesh([source]), "R"), rl.Layout(rl.Mesh([target]), "R")
    return rl.ReshardingTask((10**6,), "int8", *layouts, cluster)


TASK = one_to_one(3, 0, 1)
OTHER_CLUSTER = one_to_one(4, 1, 2)
NO_CLUSTER = rl.ReshardingTask(TASK.shape, TASK.dtype, TASK.src, TASK.dst)


def simulate(**changes):
    return pipeline.simulate(THREE_STAGES, **{"forward_s": 1, "backward_s": 2, **changes})


def boundaries(links, **changes):
    return simulate(forward_transfer_s=links, **changes)


REFUSALS = {
    "schedule": [
        (
            lambda: pipeline.schedule("1f1", 2, 2),
            re.compile("unknown pipeline schedule '1f1'; allowed are gpipe, .*mean '1f1b'"),
        ),
        (lambda: pipeline.schedule("1f1b", 0, 2), "stages must be at least 1, not 0"),
        (lambda: pipeline.schedule("1f1b", 2, 0), "microbatches must be at least 1, not 0"),
        (
            lambda: pipeline.schedule("1f1b", 2, 2.0),
            "microbatches must be a whole number, not 2.0",
        ),
        (
            lambda: pipeline.schedule("interleaved_1f1b", 2, 2, 0),
            "chunks must be at least 1, not 0",
        ),
        (
            lambda: pipeline.schedule("gpipe", 2, 2, 3),
            "'gpipe' has one model chunk a stage, but chunks=3 was given",
        ),
        *[
            (
                partial(pipeline.schedule, name, *sizes),
                "are too many: a schedule has up to 2000000 ops",
            )
            for name in pipeline.SCHEDULES
            for sizes in TOO_MANY
        ],
        (
            lambda: pipeline.schedule("interleaved_1f1b", 2, 2, 10**6),
            "x 1000000 chunks are",
        ),
        *[
            (
                partial(pipeline.schedule, "1f1b", 2, 2, delay_weights=value),
                f"delay_weights must be True or False, not {value!r}",
            )
            for value in NO_BOOLS
        ],
    ],
    "check": [
        (partial(pipeline.check, lists), words)
        for lists, words in [
            ("F0", "a schedule is one list of ops a stage, such as [['F0', 'B0']], not 'F0'"),
            ([], "a schedule is one list of ops a stage"),
            (["F0"], "stage 0 of a schedule must be a list of ops"),
            ([[]], "the schedule has no ops"),
            ([["F0"], ["F0", "X1"]], "stage 1 has 'X1', which is not an op; write a letter"),
            ([["F0", 3]], "stage 0 has 3, which is not an op"),
            ([["F0", "F0", "B0"]], "stage 0 runs F0 twice (positions 0 and 1)"),
            ([["F0", "B0"], ["F0"]], "stage 1 runs F0 but never B0 (or I0 and W0)"),
            ([["B0", "F0"]], "stage 0 runs B0 before F0"),
            ([["F0", "W0", "I0"]], "stage 0 runs W0 before I0"),
            ([["I0", "F0", "W0"]], "stage 0 runs I0 before F0"),
            ([["F0", "I0"]], "stage 0 runs I0 without W0"),
            ([["F0", "W0"]], "stage 0 runs W0 without I0"),
            ([["F0", "B0", "W0"]], "stage 0 runs B0 and also W0: a backward is B or I and W"),
            ([["F1", "B1"]], "stage 0 never runs F0 (the schedule has microbatches 0 to 1)"),
            ([["F0.1"], ["F0.0", "F0.1"]], "stage 0 never runs F0.0"),
            ([["F0"], [], [], [], []], re.compile("stage 3 never runs F0 .*; and more")),
            (
                [["F0", "F9999999999"]],
                re.compile("stage 0 never runs F1 .* 0 to 9999999999.*; and more"),
            ),
        ]
    ],
    "simulate": [
        (
            lambda: pipeline.simulate([["F" + "9" * 5000, "B0"]], 1, 2),
            "which is not an op",
        ),
        (
            lambda: pipeline.simulate([["F0"], ["F0", "B0"]], 1, 2),
            "not complete: stage 0 runs F0 but never B0",
        ),
        (
            partial(simulate, forward_s=[1, 2]),
            "forward_s has 2 entries, but the schedule has 3 stages",
        ),
        (
            partial(simulate, backward_s=[1] * 4),
            "backward_s has 4 entries, but the schedule has 3 stages",
        ),
        (partial(simulate, forward_s=[1, 2, -1]), "forward_s[2] must be at least 0, not -1"),
        (partial(simulate, backward_s=math.nan), "backward_s must be at least 0, not nan"),
        (partial(simulate, forward_s=math.inf), "forward_s must be finite, not inf"),
        (
            partial(simulate, backward_s=None),
            "backward_s is missing, but the schedule has backward ops",
        ),
        (
            partial(simulate, weight_s=3),
            "weight_s is 3.0 for stage 0, more than its backward_s of 2.0",
        ),
        (
            partial(simulate, forward_transfer_s=[1]),
            re.compile("forward_transfer_s has 1 entries, .* has 2 links"),
        ),
        (
            partial(simulate, backward_transfer_s=[1, -2]),
            "backward_transfer_s[1] must be at least 0",
        ),
        (
            partial(simulate, forward_transfer_s="fast"),
            "forward_transfer_s 'fast' is not a time",
        ),
        (
            partial(simulate, skips=[pipeline.BoundaryTensor(1, 1, 0)]),
            "skips[0] goes from stage 1 to stage 1; a skip",
        ),
        (
            partial(simulate, skips=[pipeline.BoundaryTensor(0, 3, 0)]),
            "goes to a later stage, 2 at most",
        ),
        (
            partial(simulate, skips=[pipeline.BoundaryTensor(0, 2, -1)]),
            "forward_transfer_s of skips[0] must be at",
        ),
        (
            partial(simulate, skips=[7]),
            "skips[0] must be BoundaryTensor(from_stage, to_stage, forward_transfer_s), not 7",
        ),
        (partial(simulate, skips=3), "skips must be a Sequence, not 3"),
        (
            partial(simulate, activation_bytes=[1, 2]),
            "activation_bytes must be one number a stage, 3 of them",
        ),
        (
            partial(simulate, activation_bytes=[1, 2, "x"]),
            "activation_bytes[2] 'x' is not a number of bytes",
        ),
        *[
            (partial(simulate, overlap=value), f"overlap must be True or False, not {value!r}")
            for value in NO_BOOLS
        ],
        *[
            (
                partial(pipeline.simulate, TWO_STAGES, 1e308, 1e308, overlap=overlap),
                "add up to more than",
            )
            for overlap in (True, False)
        ],
    ],
    "transfers": [
        (partial(boundaries, [TASK, OTHER_CLUSTER]), "share one cluster, but these differ"),
        (
            partial(boundaries, [TASK, 0], skips=[pipeline.BoundaryTensor(0, 2, OTHER_CLUSTER)]),
            "share one cluster, but these differ",
        ),
        (partial(boundaries, [NO_CLUSTER, 0]), "has no cluster; give one"),
        (
            partial(boundaries, TASK),
            "forward_transfer_s is one ReshardingTask, but the schedule has 2 links",
        ),
        (
            lambda: boundaries(rl.plan(TASK)),
            "is one Plan, but the schedule has 2 links (0>1, 1>2); give one",
        ),
        (
            partial(boundaries, [TASK, [TASK, 3]]),
            "forward_transfer_s[1] must be seconds, a ReshardingTask, a list",
        ),
        (
            partial(boundaries, [TASK, []]),
            "forward_transfer_s[1] must be seconds, a ReshardingTask, a list",
        ),
        (partial(boundaries, [TASK]), "forward_transfer_s has 1 entries"),
        (partial(boundaries, [TASK, 0], strategy="fast"), "unknown strategy 'fast'"),
    ],
    "workloads": [
        (lambda: pipeline.gpt("3B"), "unknown GPT size '3B'; allowed are 1.3B, 2.6B"),
        (
            lambda: pipeline.gpt(depth=3),
            "unknown GPT setting 'depth'; allowed are sequence, hidd",
        ),
        (
            lambda: pipeline.gpt(microbatches=5),
            "GPT-1.3B changed: 5 microbatches do not divide a ",
        ),
        (lambda: pipeline.gpt(data=3), "a microbatch of 16 samples does not divide over data=3"),
        (lambda: pipeline.gpt(layers=1), "1 layers do not fill 2 stages"),
        (lambda: pipeline.gpt(heads=33), "hidden=2048 does not divide into 33 heads"),
        (lambda: pipeline.gpt(batch=0), "batch of GPT-1.3B changed must be at least 1, not 0"),
        (lambda: pipeline.gpt(hidden=1.5), "hidden of GPT-1.3B changed must be a whole number"),
        (lambda: pipeline.gpt(dtype="half"), "unknown dtype 'half'"),
        (lambda: pipeline.gpt("1.3B", stages=10**9), "at most 10000"),
        (lambda: pipeline.u_transformer("3B"), "unknown U-Transformer size '3B'"),
        (
            lambda: pipeline.u_transformer(cuts=(13,)),
            "cuts=(13,) must be ascending numbers of",
        ),
        (lambda: pipeline.u_transformer(cuts=(5, 5)), "must be ascending numbers of layers"),
        (lambda: pipeline.u_transformer(cuts=8), "cuts=8 must be ascending numbers of layers"),
        (
            lambda: pipeline.u_transformer(image=36),
            "image=36 is halved three times; use multiples",
        ),
        (
            lambda: pipeline.u_transformer(heads=7),
            "channels=480 does not divide into 7 heads",
        ),
        *[
            (
                partial(build, size, recompute=value),
                f"recompute must be True or False, not {value!r}",
            )
            for build, size in ((pipeline.gpt, "1.3B"), (pipeline.u_transformer, "1B"))
            for value in NO_BOOLS
        ],
        (
            lambda: pipeline.device_speed("laptop", "float16"),
            "preset 'laptop' states no achieved",
        ),
        (
            lambda: pipeline.device_speed("p3.8xlarge", "int8"),
            "unknown dtype for the speed of p3.8",
        ),
        (
            lambda: pipeline.gpt().arguments(rl.Cluster.preset("p3.8xlarge", hosts=1), 1e12),
            re.compile(
                r"GPT-1.3B needs 2 hosts \(2 stages of 2 devices, each on 1\), "
                "but .* has 1; give it"
            ),
        ),
        (
            lambda: pipeline.gpt().arguments(rl.Cluster.preset("p3.8xlarge", hosts=2), 0),
            "flops_per_s must be more than 0 and finite, not 0",
        ),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["0F0,0SEND_F0,0B0"], "rank 0 has '0SEND_F0', which is not a compute op"),
        (
            ["0F0,3F0,0B0,3B0", "1F0,2F0,1B0,2B0"],
            "rank 0 has '3F0', but with 2 ranks model chunk 3",
        ),
        (["0F0,0B0", "1F0"], "stage 1 runs F0 but never B0"),
        (["0F0,0F1,0B0,0B1", "1F0,1B1,1F1,1B0"], "stage 1 runs B1 before F1"),
    ],
)
def test_bad_csv_files_are_refused(rows, words, tmp_path):
    (tmp_path / "bad.csv").write_text("\n".join(rows))
    check_refusal(lambda: pipeline.from_torch_csv(tmp_path / "bad.csv"), words)
