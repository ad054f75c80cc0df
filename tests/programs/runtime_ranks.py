"""A torch.distributed program of its own, forked from one process that imports torch once.

``python -m programs.runtime_ranks`` in tests/: runs every scenario below on its ranks and prints
``{scenario: [what each rank returned]}`` as JSON. A rank that raises returns
``{"error": text, "seconds": until then}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

import reshard_lab as rl
from reshard_lab.boxes import box_shape
from reshard_lab.runtime import run_rank, trial
from reshard_lab.runtime.arrays import bytes_of
from reshard_lab.runtime.context import devices_of
from support import random_tasks

SCENARIOS = {}


def scenario(ranks):
    """Mark a function to be run on so many ranks."""

    def add(function):
        SCENARIOS[function.__name__] = (ranks, function)
        return function

    return add


def simple_plan(strategy="broadcast", chunks=4, dtype="int32", shape=(6, 5), devices=range(4)):
    """Rows on the first two devices to columns on the last two."""
    a, b, c, d = devices
    cluster = rl.Cluster(hosts=2 * max(devices), devices_per_host=2)
    src, dst = rl.Layout(rl.Mesh([a, b]), "S0R"), rl.Layout(rl.Mesh([c, d]), "RS0")
    return rl.plan(rl.ReshardingTask(shape, dtype, src, dst, cluster), strategy, chunks=chunks)


def filled(task, device, side="src", seed=0):
    """The piece of a device as the oracle says, or None."""
    box = getattr(task, side).boxes(task.shape).get(device)
    if box is None:
        return None
    tensor = torch.empty(box_shape(box), dtype=getattr(torch, task.dtype))
    trial.fill(bytes_of(tensor).numpy(), task.shape, task.dtype, box, seed)
    return tensor


def right(task, device, piece, seed=0):
    """Whether ``piece`` is what the destination layout asks for."""
    box = task.dst.boxes(task.shape).get(device)
    if box is None:
        return piece is None
    raw = bytes_of(piece).numpy()
    return trial.first_wrong(task.shape, task.dtype, box, seed, raw) is None


def all_right(plan, device, outs):
    """``right`` for every tensor, filled with its number as seed."""
    pairs = enumerate(zip(plan.tasks, outs, strict=True))
    return [right(task, device, out, seed=n) for n, (task, out) in pairs]


@scenario(4)
def mapping(rank):
    devices = (7, 4, 12, 9)
    plan = simple_plan(devices=devices)
    ranks = {7: 2, 4: 0, 12: 3, 9: 1}
    device = {r: d for d, r in ranks.items()}[rank]
    (task,) = plan.tasks
    return right(task, device, run_rank(plan, filled(task, device), ranks=ranks))


@scenario(5)
def subgroup(rank):
    """Rank 2 is in no group; ranks of the group number anew; a second group follows."""
    plan, members = simple_plan(), [0, 1, 3, 4]
    (task,) = plan.tasks
    group = dist.new_group(members, backend="gloo")
    if rank == 2:
        return True
    device = members.index(rank)
    first = right(task, device, run_rank(plan, filled(task, device), group))
    other = dist.new_group(members[::-1], backend="gloo", use_local_synchronization=True)
    again = run_rank(plan, filled(task, dist.get_rank(other)), other)
    return first and right(task, dist.get_rank(other), again)


@scenario(5)
def outsiders_do_not_call(rank):
    """The default group has a rank more than the plan has devices."""
    plan = simple_plan()
    (task,) = plan.tasks
    if rank == 4:
        return True
    return right(task, rank, run_rank(plan, filled(task, rank)))


@scenario(3)
def plans_on_different_devices(rank):
    """Ranks that took part in different plans before meet in one."""
    for devices in ((0, 1), (1, 2), (0, 2), (0, 1, 2)):
        if rank not in devices:
            continue
        cluster = rl.Cluster(hosts=3, devices_per_host=1)
        src, dst = rl.Layout(rl.Mesh([devices[0]]), "R"), rl.Layout(rl.Mesh(devices[1:]), "S0")
        plan = rl.plan(rl.ReshardingTask((7,), "int16", src, dst, cluster))
        (task,) = plan.tasks
        if not right(task, rank, run_rank(plan, filled(task, rank))):
            return False
    return True


@scenario(2)
def devices_change_ranks(rank):
    """The same plan again with its devices the other way round, and with other device ids."""
    good = []
    for src, dst, ranks in ((0, 1, {0: 0, 1: 1}), (0, 1, {0: 1, 1: 0}), (6, 7, {6: 0, 7: 1})):
        cluster = rl.Cluster(hosts=8, devices_per_host=1)
        layouts = rl.Layout(rl.Mesh([src]), "R"), rl.Layout(rl.Mesh([dst]), "R")
        plan = rl.plan(rl.ReshardingTask((7,), "int16", *layouts, cluster))
        (task,) = plan.tasks
        device = {r: d for d, r in ranks.items()}[rank]
        good.append(right(task, device, run_rank(plan, filled(task, device), ranks=ranks)))
    return all(good)


@scenario(4)
def mismatch(rank):
    """One rank runs another plan: all raise, and the group stays in use."""
    plan = simple_plan(chunks=3 if rank == 1 else 4)
    (task,) = plan.tasks
    try:
        run_rank(plan, filled(task, rank), timeout_s=20)
    except rl.ReshardError as error:
        text = str(error)
    plan = simple_plan(chunks=4)
    return [text, right(task, rank, run_rank(plan, filled(task, rank)))]


@scenario(4)
def one_plan_from_json(rank):
    """Built on some ranks, read from a file on the others, and read again: still one plan."""
    plan = simple_plan()
    (task,) = plan.tasks
    good = []
    for _ in range(2):
        if rank % 2:
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                plan.to_json(file.name)
                plan = rl.Plan.from_json(file.name)
        good.append(right(task, rank, run_rank(plan, filled(task, rank))))
    return good


def others_done(rank, size):
    """Note that this rank has its result; returns when all others have theirs."""
    folder = os.environ["SCENARIO"]
    open(f"{folder}/done-{rank}", "w").close()
    while sum(name.startswith("done-") for name in os.listdir(folder)) < size:
        time.sleep(0.05)


@scenario(4)
def skipped_first_call(rank):
    plan = simple_plan()
    outcome = None
    if rank < 3:
        start = time.monotonic()
        try:
            run_rank(plan, filled(plan.tasks[0], rank), timeout_s=2.0)
        except rl.ReshardError as error:
            outcome = [str(error), time.monotonic() - start]
    others_done(rank, 4)
    return outcome


@scenario(4)
def skipped_later_call(rank):
    plan = simple_plan()
    piece = filled(plan.tasks[0], rank)
    run_rank(plan, piece)
    outcome = []
    for _ in range(2 * (rank != 2)):
        start = time.monotonic()
        try:
            run_rank(plan, piece, timeout_s=2.0)
        except rl.ReshardError as error:
            outcome += [str(error), time.monotonic() - start]
    others_done(rank, 4)
    return outcome


@scenario(4)
def dead_peer(rank):
    """A rank dies in the middle of a long transfer."""
    plan = simple_plan(shape=(4000, 5000), chunks=100)

    def die(lane, step, done):
        if rank == 2 and lane == "recv" and done == 10:
            os.kill(os.getpid(), signal.SIGKILL)

    run_rank(plan, filled(plan.tasks[0], rank), timeout_s=3, observe=die)


@scenario(4)
def unfit_pieces(rank):
    """Every rank is told; nothing was sent, so the group stays in use."""
    plan = simple_plan()
    (task,) = plan.tasks
    piece = filled(task, rank)
    wrong = torch.zeros(2, 2) if piece is None else piece.T.contiguous()
    try:
        run_rank(plan, wrong)
    except rl.ReshardError as error:
        text = str(error)
    return [text, right(task, rank, run_rank(plan, piece))]


@scenario(4)
def asynchronous(rank):
    """Three calls at once, of two plans, waited for backwards."""
    plans = [simple_plan(), simple_plan("local_allgather", dtype="float16"), simple_plan()]
    handles = [
        run_rank(plan, filled(plan.tasks[0], rank, seed=n), async_op=True)
        for n, plan in enumerate(plans)
    ]
    good = [
        right(plan.tasks[0], rank, handle.wait(), seed=n)
        for n, (plan, handle) in reversed(list(enumerate(zip(plans, handles, strict=True))))
    ]
    return [*good, all(h.done() for h in handles), handles[0].wait() is handles[0].wait()]


@scenario(2)
def asynchronous_overlaps(rank):
    """The call returns while the other end is still away."""
    cluster = rl.Cluster(hosts=2, devices_per_host=1)
    src, dst = rl.Layout(cluster.mesh(1), "R"), rl.Layout(cluster.mesh(1, first_host=1), "R")
    plan = rl.plan(rl.ReshardingTask((9,), "int8", src, dst, cluster))
    (task,) = plan.tasks
    run_rank(plan, filled(task, rank))
    if rank == 0:
        handle = run_rank(plan, filled(task, rank), async_op=True)
        pending = not handle.done()
        dist.barrier()
        return [pending, handle.wait() is None]
    dist.barrier()
    return [True, right(task, rank, run_rank(plan, None))]


SEVERAL = random_tasks.several_tensors()


@scenario(8)
def several_tensors(rank):
    good = []
    for plan in SEVERAL:
        if rank not in devices_of(plan):
            continue
        pieces = [filled(t, rank, seed=n) for n, t in enumerate(plan.tasks)]
        out = run_rank(plan, pieces)
        good.append(isinstance(out, list) and len(out) == len(plan.tasks))
        good += all_right(plan, rank, out)
    return all(good) and len(good) > 0


@scenario(4)
def given_destination(rank):
    plan = simple_plan()
    (task,) = plan.tasks
    piece, out = filled(task, rank), filled(task, rank, "dst", seed=99)
    result = run_rank(plan, piece, out=out)
    return result is out and right(task, rank, out)


@scenario(4)
def signal_moves_no_data(rank):
    plan = simple_plan("signal", shape=(600, 500))
    (task,) = plan.tasks
    out = filled(task, rank, "dst", seed=99)
    untouched = None if out is None else bytes_of(out).clone()
    result = run_rank(plan, filled(task, rank), out=out)
    fresh = run_rank(plan, filled(task, rank))
    if rank < 2:
        return result is None and fresh is None
    return torch.equal(bytes_of(result), untouched) and not bytes_of(fresh).any().item()


@scenario(3)
def world_too_small(rank):
    return run_rank(simple_plan(), None)


@scenario(2)
def not_a_device(rank):
    if rank == 1:
        cluster = rl.Cluster(hosts=1, devices_per_host=1)
        layout = rl.Layout(rl.Mesh([0]), "R")
        return run_rank(rl.plan(rl.ReshardingTask((4,), "int8", layout, layout, cluster)), None)
    return None


def chain_plan(nbytes, chunks):
    """One sender to two hosts of two devices: a chain of five devices."""
    cluster = rl.Cluster(hosts=3, devices_per_host=2)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([[2, 3], [4, 5]]), "R")
    return rl.plan(rl.ReshardingTask((nbytes,), "uint8", src, dst, cluster), chunks=chunks)


@scenario(5)
def chain_forwards_chunks(rank):
    """Every device stops taking chunks in until it has sent the first one on.

    A device that stored the payload before forwarding it would wait here for ever.
    """
    plan, ranks = chain_plan(2**20, 64), {0: 0, 2: 1, 3: 2, 4: 3, 5: 4}
    device = {r: d for d, r in ranks.items()}[rank]
    (task,) = plan.tasks
    first_sent, timely = threading.Event(), []

    def hold(lane, step, done):
        if lane == "send" and done >= 1:
            first_sent.set()
        if lane == "recv" and done == 60 and device != 5:
            timely.append(first_sent.wait(10))

    out = run_rank(plan, filled(task, device), ranks=ranks, observe=hold)
    return all(timely) and len(timely) == (device not in (0, 5)) and right(task, device, out)


@scenario(5)
def chain_does_not_wait_for_its_middle(rank):
    """A device takes everything in even while it cannot yet send it on."""
    plan, ranks = chain_plan(2**20, 64), {0: 0, 2: 1, 3: 2, 4: 3, 5: 4}
    device = {r: d for d, r in ranks.items()}[rank]
    (task,) = plan.tasks
    all_in, timely = threading.Event(), []

    def hold(lane, step, done):
        if lane == "recv" and done == 64:
            all_in.set()
        if lane == "send" and done == 0 and device == 3:
            timely.append(all_in.wait(10))

    out = run_rank(plan, filled(task, device), ranks=ranks, observe=hold)
    return all(timely) and len(timely) == (device == 3) and right(task, device, out)


def traced(plan, rank, jitter):
    """Run, with small random delays; returns [lane, step, done, moment] as things happen."""
    events = []

    def note(lane, step, done):
        events.append([lane, step, done, time.monotonic()])
        if jitter.random() < 0.4:
            time.sleep(jitter.random() * 0.02)

    pieces = [filled(t, rank, seed=n) for n, t in enumerate(plan.tasks)]
    out = run_rank(plan, pieces, observe=note)
    good = all(all_right(plan, rank, out if len(plan.tasks) > 1 else [out]))
    return {"right": good, "events": events}


TRACED = random_tasks.traced_plans()


@scenario(8)
def traces(rank):
    jitter = np.random.default_rng(rank)
    events = []
    for plan in TRACED:
        events.append(traced(plan, rank, jitter) if rank in devices_of(plan) else None)
    return events


def live(folder, rank, size, function, to):
    """One rank of one scenario; writes its result as a line."""
    signal.alarm(120)
    os.environ["SCENARIO"] = folder
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(f"{folder}/store", size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=30),
    )
    start = time.monotonic()
    try:
        result = function(rank)
    except rl.ReshardError as error:
        result = {"error": str(error), "seconds": time.monotonic() - start}
    except BaseException:
        result = {"crash": traceback.format_exc()}
    with os.fdopen(to, "w") as file:
        json.dump(result, file)
    if function.__name__ not in ("skipped_first_call", "skipped_later_call", "dead_peer"):
        dist.barrier()  # nobody leaves while others still need the connection
    os._exit(0)


def run_all(size, function):
    """The results of all ranks; None for one that died."""
    results, readers = [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(size):
            reader, writer = os.pipe()
            if os.fork() == 0:
                live(folder, rank, size, function, writer)
            os.close(writer)
            readers.append(reader)
        for reader in readers:
            with os.fdopen(reader) as file:
                text = file.read()
            results.append(json.loads(text) if text else None)
        for _ in range(size):
            os.wait()
    return results


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    wanted = sys.argv[1:] or SCENARIOS
    results = {}
    for name in wanted:
        begun = time.monotonic()
        results[name] = run_all(*SCENARIOS[name])
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(json.dumps(results))
