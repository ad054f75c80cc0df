"""Training that cannot work is refused before it starts anything."""

import re
from functools import partial

import pytest

import reshard_lab as rl
from reshard_lab.training import Paced, Transformer, UNet, reshard, train
from support.refusals import bad_calls, check_refusal

pytest.importorskip("torch")
CLUSTER = rl.Cluster(hosts=4, devices_per_host=2)
DATA, OPERATOR = ((2, 1), "S0RR"), ((1, 2), "RRR")

TRAININGS = {
    "microbatches that do not divide the batch": (
        {"batch": 10, "microbatches": 4},
        r"microbatches=4 does not divide batch=10; all microbatches have as many samples",
    ),
    "more stages than layers": (
        {"model": Transformer(blocks=1), "stages": [((1,), "RRR")] * 4},
        r"the schedule has 4 model chunks, but the model has 3 layers; use fewer stages",
    ),
    "a boundary that does not match the next stage's layout": (
        {"stages": [((2, 1), "S0RR"), ((2, 1), "S0R")]},
        r"spec 'S0R' of stage 1 has 2 tokens, but its boundary tensors have 3 dimensions",
    ),
    "images laid out as sequences": (
        {"model": "unet", "stages": [DATA, OPERATOR]},
        r"spec 'S0RR' of stage 0 has 3 tokens, but its boundary tensors have 4 dimensions",
    ),
    "devices without samples": (
        {"stages": [((4,), "S0RR"), OPERATOR], "batch": 12, "cluster": rl.Cluster(2, 4)},
        r"spec 'S0RR' of stage 0 leaves device 3 no sample of a microbatch of 3",
    ),
    "layers that cannot be shared out": (
        {"stages": [((3,), "RRR"), OPERATOR], "cluster": rl.Cluster(2, 4)},
        r"stage 0 shares its layers out among 3 devices .*, but the model has 4 heads",
    ),
    "a spec of axes that the mesh has not": (
        {"stages": [((2,), "S1RR"), OPERATOR]},
        r"spec 'S1RR' uses mesh axis 1",
    ),
    "stages that share devices": (
        {"stages": [(rl.Mesh([0, 1]), "S0RR"), (rl.Mesh([1, 2]), "S0RR")]},
        r"device 1 is in stages 0 and 1; a device belongs to one stage",
    ),
    "a schedule that gets stuck": (
        {"schedule": [["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]]},
        r"the schedule deadlocks: stage 0 is at B0",
    ),
    "a schedule that lacks an op": (
        {"schedule": [["F0", "B0"], ["F0"]]},
        r"the schedule is not complete: stage 1 runs F0 but never B0",
    ),
    "an unknown schedule": (
        {"schedule": "1f2b"},
        r"unknown pipeline schedule '1f2b'; allowed are .*; did you mean '1f1b'",
    ),
    "a schedule without backward": (
        {"schedule": "inference"},
        r"the schedule has no backward, so nothing is trained",
    ),
    "lists for other stages": (
        {"schedule": [["F0", "B0"]] * 3, "stages": [DATA, OPERATOR]},
        r"the schedule has 3 stages, but 2 were given",
    ),
    "lists of other microbatches": (
        {"schedule": [["F0", "B0"]] * 2, "microbatches": 2},
        r"the schedule has 1 microbatches, but microbatches=2",
    ),
    "lists with options of names": (
        {"schedule": [["F0", "B0"]] * 2, "delay_weights": True},
        r"chunks and delay_weights go with a schedule's name",
    ),
    "signal that should carry data": (
        {"strategy": "signal"},
        r"strategy 'signal' delivers no data, so nothing can be computed with it",
    ),
    "an unknown strategy": ({"strategy": "brodcast"}, r"unknown strategy 'brodcast'"),
    "an unknown model": ({"model": "resnet"}, r"unknown model 'resnet'; allowed are transformer"),
    "no model at all": ({"model": 3}, r"model must be 'transformer', 'unet' or a record of sizes"),
    "an unknown place": ({"where": "moon"}, r"unknown place to run \(where\) 'moon'"),
    "neither real nor paced": ({"compute": "fast"}, r"compute must be 'real' or a Paced"),
    "paces of other stages": (
        {"compute": Paced([1.0, 2.0, 3.0], 1.0)},
        r"forward_s has 3 entries, but the schedule has 2 stages",
    ),
    "a stage that is no pair": ({"stages": [(2, 1), OPERATOR]}, r"stages\[0\] must be a mesh"),
    "devices that nobody placed": (
        {"stages": [(rl.Mesh([0]), "RRR"), (rl.Mesh([1]), "RRR")], "cluster": None},
        r"stages name devices, but there is no cluster",
    ),
    "no stages": ({"stages": []}, r"stages must be a list with a mesh .* a stage, not \[\]"),
    "a word for overlap": ({"overlap": "no"}, r"overlap must be True or False, not 'no'"),
    "a word for check": ({"check": "no"}, r"check must be True or False, not 'no'"),
    "a huge seed": ({"seed": 2**70}, r"seed must be at most 9223372036854775807"),
    "no lists": ({"schedule": None}, r"a schedule is one list of ops a stage"),
    "a cluster by name": ({"cluster": "p3"}, r"cluster must be a Cluster, not 'p3'"),
    "a rate beyond floats": ({"learning_rate": 10**400}, r"learning_rate must be a finite number"),
    "a pace longer than a step may be": (
        {"compute": Paced(100, 1), "timeout_s": 1},
        r"an op is paced at 100 s, longer than timeout_s=1 allows a step",
    ),
    "a rate that is no number": (
        {"learning_rate": "1e-3"},
        r"learning_rate must be a finite number",
    ),
    "no steps": ({"steps": 0}, r"steps must be at least 1"),
    "no time": ({"timeout_s": 0}, r"timeout_s must be a number of seconds above 0, not 0; 1000000"),
    "no end": ({"timeout_s": float("inf")}, r"timeout_s must be .*, not inf; 1000000 at most"),
    "yes for seconds": ({"timeout_s": True}, r"timeout_s must be a number of .*, not True"),
}


def start(**options):
    return train(**{"cluster": CLUSTER, "stages": None, **options})


def plan_of(dtype: str, strategy: str = "broadcast", count: int = 1) -> rl.Plan:
    layouts = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1]), "R")
    return rl.plan([rl.ReshardingTask((4,), dtype, *layouts, rl.Cluster(2, 1))] * count, strategy)


