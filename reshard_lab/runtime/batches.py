"""Carrying out one device's rounds with batched point-to-point messages and broadcasts.

For NCCL, and testable on gloo. Everything is posted in the global order of the rounds; on a GPU
the waits are waits of its stream, so that the processor runs ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import ReshardError
from reshard_lab.runtime.calls import Deadline, LateError, PeerError, torch_modules
from reshard_lab.runtime.context import RankContext, communicators_of
from reshard_lab.runtime.program import Memory, Observer, Program
from reshard_lab.runtime.rounds import Op, Rounds

if TYPE_CHECKING:
    import torch

_POLL_S = 50e-6


def broadcast_groups(rounds: Rounds, rank_of: Mapping[int, int]) -> list[tuple[int, ...]]:
    """The ranks of every broadcast, ascending, each set once, in one order for all."""
    return sorted(
        {
            tuple(sorted(rank_of[d] for d in op.devices))
            for ops in rounds
            for op in ops
            if op.kind == "broadcast"
        }
    )


class BatchCall:
    """One execution of the rounds of a plan, with the pieces of this device in ``memory``."""

    def __init__(
        self,
        rounds: Rounds,
        program: Program,
        memory: Memory,
        context: RankContext,
        deadline: Deadline,
        observe: Observer | None,
    ) -> None:
        self.torch, self.dist = torch_modules()
        self.rounds, self.device = rounds, program.device
        self.memory, self.context, self.deadline = memory, context, deadline
        self.observe = observe or (lambda lane, step, done: None)
        lanes = {"copy": program.copies, "send": program.sends, "recv": program.recvs}
        self.hop_ends = {(lane, m.transfer): m for lane, ends in lanes.items() for m in ends}
        self.staging = {
            lane: self._empty(max((end.staged for end in ends), default=0))
            for lane, ends in lanes.items()
        }

    def on_stream(self) -> Callable[[], None]:
        """``run`` on the stream that is the caller's now, whatever thread calls it."""
        if self.context.on.type != "cuda":
            return self.run
        cuda = self.torch.cuda
        stream = cuda.current_stream(self.context.on)

        def run() -> None:
            with cuda.device(self.context.on), cuda.stream(stream):
                self.run()

        return run

    def run(self) -> None:
        """Until everything is done here."""
        for ops in self.rounds:
            mine = [op for op in ops if self.device in op.devices]
            if mine:
                self._round(mine)
        self._await_gpu()

    def _round(self, ops: list[Op]) -> None:
        after: list[Callable[[], None]] = []
        posts = [self._post(op, after) for op in ops if op.kind in ("hop", "token")]
        for op in ops:
            if op.kind == "copy":
                end = self.hop_ends["copy", op.transfer]
                self.memory.copy(end)
                self.observe("copy", end.step, 1)
        works = self.dist.batch_isend_irecv(posts) if posts else []
        works += [self._broadcast(op, after) for op in ops if op.kind == "broadcast"]
        for work in works:
            self._finish(work, ops)
        for then in after:
            then()

    def _post(self, op: Op, after: list[Callable[[], None]]) -> Any:
        """This device's end of a message, for a batch."""
        sends = op.devices[0] == self.device
        peer = self.context.rank_of[op.devices[1] if sends else op.devices[0]]
        if op.kind == "token":
            data = self._empty(1)
        else:
            data = self._message("send" if sends else "recv", op, after)
        post = self.dist.isend if sends else self.dist.irecv
        return self.dist.P2POp(post, data, group=self.context.group, group_peer=peer)

    def _broadcast(self, op: Op, after: list[Callable[[], None]]) -> Any:
        data = self._message("send" if op.devices[0] == self.device else "recv", op, after)
        ranks = tuple(sorted(self.context.rank_of[d] for d in op.devices))
        root = ranks.index(self.context.rank_of[op.devices[0]])
        group = communicators_of(self.context.group).groups[ranks]
        return self.dist.broadcast(data, group=group, group_src=root, async_op=True)

    def _message(self, lane: str, op: Op, after: list[Callable[[], None]]) -> torch.Tensor:
        """The memory of one message; what is received scattered is put in place ``after``."""
        end = self.hop_ends[lane, op.transfer]._replace(messages=op.messages)
        lo, hi = end.edge(op.message), end.edge(op.message + 1)
        self.observe(lane, end.step, op.message)
        if end.buffer is None:
            data = self._empty(hi - lo)
        elif not end.staged:
            data = self.memory.view(end, lo, hi)
        else:
            data = self.staging[lane][: hi - lo]
            if lane == "send":
                self.memory.pack(end, lo, hi, data)
            else:
                after.append(partial(self.memory.unpack, end, lo, hi, data))
        after.append(partial(self.observe, lane, end.step, op.message + 1))
        return data

    def _empty(self, nbytes: int) -> torch.Tensor:
        return self.torch.zeros(nbytes, dtype=self.torch.uint8, device=self.context.on)

    def _finish(self, work: Any, ops: list[Op]) -> None:
        """On the processor: until the work is done. On a GPU: let its stream wait for that."""
        what = f"device {self.device}: {_text(ops)}"
        try:
            if self.context.on.type == "cuda":
                work.wait()
            elif not work.wait(timedelta(seconds=self.deadline.left())):
                raise PeerError(f"{what}: aborted")
        except RuntimeError as error:
            if "Timed out" in str(error) or self.deadline.left() <= 1e-3:
                late = f"{what}: not done within {self.deadline.timeout_s:g} s"
                raise LateError(late) from error
            raise PeerError(f"{what}: {error}") from error

    def _await_gpu(self) -> None:
        """Until the GPU is done with all that it was given."""
        if self.context.on.type != "cuda":
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


def make_communicators(needed: list[tuple[int, ...]], context: RankContext) -> None:
    """Make the communicators of a plan if all processes are here to do so, else raise."""
    _, dist = torch_modules()
    ranks, world = len(context.rank_of), dist.get_world_size()
    if ranks < world:
        raise ReshardError(
            "the process groups of the plan are not made yet, and its devices are on only "
            f"{ranks} of {world} ranks; before, call reshard_lab.runtime.prepare(plan, ...) on all "
            "ranks, for the same plans in the same order"
        )
    communicators_of(context.group).make(needed, context.on)
