"""Carrying out one device's rounds with batched point-to-point messages and broadcasts.

For NCCL, and testable on gloo. Everything is posted in the global order of the rounds; on a GPU
the waits are waits of its stream, so that the processor runs ahead of it.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, need
from reshard_lab.runtime.calls import Deadline, LateError, PeerError
from reshard_lab.runtime.pieces import Memory
from reshard_lab.runtime.program import Move, Program
from reshard_lab.runtime.rounds import Op, Rounds

if TYPE_CHECKING:
    import torch

    from reshard_lab.runtime.lanes import Observer

_POLL_S = 50e-6


class Communicators:
    """The process groups that broadcasts of one group's plans use, made once and kept."""

    def __init__(self, group: Any) -> None:
        self._group = weakref.ref(group)  # torch keeps it until it is destroyed
        self.made: dict[tuple[int, ...], Any] = {}
        """By ranks in the group, ascending."""
        self.met = False

    def lack(self, needed: list[tuple[int, ...]]) -> bool:
        """Whether ``make`` has something to do."""
        return not (self.met and all(ranks in self.made for ranks in needed))

    def make(self, needed: list[tuple[int, ...]], on: torch.device) -> None:
        """Make what is missing. Called by all ranks of the default group, in the same order."""
        torch = need("torch", "run", "running a plan on processes")
        dist = need("torch.distributed", "run", "running a plan on processes")
        group = self._group()
        for ranks in needed:
            if ranks in self.made:
                continue
            listed = [dist.get_global_rank(group, rank) for rank in ranks]
            self.made[ranks] = dist.new_group(listed, backend=dist.get_backend(group))
        if not self.met and dist.get_rank(group) >= 0:
            # The first call of a group connects it, and has to be one of all its ranks.
            dist.all_reduce(torch.zeros(1, device=on), group=group)
            self.met = True


def casts_of(rounds: Rounds, rank_of: Mapping[int, int]) -> list[tuple[int, ...]]:
    """The ranks of every broadcast, ascending, each set once, in one order for all."""
    return sorted(
        {
            tuple(sorted(rank_of[d] for d in op.devices))
            for ops in rounds
            for op in ops
            if op.kind == "cast"
        }
    )


class Ways(NamedTuple):
    """What messages travel over."""

    group: Any
    rank_of: Mapping[int, int]
    communicators: Communicators
    on: torch.device
    """Where the pieces are."""


