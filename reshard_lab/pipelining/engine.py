"""When every item of a schedule starts and ends: alone on their lanes, or sharing NICs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reshard_lab.max_min import max_min, port_table
from reshard_lab.pipelining.graph import Graph
from reshard_lab.pipelining.loads import Load, Port

_FIXED = -1  # version of the one event of an item that shares nothing
_FULL = 1 + 1e-9  # shares of a port that sum to this much fit side by side


def carry_out(graph: Graph) -> tuple[list[float], list[float]]:
    """Start and end of every item, in seconds; an item starts when those before it have ended.

    Transfers that want more of a NIC than it has slow each other: each runs at a fraction of its
    own speed, and the fractions are max-min fair.
    """
    contended = _contended(graph)
    return _SharedNics(graph, contended).run() if contended else _alone(graph)


def _alone(graph: Graph) -> tuple[list[float], list[float]]:
    starts: list[float] = []
    ends: list[float] = []
    first, after = graph.first, graph.after
    for item, load in enumerate(graph.loads):
        start = 0.0
        for i in after[first[item] : first[item + 1]]:
            if ends[i] > start:
                start = ends[i]
        starts.append(start)
        ends.append(start + load.duration_s)
    return starts, ends


def _contended(graph: Graph) -> frozenset[Port]:
    """Ports that transfers on different links could want more of than there is."""
    wanted: dict[Port, dict[tuple[int, int], float]] = {}
    for stage, target, load in set(zip(graph.stages, graph.targets, graph.loads, strict=True)):
        for port, share in load.ports:
            links = wanted.setdefault(port, {})
            links[stage, target] = max(share, links.get((stage, target), 0.0))
    return frozenset(port for port, links in wanted.items() if sum(links.values()) > _FULL)


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

    def __init__(self, graph: Graph, contended: frozenset[Port]) -> None:
        self.graph = graph
        self.loads = graph.loads
        self.contended = contended
        self.starts = [0.0] * len(graph.loads)
        self.ends = [0.0] * len(graph.loads)
        self.flows: dict[int, _Flow] = {}
        self.users: dict[Port, set[int]] = {port: set() for port in contended}
        self.events: list[tuple[float, int, int]] = []  # (end, item, version), a heap
        self.known: dict[tuple[int, ...], tuple[float, ...]] = {}

    def run(self) -> tuple[list[float], list[float]]:
        count = len(self.loads)
        waits = [len(self.graph.before(i)) for i in range(count)]
        behind: list[list[int]] = [[] for _ in range(count)]
        for number in range(count):
            for i in self.graph.before(number):
                behind[i].append(number)
        for number, count in enumerate(waits):
            if not count:
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

    def start(self, number: int, now: float) -> None:
        """Begin an item; one that uses a contended port becomes a flow."""
        self.starts[number] = now
        load = self.loads[number]
        ports = [port for port, _ in load.ports if port in self.contended]
        if not ports:
            heapq.heappush(self.events, (now + load.duration_s, number, _FIXED))
            return
        self.flows[number] = _Flow(load.duration_s, now)
        for port in ports:
            self.users[port].add(number)
        self.share({number}, now)

    def leave(self, number: int, now: float) -> None:
        """End a flow; those it shared ports with speed up."""
        del self.flows[number]
        beside = set()
        for port, _ in self.loads[number].ports:
            if port in self.contended:
                self.users[port].discard(number)
                beside |= self.users[port]
        if beside:
            self.share(beside, now)

    def share(self, seeds: set[int], now: float) -> None:
        """Set the speeds of the flows that share ports with ``seeds``, or with those, and so on."""
        together, reach = set(seeds), list(seeds)
        while reach:
            for port, _ in self.loads[reach.pop()].ports:
                more = self.users.get(port, set()) - together
                together |= more
                reach += more
        numbers = sorted(together)
        loads = [self.loads[n] for n in numbers]
        key = tuple(map(id, loads))
        if key not in self.known:
            self.known[key] = fair_speeds(loads, self.contended)
        for n, speed in zip(numbers, self.known[key], strict=True):
            flow = self.flows[n]
            if speed != flow.speed:
                flow.todo_s = max(0.0, flow.todo_s - (now - flow.since_s) * flow.speed)
                flow.since_s, flow.speed = now, speed
                flow.version += 1
                heapq.heappush(self.events, (now + flow.todo_s / speed, n, flow.version))


def fair_speeds(loads: Sequence[Load], ports: frozenset[Port]) -> tuple[float, ...]:
    """Max-min fair speeds of transfers side by side, each as a fraction of its speed alone.

    All grow together until a port is full; those that use it stop there, the others go on, to
    full speed at most. (The shares of a transfer are means over its duration: that it may load
    a port unevenly is left out.)

    >>> tx, rx = ("tx", 0), ("rx", 1)
    >>> both = Load(1.0, ((tx, 1.0), (rx, 1.0)))
    >>> fair_speeds([Load(1.0, ((tx, 1.0),)), both, Load(1.0, ((rx, 0.4),))], frozenset({tx, rx}))
    (0.5, 0.5, 1.0)
    """
    used = [[(port, share) for port, share in load.ports if port in ports] for load in loads]
    table = port_table(used)
    full_speed = np.ones(len(loads))
    return tuple(max_min(table.ports, table.capacity, full_speed, weight=table.weight).tolist())
