"""Carrying out one device's program: a lane that sends, one that receives, and local copies.

The lanes are threads. Each works through its hops in program order and keeps a few messages of
one hop under way; it turns to the next when the last message of this one is done. A device in the
middle of a chain sends a message on as soon as the other lane has received it. What is received is
complete whether or not it has been sent on: its data is in the destination piece. In a plan
without an order a device has a lane each way for every other device it deals with, in which the
messages of all its hops take turns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from reshard_lab.runtime.calls import (
    POSTED,
    CallState,
    Control,
    Deadline,
    Duplex,
    PeerError,
    torch_modules,
)
from reshard_lab.runtime.program import HopEnd, Lane, Observer, PieceMemory, Program
from reshard_lab.transfer import IN_FLIGHT

if TYPE_CHECKING:
    import torch

WINDOW = 48
"""Messages under way at once each way: with the tokens read ahead, 128 operations a device."""


class TransferState(CallState):
    """How far the transfers of one call are, as this device knows it."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(deadline)
        self.arrived: Counter[int] = Counter()
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

    def notify(self, end: HopEnd) -> None:
        """Report a transfer complete to the devices that wait for it."""
        for device in end.notify:
            word = self.control.torch.tensor([self.call, end.transfer])
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


class LaneCall:
    """One execution of a program, with the pieces of this device in ``memory``."""

    def __init__(
        self,
        program: Program,
        memory: PieceMemory,
        wire: Duplex,
        control: Control,
        number: int,
        deadline: Deadline,
        observe: Observer,
    ) -> None:
        self.program, self.memory, self.wire = program, memory, wire
        self.deadline, self.observe = deadline, observe
        self.state = TransferState(deadline)
        self.tokens = Tokens(control, program, number, self.state)

    def run(self) -> None:
        """Until everything is done; raises the first error of any lane.

        Nothing is posted before: calls on one group run one after another.
        """
        self.tokens.begin()
        lanes = []
        for name, ends in (("send", self.program.sends), ("recv", self.program.recvs)):
            side_by_side = self.program.lanes(ends)
            window = WINDOW // len(side_by_side) if side_by_side else 0
            lanes += [partial(self._lane, name, lane, max(1, window)) for lane in side_by_side]
        self.state.run(self._copy, *lanes, late="not done")
        self.tokens.flush()

    def _copy(self) -> None:
        for end in self.program.copies:
            self.observe("copy", end.step, 0)
            self._wait(end)
            self.memory.copy(end)
            self.observe("copy", end.step, 1)
            self._complete(end)

    def _lane(self, name: str, lane: Lane, window: int) -> None:
        """All messages of a lane called ``"send"`` or ``"recv"``."""
        post = self.wire.send if name == "send" else self.wire.recv
        flight = InFlightWindow(partial(self._finish, name), lane, window)
        for end, i in lane.messages():
            if i == 0:
                if not lane.in_turn:
                    flight.drain()
                self.observe(name, end.step, 0)
                self._wait(end)
            if end.forward:
                which = f"message {i + 1} of {end.messages} of transfer {end.transfer}"
                there = partial(self._has_arrived, end.transfer, i)
                self.state.until(there, f"{which}, to be sent on,")
            flight.make_room(end)
            data = self.memory.message(end, i, name == "send", flight.staging(end)[end.slot(i) :])
            flight.add(end, i, data, post(data, end.peer))
        flight.drain()

    def _finish(self, name: str, end: HopEnd, message: int, data: torch.Tensor, work: Any) -> None:
        """Wait for a message that has been posted; what is received is put in place."""
        would, to = ("send", "to") if name == "send" else ("receive", "from")
        what = (
            f"device {self.program.device} would {would} transfer {end.transfer} {to} device "
            f"{end.peer} (step {end.step}, message {message + 1} of {end.messages})"
        )
        self.wire.finish(work, self.deadline, what)
        if name == "recv" and end.staged:
            self.memory.unpack(end, message, data)
        self.observe(name, end.step, message + 1)
        if name == "recv":
            with self.state.update():
                self.state.arrived[end.transfer] = message + 1
            if message == end.messages - 1 and end.last:
                self._complete(end)

    def _has_arrived(self, transfer: int, message: int) -> bool:
        return self.state.arrived[transfer] > message

    def _wait(self, end: HopEnd) -> None:
        """For the transfers that this one comes after."""
        for transfer in end.local:
            what = f"transfer {transfer}, which comes before transfer {end.transfer},"
            self.state.until(partial(self.state.complete.__contains__, transfer), what)
        for device, transfer in end.remote:
            self.tokens.wait(device, transfer)

    def _complete(self, end: HopEnd) -> None:
        with self.state.update():
            self.state.complete.add(end.transfer)
        self.tokens.notify(end)


class InFlightWindow:
    """Messages of one lane under way, the oldest first, and the memory they are staged in."""

    def __init__(
        self, finish: Callable[[HopEnd, int, torch.Tensor, Any], None], lane: Lane, window: int
    ) -> None:
        self._finish, self._lane, self._window = finish, lane, window
        self._under_way: deque[tuple[HopEnd, int, torch.Tensor, Any]] = deque()
        self._count: Counter[int] = Counter()  # by step
        self._staging: dict[int, torch.Tensor] = {}

    def add(self, end: HopEnd, message: int, data: torch.Tensor, work: Any) -> None:
        """A message has been posted."""
        self._under_way.append((end, message, data, work))
        self._count[end.step] += 1

    def make_room(self, end: HopEnd) -> None:
        """Until one more message of ``end`` may be under way."""
        while len(self._under_way) >= self._window or (
            end.staged and self._count[end.step] >= IN_FLIGHT
        ):
            self._next()

    def drain(self) -> None:
        """Until none is under way."""
        while self._under_way:
            self._next()

    def staging(self, end: HopEnd) -> torch.Tensor:
        """The memory of ``end``: one buffer for all hops that follow one another, else its own."""
        key = end.step if self._lane.in_turn else -1
        if key not in self._staging:
            ends = [end] if self._lane.in_turn else self._lane.ends
            most = max(other.staged for other in ends)
            torch, _ = torch_modules()
            self._staging[key] = torch.empty(most, dtype=torch.uint8)
        return self._staging[key]

    def _next(self) -> None:
        end, message, data, work = self._under_way.popleft()
        self._finish(end, message, data, work)
        self._count[end.step] -= 1
