"""What the caller of ``train`` asks for, made definite; what cannot work is refused."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, check_int, check_type, must_be
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.loads import Times, reverse
from reshard_lab.pipelining.ops import check as check_schedule
from reshard_lab.pipelining.schedules import schedule as make_schedule
from reshard_lab.pipelining.simulation import compute_loads
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.launch import DEFAULT_NIC, POOL_TARGETS, EmulatedCluster
from reshard_lab.runtime.pool import Pool
from reshard_lab.strategies import STRATEGIES
from reshard_lab.training.config import TrainingConfig, parallel_groups
from reshard_lab.training.models import MODELS, Transformer, UNet

Stages = Sequence[tuple[Mesh | Sequence[int], str]]
"""By stage: its mesh, or the shape of one, and the spec of boundary tensors on it."""

_CHUNK_BYTES = 2**16  # smaller messages cost more than they bring
_CHUNKS = 100


@dataclass(frozen=True)
class Paced:
    """Sleeps in place of compute: seconds of ops, one number or one a model chunk.

    As in ``pipeline.simulate``: ``backward_s`` is the whole backward, ``weight_s`` the part of it
    that ``W`` takes, half unless given.
    """

    forward_s: Times
    backward_s: Times
    weight_s: Times | None = None


def resolve_cluster(where: str | Pool | EmulatedCluster, cluster: Cluster | None) -> Cluster | None:
    """The cluster to place stages on: an EmulatedCluster has its own. None: one that fits them."""
    if cluster is not None:
        check_type("cluster", cluster, Cluster, "reshard_lab.Cluster(...) makes one")
    if isinstance(where, EmulatedCluster):
        if cluster is not None and cluster != where.cluster:
            raise ReshardError(
                f"cluster={cluster!r} is not that of the EmulatedCluster; leave cluster out"
            )
        if not where.is_open:
            raise ReshardError(
                "the EmulatedCluster is not open: its NICs have not been measured, and nothing "
                "would end its processes; use it in a with statement, and train inside"
            )
        return where.cluster
    if isinstance(where, str):
        check_choice("place to run (where)", where, POOL_TARGETS)
    elif not isinstance(where, Pool):
        raise must_be("where", "'local', 'emulated', an EmulatedCluster or a Pool", where)
    return cluster


def resolve_model(model: object) -> Transformer | UNet:
    """The sizes of the model; those of its kind's default for a name."""
    for kind in MODELS.values():
        if isinstance(model, kind):
            return model
    if not isinstance(model, str):
        kinds = ", ".join(kind.__name__ for kind in MODELS.values())
        names = ", ".join(map(repr, MODELS))
        raise must_be("model", f"{names} or a record of sizes ({kinds})", model)
    return MODELS[check_choice("model", model, MODELS)]()


def resolve_schedule(
    schedule: str | Sequence[Sequence[str]],
    given: Stages | None,
    microbatches: int | None,
    chunks: int | None,
    delay_weights: bool,
) -> list[list[str]]:
    """Lists of ops a stage, proven complete and free of deadlock."""
    if not (given is None or (isinstance(given, (list, tuple)) and given)):
        raise must_be("stages", "a list with a mesh (or its shape) and a spec a stage", given)
    stages = None if given is None else len(given)
    ops: Sequence[Sequence[str]]
    if isinstance(schedule, str):
        count = 4 if microbatches is None else microbatches
        ops = make_schedule(schedule, stages or 2, count, chunks, delay_weights)
    elif chunks is not None or delay_weights:
        raise ReshardError("chunks and delay_weights go with a schedule's name, not with lists")
    else:
        ops = schedule
    lists = check_schedule(ops).lists
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
    return [list(of_stage) for of_stage in ops]


def default_stages(count: int, model: Transformer | UNet) -> list[tuple[Mesh | Sequence[int], str]]:
    """Two devices a stage, by turns data-parallel and tensor-parallel."""
    rest = "R" * len(model.build().layers[0].out)
    return [((1, 2), f"R{rest}") if stage % 2 else ((2, 1), f"S0{rest}") for stage in range(count)]


