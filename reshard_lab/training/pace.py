"""What a device does in place of compute: it sleeps, while tensors of real size move."""

from __future__ import annotations

import time
from typing import Any

from reshard_lab.errors import ReshardError, need
from reshard_lab.pipeline.ops import FORWARD, WEIGHT_GRADIENT, Op
from reshard_lab.runtime.board import Deadline
from reshard_lab.training.mailbox import Key, Mailbox
from reshard_lab.training.seat import Began, Seat


class Pace:
    """A sleep stands for every op; the tensors that move are real in size, each of one value."""

    def __init__(self, seat: Seat, delivers: bool) -> None:
        assert seat.job.paced is not None
        self.seat, self.job, self.seconds = seat, seat.job, seat.job.paced
        self.torch = need("torch", "run", "training")
        self.step = -1
        self.loss = 0.0
        self.delivers = delivers

    def begin(self, deadline: Deadline) -> None:
        """A step begins; nothing in it can be late but what comes."""
        self.step += 1

    def run(self, op: Op, mailbox: Mailbox, began: Began) -> dict[Key, Any]:
        """Take what comes, sleep, and return what leaves; checks that all of it came."""
        piece, forward, m = self.seat.piece(op), op.kind == FORWARD, op.microbatch
        given = self.seat.await_inputs(op, mailbox)
        began()
        end = time.monotonic() + self.seconds[op.kind][piece]
        for way, tensor in zip(self.seat.inputs(piece, forward), given, strict=False):
            self._check(tensor, self._value(way, forward, m), op, way)
        leave = [] if op.kind == WEIGHT_GRADIENT else self.seat.inputs(piece, not forward)
        made = {Key(way, forward, m): self._make(way, forward, m) for way in leave}
        time.sleep(max(0.0, end - time.monotonic()))
        return made

    def _value(self, way: int, forward: bool, m: int) -> float:
        """A number that no other tensor of this run has (up to 2^24 of them)."""
        count = self.job.checked.lists.microbatches
        return float(1 + ((self.step * len(self.job.ways) + way) * 2 + forward) * count + m)

    def _make(self, way: int, forward: bool, m: int) -> Any:
        return self.torch.full(self.seat.local_shape(way), self._value(way, forward, m))

    def _check(self, tensor: Any, value: float, op: Op, way: int) -> None:
        if self.delivers and not bool((tensor == value).all()):
            raise ReshardError(
                f"stage {self.seat.stage}, {op.text()}: tensor {self.job.ways[way].name} did not "
                f"come whole: not all of it is {value:g}"
            )

    def finish(self, data_group: Any) -> None:
        """Nothing was computed."""

    def learn(self, rate: float) -> None:
        """Nothing was computed."""

    def found(self) -> dict[str, Any]:
        """Nothing was computed."""
        return {}
