"""The proof that a plan is right, made before anything runs.

1. Every record makes sense on its own (devices, boxes, sizes, dtypes).
2. Both ends of every hop list it, and agree on partner, size, dtype and order.
3. No cycle of waits: lanes, data and ``after`` together can all be worked off.
4. Every payload leaves a device that holds it by then.
5. Every element of every destination piece is written exactly once.

The destination pieces come from the layouts, not from the planner's unit tasks.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

from reshard_lab.boxes import Box, box_text, box_volume, contains, span_boxes
from reshard_lab.errors import ReshardError
from reshard_lab.planning.cover import first_fault
from reshard_lab.planning.programs import collector_paused
from reshard_lab.transfer import Step, Transfer

if TYPE_CHECKING:
    from reshard_lab.planning.record import Plan, Verified

Hop = tuple[int, int]
"""A transfer and the index of one of its hops (0 for a local copy)."""


def verify(plan: Plan) -> Verified:
    """Prove ``plan`` right; raises ReshardError naming the transfer at fault.

    A ``signal`` plan delivers nothing: points 1 to 3 are proven, and the result says so.
    """
    from reshard_lab.planning.record import Verified

    elements = 0
    with collector_paused():
        check_records(plan)
        check_ends(plan)
        order_of_hops(plan)
        if plan.delivers:
            pieces = _Pieces(plan)
            check_held(plan, pieces)
            elements = check_written(plan, pieces)
    return Verified(len(plan.programs), len(plan.transfers), elements, plan.delivers)


def name(t: Transfer) -> str:
    """How messages call a transfer."""
    span = "" if t.span is None else f" elements {t.span[0]}:{t.span[1]}"
    return f"transfer {t.id} ({box_text(t.box)}{span}, {' -> '.join(map(str, t.path))})"


class _Pieces:
    """Source and destination boxes of every tensor, by device."""

    def __init__(self, plan: Plan) -> None:
        self.have = [task.src.boxes(task.shape) for task in plan.tasks]
        self.need = [task.dst.boxes(task.shape) for task in plan.tasks]


def check_records(plan: Plan) -> None:
    """Point 1, transfer by transfer."""
    cluster = plan.cluster
    for position, t in enumerate(plan.transfers):
        if t.id != position:
            raise ReshardError(f"transfer {t.id} stands at position {position}; ids are positions")
        if not 0 <= t.unit < len(plan.units):
            raise ReshardError(
                f"{name(t)} belongs to unit task {t.unit}, but there are {len(plan.units)}"
            )
        task = plan.tasks[plan.units[t.unit].task]
        if not t.path or len(set(t.path)) < len(t.path):
            raise ReshardError(f"{name(t)} must visit at least one device, each once")
        for device in t.path:
            if not 0 <= device < cluster.size:
                raise ReshardError(
                    f"{name(t)} uses device {device}; the cluster has 0 to {cluster.size - 1}"
                )
        if len(t.box) != len(task.shape) or not all(
            0 <= lo < hi <= n for (lo, hi), n in zip(t.box, task.shape, strict=False)
        ):
            raise ReshardError(f"{name(t)} is not a non-empty box of shape {task.shape}")
        if t.span is not None and not 0 <= t.span[0] < t.span[1] <= box_volume(t.box):
            raise ReshardError(f"{name(t)} is outside its box of {box_volume(t.box)} elements")
        right = t.elements * task.itemsize if plan.delivers or len(t.path) == 1 else 1
        if t.nbytes != right:
            raise ReshardError(
                f"{name(t)} says {t.nbytes} bytes, but carries {right} ({task.dtype})"
            )
        if not 1 <= t.chunks <= t.nbytes:
            raise ReshardError(f"{name(t)} has {t.chunks} chunks; allowed are 1 to {t.nbytes}")
        for other in t.after:
            if not 0 <= other < len(plan.transfers) or other == t.id:
                raise ReshardError(f"{name(t)} waits for transfer {other}, which is no other one")


def check_ends(plan: Plan) -> None:
    """Point 2: every hop is in the programs of both its ends, alike and in one order."""
    transfers, hops = plan.transfers, _Hops(plan)
    dtypes = [plan.tasks[unit.task].dtype for unit in plan.units]
    seen = {op: bytearray(hops.count) for op in ("copy", "send", "recv")}
    pairs: dict[tuple[str, int, int], list[int]] = {}
    for device, steps in plan.programs.items():
        for step in steps:
            op, number, peer, nbytes, dtype = step
            node = hops.node(device, op, number, peer)
            if node < 0 or nbytes != transfers[number].nbytes:
                raise ReshardError(_complaint(plan, device, step))
            if dtype != dtypes[transfers[number].unit] or seen[op][node]:
                raise ReshardError(_complaint(plan, device, step))
            seen[op][node] = True
            pair = (op, device, peer)
            if pair in pairs:
                pairs[pair].append(number)
            else:
                pairs[pair] = [number]
    for t in transfers:
        ops = ("copy",) if len(t.path) == 1 else ("send", "recv")
        for op in ops:
            missing = seen[op].find(0, hops.first[t.id], hops.first[t.id + 1])
            if missing >= 0:
                device = t.path[missing - hops.first[t.id] + (op == "recv")]
                raise ReshardError(f"{name(t)}: device {device} does not list its {op}")
    for (op, a, b), sent in pairs.items():
        taken = pairs["recv", b, a] if op == "send" else sent
        if sent != taken:
            at = next(i for i, (x, y) in enumerate(zip(sent, taken, strict=True)) if x != y)
            raise ReshardError(
                f"{name(transfers[sent[at]])}: device {a} sends it to {b} where {b} expects "
                f"transfer {taken[at]}; both ends of a pair must keep one order"
            )


class _Hops:
    """A number for every hop of every transfer (a local copy counts as one)."""

    def __init__(self, plan: Plan) -> None:
        self.paths = [t.path for t in plan.transfers]
        self.at = [{device: i for i, device in enumerate(path)} for path in self.paths]
        self.first = list(accumulate((max(len(p) - 1, 1) for p in self.paths), initial=0))
        self.count = self.first[-1]

    def node(self, device: int, op: str, number: int, peer: int) -> int:
        """The hop that a step of ``device`` is one end of; -1 if there is none such."""
        if not 0 <= number < len(self.paths):
            return -1
        path, at = self.paths[number], self.at[number].get(device, -1)
        if op == "send" and 0 <= at < len(path) - 1 and path[at + 1] == peer:
            return self.first[number] + at
        if op == "recv" and at > 0 and path[at - 1] == peer:
            return self.first[number] + at - 1
        if op == "copy" and path == (device,) == (peer,):
            return self.first[number]
        return -1


def _complaint(plan: Plan, device: int, step: Step) -> str:
    """What is wrong with a step that ``check_ends`` found wrong."""
    if not 0 <= step.transfer < len(plan.transfers):
        return f"device {device} lists transfer {step.transfer}, which does not exist"
    t = plan.transfers[step.transfer]
    if step.op not in ("copy", "send", "recv"):
        return f"{name(t)}: device {device} has unknown step {step.op!r}"
    at = t.path.index(device) if device in t.path else -1
    partner = {"send": at + 1, "recv": at - 1, "copy": 0}[step.op]
    if at < 0 or not 0 <= partner < len(t.path) or (step.op == "copy") != (len(t.path) == 1):
        return f"{name(t)}: device {device} lists a {step.op} it has no part in"
    dtype = plan.tasks[plan.units[t.unit].task].dtype
    for given, right in (
        (f"with device {step.peer}", f"with device {t.path[partner]}"),
        (f"{step.nbytes} bytes", f"{t.nbytes} bytes"),
        (f"dtype {step.dtype}", f"dtype {dtype}"),
    ):
        if given != right:
            return f"{name(t)}: device {device} would {step.op} {given}, not {right}"
    return f"{name(t)}: device {device} lists its {step.op} twice"


def order_of_hops(plan: Plan) -> list[Hop]:
    """Point 3: every hop in an order in which each could be finished after those it waits for.

    A hop waits for the hop before it in its chain, for the step before it in the lanes of both
    its ends, and hop 0 for the last hop of every transfer in ``after``. In a plan without an
    order there are no lanes: what two devices exchange goes level by level of ``after``, and so
    waits for nothing that waits for it.
    """
    transfers = plan.transfers
    hops = _Hops(plan)
    base = hops.first
    waits = [0] * base[-1]
    unlocks: list[list[int]] = [[] for _ in range(base[-1])]

    def wait(first: int, then: int) -> None:
        unlocks[first].append(then)
        waits[then] += 1

    for t in transfers:
        for node in range(base[t.id] + 1, base[t.id + 1]):
            wait(node - 1, node)
        for other in t.after:
            wait(base[other + 1] - 1, base[t.id])
    for device, steps in plan.programs.items() if plan.ordered else ():
        last: dict[str, int] = {}
        for step in steps:
            if step.op == "copy":
                continue
            node = base[step.transfer] + hops.at[step.transfer][device] - (step.op == "recv")
            if step.op in last:
                wait(last[step.op], node)
            last[step.op] = node
    ready = deque(i for i, n in enumerate(waits) if n == 0)
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for then in unlocks[node]:
            waits[then] -= 1
            if waits[then] == 0:
                ready.append(then)
    owner = [t.id for t in transfers for _ in range(base[t.id], base[t.id + 1])]
    if len(order) < len(waits):
        cycle = _cycle(unlocks, [n > 0 for n in waits])
        chain = list(dict.fromkeys(owner[node] for node in cycle))
        raise ReshardError(
            f"{name(transfers[chain[0]])} waits for itself: transfers "
            f"{' -> '.join(map(str, [*chain, chain[0]]))} each wait for the next to be done"
        )
    return [(owner[node], node - base[owner[node]]) for node in order]


def _cycle(unlocks: list[list[int]], stuck: list[bool]) -> list[int]:
    """One cycle among the stuck nodes, each waiting for the next."""
    blocker: dict[int, int] = {}
    for node, then in enumerate(unlocks):
        if stuck[node]:
            for other in then:
                blocker[other] = node
    node = stuck.index(True)
    seen: dict[int, int] = {}
    walk: list[int] = []
    while node not in seen:
        seen[node] = len(walk)
        walk.append(node)
        node = blocker[node]
    return walk[seen[node] :]


def check_held(plan: Plan, pieces: _Pieces) -> None:
    """Point 4: the first device holds the payload, in its source piece or from ``after``."""
    for t in plan.transfers:
        number = plan.units[t.unit].task
        have = pieces.have[number].get(t.path[0])
        if have is not None and contains(have, t.box):
            continue
        arrived = [
            b
            for other in map(plan.transfers.__getitem__, t.after)
            if plan.units[other.unit].task == number and t.path[0] in other.path[1:]
            for b in span_boxes(other.box, other.span)
        ]
        payload = span_boxes(t.box, t.span)
        if not all(any(contains(a, b) for a in arrived) for b in payload):
            raise ReshardError(
                f"{name(t)} leaves device {t.path[0]}, which does not hold it by then: its source "
                f"piece is {'empty' if have is None else box_text(have)} and no transfer it waits "
                "for brings it"
            )


def check_written(plan: Plan, pieces: _Pieces) -> int:
    """Point 5; returns the number of elements written."""
    writes: dict[tuple[int, int], list[int]] = {}
    for t in plan.transfers:
        number = plan.units[t.unit].task
        for device in t.path if len(t.path) == 1 else t.path[1:]:
            writes.setdefault((number, device), []).append(t.id)
    for (number, device), ids in writes.items():
        if device not in pieces.need[number]:
            raise ReshardError(
                f"{name(plan.transfers[ids[0]])} writes to device {device}, which has no "
                f"destination piece of tensor {number}"
            )
    total = 0
    for check in (_check_inside, _check_once):
        total = 0
        proven: set[tuple[Box, tuple[int, ...]]] = set()  # replicas take in the same transfers
        for number, needed in enumerate(pieces.need):
            for device, piece in needed.items():
                taken = tuple(writes.get((number, device), ()))
                if (piece, taken) not in proven:
                    check(device, piece, [plan.transfers[i] for i in taken])
                    proven.add((piece, taken))
                total += box_volume(piece)
    return total


def _check_inside(device: int, piece: Box, transfers: list[Transfer]) -> None:
    """Raise unless the boxes of ``transfers`` lie in ``piece``."""
    for t in transfers:
        if not contains(piece, t.box):
            raise ReshardError(
                f"{name(t)} writes to device {device}, whose destination piece is {box_text(piece)}"
            )


def _check_once(device: int, piece: Box, transfers: list[Transfer]) -> None:
    """Raise unless ``transfers`` write every element of ``piece`` exactly once."""
    if not box_volume(piece):
        return
    written = [(box, t) for t in transfers for box in span_boxes(t.box, t.span)]
    fault = first_fault(piece, [box for box, _ in written])
    if fault is None:
        return
    where = f"{box_text(fault[0])} of the destination piece of device {device}"
    if not fault[1]:
        raise ReshardError(f"no transfer writes {where}")
    first, again = (written[i][1] for i in fault[1])
    raise ReshardError(
        f"{name(again)} writes {where} again, after transfer {first.id}; "
        "every element must be written once"
    )
