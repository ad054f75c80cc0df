"""U-Transformer, as the paper trains it: a U-Net with transformer blocks (section 5.2)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.pipelining.workload import (
    Cost,
    ModelPart,
    Workload,
    attention,
    conv,
    cut_workload,
    keep,
    linear,
    norm,
    settings_of,
    total,
)

U_TRANSFORMER_SIZES: dict[str, dict[str, Any]] = {
    "1B": {
        "image": 32,
        "channels": 480,
        "heads": 8,
        "batch": 2048,
        "microbatches": 32,
        "cuts": (8,),
        "data": 1,
        "operator": 2,
        "dtype": "float32",
    },
}
U_TRANSFORMER_SIZES["2B"] = U_TRANSFORMER_SIZES["1B"] | {
    "channels": 672,
    "cuts": (9,),
    "operator": 4,
}
"""Public configurations of the paper's evaluation; the number of heads is our choice (it changes
no parameter and no FLOP)."""

_LEVELS = ((1, True), (2, True), (4, True), (4, False))
"""Channels in units of the base channels, and whether transformer blocks follow: a level each. The
first has the image's resolution, every other one half of that before it."""
_IN, _OUT = 3, 4  # channels of the image and of the prediction
_UP = 2  # layers a level on the way up; one on the way down
LAYERS = len(_LEVELS) * (1 + _UP) + 1


class _FeatureMap(NamedTuple):
    """An activation: channels x side x side."""

    channels: int
    side: int


class _SkipConnection(NamedTuple):
    """A map that one layer hands to a later one."""

    from_layer: int
    to_layer: int
    map: _FeatureMap
    is_output: bool
    """Whether it is also what the layer hands to the next."""


def u_transformer(size: str = "1B", recompute: bool = False, **changes: Any) -> Workload:
    """A conditional U-Net: 2-D residual blocks, each followed by a transformer block where its
    level attends, with skip connections from the way down to the way up.

    Thirteen layers: four down (levels of c, 2c, 4c, 4c channels, sides halving; a residual block
    each), the middle (two residual blocks around a transformer block), eight up (two a level).
    The first takes in the image and the time embedding, the last makes the prediction. A skip is
    kept of the first convolution, of every residual or transformer block on the way down and of
    every halving; each layer on the way up takes one, the latest first. The first three levels
    down and the last three up attend. The time embedding goes to every stage.

    size:
        ``"1B"`` or ``"2B"``, the paper's configurations (c = 480 and 672; cut after layer 8 and 9).
    recompute:
        keep only the inputs of every layer and run its forward again in the backward.
    changes:
        other values of image, channels, heads, batch, microbatches, cuts (layers after which to
        cut), data, operator, dtype.

    >>> u_transformer("1B")
    Workload(U-Transformer-1B: 1.32 billion parameters, ...)
    """
    name, settings = settings_of("U-Transformer", U_TRANSFORMER_SIZES, size, changes)
    cuts, image, channels = settings["cuts"], settings["image"], settings["channels"]
    if not isinstance(cuts, (list, tuple)) or not all(
        0 < a < b for a, b in itertools.pairwise([*cuts, LAYERS])
    ):
        raise ReshardError(
            f"{name}: cuts={cuts!r} must be ascending numbers of layers from 1 to {LAYERS - 1}"
        )
    if image % 8:
        raise ReshardError(f"{name}: image={image} is halved three times; use multiples of 8")
    if channels % settings["heads"]:
        raise ReshardError(
            f"{name}: channels={channels} does not divide into {settings['heads']} heads"
        )
    net = _LayerBuilder(settings)
    _add_layers(net, channels)
    stages = [net.layers[a:b] for a, b in itertools.pairwise([0, *cuts, LAYERS])]
    return cut_workload(name, settings, recompute, stages, _tensors(net, cuts))


