"""What the building blocks of a network cost: parameters, FLOPs, and what their backward needs.

A multiplication and an addition are two FLOPs; only matrix products and convolutions are counted,
as torch.utils.flop_counter does. What a block keeps for its backward is its inputs and whatever
its derivative reads, without dropout; of the devices of an operator-parallel group some of it
lies on every one, the rest is shared out (Korthikanti et al. 2022, arXiv 2205.05198, section 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Cost(NamedTuple):
    """Of one block, for a number of samples."""

    parameters: int = 0
    forward_flops: int = 0
    input_flops: int = 0
    """Of the backward: the gradient of the input."""
    weight_flops: int = 0
    """Of the backward: the gradient of the parameters."""
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
    """A function without parameters or products that keeps ``elements``, such as SiLU or GELU.

    split: they are shared out over the operator-parallel group.
    """
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

    split: the input is shared out over the operator-parallel group (the second of a pair).
    keeps: False if the input is kept by another block already.
    input_gradient: False if nothing needs the gradient of the input.
    """
    flops = 2 * rows * inputs * outputs
    return keep(rows * inputs if keeps else 0, split)._replace(
        parameters=inputs * outputs + (outputs if bias else 0),
        forward_flops=flops,
        input_flops=flops if input_gradient else 0,
        weight_flops=flops,
    )


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
