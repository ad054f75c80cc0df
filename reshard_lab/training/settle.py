"""From what the caller asks for to a job, and to its plans; everything wrong is refused here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_bool, check_choice, check_int, short
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.checking import check as check_lists
from reshard_lab.pipelining.loads import Times, reverse
from reshard_lab.pipelining.schedules import schedule as make_schedule
from reshard_lab.pipelining.simulation import compute_loads
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.emulated import DEFAULT_NIC
from reshard_lab.strategies import STRATEGIES
from reshard_lab.training.job import MODELS, Job, groups_of
from reshard_lab.training.transformer import Transformer
from reshard_lab.training.unet import UNet

Stages = Sequence[tuple[Mesh | Sequence[int], str]]
"""By stage: its mesh, or the shape of one, and the spec of boundary tensors on it."""

_CHUNK_BYTES = 2**16  # smaller messages cost more than they bring
_CHUNKS = 100


@dataclass(frozen=True)
class Paced:
    """Sleeps in place of compute: seconds of ops, one number or one a piece of the model.

    As in ``pipeline.simulate``: ``backward_s`` is the whole backward, ``weight_s`` the part of it
    that ``W`` takes, half unless given.
    """

    forward_s: Times
    backward_s: Times
    weight_s: Times | None = None


def settle(
    *,
    cluster: Cluster | None,
    model: str | Transformer | UNet,
    schedule: str | Sequence[Sequence[str]],
    stages: Stages | None,
    microbatches: int | None,
    batch: int,
    overlap: bool,
    compute: str | Paced,
    chunks: int | None,
    delay_weights: bool,
    steps: int,
    warmup: int,
    learning_rate: float,
    seed: int,
    check: bool,
    timeout_s: float,
) -> tuple[Job, Cluster]:
    """The job that ``train`` is asked for, without its plans, and the cluster it is placed on."""
    steps, warmup = check_int("steps", steps, 1), check_int("warmup", warmup)
    seed = check_int("seed", seed, most=2**63 - 1)
    limit = Deadline(timeout_s).timeout_s
    if not (compute == "real" or isinstance(compute, Paced)):
        raise ReshardError(f"compute must be 'real' or a Paced(...), not {compute!r}")
    sizes = find_model(model)
    ops = find_schedule(schedule, count_stages(stages), microbatches, chunks, delay_weights)
    given = default_stages(len(ops), sizes) if stages is None else list(stages)
    meshes, placed = place(given, cluster)
    paced = pace_of(compute, ops) if isinstance(compute, Paced) else None
    longest = max((s for seconds in (paced or {}).values() for s in seconds), default=0.0)
    if longest > limit:
        raise ReshardError(
            f"an op is paced at {longest:g} s, longer than timeout_s={limit:g} allows a step; give "
            "a shorter pace or a longer timeout_s"
        )
    job = Job(
        model=sizes,
        schedule=ops,
        overlap=check_bool("overlap", overlap),
        meshes=[mesh.array().tolist() for mesh in meshes],
        specs=[spec for _, spec in given],
        batch=check_batch(batch, ops),
        steps=steps,
        warmup=warmup,
        learning_rate=check_rate(learning_rate),
        seed=seed,
        paced=paced,
        reference=check_bool("check", check) and paced is None,
        timeout_s=limit,
        plans=[],
    )
    check_stages(job)
    return job, placed


def find_model(model: object) -> Transformer | UNet:
    """The sizes of the model; those of its kind's default for a name."""
    for known in MODELS.values():
        if isinstance(model, known):
            return model
    if not isinstance(model, str):
        kinds = ", ".join(kind.__name__ for kind in MODELS.values())
        raise ReshardError(
            f"model must be {', '.join(map(repr, MODELS))} or a record of sizes ({kinds}), not "
            f"{model!r}"
        )
    return MODELS[check_choice("model", model, MODELS)]()


