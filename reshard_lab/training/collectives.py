"""What the devices of a stage do together: sums, and the four tensor-parallel collectives.

As Megatron names them (Shoeybi et al. 2019, arXiv 1909.08053, section 3): ``copy`` takes what all
hold into a part of the layer that only this device computes, and its gradient is summed;
``reduce`` sums what the devices have computed, and its gradient is copied. A boundary tensor
whose spec cuts more than the batch is whole within the stage: ``gather`` makes it so and
``scatter`` takes this device's box of it; each is the other's derivative as well.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from reshard_lab.boxes import Box
from reshard_lab.errors import need
from reshard_lab.runtime.calls import Deadline, LateError, PeerError


class ProcessGroups:
    """Process groups of a pool's workers, created once and used by every run that follows.

    All workers of the pool create them, in one order: torch waits for all of them. The timeout of a
    group bounds its creation alone; each use has a deadline of its own.
    """

    def __init__(self, ranks: dict[int, int]) -> None:
        self.dist = need("torch.distributed", "run", "training")
        self.ranks = ranks
        self._groups: dict[tuple[str, tuple[int, ...]], Any] = {}

    def get(self, use: str, devices: tuple[int, ...], deadline: Deadline) -> Any:
        """The group of ``devices`` (ascending) for one use; created if there is none yet."""
        if (use, devices) not in self._groups:
            ranks, timeout = [self.ranks[d] for d in devices], timedelta(seconds=deadline.left())
            with peer_errors(f"making a group of devices {list(devices)}"):
                group = self.dist.new_group(ranks, timeout=timeout, backend="gloo")
            self._groups[use, devices] = group
        return self._groups[use, devices]


def all_reduce(tensor: Any, group: Any, deadline: Deadline) -> None:
    """Sum a tensor over the devices of a group, in place."""
    options = need("torch.distributed", "run", "training").AllreduceOptions()
    _wait("a sum over the devices of a stage", group.allreduce, options, deadline, [tensor])


def barrier(what: str, group: Any, deadline: Deadline) -> None:
    options = need("torch.distributed", "run", "training").BarrierOptions()
    _wait(what, group.barrier, options, deadline)


def _wait(
    what: str, collective: Callable[..., Any], options: Any, deadline: Deadline, *tensors: Any
) -> None:
    options.timeout = timedelta(seconds=deadline.left())  # that of the group is for making it
    with peer_errors(what):
        collective(*tensors, options).wait()


@contextmanager
def peer_errors(what: str) -> Iterator[None]:
    """Turn gloo's errors within ``what``, a collective, into PeerError; LateError for timeouts."""
    try:
        yield
    except RuntimeError as error:
        late = re.search(r"timed? ?out", str(error), re.IGNORECASE)
        raise (LateError if late else PeerError)(f"{what} failed: {error}") from error


class BoundaryBox(NamedTuple):
    """This device's box of a boundary tensor, within its share of the batch."""

    slices: tuple[slice, ...]
    shape: tuple[int, ...]
    """Of the tensor whole (but for the batch)."""
    first: bool
    """Whether no device before this one in its group holds the same box."""


def boundary_box(boxes: list[Box], rank: int, shape: tuple[int, ...]) -> BoundaryBox | None:
    """That of device ``rank`` of a group which holds ``boxes``; None if each holds all there is.

    >>> boundary_box([((4, 8), (0, 3)), ((4, 8), (3, 6))], 1, (8, 6))
    BoundaryBox(slices=(slice(0, 4, None), slice(3, 6, None)), shape=(4, 6), first=True)
    >>> boundary_box([((4, 8), (0, 6))], 0, (8, 6)) is None
    True
    """
    (start, stop), *rest = boxes[rank]
    whole = tuple((0, n) for n in shape[1:])
    if all(box[1:] == whole for box in boxes):
        return None
    samples = stop - start
    slices = (slice(0, samples), *(slice(lo, hi) for lo, hi in rest))
    return BoundaryBox(slices, (samples, *shape[1:]), boxes.index(boxes[rank]) == rank)


class TensorParallel:
    """A tensor-parallel group of ``size`` devices, of which this is number ``rank``, and torch."""

    def __init__(self, group: Any = None, rank: int = 0, size: int = 1) -> None:
        self.torch = need("torch", "run", "training")
        self.F = self.torch.nn.functional
        self.group, self.rank, self.size = group, rank, size
        self.deadline: Deadline | None = None
        """Of the step under way; needed where the group has several devices."""

    def copy(self, x: Any) -> Any:
        """``x`` as it is; its gradient is summed over the group."""
        return x if self.size == 1 else linear_map(x, _identity, self._sum)

    def reduce(self, x: Any) -> Any:
        """The sum of the group's ``x``; its gradient goes to all of them."""
        return x if self.size == 1 else linear_map(x, self._sum, _identity)

    def gather(self, x: Any, box: BoundaryBox | None) -> Any:
        """The tensor whole, from the boxes that the group holds (None: ``x`` is whole)."""
        if box is None:
            return x
        return linear_map(x, lambda part: self._assemble(part, box), lambda g: self._cut(g, box))

    def scatter(self, x: Any, box: BoundaryBox | None) -> Any:
        """This device's box of ``x``, which all of the group hold whole."""
        if box is None:
            return x
        return linear_map(x, lambda whole: self._cut(whole, box), lambda g: self._assemble(g, box))

    def shard(self, parameter: Any, cut: int | None) -> Any:
        """This device's shard of a parameter: an equal part along dimension ``cut``."""
        return parameter if cut is None else parameter.chunk(self.size, cut)[self.rank]

    def all_reduce(self, tensor: Any) -> None:
        assert self.deadline is not None
        all_reduce(tensor, self.group, self.deadline)

    def _sum(self, x: Any) -> Any:
        total = x.clone(memory_format=self.torch.contiguous_format)
        self.all_reduce(total)
        return total

    def _assemble(self, x: Any, box: BoundaryBox) -> Any:
        whole = x.new_zeros(box.shape)
        if box.first:
            whole[box.slices] = x
        self.all_reduce(whole)  # every element is one device's, and zero elsewhere
        return whole

    def _cut(self, x: Any, box: BoundaryBox) -> Any:
        return x[box.slices].clone(memory_format=self.torch.contiguous_format)


def _identity(x: Any) -> Any:
    return x.view_as(x)


def linear_map(
    x: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any], ticket: Any = None
) -> Any:
    """``forward(x)``, whose gradient is passed through ``backward``: also where ``x`` needs none,
    if there is a ``ticket`` that does.
    """
    return _linear_map().apply(x, forward, backward, ticket)


@lru_cache(maxsize=1)
def _linear_map() -> Any:
    function: Any = need("torch", "run", "training").autograd.Function

    class LinearMap(function):
        @staticmethod
        def forward(ctx: Any, x: Any, forward: Any, backward: Any, ticket: Any) -> Any:
            ctx.transpose = backward
            return forward(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            back = ctx.transpose(gradient)
            return back if ctx.needs_input_grad[0] else None, None, None, None

    return LinearMap
