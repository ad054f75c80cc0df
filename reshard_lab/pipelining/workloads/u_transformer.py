"""U-Transformer, as the paper trains it: a U-Net with transformer blocks (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.pipelining.workloads.costs import (
    Cost,
    attention,
    conv,
    keep,
    linear,
    norm,
    total,
)
from reshard_lab.pipelining.workloads.record import Layer, Workload, sizes_of, stage_work

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

_WIDTHS = (1, 2, 4, 4)  # channels of the four levels, in units of the base channels
_ATTENDS = (True, True, True, False)
_IN, _OUT = 3, 4  # channels of the image and of the prediction
_UP = 2  # layers a level on the way up; one on the way down
LAYERS = len(_WIDTHS) * (1 + _UP) + 1


class _Map(NamedTuple):
    """An activation: channels x side x side."""

    channels: int
    side: int


class _Skip(NamedTuple):
    """A map that a layer on the way down makes for one on the way up."""

    made: int
    used: int
    map: _Map
    output: bool
    """Whether it is also what the layer hands to the next."""


def u_transformer(size: str = "1B", recompute: bool = False, **changes: Any) -> Workload:
    """A conditional U-Net: 2-D residual blocks, each followed by a transformer block where its
    level attends, with skip connections from the way down to the way up.

    Thirteen layers: four down (levels of c, 2c, 4c, 4c channels, sides halving; a residual block
    each), the middle (two residual blocks around a transformer block), eight up (two a level).
    The first takes in the image and the time embedding, the last makes the prediction. A skip is
    kept of the first convolution, of every residual or transformer block on the way down and of
    every halving; each layer on the way up takes one, the last made first. The first three levels
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
    base = U_TRANSFORMER_SIZES[check_choice("U-Transformer size", size, U_TRANSFORMER_SIZES)]
    for key in changes:
        check_choice("U-Transformer setting", key, base)
    name = f"U-Transformer-{size}" + (" changed" if changes else "")
    sizes = sizes_of(name, base | changes)
    cuts = _cuts(name, sizes["cuts"])
    if sizes["image"] % 8:
        raise ReshardError(
            f"{name}: image={sizes['image']} is halved three times; use multiples of 8"
        )
    if sizes["channels"] % sizes["heads"]:
        raise ReshardError(
            f"{name}: channels={sizes['channels']} does not divide into {sizes['heads']} heads"
        )
    samples = sizes["batch"] // sizes["microbatches"]
    net = _Net(samples, sizes["channels"], sizes["image"], sizes["heads"])
    stage_of = [sum(layer >= cut for cut in cuts) for layer in range(LAYERS)]
    stages = len(cuts) + 1
    cut_layers = [
        [layer for layer, at in zip(net.layers, stage_of, strict=True) if at == s]
        for s in range(stages)
    ]
    return Workload(
        name,
        sizes["dtype"],
        sizes["batch"],
        sizes["microbatches"],
        sizes["data"],
        sizes["operator"],
        tuple(stage_work(layers, sizes, recompute) for layers in cut_layers),
        tuple(_tensors(net, samples, cuts, stage_of)),
        total(layer.cost for layer in net.layers).parameters,
    )


def _cuts(name: str, given: Any) -> tuple[int, ...]:
    cuts = tuple(given) if isinstance(given, (list, tuple)) else (0,)
    if list(cuts) != sorted(set(cuts)) or not all(0 < cut < LAYERS for cut in cuts):
        raise ReshardError(
            f"{name}: cuts={given!r} must be ascending numbers of layers from 1 to {LAYERS - 1}"
        )
    return cuts


def _tensors(
    net: _Net, samples: int, cuts: Sequence[int], stage_of: list[int]
) -> list[BoundaryTensor]:
    """What crosses: the map between neighbours, the time embedding to every later stage, skips."""
    tensors = [
        BoundaryTensor(0, s, name="time embedding", shape=(samples, net.time))
        for s in range(1, len(cuts) + 1)
    ]
    for s, cut in enumerate(cuts):
        channels, side = net.outputs[cut - 1]
        shape = (samples, channels, side, side)
        tensors.append(BoundaryTensor(s, s + 1, name="hidden", shape=shape))
    for number, skip in enumerate(net.skips):
        source, target = stage_of[skip.made], stage_of[skip.used]
        is_hidden = skip.output and skip.made + 1 in cuts and target == source + 1
        if source != target and not is_hidden:
            channels, side = skip.map
            shape = (samples, channels, side, side)
            tensors.append(BoundaryTensor(source, target, name=f"skip {number}", shape=shape))
    return tensors


