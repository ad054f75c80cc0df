"""Models to train in stages, as lists of layers, and what crosses between stages.

A model is plain data and functions over tensors; torch is loaded where they run. Within a stage
all devices of a tensor-parallel group hold the same activations; parameters with a ``cut`` are
sharded over the group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, need
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.training.collectives import TensorParallel

Tensors = dict[str, Any]


class Param(NamedTuple):
    """A parameter of a layer."""

    name: str
    shape: tuple[int, ...]
    cut: int | None = None
    """Dimension sharded over the tensor-parallel group; None: replicated."""
    mean: float = 0.0
    std: float = 0.1
    """Standard deviation of its initial values."""


class Layer(NamedTuple):
    """One layer of a model: the smallest part that a stage can hold."""

    name: str
    params: tuple[Param, ...]
    run: Callable[[TensorParallel, Tensors, Any, Any], Any]
    """``run(tp, parameters, x, skip)``: the next layer's input; with ``gives``, that and a skip.
    ``skip`` is what layer ``takes`` gave, or None."""
    out: tuple[int, ...]
    """Shape of its result for one sample."""
    gives: tuple[int, ...] | None = None
    """Shape of the skip that it gives, for one sample."""
    takes: int | None = None
    """Number of the layer whose skip it takes."""

    def full_name(self, param: Param) -> str:
        """Name of a parameter in the whole model."""
        return f"{self.name}.{param.name}"


class Model(NamedTuple):
    """Layers in order, the data they learn from, and the loss behind the last of them."""

    layers: tuple[Layer, ...]
    parts: int
    """The size of a tensor-parallel group must divide this number of heads or channel groups."""
    part: str
    """What those are called."""
    data: Callable[[Any, int], tuple[Any, Any]]
    """``data(generator, samples)``: inputs and targets."""
    loss: Callable[[TensorParallel, Any, Any], Any]
    """``loss(tp, result, targets)``: summed over all samples and their ``terms``."""
    terms: int
    """Terms of the loss for one sample; the loss of a batch is their mean."""

    def cuts(self, layers: Sequence[int]) -> dict[str, int | None]:
        """The ``cut`` of every parameter of ``layers``, by full name."""
        chosen = [self.layers[number] for number in layers]
        return {layer.full_name(p): p.cut for layer in chosen for p in layer.params}

    def initial_parameters(self, seed: int) -> Tensors:
        """All parameters by full name, unsharded, float32: the same on every machine."""
        torch = need("torch", "run", "training")
        generator = torch.Generator().manual_seed(seed)
        return {
            layer.full_name(p): torch.randn(p.shape, generator=generator) * p.std + p.mean
            for layer in self.layers
            for p in layer.params
        }

    def batch(self, samples: int, seed: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch: the same on every machine."""
        torch = need("torch", "run", "training")
        return self.data(torch.Generator().manual_seed(seed + 1), samples)

    def run(
        self,
        layers: Sequence[int],
        tp: TensorParallel,
        parameters: Tensors,
        tensors: dict[int | None, Any],
    ) -> None:
        """Run ``layers`` on ``tensors``, which holds the activation under None, and skips under
        the number of the layer that gives them.
        """
        for number in layers:
            layer = self.layers[number]
            skip = None if layer.takes is None else tensors[layer.takes]
            own = {p.name: parameters[layer.full_name(p)] for p in layer.params}
            result = layer.run(tp, own, tensors[None], skip)
            if layer.gives is None:
                tensors[None] = result
            else:
                tensors[None], tensors[number] = result


def cut_layers(model: Model, chunks: int) -> list[range]:
    """Layers of every model chunk, in order and as equal in number as can be."""
    count = len(model.layers)
    if chunks > count:
        raise ReshardError(
            f"the schedule has {chunks} pieces of the model, but the model has {count} layers; "
            "use fewer stages (or chunks), or a model with more layers"
        )
    edges = [k * (count // chunks) + min(k, count % chunks) for k in range(chunks + 1)]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def boundary_tensors(model: Model, chunks: Sequence[range], samples: int) -> list[BoundaryTensor]:
    """What crosses between model chunks, for microbatches of so many samples: neighbours first."""
    chunk_of = {layer: chunk for chunk, layers in enumerate(chunks) for layer in layers}
    tensors = [
        BoundaryTensor(
            k, k + 1, name=f"{k}>{k + 1}", shape=(samples, *model.layers[layers[-1]].out)
        )
        for k, layers in enumerate(chunks[:-1])
    ]
    for number, layer in enumerate(model.layers):
        if layer.takes is None or chunk_of[layer.takes] == chunk_of[number]:
            continue
        shape = model.layers[layer.takes].gives
        assert shape is not None
        a, b = chunk_of[layer.takes], chunk_of[number]
        tensors.append(
            BoundaryTensor(a, b, name=f"skip {a}>{b}", shape=(samples, *shape), layer=layer.takes)
        )
    return tensors


def norm_params(name: str, width: int, cut: int | None = None) -> tuple[Param, Param]:
    return Param(f"{name}.gain", (width,), cut, mean=1.0), Param(f"{name}.bias", (width,), cut)


def affine_params(
    name: str, inner: int, outer: int, cut: int | None = None, window: tuple[int, ...] = ()
) -> tuple[Param, Param]:
    """Parameters of a linear layer, or of a convolution with a ``window``.

    ``cut`` 0 shards what it makes (column-parallel), 1 what it takes (row-parallel).
    """
    fan_in = inner * math.prod(window)
    weight = Param(f"{name}.weight", (outer, inner, *window), cut, std=fan_in**-0.5)
    return weight, Param(f"{name}.bias", (outer,), 0 if cut == 0 else None)