def find_schedule(
    schedule: str | Sequence[Sequence[str]],
    stages: int | None,
    microbatches: int | None,
    chunks: int | None,
    delay_weights: bool,
) -> list[list[str]]:
    """Lists of ops a stage, proven complete and free of deadlock."""
    made: Sequence[Sequence[str]]
    if isinstance(schedule, str):
        count = 4 if microbatches is None else microbatches
        made = make_schedule(schedule, stages or 2, count, chunks, delay_weights)
    else:
        if chunks is not None or delay_weights:
            raise ReshardError("chunks and delay_weights go with a schedule's name, not with lists")
        made = schedule
    lists = check_lists(made).lists
    if not lists.trains:
        raise ReshardError("the schedule has no backward, so nothing is trained; use another one")
    if stages is not None and lists.stages != stages:
        raise ReshardError(
            f"the schedule has {lists.stages} stages, but {stages} were given; give one list of "
            "ops a stage"
        )
    if microbatches is not None and lists.microbatches != microbatches:
        raise ReshardError(
            f"the schedule has {lists.microbatches} microbatches, but microbatches={microbatches}"
        )
    return [list(ops) for ops in made]


def count_stages(stages: object) -> int | None:
    """How many stages were given; None if none were."""
    if stages is None:
        return None
    if not isinstance(stages, (list, tuple)) or not stages:
        raise ReshardError(
            f"stages must be a list with a mesh (or its shape) and a spec a stage, not {stages!r}"
        )
    return len(stages)


def check_rate(learning_rate: object) -> float:
    """``learning_rate`` as a finite number."""
    try:
        if type(learning_rate) is not bool and isinstance(learning_rate, Real):
            rate = float(learning_rate)
            if math.isfinite(rate):
                return rate
    except OverflowError:
        pass
    raise ReshardError(f"learning_rate must be a finite number, not {short(learning_rate)}")


def default_stages(count: int, model: Transformer | UNet) -> list[tuple[Mesh | Sequence[int], str]]:
    """Two devices a stage, by turns data-parallel and operator-parallel."""
    rest = "R" * len(model.build().layers[0].out)
    kinds: list[tuple[Mesh | Sequence[int], str]] = [((2, 1), f"S0{rest}"), ((1, 2), f"R{rest}")]
    return [kinds[stage % 2] for stage in range(count)]


