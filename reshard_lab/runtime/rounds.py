"""A plan as rounds of operations, for backends that carry out what they are given in order.

NCCL knows no tags, and what is posted later does not overtake what was posted before. So the
plan's messages are put into one order, known to all: each has a round, the same at both its ends,
and a device works off its rounds one after another, what falls into one round together. Rounds
keep the order of the lanes, a chain's messages follow one another through its devices, and what
comes ``after`` a transfer that completes elsewhere waits for a token, a message of one byte.
A plan without an order is put into one here. Pure bookkeeping on plain numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.planning.hops import Waits
from reshard_lab.transfer import Transfer

BATCH = 128
"""Most point-to-point operations of a device in one round."""


class Op(NamedTuple):
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


Rounds = tuple[tuple[Op, ...], ...]
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
        self.rounds: list[list[Op]] = []
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
                self._put(at, Op("copy", t.id, t.path, 0, 1))
                self.over[t.id] = at + 1
            elif self.broadcast[number]:
                self._broadcast(t)
            else:
                self._hop(t, hop)
        return tuple(tuple(ops) for ops in self.rounds)

    def _hop(self, t: Transfer, hop: int) -> None:
        a, b = t.path[hop], t.path[hop + 1]
        count = t.messages
        earliest = max(self.free[a, "send"], self.free[b, "recv"], self._ready(t) if not hop else 0)
        before = self.hops.get((t.id, hop - 1))
        at = []
        for message in range(count):
            earliest = max(earliest, before[message] + 1 if before else 0)
            op = Op("hop", t.id, (a, b), message, count)
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
            self._put(at + message, Op("broadcast", t.id, t.path, message, count))
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
                op = Op("token", other, (at, t.path[0]), 0, 1)
                self.known[other, t.path[0]] = self._put_within(self.over[other], op) + 1
            ready = max(ready, self.known[other, t.path[0]])
        return ready

    def _put_within(self, earliest: int, op: Op) -> int:
        """The first round from ``earliest`` on in which both ends may take one more operation."""
        while any(self.load[device, earliest] >= BATCH for device in op.devices):
            earliest += 1
        for device in op.devices:
            self.load[device, earliest] += 1
        self._put(earliest, op)
        return earliest

    def _put(self, at: int, op: Op) -> None:
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
