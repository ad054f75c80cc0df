"""What a device does in place of compute: it sleeps, while tensors of real size move."""

from __future__ import annotations

import time
from typing import Any

from reshard_lab.errors import ReshardError, need
from reshard_lab.pipelining.ops import FORWARD, WEIGHT_GRADIENT, Op
from reshard_lab.runtime.calls import Deadline
from reshard_lab.training.mailbox import Key, Mailbox
from reshard_lab.training.role import Began, Role

_NUMBERS = 2**23 - 15
"""A prime: what is in a row or column further on does not repeat. Sums of two are exact float32."""


class Pace:
    """A sleep stands for every op; the tensors that move are real in size. Every element is where
    it stands in its tensor plus a number of the tensor's own, so what goes astray shows.
    """

    def __init__(self, role: Role, delivers: bool) -> None:
        assert role.job.paced is not None
        self.role, self.job, self.seconds = role, role.job, role.job.paced
        self.torch = need("torch", "run", "training")
        self.step = -1
        self.loss = 0.0
        self.delivers = delivers
        self.patterns = {
            number: self._pattern(way.shape)
            for number, way in enumerate(self.job.ways)
            if role.stage in (way.source % self.job.stages, way.target % self.job.stages)
        }
        """By way from or to this stage, where each element of this device's box stands."""

    def begin(self, deadline: Deadline) -> None:
        """A step begins; nothing in it can be late but what comes."""
        self.step += 1

    def run(self, op: Op, mailbox: Mailbox, began: Began) -> dict[Key, Any]:
        """Take what comes, sleep, and return what leaves; checks that all of it came."""
        piece, forward, m = self.role.piece(op), op.kind == FORWARD, op.microbatch
        given = self.role.await_inputs(op, mailbox)
        began()
        end = time.monotonic() + self.seconds[op.kind][piece]
        for way, tensor in zip(self.role.inputs(piece, forward), given, strict=False):
            self._check(tensor, self._value(way, forward, m), op, way)
        leave = [] if op.kind == WEIGHT_GRADIENT else self.role.inputs(piece, not forward)
        made = {Key(way, forward, m): self._make(way, forward, m) for way in leave}
        time.sleep(max(0.0, end - time.monotonic()))
        return made

    def _pattern(self, shape: tuple[int, ...]) -> Any:
        box = self.job.layouts[self.role.stage].boxes(shape)[self.role.device]
        at = self.torch.zeros((), dtype=self.torch.int64)
        for (lo, hi), size in zip(box, shape, strict=True):
            at = at.unsqueeze(-1) * size + self.torch.arange(lo, hi)
        return (at % _NUMBERS).float()

    def _value(self, way: int, forward: bool, m: int) -> float:
        """A number of the tensor's own."""
        count = self.job.checked.lists.microbatches
        number = 1 + ((self.step * len(self.job.ways) + way) * 2 + forward) * count + m
        return float(number % _NUMBERS)

    def _make(self, way: int, forward: bool, m: int) -> Any:
        return self.patterns[way] + self._value(way, forward, m)

    def _check(self, tensor: Any, value: float, op: Op, way: int) -> None:
        if not self.delivers:
            return
        expected = self.patterns[way] + value
        if not self.torch.equal(tensor, expected):
            at = int((tensor != expected).reshape(-1).nonzero()[0])
            found, wanted = (float(t.reshape(-1)[at]) for t in (tensor, expected))
            raise ReshardError(
                f"stage {self.role.stage}, {op.text()}: tensor {self.job.ways[way].name} did not "
                f"come whole: element {at} of its box is {found:.0f}, not {wanted:.0f}"
            )

    def finish(self, data_group: Any) -> None:
        """Nothing was computed."""

    def learn(self, rate: float) -> None:
        """Nothing was computed."""

    def found(self) -> dict[str, Any]:
        """Nothing was computed."""
        return {}
