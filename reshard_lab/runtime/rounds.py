"""Plans carried out in rounds, for backends that carry out in order what they are given (NCCL).

NCCL knows no tags, and what is posted later does not overtake what was posted before. So the
plan's messages are put into one order, known to all: each has a round, the same at both its ends,
and a device works off its rounds one after another, what falls into one round together. Rounds
keep the order of the lanes, a chain's messages follow one another through its devices, and what
comes ``after`` a transfer that completes elsewhere waits for a token, a message of one byte.
A plan without an order is put into one here. On a GPU the waits are waits of its stream, so that
the processor runs ahead of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.planning.hops import Waits
from reshard_lab.runtime.calls import Deadline, LateError, finish, torch_modules
from reshard_lab.runtime.context import RankContext, communicators_of
from reshard_lab.runtime.program import Observer, PieceMemory, Program
from reshard_lab.transfer import Transfer

if TYPE_CHECKING:
    import torch

BATCH = 128
"""Most point-to-point operations of a device in one round."""
_POLL_S = 50e-6


class RoundOp(NamedTuple):
    """One operation, of all devices that take part in it."""

    kind: str
    """``"copy"`` (local), ``"hop"`` (a message down one hop), ``"token"`` or
    ``"broadcast"`` (a message to all devices of the path, by the backend's own broadcast)."""
    transfer: int
    devices: tuple[int, ...]
    """The sender first; one for a copy."""
    message: int
    """Which of ``messages``."""
    messages: int

    def __str__(self) -> str:
        path = " -> ".join(map(str, self.devices))
        which = f"message {self.message + 1} of {self.messages}"
        return f"{self.kind} of transfer {self.transfer} {path} ({which})"


Rounds = tuple[tuple[RoundOp, ...], ...]
"""By round; within one, in the order in which every device posts them."""


def rounds_of(plan: Plan, collective: bool) -> Rounds:
    """Put the messages of ``plan`` into rounds.

    collective:
        carry each chain of more than two devices by the backend's broadcast instead of hop by
        hop. A ring is no chain: it is always carried hop by hop.

    Raises ReshardError where the lanes of a plan that was edited by hand keep a chain from being
    carried in one go.
    """
    return _RoundBuilder(plan, collective).build()


class _RoundBuilder:
    """The state while messages are put into rounds."""

    def __init__(self, plan: Plan, collective: bool) -> None:
        self.plan = plan
        alone = Counter(t.stage for t in plan.transfers)
        self.broadcast = [
            collective and len(t.path) > 2 and alone[t.stage] == 1 for t in plan.transfers
        ]
        self.staged = {end.transfer: end.nbytes for end in plan.staged_ends()}
        self.rounds: list[list[RoundOp]] = []
        self.free: Counter[tuple[int, str]] = Counter()  # first round in which a lane is free
        self.load: Counter[tuple[int, int]] = Counter()  # operations of a device in a round
        self.over: dict[int, int] = {}  # first round in which a transfer is complete
        self.known: dict[tuple[int, int], int] = {}  # the same, as another device knows it
        self.hops: dict[tuple[int, int], list[int]] = {}  # rounds of the messages of a hop

    def build(self) -> Rounds:
        """The rounds of the whole plan."""
        for number, hop in self._order():
            t = self.plan.transfers[number]
            if len(t.path) == 1:
                at = self._ready(t)
                self._put(at, RoundOp("copy", t.id, t.path, 0, 1))
                self.over[t.id] = at + 1
            elif self.broadcast[number]:
                self._broadcast(t)
            else:
                self._hop(t, hop)
        return tuple(tuple(ops) for ops in self.rounds)

    def _hop(self, t: Transfer, hop: int) -> None:
        a, b = t.path[hop], t.path[hop + 1]
        earliest = max(self.free[a, "send"], self.free[b, "recv"], self._ready(t) if not hop else 0)
        before = self.hops.get((t.id, hop - 1))
        at = []
        for message in range(t.messages):
            earliest = max(earliest, before[message] + 1 if before else 0)
            op = RoundOp("hop", t.id, (a, b), message, t.messages)
            at.append(self._put_within(earliest, op))
            earliest = at[-1] + 1
        self.hops[t.id, hop] = at
        self.free[a, "send"] = self.free[b, "recv"] = earliest
        if hop == len(t.path) - 2:
            self.over[t.id] = earliest

    def _broadcast(self, t: Transfer) -> None:
        lanes = [(d, "send") for d in t.path[:-1]] + [(d, "recv") for d in t.path[1:]]
        at = max(self._ready(t), *(self.free[lane] for lane in lanes))
        # No more is staged than a chain in chunks would, and nothing is cut where nothing is.
        staged = self.staged.get(t.id, t.nbytes)
        count = -(-t.nbytes // staged)
        for message in range(count):
            self._put(at + message, RoundOp("broadcast", t.id, t.path, message, count))
        for lane in lanes:
            self.free[lane] = at + count
        self.over[t.id] = at + count

    def _ready(self, t: Transfer) -> int:
        """First round in which the first device knows all that comes before to be complete."""
        ready = 0
        for other in t.after:
            at = self.plan.transfers[other].path[-1]
            if at == t.path[0]:
                ready = max(ready, self.over[other])
                continue
            if (other, t.path[0]) not in self.known:
                op = RoundOp("token", other, (at, t.path[0]), 0, 1)
                self.known[other, t.path[0]] = self._put_within(self.over[other], op) + 1
            ready = max(ready, self.known[other, t.path[0]])
        return ready

    def _put_within(self, earliest: int, op: RoundOp) -> int:
        """The first round from ``earliest`` on in which both ends may take one more operation."""
        while any(self.load[device, earliest] >= BATCH for device in op.devices):
            earliest += 1
        for device in op.devices:
            self.load[device, earliest] += 1
        self._put(earliest, op)
        return earliest

    def _put(self, at: int, op: RoundOp) -> None:
        while len(self.rounds) <= at:
            self.rounds.append([])
        self.rounds[at].append(op)

    def _order(self) -> list[tuple[int, int]]:
        """(transfer, hop) so that each comes after all that it waits for; a broadcast is one."""
        hops, waits = self.plan.hops, self.plan.hops.waits
        one = np.array(self.broadcast, dtype=bool)[hops.transfer]
        node = np.where(one, hops.first[hops.transfer], np.arange(len(hops)))
        earlier, later = node[waits.earlier], node[waits.later]
        between = earlier != later
        order = Waits.of(len(hops), earlier[between], later[between], waits.kind[between]).order()
        if len(order) < len(hops):
            missing = np.setdiff1d(np.flatnonzero(one), order)
            raise ReshardError(
                f"transfer {hops.transfer[missing[0]]} cannot be carried by one broadcast: its "
                "devices do other things of the plan between its hops; use carrier='chain'"
            )
        pairs = zip(hops.transfer[order].tolist(), hops.hop[order].tolist(), strict=True)
        return [pair for pair, row in zip(pairs, order, strict=True) if node[row] == row]


def broadcast_groups(rounds: Rounds, rank_of: Mapping[int, int]) -> list[tuple[int, ...]]:
    """The ranks of every broadcast, ascending, each set once, in one order for all."""
    chains = [op.devices for ops in rounds for op in ops if op.kind == "broadcast"]
    return sorted({tuple(sorted(rank_of[d] for d in devices)) for devices in chains})


class BatchCall:
    """One execution of the rounds of a plan, on the stream that is the caller's now."""

    def __init__(
        self,
        rounds: Rounds,
        program: Program,
        memory: PieceMemory,
        context: RankContext,
        deadline: Deadline,
        observe: Observer,
    ) -> None:
        self.torch, self.dist = torch_modules()
        self.rounds, self.device = rounds, program.device
        self.memory, self.context = memory, context
        self.deadline, self.observe = deadline, observe
        self.on_gpu = context.on.type == "cuda"
        self.stream = self.torch.cuda.current_stream(context.on) if self.on_gpu else None
        lanes = {"copy": program.copies, "send": program.sends, "recv": program.recvs}
        self.hop_ends = {(lane, m.transfer): m for lane, ends in lanes.items() for m in ends}
        self.staging = {
            lane: memory.zeros(max((end.staged for end in ends), default=0))
            for lane, ends in lanes.items()
        }

    def run(self) -> None:
        """Until everything is done here; on whatever thread."""
        with ExitStack() as stack:
            if self.on_gpu:
                stack.enter_context(self.torch.cuda.device(self.context.on))
                stack.enter_context(self.torch.cuda.stream(self.stream))
            for ops in self.rounds:
                mine = [op for op in ops if self.device in op.devices]
                if mine:
                    self._round(mine)
            if self.on_gpu:
                self._await_gpu()

    def _round(self, ops: list[RoundOp]) -> None:
        after: list[Callable[[], None]] = []
        posts = [self._post(op, after) for op in ops if op.kind in ("hop", "token")]
        for op in ops:
            if op.kind == "copy":
                end = self.hop_ends["copy", op.transfer]
                self.memory.copy(end)
                self.observe("copy", end.step, 1)
        works = self.dist.batch_isend_irecv(posts) if posts else []
        works += [self._broadcast(op, after) for op in ops if op.kind == "broadcast"]
        what = f"device {self.device}: {', '.join(map(str, ops))}"
        for work in works:
            # On the processor until the work is done; on a GPU its stream waits for that.
            finish(work, None if self.on_gpu else self.deadline, what)
        for then in after:
            then()

    def _post(self, op: RoundOp, after: list[Callable[[], None]]) -> Any:
        """This device's end of a message, for a batch."""
        sends = op.devices[0] == self.device
        peer = self.context.rank_of[op.devices[1] if sends else op.devices[0]]
        data = self.memory.zeros(1) if op.kind == "token" else self._message(sends, op, after)
        post = self.dist.isend if sends else self.dist.irecv
        return self.dist.P2POp(post, data, group=self.context.group, group_peer=peer)

    def _broadcast(self, op: RoundOp, after: list[Callable[[], None]]) -> Any:
        data = self._message(op.devices[0] == self.device, op, after)
        ranks = tuple(sorted(self.context.rank_of[d] for d in op.devices))
        root = ranks.index(self.context.rank_of[op.devices[0]])
        group = communicators_of(self.context.group).groups[ranks]
        return self.dist.broadcast(data, group=group, group_src=root, async_op=True)

    def _message(self, sends: bool, op: RoundOp, after: list[Callable[[], None]]) -> torch.Tensor:
        """The memory of one message; what is received scattered is put in place ``after``."""
        lane = "send" if sends else "recv"
        end = self.hop_ends[lane, op.transfer]._replace(messages=op.messages)
        self.observe(lane, end.step, op.message)
        data = self.memory.message(end, op.message, sends, self.staging[lane])
        if end.staged and not sends:
            after.append(partial(self.memory.unpack, end, op.message, data))
        after.append(partial(self.observe, lane, end.step, op.message + 1))
        return data

    def _await_gpu(self) -> None:
        """Until the GPU is done with all that it was given."""
        event = self.torch.cuda.Event()
        event.record()
        while not event.query():
            if self.deadline.left() <= 1e-3:
                raise LateError(
                    f"device {self.device}: the GPU is not done within "
                    f"{self.deadline.timeout_s:g} s; another device may not have done its part"
                )
            time.sleep(_POLL_S)
