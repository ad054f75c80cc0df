"""Carry a plan out in memory: every device is an array in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reshard_lab.boxes import Box, box_shape, contains, slices_within, span_boxes
from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.arrays import new
from reshard_lab.transfer import Transfer
from reshard_lab.units import dtype_name

Pieces = Mapping[int, Any]
"""``{device: its array}``; numpy, cupy or torch arrays of one kind."""


def execute(plan: Plan, pieces: Pieces | Sequence[Pieces]) -> Any:
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
    if not isinstance(plan, Plan):
        raise ReshardError(f"plan must be a Plan, as reshard_lab.plan returns, not {plan!r}")
    if not plan.delivers:
        raise ReshardError(
            f"a plan under strategy {plan.strategy!r} delivers no data; plan with another strategy"
        )
    single = len(plan.tasks) == 1 and isinstance(pieces, Mapping)
    given = _one_a_task(plan, [pieces] if single else pieces)
    plan.verify()
    runs = [_Run(task, held) for task, held in zip(plan.tasks, given, strict=True)]
    number, hop = plan.hops.transfer.tolist(), plan.hops.hop.tolist()
    for row in plan.hops.order:
        transfer = plan.transfers[number[row]]
        runs[plan.units[transfer.unit].task].move(transfer, hop[row])
    return runs[0].result if single else [run.result for run in runs]


class _Run:
    """The arrays of one tensor while its plan is carried out."""

    def __init__(self, task: ReshardingTask, pieces: Pieces) -> None:
        self.have = task.src.boxes(task.shape)
        self.need = task.dst.boxes(task.shape)
        self.source = check_pieces(task, pieces, self.have)
        like = next(iter(self.source.values()), None)
        self.result = {
            device: new(like, box_shape(box), task.dtype) for device, box in self.need.items()
        }

    def move(self, transfer: Transfer, hop: int) -> None:
        """Copy the payload of one hop into the destination piece of the hop's receiver."""
        sender = transfer.path[hop]
        receiver = transfer.path[min(hop + 1, len(transfer.path) - 1)]
        target, box = self.result[receiver], self.need[receiver]
        for part in span_boxes(transfer.box, transfer.span):
            array, held = self._holder(sender, part, hop)
            target[slices_within(part, box)] = array[slices_within(part, held)]

    def _holder(self, device: int, part: Box, hop: int) -> tuple[Any, Box]:
        """The array of ``device`` that holds ``part``: its source piece, else what it received."""
        have = self.have.get(device)
        if hop == 0 and have is not None and contains(have, part):
            return self.source[device], have
        return self.result[device], self.need[device]


def check_pieces(task: ReshardingTask, pieces: Pieces, boxes: Mapping[int, Box]) -> dict[int, Any]:
    """``pieces`` as a dict if they are exactly the source pieces of ``task``, else raise."""
    if not isinstance(pieces, Mapping):
        raise ReshardError(f"pieces must be {{source device: array}}, not {type(pieces).__name__}")
    extra = [device for device in pieces if device not in boxes]
    if extra:
        raise ReshardError(f"piece given for device {extra[0]}, which is not in {task.src.mesh!r}")
    wrong = []
    first: Any = next((pieces[device] for device in boxes if device in pieces), None)
    for device, box in boxes.items():
        shape = box_shape(box)
        if device not in pieces:
            if 0 not in shape:
                raise ReshardError(f"no piece given for device {device}, which holds shape {shape}")
            continue
        piece: Any = pieces[device]
        if not hasattr(piece, "shape") or not hasattr(piece, "dtype"):
            raise ReshardError(f"piece of device {device} must be an array, not {piece!r}")
        if type(piece) is not type(first):
            raise ReshardError(
                f"pieces must be arrays of one kind; device {device} has a {_kind(piece)}, "
                f"another one a {_kind(first)}"
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
    return {device: pieces[device] for device in boxes if device in pieces}


def _kind(piece: Any) -> str:
    return f"{type(piece).__module__.split('.')[0]} {type(piece).__name__}"


def _one_a_task(plan: Plan, pieces: Any) -> list[Pieces]:
    if not isinstance(pieces, (Mapping, Sequence)):
        raise ReshardError(
            f"pieces must be {{source device: array}}, or a list of such, not {pieces!r}"
        )
    if isinstance(pieces, Mapping) or len(pieces) != len(plan.tasks):
        count = 1 if isinstance(pieces, Mapping) else len(pieces)
        raise ReshardError(
            f"the plan has {len(plan.tasks)} tasks, but pieces for {count} were given; "
            "give a list with one {device: array} a task"
        )
    return list(pieces)
