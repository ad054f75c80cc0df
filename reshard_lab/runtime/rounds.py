"""A plan as rounds of operations, for backends that carry out what they are given in order.

NCCL knows no tags, and what is posted later does not overtake what was posted before. So the
plan's messages are put into one order, known to all: each has a round, the same at both its ends,
and a device works off its rounds one after another, what falls into one round together. Rounds
keep the order of the lanes, a chain's messages follow one another through its devices, and what
comes ``after`` a transfer that completes elsewhere waits for a token, a message of one byte.
A plan without an order is put into one here. Pure bookkeeping on plain numbers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.planning.memory import messages, staged_ends
from reshard_lab.transfer import Transfer

BATCH = 128
"""Most point-to-point operations of a device in one round."""


class Op(NamedTuple):
    """One operation, of all devices that take part in it."""

    kind: str
    """``"copy"`` (local), ``"hop"`` (a message down one hop), ``"token"`` or ``"cast"`` (a message
    to all devices of the path, by the backend's own broadcast)."""
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
    return _Rounds(plan, collective).make()


class _Rounds:
    """The state while rounds are given out."""

    def __init__(self, plan: Plan, collective: bool) -> None:
        self.plan = plan
        alone = Counter(t.stage for t in plan.transfers)
        self.cast = [collective and len(t.path) > 2 and alone[t.stage] == 1 for t in plan.transfers]
        staged: dict[int, int] = {}
        for end in staged_ends(plan):
            staged[end.transfer] = end.nbytes
        self.staged = staged
        self.rounds: list[list[Op]] = []
        self.free: Counter[tuple[int, str]] = Counter()  # first round in which a lane is free
        self.load: Counter[tuple[int, int]] = Counter()  # operations of a device in a round
        self.over: dict[int, int] = {}  # first round in which a transfer is complete
        self.told: dict[tuple[int, int], int] = {}  # the same, as another device knows it
        self.hops: dict[tuple[int, int], list[int]] = {}  # rounds of the messages of a hop

    def make(self) -> Rounds:
        """All rounds."""
        for number, hop in self._order():
            t = self.plan.transfers[number]
            if len(t.path) == 1:
                at = self._ready(t)
                self._put(at, Op("copy", t.id, t.path, 0, 1))
                self.over[t.id] = at + 1
            elif self.cast[number]:
                self._cast(t)
            else:
                self._hop(t, hop)
        return tuple(tuple(ops) for ops in self.rounds)

    def _hop(self, t: Transfer, hop: int) -> None:
        a, b = t.path[hop], t.path[hop + 1]
        count = messages(t)
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

    def _cast(self, t: Transfer) -> None:
        lanes = [(d, "send") for d in t.path[:-1]] + [(d, "recv") for d in t.path[1:]]
        at = max(self._ready(t), *(self.free[lane] for lane in lanes))
        # No more is staged than a chain in chunks would, and nothing is cut where nothing is.
        staged = self.staged.get(t.id, t.nbytes)
        count = -(-t.nbytes // staged)
        for message in range(count):
            self._put(at + message, Op("cast", t.id, t.path, message, count))
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
            if (other, t.path[0]) not in self.told:
                op = Op("token", other, (at, t.path[0]), 0, 1)
                self.told[other, t.path[0]] = self._put_within(self.over[other], op) + 1
            ready = max(ready, self.told[other, t.path[0]])
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
        """(transfer, hop) so that each comes after all that it waits for; a cast is one hop."""
        transfers = self.plan.transfers
        count = [
            1 if cast else max(1, len(t.path) - 1)
            for t, cast in zip(transfers, self.cast, strict=True)
        ]
        waits = {(t.id, hop): 0 for t in transfers for hop in range(count[t.id])}
        unlocks: dict[tuple[int, int], list[tuple[int, int]]] = {node: [] for node in waits}
        for first, then in self._edges(count):
            unlocks[first].append(then)
            waits[then] += 1
        ready = deque(node for node, n in waits.items() if not n)
        order = []
        while ready:
            node = ready.popleft()
            order.append(node)
            for then in unlocks[node]:
                waits[then] -= 1
                if not waits[then]:
                    ready.append(then)
        if len(order) < len(waits):
            stuck = next(n for (n, _), left in waits.items() if left and self.cast[n])
            raise ReshardError(
                f"transfer {stuck} cannot be carried by one broadcast: its devices do other things "
                "of the plan between its hops; use carrier='chain'"
            )
        return order

    def _edges(self, count: list[int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Pairs of which the first comes before the second."""
        for t in self.plan.transfers:
            for hop in range(1, count[t.id]):
                yield (t.id, hop - 1), (t.id, hop)
            for other in t.after:
                yield (other, count[other] - 1), (t.id, 0)
        for device, steps in self.plan.programs.items() if self.plan.ordered else ():
            last: dict[str, tuple[int, int]] = {}
            for step in steps:
                if step.op == "copy":
                    continue
                place = self.plan.transfers[step.transfer].path.index(device)
                hop = 0 if self.cast[step.transfer] else place - (step.op == "recv")
                node = (step.transfer, hop)
                if last.get(step.op, node) != node:
                    yield last[step.op], node
                last[step.op] = node
