"""``pipeline.train``: a model trained in stages on real processes, compared with a single one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reshard_lab.cluster import Cluster
from reshard_lab.planning import Plan
from reshard_lab.runtime.emulated import EmulatedCluster
from reshard_lab.runtime.pool import Pool, PoolJob
from reshard_lab.runtime.protocol import Position
from reshard_lab.training.gather import read, record
from reshard_lab.training.job import Job
from reshard_lab.training.member import JOB, OVER, PLAN, RUNS, WAITS
from reshard_lab.training.record import TrainingRun
from reshard_lab.training.settle import Paced, Stages, planned, settle
from reshard_lab.training.transformer import Transformer
from reshard_lab.training.unet import UNet
from reshard_lab.training.venue import find_venue


def train(
    model: str | Transformer | UNet = "transformer",
    schedule: str | Sequence[Sequence[str]] = "1f1b",
    *,
    stages: Stages | None = None,
    microbatches: int | None = None,
    batch: int = 8,
    strategy: str = "broadcast",
    overlap: bool = True,
    where: str | Pool | EmulatedCluster = "local",
    cluster: Cluster | None = None,
    compute: str | Paced = "real",
    chunks: int | None = None,
    delay_weights: bool = False,
    steps: int = 1,
    warmup: int = 0,
    learning_rate: float = 0.1,
    seed: int = 0,
    check: bool = True,
    timeout_s: float = 60.0,
) -> TrainingRun:
    """Train a small model in pipeline stages on real processes; its record (section 4).

    model:
        ``"transformer"``, ``"unet"`` (with skips), or a ``Transformer`` or ``UNet`` with sizes.
    schedule:
        a name of ``pipeline.schedule`` (with ``chunks`` and ``delay_weights``) or lists of ops a
        stage. Every op and transfer takes its turn as ``pipeline.simulate`` has it, overlapped or
        not. Halves of backwards are computed apart: ``I`` gradients of activations, ``W`` of
        weights.
    stages:
        by stage a Mesh (or its shape) and the spec of boundary tensors there, samples first.
        Mesh axes that cut samples are data-parallel, the others operator-parallel; axes may cut
        further dimensions as well. Default: two stages (or one a list) of two devices, by turns
        data- and operator-parallel.
    microbatches:
        4 unless given; they must divide ``batch``, the samples of a step.
    strategy:
        of the plans that move activations and gradients. ``signal`` with paced compute only.
    where:
        ``"local"``, ``"emulated"`` (NICs of 400 Mbit/s, or as ``cluster`` has them if the machine
        carries that), an open EmulatedCluster, or a Pool.
    cluster:
        to plan for; default: a host a stage. Shapes in ``stages`` are placed on its hosts in
        order.
    compute:
        ``"real"``, or ``Paced(...)``: sleeps of given length, while tensors of real size move.
    steps, warmup, learning_rate:
        steps of plain gradient descent on one random batch, after ``warmup`` that learn nothing.
    check:
        compare the first step's loss and all its gradients, on every device, with a run of the
        uncut model on the whole batch in one process; raises ReshardError beyond rtol 1e-5, and
        for losses of later steps beyond 1e-3.
    timeout_s:
        bounds setting up, each step, and each step of the comparison.

    Raises ReshardError, before any process is started, for what cannot work, and for what goes
    wrong on any device, naming it and its last op or transfer.
    """
    venue = find_venue(where, cluster)
    job, placed = settle(
        cluster=venue.cluster,
        model=model,
        schedule=schedule,
        stages=stages,
        microbatches=microbatches,
        batch=batch,
        overlap=overlap,
        compute=compute,
        chunks=chunks,
        delay_weights=delay_weights,
        steps=steps,
        warmup=warmup,
        learning_rate=learning_rate,
        seed=seed,
        check=check,
        timeout_s=timeout_s,
    )
    opened = venue.for_devices(placed, job.devices)
    pool = opened.pool
    pool.check_devices("training run", job.devices)
    job, plans = planned(job, strategy, opened.cluster)
    with opened.held:
        results = pool.carry_out(_pool_job(job, plans, pool.devices), partial(read, job))
        return record(job, plans, strategy, results, opened.stamp(results.cpu))


def _pool_job(job: Job, plans: list[Plan], devices: tuple[int, ...]) -> PoolJob:
    """The job for the workers of a pool, its idle ones included."""
    files = {PLAN.format(number): made.to_json() for number, made in enumerate(plans)}
    files[JOB] = job.to_json()
    return PoolJob(
        "the training run", devices, {"do": "train"}, files, job.timeout_s, partial(last_item, job)
    )


_DOING = {
    "copy": {WAITS: "waiting for the input of", RUNS: "running", OVER: "had run"},
    "send": {RUNS: "sending", OVER: "had sent"},
    "recv": {RUNS: "receiving or awaiting", OVER: "had received"},
}


def last_item(job: Job, device: int, position: Position | None) -> str:
    """What a device was doing, in words."""
    if device not in job.devices:
        return "it takes no part in the run"
    if position is None or position.repeat == 0:
        return f"it was setting up stage {job.stage_of(device)}"
    stage, steps = job.stage_of(device), job.warmup + job.steps
    if position.repeat > steps:
        return (
            f"all steps had been taken, and it was repeating step {position.repeat - steps} of "
            f"{job.steps} alone, for comparison; check=False leaves that out"
        )
    doing = [
        f"{_DOING[lane][done]} {job.item_text(item)}"
        for lane, (item, done) in position.lanes.items()
    ]
    what = ", ".join(doing) or "none yet"
    return f"stage {stage}, last operation in step {position.repeat} (warm-ups counted): {what}"
