"""Small words between the devices of a plan, on a process group of their own.

Data never travels here, so these words cannot get between the messages of a payload. Every wait
has a deadline. Order per pair is the same at both ends; tags are not relied on.
"""

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import need
from reshard_lab.runtime.calls import CallState, Deadline, LateError, PeerError
from reshard_lab.runtime.program import Move, Program

if TYPE_CHECKING:
    import torch

WORD = 32
"""Bytes that each device brings to a meeting."""
POSTED = 32
"""Receives posted ahead, so that a word need not wait for its reader."""


class Wire:
    """Point-to-point messages of one process group, addressed by device."""

    def __init__(self, group: Any, rank_of: Mapping[int, int]) -> None:
        self.dist = need("torch.distributed", "run", "running a plan on processes")
        self._group = weakref.ref(group)  # torch keeps it until it is destroyed
        self.rank_of = rank_of
        """Rank in ``group`` of every device."""

    def send(self, data: torch.Tensor, device: int) -> Any:
        """Post a message; returns its work."""
        with self._posting(f"sending to device {device}"):
            return self.dist.isend(data, group=self._alive(), group_dst=self.rank_of[device])

    def recv(self, into: torch.Tensor, device: int) -> Any:
        """Post a receive; returns its work."""
        with self._posting(f"receiving from device {device}"):
            return self.dist.irecv(into, group=self._alive(), group_src=self.rank_of[device])

    @contextmanager
    def _posting(self, what: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise PeerError(f"{what}: {_reason(error)}") from error

    def _alive(self) -> Any:
        group = self._group()
        if group is None:
            raise PeerError("the process group has been destroyed")
        return group

    def finish(self, work: Any, deadline: Deadline, what: str) -> None:
        """Wait for posted work; raises PeerError saying ``what`` failed."""
        try:
            done = work.wait(timedelta(seconds=deadline.left()))
        except RuntimeError as error:
            text = _reason(error)
            if "Timed out" in text:
                raise LateError(f"{what}: not done within {deadline.timeout_s:g} s") from error
            raise PeerError(f"{what}: {text}") from error
        if not done:
            raise PeerError(f"{what}: aborted")


class Duplex:
    """Messages between devices that may send to each other at once.

    gloo announces a receive on the connection on which this process sends to that device, behind
    all that is being sent there already: of two devices with much to send to each other, one would
    wait until the other is done. So what goes to higher devices has connections of its own.
    """

    def __init__(self, me: int, up: Wire, down: Wire) -> None:
        self.me, self.up, self.down = me, up, down
        self.finish = up.finish

    def send(self, data: torch.Tensor, device: int) -> Any:
        """Post a message; returns its work."""
        return (self.up if self.me < device else self.down).send(data, device)

    def recv(self, into: torch.Tensor, device: int) -> Any:
        """Post a receive; returns its work."""
        return (self.up if device < self.me else self.down).recv(into, device)


def _reason(error: RuntimeError) -> str:
    """The first sentence of a message of gloo, without the place in its source."""
    return re.sub(r"^(\[[^]]*\]\s*)+", "", str(error)).split(". ")[0]


class Control:
    """The meeting place of the devices of a plan."""

    def __init__(self, group: Any, devices: tuple[int, ...], me: int) -> None:
        self.torch = need("torch", "run", "running a plan on processes")
        self.devices = devices
        self.me = me
        self.wire = Wire(group, {device: rank for rank, device in enumerate(devices)})

    def meet(self, word: bytes, deadline: Deadline) -> dict[int, bytes]:
        """Wait for all devices; returns the ``WORD`` bytes that each of them brought.

        The first device gathers the words and hands out the table.
        """
        uint8 = self.torch.uint8
        table = self.torch.zeros((len(self.devices), WORD), dtype=uint8)
        own = self.torch.frombuffer(bytearray(word.ljust(WORD, b"\0")), dtype=uint8)
        if self.me == self.devices[0]:
            table[0].copy_(own)
            self._lead(table, deadline)
        else:
            leader = self.devices[0]
            what = f"device {self.me} waits for device {leader}, which waits for all"
            self.wire.finish(self.wire.send(own, leader), deadline, what)
            self.wire.finish(self.wire.recv(table, leader), deadline, what)
        return {
            device: bytes(row) for device, row in zip(self.devices, table.tolist(), strict=True)
        }

    def _lead(self, table: torch.Tensor, deadline: Deadline) -> None:
        others = self.devices[1:]
        for start in range(0, len(others), POSTED):
            part = others[start : start + POSTED]
            works = [self.wire.recv(table[start + i + 1], d) for i, d in enumerate(part)]
            for d, work in zip(part, works, strict=True):
                self.wire.finish(work, deadline, f"device {self.me} waits for device {d}")
        for start in range(0, len(others), POSTED):
            part = others[start : start + POSTED]
            works = [self.wire.send(table, d) for d in part]
            for d, work in zip(part, works, strict=True):
                self.wire.finish(work, deadline, f"device {self.me} answers device {d}")


class TransferState(CallState):
    """How far the transfers of one call are, as this device knows it."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(deadline)
        self.arrived: dict[int, int] = {}
        """Messages received, by transfer."""
        self.complete: set[int] = set()
        """Transfers known to be complete at their last device."""


class Tokens:
    """Completion tokens of one call: its number and a transfer, 16 bytes.

    The device at which a transfer completes sends one to every device with a transfer that comes
    after it. A token says what it is for, so nobody needs to know in which order another device
    completes its transfers.
    """

    def __init__(self, control: Control, program: Program, call: int, state: TransferState) -> None:
        self.control, self.call, self.state = control, call, state
        self.sent: list[tuple[int, Any, Any]] = []
        awaited = program.awaited
        self.order = deque(device for device, _ in awaited)  # receives still to be posted
        self.posted: dict[int, deque[tuple[Any, Any]]] = {device: deque() for device, _ in awaited}
        self.reading: set[int] = set()

    def begin(self) -> None:
        """Post the first receives; not before the tokens of earlier calls have been read."""
        for _ in range(min(POSTED, len(self.order))):
            self._post(self.order.popleft())

    def tell(self, move: Move) -> None:
        """Report a transfer complete to the devices that wait for it."""
        for device in move.tell:
            word = self.control.torch.tensor([self.call, move.transfer])
            self.sent.append((device, word, self.control.wire.send(word, device)))

    def wait(self, device: int, transfer: int) -> None:
        """Until ``device`` has reported ``transfer`` complete.

        Several lanes may wait at once: one reads, and notes what it reads for the others.
        """
        state = self.state
        what = f"device {self.control.me} waits for transfer {transfer} at device {device}"
        while True:
            with state.changed:
                state.until(
                    lambda: transfer in state.complete or device not in self.reading,
                    f"{what}; word of it",
                )
                if transfer in state.complete:
                    return
                self.reading.add(device)
                if not self.posted[device]:
                    self.order.remove(device)
                    self._post(device)
                word, work = self.posted[device].popleft()
            self.control.wire.finish(work, state.deadline, what)
            call, number = word.tolist()
            if call != self.call:
                raise PeerError(
                    f"{what}: word of call {call} came in call {self.call}; every device must "
                    "make the same calls in the same order"
                )
            with state.update():
                self.reading.discard(device)
                if self.order:
                    self._post(self.order.popleft())
                state.complete.add(number)

    def flush(self) -> None:
        """Wait until every token sent has been taken."""
        for device, _, work in self.sent:
            what = f"device {self.control.me} reports to device {device}"
            self.control.wire.finish(work, self.state.deadline, what)

    def _post(self, device: int) -> None:
        word = self.control.torch.empty(2, dtype=self.control.torch.int64)
        self.posted[device].append((word, self.control.wire.recv(word, device)))
