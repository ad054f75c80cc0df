"""What layers compute with: torch, and the sums over the devices that share a layer's parameters.

Operator parallelism needs two functions, each the other's derivative: ``copy`` (as it is; the
gradient is summed over the group), where what all hold goes into a part of the layer that only
this device computes, and ``add`` (summed over the group; the gradient as it is), where their
results come together (Shoeybi et al. 2019, arXiv 1909.08053, section 3).

A boundary tensor whose spec cuts more than the batch is whole within the stage: ``unite`` makes it
so and ``part`` takes this device's box of it; each is the other's derivative as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from reshard_lab.boxes import Box
from reshard_lab.errors import need
from reshard_lab.runtime.calls import Deadline, LateError, PeerError


class Span(NamedTuple):
    """This device's box of a boundary tensor, within its share of the batch."""

    slices: tuple[slice, ...]
    shape: tuple[int, ...]
    """Of the tensor whole (but for the batch)."""
    first: bool
    """Whether no device before this one in its group holds the same box."""


class Kit:
    """torch, and an operator group of ``size`` devices of which this is number ``rank``."""

    def __init__(self, group: Any = None, rank: int = 0, size: int = 1) -> None:
        self.torch = need("torch", "run", "training")
        self.F = self.torch.nn.functional
        self.group, self.rank, self.size = group, rank, size
        self.deadline: Deadline | None = None
        """Of the step under way; needed where the group has several devices."""

    def copy(self, x: Any) -> Any:
        """``x`` as it is; its gradient is the sum of the group's."""
        return x if self.size == 1 else _functions().Copy.apply(x, self)

    def add(self, x: Any) -> Any:
        """The sum of the group's ``x``; its gradient goes to all of them."""
        return x if self.size == 1 else _functions().Add.apply(x, self)

    def unite(self, x: Any, span: Span | None) -> Any:
        """The tensor whole, from the boxes that the group holds (None: ``x`` is whole)."""
        return x if span is None else _functions().Unite.apply(x, span, self)

    def part(self, x: Any, span: Span | None) -> Any:
        """This device's box of ``x``, which all of the group hold whole."""
        return x if span is None else _functions().Part.apply(x, span, self)

    def own(self, whole: Any, cut: int | None) -> Any:
        """This device's share of a parameter: an equal part along dimension ``cut``."""
        return whole if cut is None else whole.chunk(self.size, cut)[self.rank]

    def add_up(self, tensor: Any) -> None:
        """Sum a tensor over the group, in place."""
        assert self.deadline is not None
        add_up(tensor, self.group, self.deadline)


def span_of(boxes: list[Box], rank: int, shape: tuple[int, ...]) -> Span | None:
    """The span of number ``rank`` of a group that holds ``boxes``; None if it holds all there is.

    All boxes have the same share of the batch, the first dimension.

    >>> span_of([((0, 2), (0, 4)), ((0, 2), (4, 8))], 1, (4, 8))
    Span(slices=(slice(0, 2, None), slice(4, 8, None)), shape=(2, 8), first=True)
    >>> span_of([((0, 2), (0, 8)), ((0, 2), (0, 8))], 1, (4, 8)) is None
    True
    """
    (start, stop), *rest = boxes[rank]
    whole = tuple((0, n) for n in shape[1:])
    if all(box[1:] == whole for box in boxes):
        return None
    samples = stop - start
    slices = (slice(0, samples), *(slice(lo, hi) for lo, hi in rest))
    return Span(slices, (samples, *shape[1:]), boxes.index(boxes[rank]) == rank)


def add_up(tensor: Any, group: Any, deadline: Deadline) -> None:
    """Sum a tensor over the devices of a group, in place."""
    dist = need("torch.distributed", "run", "training")
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=deadline.left())  # that of the group is for making it
    with together("a sum over the devices of a stage"):
        group.allreduce([tensor], options).wait()


def meet(what: str, group: Any, deadline: Deadline) -> None:
    """Wait for all devices of a group."""
    dist = need("torch.distributed", "run", "training")
    options = dist.BarrierOptions()
    options.timeout = timedelta(seconds=deadline.left())
    with together(what):
        group.barrier(options).wait()


@contextmanager
def together(what: str) -> Iterator[None]:
    """Something that all devices of a group do: says ``what`` failed, and whether it was late."""
    try:
        yield
    except RuntimeError as error:
        late = re.search(r"timed? ?out", str(error), re.IGNORECASE)
        raise (LateError if late else PeerError)(f"{what} failed: {error}") from error


@lru_cache(maxsize=1)
def _functions() -> SimpleNamespace:
    """The autograd functions; torch is needed to define them."""
    torch = need("torch", "run", "training")

    def summed(x: Any, kit: Kit) -> Any:
        made = x.clone(memory_format=torch.contiguous_format)
        kit.add_up(made)
        return made

    def united(x: Any, span: Span, kit: Kit) -> Any:
        made = x.new_zeros(span.shape)
        if span.first:
            made[span.slices] = x
        kit.add_up(made)  # every element is one device's, and zero elsewhere
        return made

    def taken(x: Any, span: Span) -> Any:
        return x[span.slices].clone(memory_format=torch.contiguous_format)

    function: Any = torch.autograd.Function

    class Copy(function):
        @staticmethod
        def forward(ctx: Any, x: Any, kit: Kit) -> Any:
            ctx.kit = kit
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return summed(gradient, ctx.kit), None

    class Add(function):
        @staticmethod
        def forward(ctx: Any, x: Any, kit: Kit) -> Any:
            return summed(x, kit)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, None

    class Unite(function):
        @staticmethod
        def forward(ctx: Any, x: Any, span: Span, kit: Kit) -> Any:
            ctx.span = span
            return united(x, span, kit)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return taken(gradient, ctx.span), None, None

    class Part(function):
        @staticmethod
        def forward(ctx: Any, x: Any, span: Span, kit: Kit) -> Any:
            ctx.span, ctx.kit = span, kit
            return taken(x, span)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return united(gradient, ctx.span, ctx.kit), None, None

    return SimpleNamespace(Copy=Copy, Add=Add, Unite=Unite, Part=Part)
