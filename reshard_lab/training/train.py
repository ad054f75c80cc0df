"""``pipeline.train``: a model trained in stages on real processes, compared with a single one."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from reshard_lab.cluster import Cluster
from reshard_lab.errors import check_bool, check_int, check_number
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.launch import EmulatedCluster, open_pool
from reshard_lab.runtime.pool import Pool, PoolJob
from reshard_lab.runtime.process import Position
from reshard_lab.training.config import TrainingConfig
from reshard_lab.training.executor import CONFIG, OVER, PLAN, RUNS, WAITS
from reshard_lab.training.models import Transformer, UNet
from reshard_lab.training.resolve import (
    Paced,
    Stages,
    check_config,
    default_stages,
    place_stages,
    resolve_cluster,
    resolve_model,
    resolve_pace,
    resolve_schedule,
    with_plans,
)
from reshard_lab.training.results import TrainingRun, gather_run, read_results


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
        Mesh axes that cut samples are data-parallel, the others tensor-parallel; axes may cut
        further dimensions as well. Default: two stages (or one a list) of two devices, by turns
        data- and tensor-parallel.
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
    limit, cluster = Deadline(timeout_s).timeout_s, resolve_cluster(where, cluster)
    sizes = resolve_model(model)
    ops = resolve_schedule(schedule, stages, microbatches, chunks, delay_weights)
    placed_stages = default_stages(len(ops), sizes) if stages is None else list(stages)
    meshes, placed_on = place_stages(placed_stages, cluster)
    paced = resolve_pace(compute, ops, limit)
    config = TrainingConfig(
        sizes=sizes,
        schedule=ops,
        overlap=check_bool("overlap", overlap),
        meshes=[mesh.array().tolist() for mesh in meshes],
        specs=[spec for _, spec in placed_stages],
        batch=check_int("batch", batch, 1),
        steps=check_int("steps", steps, 1),
        warmup=check_int("warmup", warmup),
        learning_rate=check_number("learning_rate", learning_rate, expected="a finite number"),
        seed=check_int("seed", seed, most=2**63 - 1),
        paced=paced,
        reference=check_bool("check", check) and paced is None,
        timeout_s=limit,
        plan_numbers=[],
    )
    check_config(config)
    pool = open_pool(where, placed_on, config.devices) if isinstance(where, str) else where
    pool.check_devices("training run", config.devices)
    config, plans = with_plans(config, strategy, pool.cluster or placed_on)
    files = {PLAN.format(number): plan.to_json() for number, plan in enumerate(plans)}
    files[CONFIG] = config.to_json()
    devices = pool.devices  # idle ones too: all workers make the process groups
    last = partial(last_item, config)
    job = PoolJob("the training run", devices, {"do": "train"}, files, limit, last)
    with pool if isinstance(where, str) else nullcontext():
        results = pool.carry_out(job, partial(read_results, config))
        return gather_run(config, plans, strategy, results, pool.stamp(results.cpu))


_DOING = {
    "copy": {WAITS: "waiting for the input of", RUNS: "running", OVER: "had run"},
    "send": {RUNS: "sending", OVER: "had sent"},
    "recv": {RUNS: "receiving or awaiting", OVER: "had received"},
}


def last_item(config: TrainingConfig, device: int, position: Position | None) -> str:
    """What a device was doing, in words."""
    if device not in config.devices:
        return "it takes no part in the run"
    stage, steps = config.stage_of(device), config.warmup + config.steps
    if position is None or position.repeat == 0:
        return f"it was setting up stage {stage}"
    if position.repeat > steps:
        return (
            f"all steps had been taken, and it was repeating step {position.repeat - steps} of "
            f"{config.steps} alone, for comparison; check=False leaves that out"
        )
    lanes = position.lanes.items()
    doing = [f"{_DOING[lane][done]} {config.item_text(item)}" for lane, (item, done) in lanes]
    what = ", ".join(doing) or "none yet"
    return f"stage {stage}, last operation in step {position.repeat} (warm-ups counted): {what}"
