"""Small models to train in stages: lists of layers, each with parameters that a stage can cut.

A model is plain data and functions over tensors; torch is loaded where they run. Within a stage
every device holds the same activations as the others of its operator group (all those that differ
in operator axes only); parameters with a ``cut`` are shared out among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, need
from reshard_lab.training.kit import Kit

Tensors = dict[str, Any]


class Param(NamedTuple):
    """A parameter of a layer."""

    name: str
    shape: tuple[int, ...]
    cut: int | None = None
    """Dimension that is cut over the operator group; None: everybody holds all of it."""
    centre: float = 0.0
    """Mean of its first values."""
    scale: float = 0.1
    """Standard deviation of its first values."""


class Layer(NamedTuple):
    """One layer of a model: the smallest part that a stage can hold."""

    name: str
    params: tuple[Param, ...]
    run: Callable[[Kit, Tensors, Any, Any], Any]
    """``run(kit, parameters, x, skip)``: the next layer's input; with ``gives``, that and a skip.
    ``skip`` is what layer ``takes`` gave, or None."""
    out: tuple[int, ...]
    """Shape of its result for one sample."""
    gives: tuple[int, ...] | None = None
    """Shape of the skip that it gives, for one sample."""
    takes: int | None = None
    """Number of the layer whose skip it takes."""


class Model(NamedTuple):
    """Layers in order, the data they learn from, and the loss behind the last of them."""

    layers: tuple[Layer, ...]
    parts: int
    """What an operator group shares out must divide this: heads, or groups of channels."""
    part: str
    """What those are called."""
    data: Callable[[Any, int], tuple[Any, Any]]
    """``data(generator, samples)``: inputs and targets."""
    loss: Callable[[Kit, Any, Any], Any]
    """``loss(kit, result, targets)``: summed over all samples and their ``terms``."""
    terms: int
    """Terms of the loss for one sample; the loss of a batch is their mean."""


class Way(NamedTuple):
    """A tensor that goes from one piece of the model to a later one."""

    source: int
    target: int
    shape: tuple[int, ...]
    """Of a whole microbatch."""
    skip: int | None
    """Number of the layer that gives it; None: what one piece hands to the next."""

    @property
    def name(self) -> str:
        """As timelines call it: ``"0>1"``, ``"skip 0>2"``."""
        return f"{'' if self.skip is None else 'skip '}{self.source}>{self.target}"


def cut_layers(model: Model, pieces: int) -> list[range]:
    """Layers of every piece of the model, in order and as equal in number as can be."""
    count = len(model.layers)
    if pieces > count:
        raise ReshardError(
            f"the schedule has {pieces} pieces of the model, but the model has {count} layers; "
            "use fewer stages (or chunks), or a model with more layers"
        )
    edges = [k * (count // pieces) + min(k, count % pieces) for k in range(pieces + 1)]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def ways_of(model: Model, pieces: Sequence[range], samples: int) -> list[Way]:
    """What crosses between pieces, for microbatches of so many samples: neighbours first."""
    holder = {layer: piece for piece, layers in enumerate(pieces) for layer in layers}
    ways = [
        Way(k, k + 1, (samples, *model.layers[layers[-1]].out), None)
        for k, layers in enumerate(pieces[:-1])
    ]
    for number, layer in enumerate(model.layers):
        if layer.takes is None or holder[layer.takes] == holder[number]:
            continue
        shape = model.layers[layer.takes].gives
        assert shape is not None
        ways.append(Way(holder[layer.takes], holder[number], (samples, *shape), layer.takes))
    return ways


def run_layers(
    model: Model,
    layers: Sequence[int],
    kit: Kit,
    values: dict[int, Tensors],
    tensors: dict[int | None, Any],
) -> None:
    """Carry out ``layers`` on ``tensors``, which hold what goes from layer to layer under None,
    and skips under the number of the layer that gives them; ``values``: parameters by layer.
    """
    for number in layers:
        layer = model.layers[number]
        skip = None if layer.takes is None else tensors[layer.takes]
        made = layer.run(kit, values[number], tensors[None], skip)
        if layer.gives is None:
            tensors[None] = made
        else:
            tensors[None], tensors[number] = made


def full_name(layer: Layer, param: Param) -> str:
    """Name of a parameter in the whole model."""
    return f"{layer.name}.{param.name}"


def parameters(model: Model, seed: int) -> Tensors:
    """First values of all parameters, whole, float32: the same on every machine."""
    torch = need("torch", "run", "training")
    generator = torch.Generator().manual_seed(seed)
    return {
        full_name(layer, p): torch.randn(p.shape, generator=generator) * p.scale + p.centre
        for layer in model.layers
        for p in layer.params
    }


def data(model: Model, samples: int, seed: int) -> tuple[Any, Any]:
    """Inputs and targets of a batch: the same on every machine."""
    torch = need("torch", "run", "training")
    return model.data(torch.Generator().manual_seed(seed + 1), samples)
