"""The models to train in stages: a small transformer and a small U-Net."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.training.collectives import TensorParallel
from reshard_lab.training.layers import Layer, Model, Param, Tensors, affine_params, norm_params


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
        for name in ("blocks", "hidden", "heads", "sequence", "vocabulary"):
            check_int(name, getattr(self, name), 2 if name == "sequence" else 1)
        if self.hidden % self.heads:
            raise ReshardError(
                f"hidden={self.hidden} does not divide by heads={self.heads}; a head has a whole "
                "number of channels"
            )

    def build(self) -> Model:
        """The model."""
        h, t, v = self.hidden, self.sequence, self.vocabulary
        table, places = Param("table", (v, h), std=1.0), Param("places", (t, h), std=1.0)
        query, key, value = (affine_params(name, h, h, 0) for name in ("query", "key", "value"))
        block = (
            *norm_params("norm1", h),
            *query,
            key[0],  # a bias would add the same to all scores of a query, which changes nothing
            *value,
            *affine_params("merge", h, h, 1),
            *norm_params("norm2", h),
            *affine_params("up", h, 4 * h, 0),
            *affine_params("down", 4 * h, h, 1),
        )
        run = partial(_attention_block, heads=self.heads)
        head = (*norm_params("norm", h), *affine_params("out", h, v))
        layers = (
            Layer("embed", (table, places), _embed, (t, h)),
            *(Layer(f"block{i}", block, run, (t, h)) for i in range(self.blocks)),
            Layer("head", head, _head, (t, v)),
        )
        return Model(layers, self.heads, "heads", partial(_tokens, shape=(t, v)), _cross_entropy, t)


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


def _tokens(generator: Any, samples: int, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Random tokens; the target of each is the one behind it, of the last the first."""
    torch = need("torch", "run", "training")
    sequence, vocabulary = shape
    tokens = torch.randint(vocabulary, (samples, sequence), generator=generator)
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
        for name in ("levels", "channels", "groups", "size", "colours"):
            check_int(name, getattr(self, name), 1)
        if self.channels % self.groups:
            raise ReshardError(
                f"channels={self.channels} does not divide by groups={self.groups}; a group has "
                "a whole number of channels"
            )
        if self.size % 2**self.levels or self.size == 2**self.levels:
            raise ReshardError(
                f"size={self.size} cannot be halved levels={self.levels} times to 2 or more (of a "
                f"single pixel there is nothing to normalize); use a multiple of {2**self.levels} "
                f"above it"
            )

    def build(self) -> Model:
        """The model."""
        n, colours = self.levels, self.colours
        widths = [self.channels * 2**i for i in range(n)]
        images = [(w, self.size >> i, self.size >> i) for i, w in enumerate(widths)]
        edge = (widths[-1], self.size >> n, self.size >> n)
        down, middle, up = (partial(run, groups=self.groups) for run in (_down, _middle, _up))
        first = affine_params("conv", colours, widths[0], window=(3, 3))
        layers = [Layer("in", first, _convolution, images[0])]
        for i, width in enumerate(widths):
            below = (width, self.size >> i + 1, self.size >> i + 1)
            block = _residual_params(widths[max(0, i - 1)], width)
            layers.append(Layer(f"down{i}", block, down, below, gives=images[i]))
        layers.append(Layer("middle", _residual_params(widths[-1], widths[-1]), middle, edge))
        for i in reversed(range(n)):
            above = widths[max(0, i - 1)]
            block = _residual_params(2 * widths[i], above)
            layers.append(Layer(f"up{i}", block, up, (above, *images[i][1:]), takes=1 + i))
        outer = (colours, self.size, self.size)
        last = affine_params("conv", widths[0], colours, window=(3, 3))
        layers.append(Layer("out", last, _convolution, outer))
        data, terms = partial(_images, shape=outer), colours * self.size**2
        return Model(tuple(layers), self.groups, "groups of channels", data, _mse, terms)


def _residual_params(inner: int, outer: int) -> tuple[Param, ...]:
    return (
        *norm_params("norm1", inner),
        affine_params("conv1", inner, outer, 0, (3, 3))[0],  # the norm behind it takes a bias away
        *norm_params("norm2", outer, 0),
        *affine_params("conv2", outer, outer, 1, (3, 3)),
        *affine_params("beside", inner, outer, window=(1, 1)),
    )


def _convolution(tp: TensorParallel, p: Tensors, x: Any, skip: Any) -> Any:
    return tp.F.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)


def _residual(tp: TensorParallel, p: Tensors, x: Any, groups: int) -> Any:
    """Two convolutions, their shards' results summed, beside a third of one pixel."""
    f = tp.F
    y = f.silu(f.group_norm(x, groups, p["norm1.gain"], p["norm1.bias"]))
    y = f.conv2d(tp.copy(y), p["conv1.weight"], padding=1)
    y = f.silu(f.group_norm(y, groups // tp.size, p["norm2.gain"], p["norm2.bias"]))
    y = tp.reduce(f.conv2d(y, p["conv2.weight"], padding=1)) + p["conv2.bias"][:, None, None]
    return y + f.conv2d(x, p["beside.weight"], p["beside.bias"])


def _down(tp: TensorParallel, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    y = _residual(tp, p, x, groups)
    return tp.F.avg_pool2d(y, 2), y


def _middle(tp: TensorParallel, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    return _residual(tp, p, x, groups)


def _up(tp: TensorParallel, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    large = tp.F.interpolate(x, scale_factor=2, mode="nearest")
    return _residual(tp, p, tp.torch.cat([large, skip], dim=1), groups)


def _mse(tp: TensorParallel, images: Any, targets: Any) -> Any:
    return tp.F.mse_loss(images, targets, reduction="sum")


def _images(generator: Any, samples: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    torch = need("torch", "run", "training")
    inputs, targets = (torch.randn((samples, *shape), generator=generator) for _ in range(2))
    return inputs, targets


MODELS: dict[str, type[Transformer] | type[UNet]] = {"transformer": Transformer, "unet": UNet}
