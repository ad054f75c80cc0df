"""The bytes of a device's pieces: views of them where that will do, packed where it will not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.boxes import Box, box_shape, box_text, box_volume, slices_within, span_boxes
from reshard_lab.errors import ReshardError, need
from reshard_lab.planning import Plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.program import Move, Place
from reshard_lab.units import dtype_name

if TYPE_CHECKING:
    import torch


class Pieces(NamedTuple):
    """Source and destination pieces of one device, one a task (None: it has none)."""

    source: list[torch.Tensor | None]
    target: list[torch.Tensor | None]


def check_pieces(
    plan: Plan, device: int, piece: Any, out: Any, on: torch.device | None = None
) -> Pieces:
    """The pieces of ``device``, checked against the plan; new destinations where none is given.

    ``piece`` and ``out`` are a tensor (None where the device has none), or for a plan of several
    tasks a list with one entry a task, ``on`` one processor (default: the CPU). Under
    ``signal``, new destinations hold zeros.
    """
    torch = need("torch", "run", "running a plan on processes")
    given, outs = _one_a_task(plan, piece, "piece"), _one_a_task(plan, out, "out")
    found = Pieces([], [])
    for number, (task, tensor, into) in enumerate(zip(plan.tasks, given, outs, strict=True)):
        have = task.src.boxes(task.shape).get(device)
        target = task.dst.boxes(task.shape).get(device)
        where = "" if len(plan.tasks) == 1 else f" of tensor {number}"
        what = f"piece{where} of device {device}"
        found.source.append(_fits(task, tensor, have, f"source {what}", on))
        if into is None and target is not None:
            make = torch.empty if plan.delivers else torch.zeros
            into = make(box_shape(target), dtype=getattr(torch, task.dtype), device=on)
        found.target.append(_fits(task, into, target, f"destination {what}", on))
    return found


def _one_a_task(plan: Plan, given: Any, what: str) -> list[Any]:
    count = len(plan.tasks)
    if count == 1 and not isinstance(given, (list, tuple)):
        return [given]
    if given is None:
        return [None] * count
    if not isinstance(given, (list, tuple)) or len(given) != count:
        got = f"a list of {len(given)}" if isinstance(given, (list, tuple)) else "one tensor"
        raise ReshardError(
            f"the plan has {count} tasks, but {what} is {got}; give a list with one tensor "
            "(or None) a task"
        )
    return list(given)


def _fits(
    task: ReshardingTask, tensor: Any, box: Box | None, what: str, on: torch.device | None
) -> Any:
    """``tensor`` if it can be the piece of ``box``, else raise."""
    torch = need("torch", "run", "running a plan on processes")
    if box is None:
        if tensor is not None:
            raise ReshardError(f"{what} was given, but that device is not in the mesh; give None")
        return None
    place = "CPU" if on is None or on.type == "cpu" else str(on)
    expected = f"expected is a contiguous {place} tensor of shape {box_shape(box)}, {task.dtype}"
    where = f"box {box_text(box)} of shape {task.shape}"
    if not isinstance(tensor, torch.Tensor):
        kind = "missing" if tensor is None else f"a {type(tensor).__name__}"
        raise ReshardError(f"{what} is {kind}; {expected} ({where})")
    if tuple(tensor.shape) != box_shape(box) or str(tensor.dtype) != f"torch.{task.dtype}":
        raise ReshardError(
            f"{what} has shape {tuple(tensor.shape)}, {dtype_name(tensor.dtype)}; "
            f"{expected} ({where})"
        )
    if tensor.device != (on or torch.device("cpu")):
        fix = ".cpu()" if place == "CPU" else f".to({place!r})"
        raise ReshardError(f"{what} is on {tensor.device}; {expected}; use {fix}")
    if not tensor.is_contiguous():
        raise ReshardError(f"{what} has strides {tensor.stride()}; use .contiguous()")
    return tensor


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as one row of uint8 (no copy)."""
    torch = need("torch", "run", "running a plan on processes")
    if not tensor.numel():  # whose strides may be anything
        return torch.empty(0, dtype=torch.uint8)
    return tensor.detach().reshape(-1).view(torch.uint8)


class Memory:
    """Reads and writes payloads in the pieces of one device."""

    def __init__(self, pieces: Pieces) -> None:
        sides = {"src": pieces.source, "dst": pieces.target}
        self.flat = {
            (side, task): bytes_of(tensor)
            for side, tensors in sides.items()
            for task, tensor in enumerate(tensors)
            if tensor is not None
        }

    def view(self, move: Move, lo: int, hi: int) -> torch.Tensor:
        """Bytes ``lo`` to ``hi`` of a payload that is one run of memory."""
        place = move.place
        assert place is not None and place.offset is not None
        return self.flat[place.side, place.task][place.offset + lo : place.offset + hi]

    def pack(self, move: Move, lo: int, hi: int, into: torch.Tensor) -> None:
        """Gather bytes ``lo`` to ``hi`` of a payload."""
        for at, part in self._parts(move.place, lo, hi):
            into[at : at + part.numel()].view(part.shape).copy_(part)

    def unpack(self, move: Move, lo: int, hi: int, data: torch.Tensor) -> None:
        """Put bytes ``lo`` to ``hi`` of a payload where they belong."""
        for at, part in self._parts(move.place, lo, hi):
            part.copy_(data[at : at + part.numel()].view(part.shape))

    def copy(self, move: Move) -> None:
        """A local copy."""
        source = self._parts(move.place, 0, move.nbytes)
        target = self._parts(move.target, 0, move.nbytes)
        for (_, a), (_, b) in zip(source, target, strict=True):
            b.copy_(a)

    def _parts(self, place: Place | None, lo: int, hi: int) -> Iterator[tuple[int, torch.Tensor]]:
        """``(first byte, view)`` of the boxes that make up bytes ``lo`` to ``hi`` of a payload."""
        assert place is not None
        array = self.flat[place.side, place.task].view(box_shape(place.piece))
        at = 0
        for box in span_boxes(place.box, (place.first + lo, place.first + hi)):
            yield at, array[slices_within(box, place.piece)]
            at += box_volume(box)
