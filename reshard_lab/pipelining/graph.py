"""A schedule as items (ops and transfers), what each waits for, and when each starts and ends.

Lanes, on which items follow one another (the pipeline model of the design):

- overlapped: one lane a stage, one a link. A link joins two meshes in one direction; it takes
  transfers in the order in which its stage makes them.
- blocking: one lane a stage. A transfer is a rendezvous and occupies the lanes of both stages.
  All stages take part in transfers in one global order: the tick of the op that makes the data,
  then source stage, then destination stage; within a tick compute comes first.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reshard_lab.max_min import max_min, port_table
from reshard_lab.pipelining.loads import BoundaryTensor, Load, Port
from reshard_lab.pipelining.ops import FORWARD, WEIGHT_GRADIENT, Checked, OpLists, StageOp

_FIXED = -1  # version of the one event of an item that shares nothing
_FULL = 1 + 1e-9  # shares of a port that sum to this much fit side by side


class Graph(NamedTuple):
    """Items by column, which is quick to read: ops on stages, and transfers of their results."""

    ops: list[StageOp]
    """The op itself, or the one whose result is carried."""
    stages: list[int]
    """The stage that runs or sends."""
    targets: list[int]
    """The stage that receives; -1 for an op."""
    tensors: list[int]
    """Which boundary tensor, or whose gradient, is carried; -1 for an op."""
    loads: list[Load]
    first: list[int]
    """Where the entries of an item begin in ``after``; one more than there are items."""
    after: list[int]
    """Items that must have ended before an item starts, all before it in order; of a transfer
    the first is the op that makes the data."""

    def before(self, item: int) -> list[int]:
        return self.after[self.first[item] : self.first[item + 1]]

    def computed(self) -> Iterator[tuple[int, StageOp, int]]:
        """The ops among the items: number, op and stage."""
        columns = enumerate(zip(self.ops, self.stages, self.targets, strict=True))
        return ((item, op, stage) for item, (op, stage, target) in columns if target < 0)

    def links(self) -> list[tuple[int, int]]:
        """Ordered pairs of stages of which the first sends to the second."""
        ends = zip(self.stages, self.targets, strict=True)
        return sorted({(a, b) for a, b in ends if b >= 0})


def build(
    checked: Checked,
    compute: Mapping[tuple[str, int], Load],
    tensors: Sequence[BoundaryTensor],
    transfers: Sequence[tuple[Load, Load]],
    overlap: bool,
) -> Graph:
    """The items of a schedule, in an order in which they can all be carried out.

    compute: load by kind and model chunk, as ``("F", 0)``; tensors: those of neighbours first;
    transfers: the loads of each tensor and of its gradient.
    """
    lists = checked.lists
    count, width = lists.stages, lists.microbatches
    inputs, local, sent = _chunk_ends(tensors, lists)
    rows = _items(checked, tensors, sent, overlap)
    loads: list[Load] = []
    first, after = [0], []
    lane = [-1] * (count * (count + 1))  # the last item of each stage, then of each link
    # By [forward or not][model chunk or tensor][microbatch]: op that makes it, item that brings it
    producer = [[[0] * width for _ in range(lists.model_chunks)] for _ in range(2)]
    arrival = [[[0] * width for _ in tensors] for _ in range(2)]
    for item, ((kind, m, chunk), stage, target, tensor, _) in enumerate(rows):
        forward = kind == FORWARD
        model_chunk = chunk * count + stage
        if target < 0:
            loads.append(compute[kind, model_chunk])
            lanes: tuple[int, ...] = (stage,)
            if kind != WEIGHT_GRADIENT:
                producer[forward][model_chunk][m] = item
                after += [arrival[forward][t][m] for t in inputs[forward][model_chunk]]
                for t in local[forward][model_chunk]:
                    arrival[forward][t][m] = item
        else:
            loads.append(transfers[tensor][0 if forward else 1])
            lanes = (count * (stage + 1) + target,) if overlap else (stage, target)
            after.append(producer[forward][model_chunk][m])
            arrival[forward][tensor][m] = item
        for number in lanes:
            if lane[number] >= 0:
                after.append(lane[number])
            lane[number] = item
        first.append(len(after))
    ops, stages, targets, carried, _ = map(list, zip(*rows, strict=True))
    return Graph(ops, stages, targets, carried, loads, first, after)


_Ends = list[list[list[int]]]
"""By [forward or not][model chunk]: numbers of boundary tensors."""


def _chunk_ends(tensors: Sequence[BoundaryTensor], lists: OpLists) -> tuple[_Ends, _Ends, _Ends]:
    """The tensors (or their gradients) that an op takes in, hands on in its stage, and sends."""
    width = lists.model_chunks
    three: list[_Ends] = [[[[] for _ in range(width)] for _ in range(2)] for _ in range(3)]
    inputs, local, sent = three
    for number, tensor in enumerate(tensors):
        there = (tensor.from_stage, tensor.to_stage)
        stays = (there[1] - there[0]) % lists.stages == 0
        for forward, (a, b) in enumerate((there[::-1], there)):
            inputs[forward][b].append(number)
            (local if stays else sent)[forward][a].append(number)
    return inputs, local, sent


def _items(
    checked: Checked, tensors: Sequence[BoundaryTensor], sent: _Ends, overlap: bool
) -> list[tuple[StageOp, int, int, int, int]]:
    """Op, stage, target, tensor and tick of every item; overlapped, transfers behind the op they
    follow, blocking, in the global order.
    """
    lists = checked.lists
    rows: list[tuple[StageOp, int, int, int, int]] = []
    for stage, position, tick in checked.order:
        op = lists.ops[stage][position]
        rows.append((op, stage, -1, -1, tick))
        if op.kind == WEIGHT_GRADIENT:
            continue
        forward = op.kind == FORWARD
        for number in sent[forward][op.chunk * lists.stages + stage]:
            target = tensors[number].to_stage if forward else tensors[number].from_stage
            rows.append((op, stage, target % lists.stages, number, tick))
    if not overlap:
        rows.sort(key=lambda row: (row[4], row[2] >= 0, *row[1:4]))
    return rows


def carry_out(graph: Graph) -> tuple[list[float], list[float]]:
    """Start and end of every item, in seconds; an item starts when those before it have ended.

    Transfers that want more of a NIC than it has slow each other: each runs at a fraction of its
    own speed, and the fractions are max-min fair. (The shares of a transfer are means over its
    duration: that it may load a port unevenly is left out.)
    """
    ports = _contended(graph)
    if ports:
        return _SharedNics(graph, ports).run()
    starts: list[float] = []
    ends: list[float] = []
    for item, load in enumerate(graph.loads):
        starts.append(max((ends[i] for i in graph.before(item)), default=0.0))
        ends.append(starts[-1] + load.duration_s)
    return starts, ends


def _contended(graph: Graph) -> list[Port]:
    """Ports that transfers on different links could want more of than there is."""
    wanted: dict[Port, dict[tuple[int, int], float]] = {}
    for stage, target, load in set(zip(graph.stages, graph.targets, graph.loads, strict=True)):
        for port, share in load.ports:
            links = wanted.setdefault(port, {})
            links[stage, target] = max(share, links.get((stage, target), 0.0))
    return [port for port, links in wanted.items() if sum(links.values()) > _FULL]


@dataclass
class _Flow:
    """A transfer under way through contended ports."""

    todo_s: float
    """Seconds to go at full speed, as of ``since_s``."""
    since_s: float
    speed: float = 0.0
    version: int = 0
    """Counts changes of speed: an end foreseen before the last of them is void."""


class _SharedNics:
    """Events in time order; a change of traffic alters only the flows it shares ports with."""

    def __init__(self, graph: Graph, contended: list[Port]) -> None:
        self.graph = graph
        self.loads = graph.loads
        self.starts = [0.0] * len(graph.loads)
        self.ends = [0.0] * len(graph.loads)
        self.flows: dict[int, _Flow] = {}
        self.users: dict[Port, set[int]] = {port: set() for port in contended}
        self.events: list[tuple[float, int, int]] = []  # (end, item, version), a heap
        self.known: dict[tuple[int, ...], tuple[float, ...]] = {}

    def run(self) -> tuple[list[float], list[float]]:
        waits = []
        behind: list[list[int]] = [[] for _ in self.loads]
        for number in range(len(self.loads)):
            before = self.graph.before(number)
            waits.append(len(before))
            for i in before:
                behind[i].append(number)
            if not before:
                self.start(number, 0.0)
        while self.events:
            now, done, version = heapq.heappop(self.events)
            if version != _FIXED:
                flow = self.flows.get(done)
                if flow is None or flow.version != version:
                    continue
                self.leave(done, now)
            self.ends[done] = now
            for number in behind[done]:
                waits[number] -= 1
                if not waits[number]:
                    self.start(number, now)
        return self.starts, self.ends

    def uses(self, number: int) -> list[tuple[Port, float]]:
        """The contended ports of an item, and its share of each."""
        return [use for use in self.loads[number].ports if use[0] in self.users]

    def start(self, number: int, now: float) -> None:
        """Begin an item; one that uses a contended port becomes a flow."""
        self.starts[number] = now
        uses, duration = self.uses(number), self.loads[number].duration_s
        if not uses:
            heapq.heappush(self.events, (now + duration, number, _FIXED))
            return
        self.flows[number] = _Flow(duration, now)
        for port, _ in uses:
            self.users[port].add(number)
        self.share({number}, now)

    def leave(self, number: int, now: float) -> None:
        """End a flow; those it shared ports with speed up."""
        del self.flows[number]
        beside = set()
        for port, _ in self.uses(number):
            self.users[port].discard(number)
            beside |= self.users[port]
        if beside:
            self.share(beside, now)

    def share(self, seeds: set[int], now: float) -> None:
        """Set the speeds of the flows that share ports with ``seeds``, or with those, and so on."""
        together, reach = set(seeds), list(seeds)
        while reach:
            for port, _ in self.uses(reach.pop()):
                more = self.users[port] - together
                together |= more
                reach += more
        numbers = sorted(together)
        key = tuple(id(self.loads[n]) for n in numbers)
        if key not in self.known:
            table, full_speed = port_table([self.uses(n) for n in numbers]), np.ones(len(numbers))
            speeds = max_min(table.ports, table.capacity, full_speed, weight=table.weight)
            self.known[key] = tuple(speeds.tolist())
        for n, speed in zip(numbers, self.known[key], strict=True):
            flow = self.flows[n]
            if speed != flow.speed:
                flow.todo_s = max(0.0, flow.todo_s - (now - flow.since_s) * flow.speed)
                flow.since_s, flow.speed = now, speed
                flow.version += 1
                heapq.heappush(self.events, (now + flow.todo_s / speed, n, flow.version))