class BatchCall:
    """One execution of the rounds of a plan, with the pieces of this device in ``memory``."""

    def __init__(
        self,
        rounds: Rounds,
        program: Program,
        memory: Memory,
        ways: Ways,
        deadline: Deadline,
        observe: Observer | None,
    ) -> None:
        self.torch = need("torch", "run", "running a plan on processes")
        self.dist = need("torch.distributed", "run", "running a plan on processes")
        self.rounds, self.device = rounds, program.device
        self.memory, self.ways, self.deadline = memory, ways, deadline
        self.observe = observe or (lambda lane, step, done: None)
        lanes = {"copy": program.copies, "send": program.sends, "recv": program.recvs}
        self.moves = {(lane, m.transfer): m for lane, moves in lanes.items() for m in moves}
        self.stage = {
            lane: self._empty(max((move.staged for move in moves), default=0))
            for lane, moves in lanes.items()
        }

    def on_stream(self) -> Callable[[], None]:
        """``run`` on the stream that is the caller's now, whatever thread calls it."""
        if self.ways.on.type != "cuda":
            return self.run
        cuda = self.torch.cuda
        stream = cuda.current_stream(self.ways.on)

        def run() -> None:
            with cuda.device(self.ways.on), cuda.stream(stream):
                self.run()

        return run

    def run(self) -> None:
        """Until everything is done here."""
        for ops in self.rounds:
            mine = [op for op in ops if self.device in op.devices]
            if mine:
                self._round(mine)
        self._settle()

    def _round(self, ops: list[Op]) -> None:
        after: list[Callable[[], None]] = []
        posts = [self._post(op, after) for op in ops if op.kind in ("hop", "token")]
        for op in ops:
            if op.kind == "copy":
                move = self.moves["copy", op.transfer]
                self.memory.copy(move)
                self.observe("copy", move.step, 1)
        works = self.dist.batch_isend_irecv(posts) if posts else []
        works += [self._cast(op, after) for op in ops if op.kind == "cast"]
        for work in works:
            self._finish(work, ops)
        for then in after:
            then()

    def _post(self, op: Op, after: list[Callable[[], None]]) -> Any:
        """This device's end of a message, for a batch."""
        sends = op.devices[0] == self.device
        peer = self.ways.rank_of[op.devices[1] if sends else op.devices[0]]
        if op.kind == "token":
            data = self._empty(1)
        else:
            data = self._message("send" if sends else "recv", op, after)
        post = self.dist.isend if sends else self.dist.irecv
        return self.dist.P2POp(post, data, group=self.ways.group, group_peer=peer)

    def _cast(self, op: Op, after: list[Callable[[], None]]) -> Any:
        data = self._message("send" if op.devices[0] == self.device else "recv", op, after)
        ranks = tuple(sorted(self.ways.rank_of[d] for d in op.devices))
        root = ranks.index(self.ways.rank_of[op.devices[0]])
        group = self.ways.communicators.made[ranks]
        return self.dist.broadcast(data, group=group, group_src=root, async_op=True)

    def _message(self, lane: str, op: Op, after: list[Callable[[], None]]) -> torch.Tensor:
        """The memory of one message; what is received scattered is put in place ``after``."""
        move = self.moves[lane, op.transfer]._replace(messages=op.messages)
        lo, hi = move.edge(op.message), move.edge(op.message + 1)
        self.observe(lane, move.step, op.message)
        if move.place is None:
            data = self._empty(hi - lo)
        elif not move.staged:
            data = self.memory.view(move, lo, hi)
        else:
            data = self.stage[lane][: hi - lo]
            if lane == "send":
                self.memory.pack(move, lo, hi, data)
            else:
                after.append(self._unpack(move, lo, hi, data))
        after.append(lambda: self.observe(lane, move.step, op.message + 1))
        return data

    def _unpack(self, move: Move, lo: int, hi: int, data: torch.Tensor) -> Callable[[], None]:
        return lambda: self.memory.unpack(move, lo, hi, data)

    def _empty(self, nbytes: int) -> torch.Tensor:
        return self.torch.zeros(nbytes, dtype=self.torch.uint8, device=self.ways.on)

    def _finish(self, work: Any, ops: list[Op]) -> None:
        """On the processor: until the work is done. On a GPU: let its stream wait for that."""
        what = f"device {self.device}: {_text(ops)}"
        try:
            if self.ways.on.type == "cuda":
                work.wait()
            elif not work.wait(timedelta(seconds=self.deadline.left())):
                raise PeerError(f"{what}: aborted")
        except RuntimeError as error:
            if "Timed out" in str(error) or self.deadline.left() <= 1e-3:
                late = f"{what}: not done within {self.deadline.timeout_s:g} s"
                raise LateError(late) from error
            raise PeerError(f"{what}: {error}") from error

    def _settle(self) -> None:
        """Until the GPU is done with all that it was given."""
        if self.ways.on.type != "cuda":
            return
        event = self.torch.cuda.Event()
        event.record()
        while not event.query():
            if self.deadline.left() <= 1e-3:
                raise LateError(
                    f"device {self.device}: the GPU is not done within "
                    f"{self.deadline.timeout_s:g} s; another device may not have done its part"
                )
            time.sleep(_POLL_S)


def _text(ops: list[Op]) -> str:
    return ", ".join(
        f"{op.kind} of transfer {op.transfer} {' -> '.join(map(str, op.devices))}"
        f" (message {op.message + 1} of {op.messages})"
        for op in ops
    )


def make_communicators(needed: list[tuple[int, ...]], ways: Ways) -> None:
    """Make the communicators of a plan if all processes are here to do so, else raise."""
    dist = need("torch.distributed", "run", "running a plan on processes")
    world = dist.get_world_size()
    if len(ways.rank_of) < world:
        raise ReshardError(
            f"the process groups of the plan are not made yet, and its devices are on only "
            f"{len(ways.rank_of)} of {world} ranks; before, call reshard_lab.runtime.prepare(plan, "
            "...) on all ranks, for the same plans in the same order"
        )
    ways.communicators.make(needed, ways.on)