REFUSALS = {
    **{
        name: [(partial(start, **options), re.compile(words))]
        for name, (options, words) in TRAININGS.items()
    },
    "a pool without the devices": [
        (
            lambda: train(where=rl.runtime.Pool(3), cluster=CLUSTER),
            "the training run uses devices [3], which the po",
        ),
    ],
    "a cluster that is not open": [
        (
            lambda: train(where=rl.EmulatedCluster(2, 2)),
            re.compile("is not open: .*; use it in a with statement"),
        ),
    ],
    "Transformer": [
        (lambda: Transformer(hidden=10, heads=4), "hidden=10 does not divide by heads=4"),
        (lambda: Transformer(sequence=1), "sequence must be at least 2"),
        (lambda: Transformer(blocks=0), "blocks must be at least 1"),
    ],
    "UNet": [
        (lambda: UNet(channels=6, groups=4), "channels=6 does not divide by groups=4"),
        (
            lambda: UNet(size=6),
            re.compile("size=6 cannot be halved levels=2 times to 2 or more .* a multiple of 4"),
        ),
        (lambda: UNet(size=4), "size=4 cannot be halved levels=2 times to 2 or more"),
    ],
    "reshard": [
        *[
            (partial(reshard, plan, None), "Plan of one task that delivers data, not ")
            for plan in (plan_of("float32", "signal"), plan_of("float32", count=2), "a plan")
        ],
        (
            lambda: reshard(plan_of("int32"), None),
            "a tensor of int32 has no gradient; use run_rank",
        ),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused_before_anything_starts(nothing_starts, call, words):
    check_refusal(call, words)
