"""Plans, options and measured runs that simulation and calibration refuse."""

import dataclasses
import math
import re
from functools import partial

import reshard_lab as rl
from support.reference_cases import one_sender
from support.refusals import bad_calls, check_refusal

PLAN = rl.plan(one_sender(2, 2, 1000, rl.Cluster(3, 2)), "send_recv")
BROADCAST = rl.plan(one_sender(2, 2, 9, rl.Cluster(3, 2, intra="inf")), "broadcast")


def with_transfers(transfers) -> rl.Plan:
    return dataclasses.replace(PLAN, transfers=tuple(transfers))


LACKING = with_transfers(PLAN.transfers[:-1])
CYCLIC = with_transfers(
    t._replace(after=((t.id + 1) % len(PLAN.transfers),)) for t in PLAN.transfers
)
BEYOND = with_transfers([PLAN.transfers[0]._replace(path=(0, 99)), *PLAN.transfers[1:]])

REFUSALS = {
    "simulate": [
        (lambda: rl.simulate(LACKING), "no transfer writes"),
        (lambda: rl.simulate(CYCLIC), "waits for itself"),
        (
            lambda: rl.simulate(CYCLIC, verify=False),
            "4 of 4 transmissions wait for each other",
        ),
        (lambda: rl.simulate(BEYOND), re.compile("transfer 0 .* uses device 99")),
        (
            lambda: rl.simulate(BEYOND, verify=False),
            "transfer 0 uses device 99, but the cluster has",
        ),
        (
            lambda: rl.simulate(PLAN, cluster=rl.Cluster(3, 2, nic=0)),
            "nic must be more than 0, not 0",
        ),
        (
            lambda: rl.simulate(PLAN, cluster=rl.Cluster(2, 2)),
            "the plan is for 3 hosts x 2 devices, the cluster",
        ),
        (lambda: rl.simulate(PLAN, "fine"), "unknown resolution 'fine'; allowed are auto"),
        (lambda: rl.simulate(PLAN.tasks[0]), "simulate takes a plan, not"),
        (
            lambda: rl.simulate(PLAN, core_oversubscription=0.5),
            "core_oversubscription must be a number of at least",
        ),
    ],
    "calibrate": [
        (partial(rl.calibrate, []), "calibrate needs at least one"),
        (
            partial(rl.calibrate, [(PLAN, 0)]),
            re.compile("a measured run must be seconds above 0, .* not 0"),
        ),
        (partial(rl.calibrate, [(PLAN, "1s")]), "must be seconds above 0"),
        (partial(rl.calibrate, [(PLAN, math.nan)]), "must be seconds above 0"),
        (
            partial(rl.calibrate, [(None, 1.0)]),
            re.compile("calibrate takes .* not None as a plan"),
        ),
        (partial(rl.calibrate, [(BROADCAST, 1)]), "intra is infinite"),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)