class _Net:
    """The layers, in order, with their costs; the map each makes; and the skips."""

    def __init__(self, samples: int, channels: int, image: int, heads: int) -> None:
        self.samples = samples
        self.heads = heads
        self.time = 4 * channels
        self.context = ((image // 8) ** 2, 4 * channels)  # tokens and width
        self.layers: list[Layer] = []
        self.outputs: list[_Map] = []
        self.skips: list[_Skip] = []
        self.at = _Map(_IN, image)
        self._down(channels)
        self._middle()
        self._up(channels)

    def _down(self, base: int) -> None:
        image = self.at
        self.at = _Map(base, image.side)
        first = [self._time_embedding(base), self._conv(image, self.at, input_gradient=False)]
        made = [(0, self.at, False)]
        for level, (width, attends) in enumerate(zip(_WIDTHS, _ATTENDS, strict=True)):
            into = image if level == 0 else self.at
            costs = first if level == 0 else []
            last = level == len(_WIDTHS) - 1
            costs.append(self._residual(self.at.channels, width * base))
            costs += [self._transformer()] if attends else []
            made.append((level, self.at, last))
            if not last:
                half = _Map(self.at.channels, self.at.side // 2)
                costs.append(self._conv(self.at, half))
                self.at = half
                made.append((level, self.at, True))
            self._add(f"down {level}", costs, into)
        # Taken on the way up in reverse, one a layer, from the layer behind the middle on
        self.skips = [
            _Skip(layer, LAYERS - 1 - i, made_map, output)
            for i, (layer, made_map, output) in enumerate(made)
        ]

    def _middle(self) -> None:
        width = self.at.channels
        into = self.at
        costs = [self._residual(width, width), self._transformer(), self._residual(width, width)]
        self._add("middle", costs, into)

    def _up(self, base: int) -> None:
        for level in reversed(range(len(_WIDTHS))):
            for i in range(_UP):
                skip = next(s for s in self.skips if s.used == len(self.layers))
                into = self.at
                costs = [
                    self._residual(self.at.channels + skip.map.channels, _WIDTHS[level] * base)
                ]
                costs += [self._transformer()] if _ATTENDS[level] else []
                if i == _UP - 1 and level:
                    double = _Map(self.at.channels, self.at.side * 2)
                    costs.append(self._conv(double, double))  # of the map, each pixel doubled
                    self.at = double
                elif i == _UP - 1:
                    costs += self._prediction()
                self._add(f"up {level}.{i}", costs, into, skip)

    def _add(self, name: str, costs: list[Cost], into: _Map, skip: _Skip | None = None) -> None:
        number = len(self.layers)
        inputs = {f"into {number}": self._elements(into)}
        time = "time embedding" if number else "sinusoids"
        inputs[time] = self.samples * (self.time if number else self.time // 4)
        if skip is not None:
            tensor = f"into {skip.made + 1}" if skip.output else f"skip into {number}"
            inputs[tensor] = self._elements(skip.map)
        self.layers.append(Layer(name, total(costs), inputs))
        self.outputs.append(self.at)

    def _elements(self, at: _Map) -> int:
        return self.samples * at.channels * at.side**2

    def _conv(self, source: _Map, target: _Map, size: int = 3, **options: Any) -> Cost:
        pixels = self.samples * target.side**2
        kept = self._elements(source)
        return conv(pixels, source.channels, target.channels, size, kept, **options)

    def _time_embedding(self, base: int) -> Cost:
        """Sinusoids of c, two linear maps to 4c, SiLU after each."""
        made = self.samples * self.time
        first = linear(self.samples, base, self.time, input_gradient=False)
        return total([first, keep(made), linear(self.samples, self.time, self.time), keep(made)])

    def _residual(self, inputs: int, outputs: int) -> Cost:
        """Norm, SiLU and 3x3 convolution, twice; the time embedding is added between them."""
        source, target = _Map(inputs, self.at.side), _Map(outputs, self.at.side)
        into, out = self._elements(source), self._elements(target)
        costs = [
            norm(into, inputs),
            keep(into),
            self._conv(source, target),
            linear(self.samples, self.time, outputs, keeps=False),
            norm(out, outputs, split=True),
            keep(out, split=True),
            self._conv(target, target, split=True),
        ]
        if inputs != outputs:
            costs.append(self._conv(source, target, 1)._replace(kept=0))  # the norm keeps the input
        self.at = target
        return total(costs)

    def _transformer(self) -> Cost:
        """Self-attention, cross-attention and a gated feed-forward between two linear maps."""
        width, side = self.at
        tokens, (given, given_width) = side**2, self.context
        rows = self.samples * tokens
        out = linear(rows, width, width, split=True)
        to_context = linear(
            self.samples * given, given_width, 2 * width, False, keeps=False, input_gradient=False
        )
        return total(
            [
                norm(rows * width, width),
                linear(rows, width, width),
                norm(rows * width, width),
                linear(rows, width, 3 * width, bias=False),
                attention(self.samples, tokens, tokens, width, self.heads),
                out,
                norm(rows * width, width),
                linear(rows, width, width, bias=False),
                to_context,
                attention(self.samples, tokens, given, width, self.heads, given_keys=True),
                out,
                norm(rows * width, width),
                linear(rows, width, 8 * width),
                keep(rows * 12 * width, split=True),  # the gate and what it gates, GELU of one
                linear(rows, 4 * width, width, split=True),
                linear(rows, width, width),
            ]
        )

    def _prediction(self) -> list[Cost]:
        made = _Map(_OUT, self.at.side)
        kept = self._elements(self.at)
        loss = keep(self._elements(made))
        return [norm(kept, self.at.channels), keep(kept), self._conv(self.at, made), loss]
