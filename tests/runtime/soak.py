"""Launch clusters again and again, kill workers, and look for what is left: ``make soak``.

PYTHONPATH=tests python tests/runtime/soak.py [--launches 100] [--kills 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time

import reshard_lab as rl
from reshard_lab.runtime import network
from support import leftovers

rl.EmulatedCluster._probe = lambda self: None  # its speed does not matter here
LIMIT_S = 3.0
"""From the death of a worker to the error that names it."""


def opened():
    """A cluster of four workers, and its pool."""
    if network.refused() is None:
        cluster = rl.EmulatedCluster(hosts=2, devices_per_host=2)
        return cluster.cluster, cluster
    return rl.Cluster(hosts=2, devices_per_host=2), rl.runtime.Pool(4)


def plan_on(cluster, shape):
    layouts = rl.Layout(rl.Mesh([0, 1]), "S0R"), rl.Layout(rl.Mesh([2, 3]), "RS0")
    return rl.plan(rl.ReshardingTask(shape, "int16", *layouts, cluster))


def launch(number):
    """Start, run, end (every third time by an exception); the processes that there were."""
    cluster, pool = opened()
    try:
        with pool:
            assert pool.run(plan_on(cluster, (64, 48)), repeats=2, warmup=1).verified
            pids = leftovers.processes(pool)
            if number % 3 == 2:
                raise KeyError
    except KeyError:
        pass
    return pids


def kill_one(rng):
    """Kill a worker at some moment of a run; seconds to the error, which must name it."""
    cluster, pool = opened()
    killed = []
    with pool:
        plan = plan_on(cluster, (3000, 2000))
        pool.run(plan, repeats=1)
        victim = rng.randrange(4)
        pid = leftovers.workers(pool)[victim]
        pids = leftovers.processes(pool)

        def kill():
            killed.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)

        threading.Timer(rng.random(), kill).start()
        try:
            pool.run(plan, repeats=10**6)
        except rl.ReshardError as error:
            seconds = time.monotonic() - killed[0]
            text = rf"device {victim} died \(killed by SIGKILL\); last operation"
            named = re.search(text, str(error))
            assert named, f"device {victim} was killed, and the error says: {error}"
        pids += leftovers.processes(pool)
    return seconds, pids


def check(before, temporary, pids, what):
    assert leftovers.gone(pids), f"{what}: processes {leftovers.alive(pids)} are left"
    after = leftovers.traces(temporary)
    assert after == before, f"{what}: {before} became {after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    reason = network.refused()
    print("emulated clusters" if reason is None else f"loopback, for {reason}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = temporary
        before = leftovers.traces(temporary)
        start = time.monotonic()
        for number in range(args.launches):
            check(before, temporary, launch(number), f"launch {number + 1}")
        if args.launches:
            each = (time.monotonic() - start) / args.launches
            print(f"{args.launches} launches of 4 workers, {each:.1f} s each: nothing is left")
        times = []
        rng = random.Random(args.seed)
        for number in range(args.kills):
            seconds, pids = kill_one(rng)
            times.append(seconds)
            check(before, temporary, pids, f"kill {number + 1}")
        tempfile.tempdir = None
    if times:
        slowest = f"slowest {max(times):.2f} s, limit {LIMIT_S:g} s"
        print(
            f"{args.kills} workers killed: after {statistics.median(times):.2f} s ({slowest}) the "
            "error named the device and its last operation; nothing is left"
        )
    return int(max(times, default=0.0) >= LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
