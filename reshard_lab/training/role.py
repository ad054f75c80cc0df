"""Where a device sits in a job, and what comes to it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from reshard_lab.pipelining.ops import FORWARD, WEIGHT_GRADIENT, Op
from reshard_lab.training.job import Job, group_with, groups_of, tensor_text
from reshard_lab.training.mailbox import Key, Mailbox

Began = Callable[[], None]
"""To be called when what an op waits for has come."""


class Role(NamedTuple):
    """Where a device sits in a job."""

    job: Job
    device: int
    stage: int
    operator_group: tuple[int, ...]
    data_group: tuple[int, ...]

    @classmethod
    def of(cls, job: Job, device: int) -> Role:
        """The role of ``device``."""
        stage = job.stage_of(device)
        groups = groups_of(job.layouts[stage])
        return cls(job, device, stage, *(group_with(found, device) for found in groups))

    @property
    def pieces(self) -> list[int]:
        """Pieces of the model on its stage."""
        return list(range(self.stage, len(self.job.pieces), self.job.stages))

    def inputs(self, piece: int, forward: bool) -> list[int]:
        """Ways that bring a piece something: activations, or gradients."""
        ends = [(w.target if forward else w.source) for w in self.job.ways]
        return [number for number, end in enumerate(ends) if end == piece]

    def samples(self, microbatch: int) -> slice:
        """This device's share of a microbatch, in the batch."""
        layout, shape = self.job.layouts[self.stage], [self.job.samples]
        shape += [1] * (layout.spec.ndim - 1)
        lo, hi = layout.boxes(shape)[self.device][0]
        first = microbatch * self.job.samples
        return slice(first + lo, first + hi)

    def piece(self, op: Op) -> int:
        """The piece of the model that an op works on."""
        return op.chunk * self.job.stages + self.stage

    def await_inputs(self, op: Op, mailbox: Mailbox) -> list[Any]:
        """What ``op`` needs from other pieces, in the order of the ways, when it has come."""
        if op.kind == WEIGHT_GRADIENT:
            return []
        forward, chunks, found = op.kind == FORWARD, self.job.checked.lists.chunks, []
        for way in self.inputs(self.piece(op), forward):
            key = Key(way, forward, op.microbatch)
            text = tensor_text(self.job.ways[way], forward, op.microbatch)
            found.append(mailbox.take(key, f"{text}, for {op.text(chunks)},"))
        return found