def _add_layers(net: _LayerBuilder, channels: int) -> None:
    last = len(_LEVELS) - 1
    for number, (width, attends) in enumerate(_LEVELS):
        if number == 0:
            net.stem(channels)
            net.give_skip()
        net.block(width * channels, attends)
        net.give_skip()
        if number < last:
            net.convolve(net.map.channels, net.map.side // 2)
            net.give_skip()
        net.end_layer(f"down {number}")
    net.block(net.map.channels, attends=True)
    net.block(net.map.channels, attends=False)
    net.end_layer("middle")
    for number in reversed(range(len(_LEVELS))):
        width, attends = _LEVELS[number]
        for i in range(_UP):
            net.take_skip()
            net.block(width * channels, attends)
            if i == _UP - 1 and number:  # a convolution of the map with each pixel doubled
                net.map = _FeatureMap(net.map.channels, net.map.side * 2)
                net.convolve(*net.map)
            elif i == _UP - 1:
                net.prediction()
            net.end_layer(f"up {number}.{i}")


def _tensors(net: _LayerBuilder, cuts: Sequence[int]) -> list[BoundaryTensor]:
    """What crosses: the time embedding to every later stage, the map between neighbours, skips."""
    stage_of = [sum(layer >= cut for cut in cuts) for layer in range(LAYERS)]
    time = net.samples, net.time_width
    tensors = [
        BoundaryTensor(0, s, name="time embedding", shape=time) for s in range(1, len(cuts) + 1)
    ]
    for s, cut in enumerate(cuts):
        shape = net.shape(net.outputs[cut - 1])
        tensors.append(BoundaryTensor(s, s + 1, name="hidden", shape=shape))
    for number, skip in enumerate(reversed(net.skips)):
        first, second = stage_of[skip.from_layer], stage_of[skip.to_layer]
        is_hidden = skip.is_output and skip.from_layer + 1 in cuts and second == first + 1
        if first != second and not is_hidden:
            shape = net.shape(skip.map)
            tensors.append(BoundaryTensor(first, second, name=f"skip {number}", shape=shape))
    return tensors


class _LayerBuilder:
    """Layers put together block by block: their costs, the map each makes, skip connections."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.samples = settings["batch"] // settings["microbatches"]
        self.heads = settings["heads"]
        self.time_width = 4 * settings["channels"]
        self.context = ((settings["image"] // 8) ** 2, 4 * settings["channels"])  # tokens, width
        self.layers: list[ModelPart] = []
        self.outputs: list[_FeatureMap] = []
        self.skips: list[_SkipConnection] = []  # the last given first
        self.map = _FeatureMap(_IN, settings["image"])
        self._given: list[tuple[int, _FeatureMap]] = []  # by a layer, and not yet taken
        self._begin_layer()

    def shape(self, of: _FeatureMap) -> tuple[int, ...]:
        return self.samples, of.channels, of.side, of.side

    def _elements(self) -> int:
        return math.prod(self.shape(self.map))

    def _begin_layer(self) -> None:
        number = len(self.layers)
        self._costs: list[Cost] = []
        self._inputs = {f"into {number}": self._elements()}
        time = "time embedding" if number else "sinusoids"
        self._inputs[time] = self.samples * (self.time_width if number else self.time_width // 4)

    def end_layer(self, name: str) -> None:
        """What has been added since the last layer is one."""
        self.layers.append(ModelPart(name, total(self._costs), self._inputs))
        self.outputs.append(self.map)
        self._begin_layer()

    def give_skip(self) -> None:
        """Hand the map to a later layer too."""
        self._given.append((len(self.layers), self.map))

    def take_skip(self) -> None:
        """Take the map given last that no layer has taken, and put it behind the channels."""
        (giver, skipped), number = self._given.pop(), len(self.layers)
        is_output = skipped is self.outputs[giver]
        self.skips.append(_SkipConnection(giver, number, skipped, is_output))
        key = f"into {giver + 1}" if is_output else f"skip into {number}"
        self._inputs[key] = math.prod(self.shape(skipped))
        self.map = _FeatureMap(self.map.channels + skipped.channels, self.map.side)

    def convolve(self, channels: int, side: int, **options: Any) -> None:
        """A 3x3 convolution of the map; keeps its input."""
        pixels, kept = self.samples * side**2, self._elements()
        self._costs.append(conv(pixels, self.map.channels, channels, 3, kept, **options))
        self.map = _FeatureMap(channels, side)

    def stem(self, channels: int) -> None:
        """Linear maps of the sinusoids of the time, SiLU after each; the image's convolution."""
        embedding = keep(self.samples * self.time_width)
        first = linear(self.samples, channels, self.time_width, input_gradient=False)
        second = linear(self.samples, self.time_width, self.time_width)
        self._costs += [first, embedding, second, embedding]
        self.convolve(channels, self.map.side, input_gradient=False)

    def block(self, channels: int, attends: bool) -> None:
        """A residual block: norm, SiLU and 3x3 convolution, twice; the time embedding is added
        between them. Behind it a transformer block if the level attends.
        """
        before, (width, side) = self._elements(), self.map
        self._costs += [norm(before, width), keep(before)]
        self.convolve(channels, side)
        after = self._elements()
        self._costs += [
            linear(self.samples, self.time_width, channels, keeps=False),
            norm(after, channels, split=True),
            keep(after, split=True),
        ]
        self.convolve(channels, side, split=True)
        if width != channels:  # the norm keeps the input
            self._costs.append(conv(self.samples * side**2, width, channels, 1, 0))
        if attends:
            self._transformer()

    def _transformer(self) -> None:
        """Self-attention, cross-attention and a gated feed-forward between two linear maps."""
        width, side = self.map
        tokens, (given, given_width) = side**2, self.context
        rows = self.samples * tokens
        normed, inner = norm(rows * width, width), linear(rows, width, width, bias=False)
        ends, out = linear(rows, width, width), linear(rows, width, width, split=True)
        to_context = linear(
            self.samples * given, given_width, 2 * width, False, keeps=False, input_gradient=False
        )
        self._costs += [
            *(normed, ends, normed),
            linear(rows, width, 3 * width, bias=False),
            attention(self.samples, tokens, tokens, width, self.heads),
            *(out, normed, inner, to_context),
            attention(self.samples, tokens, given, width, self.heads, given_keys=True),
            *(out, normed),
            linear(rows, width, 8 * width),
            keep(rows * 12 * width, split=True),  # the gate and what it gates, GELU of one
            linear(rows, 4 * width, width, split=True),
            ends,
        ]

    def prediction(self) -> None:
        """Norm, SiLU, convolution, loss."""
        before = self._elements()
        self._costs += [norm(before, self.map.channels), keep(before)]
        self.convolve(_OUT, self.map.side)
        self._costs.append(keep(self._elements()))
