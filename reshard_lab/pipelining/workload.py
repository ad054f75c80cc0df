"""A model cut into pipeline stages: work, memory, and the tensors that cross between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reshard_lab.cluster import Cluster, preset_data
from reshard_lab.errors import ReshardError, check_bool, check_choice, check_int, check_number
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.costs import Cost, total
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.resharding import ReshardingTask
from reshard_lab.units import ITEMSIZE, dtype_name, format_bytes

_MOST, _MOST_LAYERS = 10**9, 10_000
"""More is taken for a slip."""


class Layer(NamedTuple):
    """A part of the model that is never cut."""

    name: str
    cost: Cost
    """For one microbatch, all samples."""
    inputs: Mapping[str, int]
    """Elements of the activations that come in, by name: what a recomputed layer keeps."""
    copied: int = 0
    """Parameters of another stage that it holds too."""


class StageWork(NamedTuple):
    """What one stage does for one microbatch, and holds."""

    layers: tuple[str, ...]
    parameters: int
    """Of the stage, replicas over the data axis counted once."""
    forward_flops: int
    """For one microbatch, all devices of the stage together."""
    backward_flops: int
    weight_flops: int
    """The part of ``backward_flops`` that makes the gradients of the weights."""
    activation_bytes: int
    """Kept for the backward of one microbatch, on each device."""


class Speed(NamedTuple):
    """What a device achieves, and who says so."""

    flops_per_s: float
    source: str


def device_speed(preset: str, dtype: str) -> Speed:
    """Achieved FLOP/s of one device of a cluster preset, with its source.

    >>> device_speed("p3.8xlarge", "float16").flops_per_s
    37500000000000.0
    """
    stated = preset_data(preset).get("achieved_flops_per_s", {})
    if not stated:
        raise ReshardError(
            f"preset {preset!r} states no achieved FLOP/s (p3.8xlarge does); give "
            "Workload.arguments a number measured on such a device"
        )
    entry = stated[check_choice(f"dtype for the speed of {preset}", dtype, stated)]
    return Speed(float(entry["value"]), entry["source"])


@dataclass(frozen=True, repr=False)
class Workload:
    """A model in training, cut into stages on equal (data, operator) meshes."""

    name: str
    dtype: str
    batch: int
    microbatches: int
    data: int
    """Data-parallel size of a stage: samples are split over it."""
    operator: int
    """Operator-parallel size of a stage: every operator is split over it."""
    stages: tuple[StageWork, ...]
    tensors: tuple[BoundaryTensor, ...]
    """Those between neighbours and skips, in the order in which they are made."""
    parameters: int
    """Of the model; a matrix that two stages share is counted once."""

    @property
    def devices(self) -> int:
        """Devices of all stages."""
        return self.data * self.operator * len(self.stages)

    @property
    def flops(self) -> int:
        """Forward and backward of the whole batch on all devices, recomputed forwards included."""
        once = sum(s.forward_flops + s.backward_flops for s in self.stages)
        return once * self.microbatches

    def mesh(self, cluster: Cluster, stage: int) -> Mesh:
        """The devices of ``stage``: each stage starts on a host of its own."""
        size = self.data * self.operator
        hosts = math.ceil(size / cluster.devices_per_host)
        needed = hosts * len(self.stages)
        if needed > cluster.hosts:
            raise ReshardError(
                f"{self.name} needs {needed} hosts ({len(self.stages)} stages of {size} devices, "
                f"each on {hosts}), but {cluster!r} has {cluster.hosts}; give it more"
            )
        return cluster.mesh((self.data, self.operator), first_host=stage * hosts)

    def task(self, tensor: BoundaryTensor, cluster: Cluster) -> ReshardingTask:
        """The resharding that brings ``tensor`` to the stage that uses it."""
        source, target = (
            Layout(self.mesh(cluster, stage), tensor.spec)
            for stage in (tensor.from_stage, tensor.to_stage)
        )
        return ReshardingTask(tensor.shape, self.dtype, source, target, cluster)

    def arguments(self, cluster: Cluster, flops_per_s: float) -> dict[str, Any]:
        """What ``pipeline.simulate`` takes beside a schedule of this many stages and microbatches.

        flops_per_s: what a device achieves (``device_speed``). The devices of a stage share its
        work equally; the communication inside a stage is part of that speed.

        >>> from reshard_lab import Cluster, pipeline
        >>> model = pipeline.gpt("1.3B")
        >>> schedule = pipeline.schedule("1f1b", len(model.stages), model.microbatches)
        >>> cluster = Cluster.preset("p3.8xlarge", hosts=2)
        >>> timeline = pipeline.simulate(schedule, **model.arguments(cluster, 37.5e12))
        """
        check_number("flops_per_s", flops_per_s, above=0, expected="more than 0 and finite")
        rate = flops_per_s * self.data * self.operator
        tasks: dict[tuple[int, int], list[ReshardingTask]] = {}
        for tensor in self.tensors:
            ends = (tensor.from_stage, tensor.to_stage)
            tasks.setdefault(ends, []).append(self.task(tensor, cluster))
        count = len(self.stages)
        return {
            "forward_s": [s.forward_flops / rate for s in self.stages],
            "backward_s": [s.backward_flops / rate for s in self.stages],
            "weight_s": [s.weight_flops / rate for s in self.stages],
            "forward_transfer_s": [tasks.pop((k, k + 1)) for k in range(count - 1)],
            "skips": [BoundaryTensor(*ends, together) for ends, together in tasks.items()],
            "activation_bytes": [s.activation_bytes for s in self.stages],
        }

    def __repr__(self) -> str:
        crossing = format_bytes(
            sum(math.prod(t.shape) for t in self.tensors) * ITEMSIZE[self.dtype]
        )
        return (
            f"Workload({self.name}: {self.parameters / 1e9:.3g} billion parameters, "
            f"{self.flops / 1e12:.4g} TFLOP a batch of {self.batch}, {len(self.stages)} stages of "
            f"({self.data}, {self.operator}) devices, {crossing} cross a microbatch)"
        )


def settings_of(
    model: str,
    sizes: Mapping[str, Mapping[str, Any]],
    size: str,
    changes: Mapping[str, Any],
) -> tuple[str, dict[str, Any]]:
    """Name and settings of a workload, checked: whole numbers, a known dtype, batches that divide.

    ``cuts``, the layers after which a model is cut, are left to the model.
    """
    base = sizes[check_choice(f"{model} size", size, sizes)]
    for key in changes:
        check_choice(f"{model} setting", key, base)
    name = f"{model}-{size}" + (" changed" if changes else "")
    settings = {**base, **changes}
    for key, value in settings.items():
        if key == "dtype":
            settings[key] = dtype_name(value)
        elif key != "cuts":
            most = _MOST_LAYERS if key in ("layers", "stages") else _MOST
            settings[key] = check_int(f"{key} of {name}", value, 1, most)
    batch, microbatches, data = (settings[key] for key in ("batch", "microbatches", "data"))
    if batch % microbatches:
        raise ReshardError(
            f"{name}: {microbatches} microbatches do not divide a batch of {batch}; use a number "
            "that does"
        )
    if batch // microbatches % data:
        raise ReshardError(
            f"{name}: a microbatch of {batch // microbatches} samples does not divide over data="
            f"{data} devices; use fewer microbatches or another data"
        )
    return name, settings


def cut_workload(
    name: str,
    settings: Mapping[str, Any],
    recompute: bool,
    stages: Sequence[Sequence[Layer]],
    tensors: Sequence[BoundaryTensor],
) -> Workload:
    """The workload of the layers of every stage, and of the tensors that cross."""
    return Workload(
        name,
        settings["dtype"],
        settings["batch"],
        settings["microbatches"],
        settings["data"],
        settings["operator"],
        tuple(_stage_work(layers, settings, recompute) for layers in stages),
        tuple(tensors),
        sum(layer.cost.parameters for layers in stages for layer in layers),
    )


def _stage_work(layers: Sequence[Layer], settings: Mapping[str, Any], recompute: bool) -> StageWork:
    cost = total(layer.cost for layer in layers)
    kept = cost.kept + math.ceil(cost.kept_split / settings["operator"])
    again = 0
    if check_bool("recompute", recompute):
        inputs = {name: n for layer in layers for name, n in layer.inputs.items()}
        kept, again = sum(inputs.values()), cost.forward_flops
    return StageWork(
        tuple(layer.name for layer in layers),
        cost.parameters + sum(layer.copied for layer in layers),
        cost.forward_flops,
        cost.input_flops + cost.weight_flops + again,
        cost.weight_flops,
        math.ceil(kept / settings["data"]) * ITEMSIZE[settings["dtype"]],
    )