def place(stages: Stages, cluster: Cluster | None) -> tuple[list[Mesh], Cluster]:
    """Meshes of the stages on a cluster; shapes go onto hosts in order, each stage on its own."""
    shapes: list[Mesh | tuple[int, ...]] = []
    for number, stage in enumerate(stages):
        if not (isinstance(stage, (tuple, list)) and len(stage) == 2 and isinstance(stage[1], str)):
            raise ReshardError(
                f"stages[{number}] must be a mesh (or its shape) and a spec, such as "
                f"((2, 1), 'S0RR'), not {stage!r}"
            )
        shapes.append(stage[0] if isinstance(stage[0], Mesh) else _shape(number, stage[0]))
    sizes = [_size(shape) for shape in shapes]
    if cluster is None:
        if any(isinstance(shape, Mesh) for shape in shapes):
            raise ReshardError("stages name devices, but there is no cluster; give cluster=")
        cluster = Cluster(len(stages), max(sizes), DEFAULT_NIC)
    meshes, host = [], 0
    for number, (shape, size) in enumerate(zip(shapes, sizes, strict=True)):
        if isinstance(shape, Mesh):
            cluster.check(shape, f"mesh of stage {number}")
            meshes.append(shape)
            continue
        meshes.append(cluster.mesh(shape, first_host=host))
        host += -(-size // cluster.devices_per_host)
    _check_disjoint(meshes)
    return meshes, cluster


def _check_disjoint(meshes: Sequence[Mesh]) -> None:
    taken: dict[int, int] = {}
    for number, mesh in enumerate(meshes):
        for device in mesh.devices:
            if device in taken:
                raise ReshardError(
                    f"device {device} is in stages {taken[device]} and {number}; a device belongs "
                    "to one stage"
                )
            taken[device] = number


def _shape(number: int, given: object) -> tuple[int, ...]:
    if not isinstance(given, (tuple, list)) or not given:
        raise ReshardError(
            f"mesh of stages[{number}] must be a Mesh or a shape such as (2, 1), not {given!r}"
        )
    return tuple(check_int(f"mesh shape of stages[{number}]", n, 1) for n in given)


def _size(shape: Mesh | tuple[int, ...]) -> int:
    if isinstance(shape, Mesh):
        return shape.size
    size = 1
    for n in shape:
        size *= n
    return size


def check_batch(batch: object, schedule: Sequence[Sequence[str]]) -> int:
    """``batch`` if the schedule's microbatches divide it."""
    count, microbatches = check_int("batch", batch, 1), check_lists(schedule).lists.microbatches
    if count % microbatches:
        raise ReshardError(
            f"microbatches={microbatches} does not divide batch={count}; all microbatches have "
            "as many samples"
        )
    return count


def check_stages(job: Job) -> None:
    """Raise ReshardError if a stage cannot hold its tensors, or share out its layers."""
    ranks = {len(way.shape) for way in job.ways} or {len(job.built.layers[0].out) + 1}
    for stage, layout in enumerate(job.layouts):
        for dims in ranks:
            if layout.spec.ndim != dims:
                raise ReshardError(
                    f"spec '{layout.spec}' of stage {stage} has {layout.spec.ndim} tokens, but its "
                    f"boundary tensors have {dims} dimensions, samples first; give one token a "
                    "dimension"
                )
        boxes = layout.boxes([job.samples] + [1] * (layout.spec.ndim - 1))
        empty = [device for device, box in boxes.items() if box[0][0] == box[0][1]]
        if empty:
            raise ReshardError(
                f"spec '{layout.spec}' of stage {stage} leaves device {empty[0]} no sample of a "
                f"microbatch of {job.samples}; use a larger batch, fewer microbatches, or cut "
                "samples over fewer devices"
            )
        size, model = len(groups_of(layout)[0][0]), job.built
        if job.paced is None and model.parts % size:
            raise ReshardError(
                f"stage {stage} shares its layers out among {size} devices (mesh axes that do not "
                f"cut samples), but the model has {model.parts} {model.part}; use a model with a "
                f"multiple of {size}, or cut samples over more axes"
            )


def pace_of(paced: Paced, schedule: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Seconds of every kind of op, by piece."""
    lists = check_lists(schedule).lists
    loads = compute_loads(lists, paced.forward_s, paced.backward_s, paced.weight_s)
    return {k: [loads[k, p].duration_s for p in range(lists.pieces)] for k in "FBIW"}


def planned(job: Job, strategy: str, cluster: Cluster) -> tuple[Job, list[Plan]]:
    """The job with its plans' numbers, and the plans."""
    check_choice("strategy", strategy, (*STRATEGIES, "auto"))
    if strategy == "signal" and job.paced is None:
        raise ReshardError(
            "strategy 'signal' delivers no data, so nothing can be computed with it; use "
            "compute=Paced(...), or another strategy"
        )
    plans: list[Plan] = []
    known: dict[Any, list[int | None]] = {}
    numbers = []
    for way in job.ways:
        a, b = (job.layouts[piece % job.stages] for piece in (way.source, way.target))
        key = (way.source % job.stages, way.target % job.stages, way.shape)
        if a.mesh is b.mesh:
            known[key] = [None, None]
        elif key not in known:
            known[key] = [len(plans), len(plans) + 1]
            there = _plan(way.shape, a, b, strategy, cluster, job.seed)
            back = reverse(there)
            assert isinstance(back, Plan)
            plans += [there, back]
        numbers.append(known[key])
    return replace(job, plans=numbers), plans


def _plan(
    shape: tuple[int, ...], src: Layout, dst: Layout, strategy: str, cluster: Cluster, seed: int
) -> Plan:
    task = ReshardingTask(shape, "float32", src, dst, cluster)
    chunks = max(1, min(_CHUNKS, task.nbytes // _CHUNK_BYTES))
    return plan(task, strategy, chunks=chunks, seed=seed)
