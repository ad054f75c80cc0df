"""What blocks of a network cost; a model cut into stages: work, memory, and what crosses."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reshard_lab.cluster import Cluster, preset_data
from reshard_lab.errors import ReshardError, check_bool, check_choice, check_int, check_number
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.resharding import ReshardingTask
from reshard_lab.units import ITEMSIZE, dtype_name, format_bytes

_MOST, _MOST_LAYERS = 10**9, 10_000
"""More is taken for a slip."""


class Cost(NamedTuple):
    """What a block of a network costs, for a number of samples.

    A multiplication and an addition are two FLOPs; only matrix products and convolutions are
    counted, as torch.utils.flop_counter does. What a block keeps for its backward is its inputs
    and whatever its derivative reads, without dropout; of the devices of an operator-parallel
    group some of it lies on every one, the rest is shared out (Korthikanti et al. 2022, arXiv
    2205.05198, section 4).
    """

    parameters: int = 0
    forward_flops: int = 0
    input_flops: int = 0
    weight_flops: int = 0
    """Of the backward, the gradients of the input and of the parameters."""
    kept: int = 0
    """Elements kept for the backward on every device of an operator-parallel group."""
    kept_split: int = 0
    """Elements kept for the backward that the group shares out."""


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of ``costs``.

    >>> total([linear(3, 4, 5), norm(12, 4)]).parameters
    33
    """
    return Cost(*(sum(column) for column in zip(Cost(), *costs, strict=True)))


def keep(elements: int, split: bool = False) -> Cost:
    """SiLU, GELU and the like keep ``elements``, shared out over the group if ``split``."""
    return Cost(kept=0 if split else elements, kept_split=elements if split else 0)


def norm(elements: int, channels: int, split: bool = False) -> Cost:
    """Layer or group normalisation: scale and shift a channel; keeps its input."""
    return keep(elements, split)._replace(parameters=2 * channels)


def linear(
    rows: int,
    inputs: int,
    outputs: int,
    bias: bool = True,
    split: bool = False,
    keeps: bool = True,
    input_gradient: bool = True,
) -> Cost:
    """``rows`` vectors of ``inputs`` elements through a weight of outputs x inputs.

    split: the input is shared out over the group (the second of a pair).
    keeps: False if the input is kept by another block already.
    input_gradient: False if nothing needs the gradient of the input.
    """
    flops, kept = 2 * rows * inputs * outputs, keep(rows * inputs if keeps else 0, split)
    parameters = inputs * outputs + (outputs if bias else 0)
    return total([Cost(parameters, flops, flops if input_gradient else 0, flops), kept])


def conv(
    pixels: int,
    inputs: int,
    outputs: int,
    kernel: int,
    kept: int,
    split: bool = False,
    input_gradient: bool = True,
) -> Cost:
    """A convolution of ``pixels`` outputs (of all samples) that keeps ``kept`` input elements."""
    product = linear(pixels, inputs * kernel**2, outputs, True, split, False, input_gradient)
    return total([product, keep(kept, split)])


def attention(
    sequences: int, queries: int, keys: int, width: int, heads: int, given_keys: bool = False
) -> Cost:
    """Softmax attention over all keys, no mask: scores and mix; keeps q, k, v and the softmax.

    given_keys: keys and values come from an input that needs no gradient; theirs, half of the
    backward, are for the weights that make them.
    """
    flops = 2 * 2 * sequences * queries * keys * width
    kept = sequences * (queries * width + 2 * keys * width + heads * queries * keys)
    for_weights = flops if given_keys else 0
    return Cost(0, flops, 2 * flops - for_weights, for_weights, 0, kept)


class ModelPart(NamedTuple):
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
    backward_flops: int
    weight_flops: int
    """The part of ``backward_flops`` that makes the gradients of the weights; all three for one
    microbatch, all devices of the stage together."""
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
    operator: int
    """Data- and operator-parallel size of a stage: samples, and every operator, are split."""
    stages: tuple[StageWork, ...]
    tensors: tuple[BoundaryTensor, ...]
    """Those between neighbours and skips, in the order in which they are made."""
    parameters: int
    """Of the model; a matrix that two stages share is counted once."""

    @property
    def devices(self) -> int:
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
        if (needed := hosts * len(self.stages)) > cluster.hosts:
            raise ReshardError(
                f"{self.name} needs {needed} hosts ({len(self.stages)} stages of {size} devices, "
                f"each on {hosts}), but {cluster!r} has {cluster.hosts}; give it more"
            )
        return cluster.mesh((self.data, self.operator), first_host=stage * hosts)

    def task(self, tensor: BoundaryTensor, cluster: Cluster) -> ReshardingTask:
        """The resharding that brings ``tensor`` to the stage that uses it."""
        ends = tensor.from_stage, tensor.to_stage
        source, target = (Layout(self.mesh(cluster, stage), tensor.spec) for stage in ends)
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
        return {
            "forward_s": [s.forward_flops / rate for s in self.stages],
            "backward_s": [s.backward_flops / rate for s in self.stages],
            "weight_s": [s.weight_flops / rate for s in self.stages],
            "forward_transfer_s": [tasks.pop((k, k + 1)) for k in range(len(self.stages) - 1)],
            "skips": [BoundaryTensor(*ends, together) for ends, together in tasks.items()],
            "activation_bytes": [s.activation_bytes for s in self.stages],
        }

    def __repr__(self) -> str:
        elements = sum(math.prod(tensor.shape) for tensor in self.tensors)
        return (
            f"Workload({self.name}: {self.parameters / 1e9:.3g} billion parameters, "
            f"{self.flops / 1e12:.4g} TFLOP a batch of {self.batch}, {len(self.stages)} stages of "
            f"({self.data}, {self.operator}) devices, "
            f"{format_bytes(elements * ITEMSIZE[self.dtype])} cross a microbatch)"
        )


def settings_of(
    model: str, sizes: Mapping[str, Mapping[str, Any]], size: str, changes: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Name and settings of a workload, checked but for ``cuts``, which only the model knows."""
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
    stages: Sequence[Sequence[ModelPart]],
    tensors: Sequence[BoundaryTensor],
) -> Workload:
    """The workload of the parts of every stage, and of the tensors that cross."""
    check_bool("recompute", recompute)
    works = []
    for parts in stages:
        cost = total(part.cost for part in parts)
        kept, again = cost.kept + math.ceil(cost.kept_split / settings["operator"]), 0
        if recompute:
            inputs = {name: n for part in parts for name, n in part.inputs.items()}
            kept, again = sum(inputs.values()), cost.forward_flops
        work = StageWork(
            tuple(part.name for part in parts),
            cost.parameters + sum(part.copied for part in parts),
            cost.forward_flops,
            cost.input_flops + cost.weight_flops + again,
            cost.weight_flops,
            math.ceil(kept / settings["data"]) * ITEMSIZE[settings["dtype"]],
        )
        works.append(work)
    parameters = sum(part.cost.parameters for parts in stages for part in parts)
    given = {key: settings[key] for key in ("dtype", "batch", "microbatches", "data", "operator")}
    return Workload(
        name, stages=tuple(works), tensors=tuple(tensors), parameters=parameters, **given
    )
