"""Carriers for backends that work in order, on gloo (run like runtime_ranks.py)."""

from __future__ import annotations

import json
import os
import sys

import torch.distributed as dist

import reshard_lab as rl
from programs.runtime_ranks import filled, right, run_all, simple_plan
from reshard_lab.runtime import prepare, run_rank
from reshard_lab.runtime.context import communicators_of, devices_of
from support.random_tasks import random_plan

PLANS = [random_plan(seed) for seed in range(60)]
PLANS += [
    rl.plan(plan.tasks, scheduler=scheduler, chunks=4)
    for plan in PLANS[:12]
    for scheduler in ("split", "concurrent")
]
CARRIERS = ("broadcast", "chain")


def chains(shape=(6, 5)):
    """Whole tensors from either of two ranks to the other two: broadcasts down chains of three."""
    cluster = rl.Cluster(hosts=4, devices_per_host=1)
    src, dst = rl.Layout(rl.Mesh([0, 1]), "S0R"), rl.Layout(rl.Mesh([2, 3]), "RR")
    return rl.plan(rl.ReshardingTask(shape, "int16", src, dst, cluster), chunks=4)


def carried(plan, me, carrier, **options):
    """Whether this rank got what it should, tensor by tensor."""
    pieces = [filled(task, me, seed=n) for n, task in enumerate(plan.tasks)]
    out = run_rank(plan, pieces, carrier=carrier, **options)
    return all_right(plan, me, out)


def all_right(plan, me, out):
    outs = out if len(plan.tasks) > 1 else [out]
    return all(
        right(task, me, o, seed=n) for n, (task, o) in enumerate(zip(plan.tasks, outs, strict=True))
    )


def random_plans(me):
    """All plans by both carriers; those whose devices are not all ranks are prepared by all."""
    good = []
    for plan in PLANS:
        for carrier in CARRIERS:
            prepare(plan, carrier=carrier)
            if me in devices_of(plan):
                good.append(carried(plan, me, carrier))
    return [all(good), len(good) > 40]


def groups_are_kept(me):
    """A plan run again, and another on the same devices, make no more process groups."""
    groups = []
    make = dist.new_group
    dist.new_group = lambda *args, **options: (groups.append(args), make(*args, **options))[1]
    good = [carried(chains(), me, "broadcast") for _ in range(2)]
    good.append(carried(chains((9, 2)), me, "broadcast"))
    group = dist.group.WORLD
    return [all(good), len(groups), len(communicators_of(group).groups)]


def unprepared(me):
    """A plan on some of the ranks: no hang, but an error that says what to call."""
    if me == 4:
        return None
    return carried(chains(), me, "broadcast")


def asynchronous(me):
    """Both carriers and lanes, three calls under way at once."""
    plans = [chains(), simple_plan("local_allgather"), chains((30, 40))]
    handles = [
        run_rank(plan, filled(plan.tasks[0], me), carrier=carrier, async_op=True)
        for plan, carrier in zip(plans, ("broadcast", "chain", "broadcast"), strict=True)
    ]
    return [all_right(p, me, h.wait()) for p, h in zip(plans, handles, strict=True)]


def signal(me):
    plan = simple_plan("signal")
    run_rank(plan, filled(plan.tasks[0], me), carrier="chain")
    return True


def late(me):
    """A rank that does not come: the others are told within the deadline, by what they waited in.

    The first call has connected all; the plan has one broadcast and one later message.
    """
    plan = chains()
    first = carried(plan, me, "broadcast")
    if me == 2:
        import time

        time.sleep(4)
        return first
    return carried(plan, me, "broadcast", timeout_s=1.0)


SCENARIOS = {
    "random_plans": (8, random_plans),
    "groups_are_kept": (4, groups_are_kept),
    "unprepared": (5, unprepared),
    "asynchronous": (4, asynchronous),
    "signal": (4, signal),
    "late": (4, late),
}

if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    print(json.dumps({name: run_all(*SCENARIOS[name]) for name in sys.argv[1:] or SCENARIOS}))
