"""A small U-shaped network: residual blocks down and up again, with a skip at every level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.training.kit import Kit
from reshard_lab.training.models import Layer, Model, Param, Tensors


@dataclass(frozen=True)
class UNet:
    """Sizes of the U-shaped network. Its layers: in, ``levels`` down, middle, as many up, out.

    Level i works on ``channels * 2**i`` channels and images of ``size / 2**i``; what it gives on
    the way down skips to its twin on the way up. Boundary tensors have shape (samples, channels,
    rows, columns). Within a stage with operator axes the inner channels of every residual block
    are shared out, in whole groups of their normalization.
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
        image = [(w, self.size >> i, self.size >> i) for i, w in enumerate(widths)]
        edge = (widths[-1], self.size >> n, self.size >> n)
        layers = [Layer("in", _conv("conv", colours, widths[0]), _plain, image[0])]
        for i, width in enumerate(widths):
            below = (width, self.size >> i + 1, self.size >> i + 1)
            block = _block_params(widths[max(0, i - 1)], width)
            run = partial(_down, groups=self.groups)
            layers.append(Layer(f"down{i}", block, run, below, gives=image[i]))
        middle = _block_params(widths[-1], widths[-1])
        layers.append(Layer("middle", middle, partial(_middle, groups=self.groups), edge))
        for i in reversed(range(n)):
            above = widths[max(0, i - 1)]
            block = _block_params(2 * widths[i], above)
            run = partial(_up, groups=self.groups)
            layers.append(Layer(f"up{i}", block, run, (above, *image[i][1:]), takes=1 + i))
        outer = (colours, self.size, self.size)
        layers.append(Layer("out", _conv("conv", widths[0], colours), _plain, outer))
        data = partial(_data, shape=outer)
        terms = colours * self.size**2
        return Model(tuple(layers), self.groups, "groups of channels", data, _loss, terms)


def _norm(name: str, width: int, cut: int | None = None) -> tuple[Param, Param]:
    return Param(f"{name}.gain", (width,), cut, centre=1.0), Param(f"{name}.bias", (width,), cut)


def _conv(
    name: str, inner: int, outer: int, cut: int | None = None, side: int = 3
) -> tuple[Param, Param]:
    """A convolution's parameters; ``cut`` 0 shares out what it makes, 1 what it takes."""
    scale = (inner * side * side) ** -0.5
    weight = Param(f"{name}.weight", (outer, inner, side, side), cut, scale=scale)
    return weight, Param(f"{name}.bias", (outer,))


def _block_params(inner: int, outer: int) -> tuple[Param, ...]:
    return (
        *_norm("norm1", inner),
        _conv("conv1", inner, outer, 0)[0],  # the normalization behind it takes a bias away
        *_norm("norm2", outer, 0),
        *_conv("conv2", outer, outer, 1),
        *_conv("beside", inner, outer, side=1),
    )


def _plain(kit: Kit, p: Tensors, x: Any, skip: Any) -> Any:
    return kit.F.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)


def _block(kit: Kit, p: Tensors, x: Any, groups: int) -> Any:
    """Two convolutions beside a third of one pixel; the group's shares of them added."""
    f = kit.F
    y = f.silu(f.group_norm(x, groups, p["norm1.gain"], p["norm1.bias"]))
    y = f.conv2d(kit.copy(y), p["conv1.weight"], padding=1)
    y = f.silu(f.group_norm(y, groups // kit.size, p["norm2.gain"], p["norm2.bias"]))
    y = kit.add(f.conv2d(y, p["conv2.weight"], padding=1)) + p["conv2.bias"][:, None, None]
    return y + f.conv2d(x, p["beside.weight"], p["beside.bias"])


def _down(kit: Kit, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    y = _block(kit, p, x, groups)
    return kit.F.avg_pool2d(y, 2), y


def _middle(kit: Kit, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    return _block(kit, p, x, groups)


def _up(kit: Kit, p: Tensors, x: Any, skip: Any, groups: int) -> Any:
    large = kit.F.interpolate(x, scale_factor=2, mode="nearest")
    return _block(kit, p, kit.torch.cat([large, skip], dim=1), groups)


def _loss(kit: Kit, images: Any, targets: Any) -> Any:
    return kit.F.mse_loss(images, targets, reduction="sum")


def _data(generator: Any, samples: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    torch = need("torch", "run", "training")
    inputs, targets = (torch.randn((samples, *shape), generator=generator) for _ in range(2))
    return inputs, targets