def place_stages(stages: Stages, cluster: Cluster | None) -> tuple[list[Mesh], Cluster]:
    """Meshes of the stages on a cluster; shapes go onto hosts in order, each stage on its own."""
    shapes = [_mesh_or_shape(number, stage) for number, stage in enumerate(stages)]
    sizes = [shape.size if isinstance(shape, Mesh) else math.prod(shape) for shape in shapes]
    if cluster is None:
        if any(isinstance(shape, Mesh) for shape in shapes):
            raise ReshardError("stages name devices, but there is no cluster; give cluster=")
        cluster = Cluster(len(stages), max(sizes), DEFAULT_NIC)
    meshes, host = [], 0
    for number, (shape, size) in enumerate(zip(shapes, sizes, strict=True)):
        if isinstance(shape, Mesh):
            cluster.check(shape, f"mesh of stage {number}")
            meshes.append(shape)
        else:
            meshes.append(cluster.mesh(shape, first_host=host))
            host += -(-size // cluster.devices_per_host)
    stage_of: dict[int, int] = {}
    for number, device in ((n, device) for n, mesh in enumerate(meshes) for device in mesh.devices):
        if stage_of.setdefault(device, number) != number:
            raise ReshardError(
                f"device {device} is in stages {stage_of[device]} and {number}; a device belongs "
                "to one stage"
            )
    return meshes, cluster


def _mesh_or_shape(number: int, stage: object) -> Mesh | tuple[int, ...]:
    if not (isinstance(stage, (tuple, list)) and len(stage) == 2 and isinstance(stage[1], str)):
        expected = "a mesh (or its shape) and a spec, such as ((2, 1), 'S0RR')"
        raise must_be(f"stages[{number}]", expected, stage)
    shape = stage[0]
    if isinstance(shape, Mesh):
        return shape
    if not isinstance(shape, (tuple, list)) or not shape:
        raise must_be(f"mesh of stages[{number}]", "a Mesh or a shape such as (2, 1)", shape)
    return tuple(check_int(f"mesh shape of stages[{number}]", n, 1) for n in shape)


def check_config(config: TrainingConfig) -> None:
    """Raise ReshardError if samples do not divide, or a stage cannot hold its tensors or layers."""
    microbatches, model = config.checked.lists.microbatches, config.model
    if config.batch % microbatches:
        raise ReshardError(
            f"microbatches={microbatches} does not divide batch={config.batch}; all microbatches "
            "have as many samples"
        )
    ranks = {len(t.shape) for t in config.boundary_tensors} or {len(model.layers[0].out) + 1}
    for stage, layout in enumerate(config.layouts):
        spec = f"spec '{layout.spec}' of stage {stage}"
        others = ranks - {layout.spec.ndim}
        if others:
            raise ReshardError(
                f"{spec} has {layout.spec.ndim} tokens, but its boundary tensors have "
                f"{min(others)} dimensions, samples first; give one token a dimension"
            )
        boxes = layout.boxes([config.samples] + [1] * (layout.spec.ndim - 1))
        empty = [device for device, box in boxes.items() if box[0][0] == box[0][1]]
        if empty:
            raise ReshardError(
                f"{spec} leaves device {empty[0]} no sample of a microbatch of {config.samples}; "
                "use a larger batch, fewer microbatches, or cut samples over fewer devices"
            )
        size = len(parallel_groups(layout)[0][0])
        if config.paced is None and model.parts % size:
            raise ReshardError(
                f"stage {stage} shares its layers out among {size} devices (mesh axes that do not "
                f"cut samples), but the model has {model.parts} {model.part}; use a model with a "
                f"multiple of {size}, or cut samples over more axes"
            )


def resolve_pace(
    compute: str | Paced, schedule: list[list[str]], timeout_s: float
) -> dict[str, list[float]] | None:
    """Seconds of every kind of op, by model chunk; None where torch computes."""
    if isinstance(compute, str) and compute == "real":
        return None
    if not isinstance(compute, Paced):
        raise must_be("compute", "'real' or a Paced(...)", compute)
    lists = check_schedule(schedule).lists
    loads = compute_loads(lists, compute.forward_s, compute.backward_s, compute.weight_s)
    seconds = {k: [loads[k, p].duration_s for p in range(lists.model_chunks)] for k in "FBIW"}
    longest = max(s for of_kind in seconds.values() for s in of_kind)
    if longest > timeout_s:
        raise ReshardError(
            f"an op is paced at {longest:g} s, longer than timeout_s={timeout_s:g} allows a step; "
            "give a shorter pace or a longer timeout_s"
        )
    return seconds


def with_plans(
    config: TrainingConfig, strategy: str, cluster: Cluster
) -> tuple[TrainingConfig, list[Plan]]:
    """The run with its plans' numbers, and the plans."""
    check_choice("strategy", strategy, (*STRATEGIES, "auto"))
    if strategy == "signal" and config.paced is None:
        raise ReshardError(
            "strategy 'signal' delivers no data, so nothing can be computed with it; use "
            "compute=Paced(...), or another strategy"
        )
    plans: list[Plan] = []
    known: dict[Any, list[int | None]] = {}
    numbers = []
    for tensor in config.boundary_tensors:
        a, b = config.stages_of(tensor)
        key = a, b, tensor.shape
        if a == b:
            known[key] = [None, None]
        elif key not in known:
            known[key] = [len(plans), len(plans) + 1]
            src, dst = config.layouts[a], config.layouts[b]
            task = ReshardingTask(tensor.shape, "float32", src, dst, cluster)
            chunks = max(1, min(_CHUNKS, task.nbytes // _CHUNK_BYTES))
            there = plan(task, strategy, chunks=chunks, seed=config.seed)
            plans += [there, reverse(there)]
        numbers.append(known[key])
    return replace(config, plan_numbers=numbers), plans
