"""Pieces of devices as arrays: checked, packed, handed over, and moved in memory (``execute``).

Packing and unpacking are one copy with strides, which on a GPU is one kernel. CuPy and torch share
the memory of an array through DLPack.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reshard_lab.boxes import (
    Box,
    box_shape,
    box_text,
    box_volume,
    contains,
    slices_within,
    span_boxes,
)
from reshard_lab.errors import ReshardError, need
from reshard_lab.planning import Plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.calls import check_plan
from reshard_lab.transfer import Transfer
from reshard_lab.units import dtype_name

if TYPE_CHECKING:
    import torch


def new(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An array with no content yet, of the library and on the device of ``like`` (None: numpy)."""
    if like is None:
        return np.empty(shape, dtype)
    if hasattr(like, "new_empty"):  # torch
        return like.new_empty(shape)
    library = __import__(type(like).__module__.split(".")[0])  # numpy or cupy
    return library.empty(shape, like.dtype)


def pack(array: Any, piece: Box, box: Box) -> Any:
    """``box`` of the array that holds ``piece``, row-major, as a new array of one dimension.

    >>> pack(np.arange(12).reshape(3, 4), ((0, 3), (4, 8)), ((1, 3), (5, 7)))
    array([ 5,  6,  9, 10])
    """
    flat = new(array, (box_volume(box),), "")
    flat.reshape(box_shape(box))[...] = array[slices_within(box, piece)]
    return flat


def unpack(array: Any, piece: Box, box: Box, flat: Any) -> None:
    """Put what ``pack`` made of ``box`` into the array that holds ``piece``."""
    array[slices_within(box, piece)] = flat.reshape(box_shape(box))


def to_torch(array: Any) -> Any:
    """The same memory as a torch tensor."""
    return need("torch", "run", "an exchange with torch").from_dlpack(array)


def to_cupy(array: Any) -> Any:
    """The same memory, which must be a GPU's, as a CuPy array."""
    return need("cupy", "gpu", "an exchange with CuPy").from_dlpack(array)


def cupy_missing() -> str | None:
    """Why arrays of CuPy cannot be used here; None if they can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'reshard-lab[gpu]')"
    if not need("cupy", "gpu", "arrays on a GPU").cuda.is_available():
        return "CuPy finds no GPU"
    return None


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as one row of uint8 (no copy)."""
    torch = need("torch", "run", "running a plan on processes")
    if not tensor.numel():  # whose strides may be anything
        return torch.empty(0, dtype=torch.uint8)
    return tensor.detach().reshape(-1).view(torch.uint8)


DevicePieces = Mapping[int, Any]
"""``{device: its array}``; numpy, cupy or torch arrays of one kind."""


def execute(plan: Plan, pieces: DevicePieces | Sequence[DevicePieces]) -> Any:
    """Run ``plan`` on ``{source device: piece}``; returns ``{destination device: piece}``.

    A plan of several tasks takes and returns a list of such dicts, one a task. Pieces have the
    shape of the device's source box (empty ones may be left out) and the task's dtype. The plan
    is verified first; the given arrays are not changed. Raises ReshardError for a plan that is
    not right, a plan that delivers nothing (``signal``), and pieces that do not fit.

    >>> import numpy as np
    >>> from reshard_lab import Cluster, Layout, ReshardingTask, plan
    >>> cluster = Cluster(hosts=4, devices_per_host=1)
    >>> src, dst = Layout(cluster.mesh(2), "S0"), Layout(cluster.mesh(2, first_host=2), "R")
    >>> p = plan(ReshardingTask((4,), "int64", src, dst, cluster))
    >>> execute(p, {0: np.array([0, 1]), 1: np.array([2, 3])})[3].tolist()
    [0, 1, 2, 3]
    """
    check_plan(plan)
    if not plan.delivers:
        raise ReshardError(
            f"a plan under strategy {plan.strategy!r} delivers no data; plan with another strategy"
        )
    single = len(plan.tasks) == 1 and isinstance(pieces, Mapping)
    given: Any = [pieces] if isinstance(pieces, Mapping) else pieces
    if not isinstance(given, Sequence):
        raise ReshardError(
            f"pieces must be {{source device: array}}, or a list of such, not {given!r}"
        )
    if len(given) != len(plan.tasks):
        raise ReshardError(
            f"the plan has {len(plan.tasks)} tasks, but pieces for {len(given)} were given; "
            "give a list with one {device: array} a task"
        )
    plan.verify()
    tensors = [_TensorInMemory(task, held) for task, held in zip(plan.tasks, given, strict=True)]
    number, hop = plan.hops.transfer.tolist(), plan.hops.hop.tolist()
    for row in plan.hops.order:
        transfer = plan.transfers[number[row]]
        tensors[plan.units[transfer.unit].task].move(transfer, hop[row])
    return tensors[0].result if single else [tensor.result for tensor in tensors]


