"""The models to train in stages: a small transformer and a small U-Net, as lists of layers.

A model is plain data and functions over tensors; torch is loaded where they run. Within a stage
all devices of a tensor-parallel group hold the same activations; parameters with a ``cut`` are
sharded over the group.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.training.collectives import TensorParallel

Tensors = dict[str, Any]
Activations = dict[int | None, Any]
"""The next layer's input under None, skips under the number of the layer that gives them."""


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


class LayeredModel(NamedTuple):
    """Layers in order, the data they learn from, and the loss behind the last of them."""

    layers: tuple[Layer, ...]
    parts: int
    """The size of a tensor-parallel group must divide this number of heads or channel groups."""
    part: str
    """What those are called."""
    data: Callable[[Any, Any, int], tuple[Any, Any]]
    """``data(torch, generator, samples)``: inputs and targets."""
    loss: Callable[[TensorParallel, Any, Any], Any]
    """``loss(tp, result, targets)``: summed over all samples and their ``terms``."""
    terms: int
    """Terms of the loss for one sample; the loss of a batch is their mean."""

    def params(self, numbers: Sequence[int] | None = None) -> dict[str, Param]:
        """The parameters of the numbered layers, or of all, by their names in the whole model."""
        layers = self.layers if numbers is None else [self.layers[n] for n in numbers]
        return {f"{layer.name}.{p.name}": p for layer in layers for p in layer.params}

    def initial_parameters(self, seed: int) -> Tensors:
        """All parameters by name, unsharded, float32: the same on every machine."""
        torch = need("torch", "run", "training")
        generator = torch.Generator().manual_seed(seed)
        return {
            name: torch.randn(p.shape, generator=generator) * p.std + p.mean
            for name, p in self.params().items()
        }

    def batch(self, samples: int, seed: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch: the same on every machine."""
        torch = need("torch", "run", "training")
        return self.data(torch, torch.Generator().manual_seed(seed + 1), samples)

    def run(
        self, layers: Sequence[int], tp: TensorParallel, parameters: Tensors, tensors: Activations
    ) -> None:
        """Run ``layers`` on ``tensors``, which they change."""
        for number in layers:
            layer = self.layers[number]
            skip = None if layer.takes is None else tensors[layer.takes]
            own = {p.name: parameters[f"{layer.name}.{p.name}"] for p in layer.params}
            result = layer.run(tp, own, tensors[None], skip)
            if layer.gives is not None:
                result, tensors[number] = result
            tensors[None] = result


def _norm(name: str, width: int, cut: int | None = None) -> tuple[Param, Param]:
    return Param(f"{name}.gain", (width,), cut, mean=1.0), Param(f"{name}.bias", (width,), cut)


def _affine(
    name: str, inner: int, outer: int, cut: int | None = None, window: tuple[int, ...] = ()
) -> tuple[Param, Param]:
    """Parameters of a linear layer, or of a convolution with a ``window``.

    ``cut`` 0 shards what it makes (column-parallel), 1 what it takes (row-parallel).
    """
    fan_in = inner * math.prod(window)
    weight = Param(f"{name}.weight", (outer, inner, *window), cut, std=fan_in**-0.5)
    return weight, Param(f"{name}.bias", (outer,), 0 if cut == 0 else None)


@dataclass(frozen=True)
class Transformer:
    """Sizes of a small causal transformer. Its layers: the embedding, ``blocks`` blocks, the head.

    Boundary tensors have shape (samples, sequence, hidden). Within a stage with tensor-parallel
    axes, heads and the feed-forward's inner width are sharded; the embedding and the head are not.
    """

    blocks: int = 4
    hidden: int = 16
    heads: int = 4
    sequence: int = 8
    vocabulary: int = 19

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            check_int(name, given, 2 if name == "sequence" else 1)
        if self.hidden % self.heads:
            raise ReshardError(
                f"hidden={self.hidden} does not divide by heads={self.heads}; a head has a whole "
                "number of channels"
            )

    def build(self) -> LayeredModel:
        h, t, v = self.hidden, self.sequence, self.vocabulary
        table, places = Param("table", (v, h), std=1.0), Param("places", (t, h), std=1.0)
        query, key, value = (_affine(name, h, h, 0) for name in ("query", "key", "value"))
        block = (
            *_norm("norm1", h),
            *query,
            key[0],  # a bias would add the same to all scores of a query, which changes nothing
            *value,
            *_affine("merge", h, h, 1),
            *_norm("norm2", h),
            *_affine("up", h, 4 * h, 0),
            *_affine("down", 4 * h, h, 1),
        )
        run = partial(_attention_block, heads=self.heads)
        layers = (
            Layer("embed", (table, places), _embed, (t, h)),
            *(Layer(f"block{i}", block, run, (t, h)) for i in range(self.blocks)),
            Layer("head", (*_norm("norm", h), *_affine("out", h, v)), _head, (t, v)),
        )
        return LayeredModel(
            layers, self.heads, "heads", partial(_tokens, shape=(t, v)), _cross_entropy, t
        )


def _embed(tp: TensorParallel, p: Tensors, tokens: Any, skip: Any) -> Any:
    return tp.F.embedding(tokens, p["table"]) + p["places"]


def _layer_norm(tp: TensorParallel, p: Tensors, name: str, x: Any) -> Any:
    return tp.F.layer_norm(x, x.shape[-1:], p[f"{name}.gain"], p[f"{name}.bias"])


def _attention_block(tp: TensorParallel, p: Tensors, x: Any, skip: Any, heads: int) -> Any:
    """Attention and feed-forward, each the sum of the shards' results."""
    linear = tp.F.linear
    y = tp.copy(_layer_norm(tp, p, "norm1", x))
    query, key, value = (
        linear(y, p[f"{n}.weight"], p.get(f"{n}.bias"))
        .unflatten(-1, (heads // tp.size, -1))
        .transpose(-2, -3)
        for n in ("query", "key", "value")
    )
    seen = tp.F.scaled_dot_product_attention(query, key, value, is_causal=True)
    merged = linear(seen.transpose(-2, -3).flatten(-2), p["merge.weight"])
    x = x + tp.reduce(merged) + p["merge.bias"]
    y = tp.copy(_layer_norm(tp, p, "norm2", x))
    y = tp.F.gelu(linear(y, p["up.weight"], p["up.bias"]))
    return x + tp.reduce(linear(y, p["down.weight"])) + p["down.bias"]


def _head(tp: TensorParallel, p: Tensors, x: Any, skip: Any) -> Any:
    return tp.F.linear(_layer_norm(tp, p, "norm", x), p["out.weight"], p["out.bias"])


def _cross_entropy(tp: TensorParallel, logits: Any, targets: Any) -> Any:
    return tp.F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def _tokens(torch: Any, generator: Any, samples: int, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Random tokens; the target of each is the one behind it, of the last the first."""
    tokens = torch.randint(shape[1], (samples, shape[0]), generator=generator)
    return tokens, tokens.roll(-1, dims=1)


@dataclass(frozen=True)
class UNet:
    """Sizes of a small U-shaped network. Its layers: in, ``levels`` down, middle, as many up, out.

    Level i works on ``channels * 2**i`` channels and images of ``size / 2**i``; what it gives on
    the way down skips to its twin on the way up. Boundary tensors have shape (samples, channels,
    rows, columns). Within a stage with tensor-parallel axes the inner channels of every residual
    block are sharded, in whole groups of their normalization.
    """

    levels: int = 2
    channels: int = 8
    groups: int = 4
    size: int = 8
    colours: int = 3

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            check_int(name, given, 1)
        if self.channels % self.groups:
            raise ReshardError(
                f"channels={self.channels} does not divide by groups={self.groups}; a group has "
                "a whole number of channels"
            )
        if self.size % 2**self.levels or self.size == 2**self.levels:
            raise ReshardError(
                f"size={self.size} cannot be halved levels={self.levels} times to 2 or more (of a "
                "single pixel there is nothing to normalize); use a multiple of "
                f"{2**self.levels} above it"
            )

    def build(self) -> LayeredModel:
        widths = [self.channels * 2**i for i in range(self.levels)]
        above = [widths[0], *widths[:-1]]

        def image(channels: int, level: int) -> tuple[int, int, int]:
            return channels, self.size >> level, self.size >> level

        conv = partial(_affine, "conv", window=(3, 3))
        down, middle, up = (partial(run, groups=self.groups) for run in (_down, _residual, _up))
        layers = [Layer("in", conv(self.colours, widths[0]), _convolution, image(widths[0], 0))]
        for i, width in enumerate(widths):
            block, out = _residual_params(above[i], width), image(width, i + 1)
            layers.append(Layer(f"down{i}", block, down, out, gives=image(width, i)))
        layers.append(Layer("middle", _residual_params(width, width), middle, out))
        for i in reversed(range(self.levels)):
            block = _residual_params(2 * widths[i], above[i])
            layers.append(Layer(f"up{i}", block, up, image(above[i], i), takes=1 + i))
        outer = image(self.colours, 0)
        layers.append(Layer("out", conv(widths[0], self.colours), _convolution, outer))
        data, terms = partial(_images, shape=outer), math.prod(outer)
        return LayeredModel(tuple(layers), self.groups, "groups of channels", data, _mse, terms)


def _residual_params(inner: int, outer: int) -> tuple[Param, ...]:
    return (
        *_norm("norm1", inner),
        _affine("conv1", inner, outer, 0, (3, 3))[0],  # the norm behind it takes a bias away
        *_norm("norm2", outer, 0),
        *_affine("conv2", outer, outer, 1, (3, 3)),
        *_affine("beside", inner, outer, window=(1, 1)),
    )


def _convolution(tp: TensorParallel, p: Tensors, x: Any, skip: Any) -> Any:
    return tp.F.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)


def _residual(tp: TensorParallel, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    """Two convolutions, their shards' results summed, beside a third of one pixel."""
    f = tp.F
    y = f.silu(f.group_norm(x, groups, p["norm1.gain"], p["norm1.bias"]))
    y = f.conv2d(tp.copy(y), p["conv1.weight"], padding=1)
    y = f.silu(f.group_norm(y, groups // tp.size, p["norm2.gain"], p["norm2.bias"]))
    y = tp.reduce(f.conv2d(y, p["conv2.weight"], padding=1)) + p["conv2.bias"][:, None, None]
    return y + f.conv2d(x, p["beside.weight"], p["beside.bias"])


def _down(tp: TensorParallel, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    y = _residual(tp, p, x, None, groups)
    return tp.F.avg_pool2d(y, 2), y


def _up(tp: TensorParallel, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    large = tp.F.interpolate(x, scale_factor=2, mode="nearest")
    return _residual(tp, p, tp.torch.cat([large, skip], dim=1), None, groups)


def _mse(tp: TensorParallel, images: Any, targets: Any) -> Any:
    return tp.F.mse_loss(images, targets, reduction="sum")


def _images(torch: Any, generator: Any, samples: int, shape: tuple[int, ...]) -> Any:
    return tuple(torch.randn((samples, *shape), generator=generator) for _ in range(2))


MODELS: dict[str, type[Transformer] | type[UNet]] = {"transformer": Transformer, "unet": UNet}
