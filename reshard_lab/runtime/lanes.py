"""Carrying out one device's program: a lane that sends, one that receives, and local copies.

The lanes are threads. Each works through its moves in program order and keeps a few messages of
one move under way; it turns to the next move when the last message of this one is done. A device
in the middle of a chain sends a message on as soon as the other lane has taken it in. A move that
is received is done whether or not it has been sent on: its data is in the destination piece.
In a plan without an order a device has a lane each way for every other device it deals with.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import need
from reshard_lab.planning.memory import IN_FLIGHT
from reshard_lab.runtime.board import Board, Deadline, Stopped
from reshard_lab.runtime.control import Control, Tokens, Wire
from reshard_lab.runtime.pieces import Memory
from reshard_lab.runtime.program import Move, Program

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
        wire: Wire,
        control: Control,
        number: int,
        deadline: Deadline,
        observe: Observer | None,
    ) -> None:
        self.torch = need("torch", "run", "running a plan on processes")
        self.program, self.memory, self.wire = program, memory, wire
        self.deadline, self.observe = deadline, observe or (lambda lane, step, done: None)
        self.lanes = [
            (carry, moves, max(1, WINDOW // len(lanes)))
            for carry, lanes in (
                (self._send, program.lanes(program.sends)),
                (self._recv, program.lanes(program.recvs)),
            )
            for moves in lanes
        ]
        self.board = Board(deadline, lanes=1 + len(self.lanes))
        self.tokens = Tokens(control, program, number, self.board)

    def run(self) -> None:
        """Until everything is done; raises the first error of any lane.

        Nothing is posted before: calls on one group run one after another.
        """
        self.tokens.begin()
        for lane in self.lanes:
            threading.Thread(target=self._lane, args=lane, daemon=True).start()
        self._lane(self._copy, self.program.copies, 1)
        self.board.close()
        self.tokens.flush()

    def _lane(
        self,
        carry: Callable[[Move, torch.Tensor, int], None],
        moves: tuple[Move, ...],
        window: int,
    ) -> None:
        try:
            size = max((move.staged for move in moves), default=0)
            stage = self.torch.empty(size, dtype=self.torch.uint8)
            for move in moves:
                carry(move, stage, window)
            self.board.leave()
        except Stopped:
            pass
        except BaseException as error:
            self.board.fail(error)

    def _copy(self, move: Move, stage: torch.Tensor, window: int) -> None:
        self.observe("copy", move.step, 0)
        self._wait(move)
        self.memory.copy(move)
        self.observe("copy", move.step, 1)
        self._complete(move)

    def _send(self, move: Move, stage: torch.Tensor, window: int) -> None:
        self.observe("send", move.step, 0)
        self._wait(move)
        flight: deque[Any] = deque()
        for i in range(move.messages):
            if move.forward:
                what = f"message {i + 1} of {move.messages} of transfer {move.transfer}"
                self.board.until_arrived(move.transfer, i + 1, f"{what}, to be sent on,")
            if len(flight) == (min(IN_FLIGHT, window) if move.staged else window):
                self._sent(move, flight, i)
            data = self._buffer(move, i, stage)
            if move.staged:
                self.memory.pack(move, move.edge(i), move.edge(i + 1), data)
            flight.append((data, self.wire.send(data, move.peer)))
        while flight:
            self._sent(move, flight, move.messages)

    def _sent(self, move: Move, flight: deque[Any], posted: int) -> None:
        """Wait for the oldest of the messages under way."""
        message = posted - len(flight)
        _, work = flight.popleft()
        self.wire.finish(work, self.deadline, self._text(move, "send", "to", message))
        self.observe("send", move.step, message + 1)

    def _recv(self, move: Move, stage: torch.Tensor, window: int) -> None:
        self.observe("recv", move.step, 0)
        flight: deque[Any] = deque()
        window = min(IN_FLIGHT, window) if move.staged else window
        for i in range(move.messages):
            while i + len(flight) < move.messages and len(flight) < window:
                data = self._buffer(move, i + len(flight), stage)
                flight.append((data, self.wire.recv(data, move.peer)))
            data, work = flight.popleft()
            self.wire.finish(work, self.deadline, self._text(move, "receive", "from", i))
            if move.staged:
                self.memory.unpack(move, move.edge(i), move.edge(i + 1), data)
            self.observe("recv", move.step, i + 1)
            self.board.note_arrived(move.transfer, i + 1)
        if move.last:
            self._complete(move)

    def _wait(self, move: Move) -> None:
        """For the transfers that this one comes after."""
        for transfer in move.local:
            what = f"transfer {transfer}, which comes before transfer {move.transfer},"
            self.board.until_complete(transfer, what)
        for device, transfer in move.remote:
            self.tokens.wait(device, transfer)

    def _complete(self, move: Move) -> None:
        self.board.note_complete(move.transfer)
        self.tokens.tell(move)

    def _buffer(self, move: Move, message: int, stage: torch.Tensor) -> torch.Tensor:
        """The memory that a message leaves from or comes into."""
        lo, hi = move.edge(message), move.edge(message + 1)
        if move.place is None:
            return self.torch.zeros(hi - lo, dtype=self.torch.uint8)
        if not move.staged:
            return self.memory.view(move, lo, hi)
        at = move.slot(message)
        return stage[at : at + hi - lo]

    def _text(self, move: Move, verb: str, way: str, message: int) -> str:
        return (
            f"device {self.program.device} would {verb} transfer {move.transfer} {way} device "
            f"{move.peer} (step {move.step}, message {message + 1} of {move.messages})"
        )