class _TensorInMemory:
    """The arrays of one tensor while its plan is carried out."""

    def __init__(self, task: ReshardingTask, pieces: DevicePieces) -> None:
        self.have = task.src.boxes(task.shape)
        self.need = task.dst.boxes(task.shape)
        self.source = _check_all(task, pieces, self.have)
        like = next(iter(self.source.values()), None)
        self.result = {
            device: new(like, box_shape(box), task.dtype) for device, box in self.need.items()
        }

    def move(self, transfer: Transfer, hop: int) -> None:
        """Copy the payload of one hop into the destination piece of the hop's receiver.

        The sender has it in its source piece if it is the first, else where it received it.
        """
        sender = transfer.path[hop]
        receiver = transfer.path[min(hop + 1, len(transfer.path) - 1)]
        target, box = self.result[receiver], self.need[receiver]
        for part in span_boxes(transfer.box, transfer.span):
            held = self.have.get(sender)
            if hop == 0 and held is not None and contains(held, part):
                data = self.source[sender][slices_within(part, held)]
            else:
                data = self.result[sender][slices_within(part, self.need[sender])]
            target[slices_within(part, box)] = data


def _check_all(
    task: ReshardingTask, pieces: DevicePieces, boxes: Mapping[int, Box]
) -> dict[int, Any]:
    """``pieces`` as a dict if they are exactly the source pieces of ``task``, else raise."""
    if not isinstance(pieces, Mapping):
        raise ReshardError(f"pieces must be {{source device: array}}, not {type(pieces).__name__}")
    extra = [device for device in pieces if device not in boxes]
    if extra:
        raise ReshardError(f"piece given for device {extra[0]}, which is not in {task.src.mesh!r}")
    shapes = {device: box_shape(box) for device, box in boxes.items()}
    for device, shape in shapes.items():
        if device not in pieces and 0 not in shape:
            raise ReshardError(f"no piece given for device {device}, which holds shape {shape}")
    held: dict[int, Any] = {device: pieces[device] for device in boxes if device in pieces}
    kinds = {
        device: f"{type(piece).__module__.split('.')[0]} {type(piece).__name__}"
        for device, piece in held.items()
    }
    wrong = []
    for device, piece in held.items():
        shape = shapes[device]
        if not hasattr(piece, "shape") or not hasattr(piece, "dtype"):
            raise ReshardError(f"piece of device {device} must be an array, not {piece!r}")
        first = next(iter(kinds.values()))
        if kinds[device] != first:
            raise ReshardError(
                f"pieces must be arrays of one kind; device {device} has a {kinds[device]}, "
                f"another one a {first}"
            )
        if tuple(piece.shape) != shape:
            wrong.append(f"device {device} has {tuple(piece.shape)}, its box is {shape}")
        elif dtype_name(piece.dtype) != task.dtype:
            raise ReshardError(
                f"piece of device {device} is {dtype_name(piece.dtype)}, the task is {task.dtype}"
            )
    if wrong:
        raise ReshardError(
            f"pieces do not fit shape {task.shape} under '{task.src.spec}' "
            f"(rule {task.src.rule}): {'; '.join(wrong)}"
        )
    return held


class RankPieces(NamedTuple):
    """Source and destination pieces of one device, one a task (None: it has none)."""

    source: list[torch.Tensor | None]
    target: list[torch.Tensor | None]


def check_pieces(
    plan: Plan, device: int, piece: Any, out: Any, on: torch.device | None = None
) -> RankPieces:
    """The pieces of ``device``, checked against the plan; new destinations where none is given.

    ``piece`` and ``out`` are a tensor (None where the device has none), or for a plan of several
    tasks a list with one entry a task, ``on`` one processor (default: the CPU). Under
    ``signal``, new destinations hold zeros.
    """
    torch = need("torch", "run", "running a plan on processes")
    given, outs = _one_a_task(plan, piece, "piece"), _one_a_task(plan, out, "out")
    pieces = RankPieces([], [])
    for number, (task, tensor, into) in enumerate(zip(plan.tasks, given, outs, strict=True)):
        have = task.src.boxes(task.shape).get(device)
        target = task.dst.boxes(task.shape).get(device)
        where = "" if len(plan.tasks) == 1 else f" of tensor {number}"
        what = f"piece{where} of device {device}"
        pieces.source.append(_check_tensor(task, tensor, have, f"source {what}", on))
        if into is None and target is not None:
            make = torch.empty if plan.delivers else torch.zeros
            into = make(box_shape(target), dtype=getattr(torch, task.dtype), device=on)
        pieces.target.append(_check_tensor(task, into, target, f"destination {what}", on))
    return pieces


def _one_a_task(plan: Plan, given: Any, what: str) -> list[Any]:
    count, listed = len(plan.tasks), isinstance(given, (list, tuple))
    if given is None or (count == 1 and not listed):
        return [given] * count
    if not listed or len(given) != count:
        got = f"a list of {len(given)}" if listed else "one tensor"
        raise ReshardError(
            f"the plan has {count} tasks, but {what} is {got}; give a list with one tensor "
            "(or None) a task"
        )
    return list(given)


def _check_tensor(
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
