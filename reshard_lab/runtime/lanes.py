"""Carrying out one device's program: a lane that sends, one that receives, and local copies.

The lanes are threads. Each works through its ends in program order and keeps a few messages of
one end under way; it turns to the next end when the last message of this one is done. A device
in the middle of a chain sends a message on as soon as the other lane has taken it in. A end that
is received is done whether or not it has been sent on: its data is in the destination piece.
In a plan without an order a device has a lane each way for every other device it deals with, in
which the messages of all its ends take turns.
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
from reshard_lab.runtime.program import HopEnd, Lane, Memory, Observer, Program
from reshard_lab.transfer import IN_FLIGHT

if TYPE_CHECKING:
    import torch

WINDOW = 48
"""Messages under way at once each way: with the tokens read ahead, 128 operations a device."""


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
        memory: Memory,
        wire: Duplex,
        control: Control,
        number: int,
        deadline: Deadline,
        observe: Observer | None,
    ) -> None:
        self.torch, _ = torch_modules()
        self.program, self.memory, self.wire = program, memory, wire
        self.deadline, self.observe = deadline, observe or (lambda lane, step, done: None)
        sends, recvs = program.lanes(program.sends), program.lanes(program.recvs)
        self.lanes = [(self._send, lane, max(1, WINDOW // len(sends))) for lane in sends]
        self.lanes += [(self._recv, lane, max(1, WINDOW // len(recvs))) for lane in recvs]
        self.state = TransferState(deadline)
        self.tokens = Tokens(control, program, number, self.state)

    def run(self) -> None:
        """Until everything is done; raises the first error of any lane.

        Nothing is posted before: calls on one group run one after another.
        """
        self.tokens.begin()
        lanes = [partial(carry, lane, window) for carry, lane, window in self.lanes]
        self.state.run(self._copy, *lanes, late="not done")
        self.tokens.flush()

    def _copy(self) -> None:
        for end in self.program.copies:
            self.observe("copy", end.step, 0)
            self._wait(end)
            self.memory.copy(end)
            self.observe("copy", end.step, 1)
            self._complete(end)

    def _send(self, lane: Lane, window: int) -> None:
        flight = InFlightWindow(self._sent, window)
        stage = StagingBuffers(self.torch, lane)
        for end, i in lane.messages():
            if i == 0:
                if not lane.in_turn:
                    flight.land()
                self.observe("send", end.step, 0)
                self._wait(end)
            if end.forward:
                what = f"message {i + 1} of {end.messages} of transfer {end.transfer}"
                self._until_arrived(end.transfer, i + 1, f"{what}, to be sent on,")
            flight.make_room(end)
            data = self._buffer(end, i, stage)
            if end.staged:
                self.memory.pack(end, end.edge(i), end.edge(i + 1), data)
            flight.add(end, i, data, self.wire.send(data, end.peer))
        flight.land()

    def _sent(self, end: HopEnd, message: int, data: torch.Tensor, work: Any) -> None:
        self.wire.finish(work, self.deadline, self._text(end, "send", "to", message))
        self.observe("send", end.step, message + 1)

    def _recv(self, lane: Lane, window: int) -> None:
        flight = InFlightWindow(self._received, window)
        stage = StagingBuffers(self.torch, lane)
        for end, i in lane.messages():
            if i == 0:
                if not lane.in_turn:
                    flight.land()
                self.observe("recv", end.step, 0)
            flight.make_room(end)
            data = self._buffer(end, i, stage)
            flight.add(end, i, data, self.wire.recv(data, end.peer))
        flight.land()

    def _received(self, end: HopEnd, message: int, data: torch.Tensor, work: Any) -> None:
        self.wire.finish(work, self.deadline, self._text(end, "receive", "from", message))
        if end.staged:
            self.memory.unpack(end, end.edge(message), end.edge(message + 1), data)
        self.observe("recv", end.step, message + 1)
        with self.state.update():
            self.state.arrived[end.transfer] = message + 1
        if message == end.messages - 1 and end.last:
            self._complete(end)

    def _wait(self, end: HopEnd) -> None:
        """For the transfers that this one comes after."""
        for transfer in end.local:
            what = f"transfer {transfer}, which comes before transfer {end.transfer},"
            self._until_complete(transfer, what)
        for device, transfer in end.remote:
            self.tokens.wait(device, transfer)

    def _until_arrived(self, transfer: int, messages: int, what: str) -> None:
        self.state.until(lambda: self.state.arrived.get(transfer, 0) >= messages, what)

    def _until_complete(self, transfer: int, what: str) -> None:
        self.state.until(lambda: transfer in self.state.complete, what)

    def _complete(self, end: HopEnd) -> None:
        with self.state.update():
            self.state.complete.add(end.transfer)
        self.tokens.notify(end)

    def _buffer(self, end: HopEnd, message: int, stage: StagingBuffers) -> torch.Tensor:
        """The memory that a message leaves from or comes into."""
        lo, hi = end.edge(message), end.edge(message + 1)
        if end.buffer is None:
            return self.torch.zeros(hi - lo, dtype=self.torch.uint8)
        if not end.staged:
            return self.memory.view(end, lo, hi)
        at = end.slot(message)
        return stage.of(end)[at : at + hi - lo]

    def _text(self, end: HopEnd, verb: str, way: str, message: int) -> str:
        return (
            f"device {self.program.device} would {verb} transfer {end.transfer} {way} device "
            f"{end.peer} (step {end.step}, message {message + 1} of {end.messages})"
        )


class InFlightWindow:
    """Messages of one lane under way, the oldest first."""

    def __init__(
        self, landed: Callable[[HopEnd, int, torch.Tensor, Any], None], window: int
    ) -> None:
        self._landed, self._window = landed, window
        self._under_way: deque[tuple[HopEnd, int, torch.Tensor, Any]] = deque()
        self._staged: Counter[int] = Counter()

    def add(self, end: HopEnd, message: int, data: torch.Tensor, work: Any) -> None:
        self._under_way.append((end, message, data, work))
        self._staged[end.step] += 1

    def make_room(self, end: HopEnd) -> None:
        """Until one more message of ``end`` may be under way."""
        while len(self._under_way) >= self._window or (
            end.staged and self._staged[end.step] >= IN_FLIGHT
        ):
            self._next()

    def land(self) -> None:
        """Until none is under way."""
        while self._under_way:
            self._next()

    def _next(self) -> None:
        end, message, data, work = self._under_way.popleft()
        self._landed(end, message, data, work)
        self._staged[end.step] -= 1


class StagingBuffers:
    """Staging memory of one lane: one piece for all its ends in order, else one for each."""

    def __init__(self, torch: Any, lane: Lane) -> None:
        self._torch, self._shared = torch, not lane.in_turn
        self._most = max((end.staged for end in lane.ends), default=0)
        self._parts: dict[int, torch.Tensor] = {}

    def of(self, end: HopEnd) -> torch.Tensor:
        """The memory of ``end``."""
        key = -1 if self._shared else end.step
        if key not in self._parts:
            size = self._most if self._shared else end.staged
            self._parts[key] = self._torch.empty(size, dtype=self._torch.uint8)
        return self._parts[key]
