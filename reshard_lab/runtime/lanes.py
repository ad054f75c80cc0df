"""Carrying out one device's program: a lane that sends, one that receives, and local copies.

The lanes are threads. Each works through its moves in program order and keeps a few messages of
one move under way; it turns to the next move when the last message of this one is done. A device
in the middle of a chain sends a message on as soon as the other lane has taken it in. A move that
is received is done whether or not it has been sent on: its data is in the destination piece.
In a plan without an order a device has a lane each way for every other device it deals with, in
which the messages of all its moves take turns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import need
from reshard_lab.planning.memory import IN_FLIGHT
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.control import Control, Duplex, Tokens, TransferState
from reshard_lab.runtime.pieces import Memory
from reshard_lab.runtime.program import Lane, Move, Program

if TYPE_CHECKING:
    import torch

WINDOW = 48
"""Messages under way at once each way: with the tokens read ahead, 128 operations a device."""

Observer = Callable[[str, int, int], None]
"""Called as (``"copy"``, ``"send"`` or ``"recv"``, step, messages done): 0 as the step begins."""


class Call:
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
        self.torch = need("torch", "run", "running a plan on processes")
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
        for move in self.program.copies:
            self.observe("copy", move.step, 0)
            self._wait(move)
            self.memory.copy(move)
            self.observe("copy", move.step, 1)
            self._complete(move)

    def _send(self, lane: Lane, window: int) -> None:
        flight = _Flight(self._sent, window)
        stage = _Stage(self.torch, lane)
        for move, i in lane.messages():
            if i == 0:
                if not lane.in_turn:
                    flight.land()
                self.observe("send", move.step, 0)
                self._wait(move)
            if move.forward:
                what = f"message {i + 1} of {move.messages} of transfer {move.transfer}"
                self._until_arrived(move.transfer, i + 1, f"{what}, to be sent on,")
            flight.make_room(move)
            data = self._buffer(move, i, stage)
            if move.staged:
                self.memory.pack(move, move.edge(i), move.edge(i + 1), data)
            flight.add(move, i, data, self.wire.send(data, move.peer))
        flight.land()

    def _sent(self, move: Move, message: int, data: torch.Tensor, work: Any) -> None:
        self.wire.finish(work, self.deadline, self._text(move, "send", "to", message))
        self.observe("send", move.step, message + 1)

    def _recv(self, lane: Lane, window: int) -> None:
        flight = _Flight(self._received, window)
        stage = _Stage(self.torch, lane)
        for move, i in lane.messages():
            if i == 0:
                if not lane.in_turn:
                    flight.land()
                self.observe("recv", move.step, 0)
            flight.make_room(move)
            data = self._buffer(move, i, stage)
            flight.add(move, i, data, self.wire.recv(data, move.peer))
        flight.land()

    def _received(self, move: Move, message: int, data: torch.Tensor, work: Any) -> None:
        self.wire.finish(work, self.deadline, self._text(move, "receive", "from", message))
        if move.staged:
            self.memory.unpack(move, move.edge(message), move.edge(message + 1), data)
        self.observe("recv", move.step, message + 1)
        with self.state.update():
            self.state.arrived[move.transfer] = message + 1
        if message == move.messages - 1 and move.last:
            self._complete(move)

    def _wait(self, move: Move) -> None:
        """For the transfers that this one comes after."""
        for transfer in move.local:
            what = f"transfer {transfer}, which comes before transfer {move.transfer},"
            self._until_complete(transfer, what)
        for device, transfer in move.remote:
            self.tokens.wait(device, transfer)

    def _until_arrived(self, transfer: int, messages: int, what: str) -> None:
        self.state.until(lambda: self.state.arrived.get(transfer, 0) >= messages, what)

    def _until_complete(self, transfer: int, what: str) -> None:
        self.state.until(lambda: transfer in self.state.complete, what)

    def _complete(self, move: Move) -> None:
        with self.state.update():
            self.state.complete.add(move.transfer)
        self.tokens.tell(move)

    def _buffer(self, move: Move, message: int, stage: _Stage) -> torch.Tensor:
        """The memory that a message leaves from or comes into."""
        lo, hi = move.edge(message), move.edge(message + 1)
        if move.place is None:
            return self.torch.zeros(hi - lo, dtype=self.torch.uint8)
        if not move.staged:
            return self.memory.view(move, lo, hi)
        at = move.slot(message)
        return stage.of(move)[at : at + hi - lo]

    def _text(self, move: Move, verb: str, way: str, message: int) -> str:
        return (
            f"device {self.program.device} would {verb} transfer {move.transfer} {way} device "
            f"{move.peer} (step {move.step}, message {message + 1} of {move.messages})"
        )


class _Flight:
    """Messages of one lane under way, the oldest first."""

    def __init__(self, landed: Callable[[Move, int, torch.Tensor, Any], None], window: int) -> None:
        self._landed, self._window = landed, window
        self._under_way: deque[tuple[Move, int, torch.Tensor, Any]] = deque()
        self._staged: Counter[int] = Counter()

    def add(self, move: Move, message: int, data: torch.Tensor, work: Any) -> None:
        self._under_way.append((move, message, data, work))
        self._staged[move.step] += 1

    def make_room(self, move: Move) -> None:
        """Until one more message of ``move`` may be under way."""
        while len(self._under_way) >= self._window or (
            move.staged and self._staged[move.step] >= IN_FLIGHT
        ):
            self._next()

    def land(self) -> None:
        """Until none is under way."""
        while self._under_way:
            self._next()

    def _next(self) -> None:
        move, message, data, work = self._under_way.popleft()
        self._landed(move, message, data, work)
        self._staged[move.step] -= 1


class _Stage:
    """Staging memory of one lane: one piece for all its moves in order, else one for each."""

    def __init__(self, torch: Any, lane: Lane) -> None:
        self._torch, self._shared = torch, not lane.in_turn
        self._most = max((move.staged for move in lane.moves), default=0)
        self._parts: dict[int, torch.Tensor] = {}

    def of(self, move: Move) -> torch.Tensor:
        """The memory of ``move``."""
        key = -1 if self._shared else move.step
        if key not in self._parts:
            size = self._most if self._shared else move.staged
            self._parts[key] = self._torch.empty(size, dtype=self._torch.uint8)
        return self._parts[key]
