"""The event loop: what starts when, what shares what, what ends when."""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.simulation.contention import ContendingFlows
from reshard_lab.simulation.flows import Flows

_WAITING, _ALONE, _CONTENDING, _DRAINED, _DONE = range(5)
_FIRST, _END = 0, 1


@dataclass(frozen=True, eq=False)
class FlowTimes:
    """What happened to every flow."""

    start_s: np.ndarray
    end_s: np.ndarray
    cause: np.ndarray
    """The flow whose end, or first chunk, let it start; -1 = it started at time 0."""
    held: np.ndarray
    """Whether its end was that of its feeder and one chunk more."""


def run(flows: Flows) -> FlowTimes:
    """Work all flows off; raises if some wait for each other."""
    engine = _Engine(flows)
    engine.loop()
    stuck = len(flows) - engine.state.count(_DONE)
    if stuck:
        raise ReshardError(
            f"{stuck} of {len(flows)} transmissions wait for each other and never "
            "start; verify() names the transfers"
        )
    return FlowTimes(
        np.array(engine.start), np.array(engine.end), np.array(engine.cause), np.array(engine.held)
    )


class _Engine:
    """A flow that has its ports to itself runs on a timetable; the others contend for them.

    Lists hold all flows by number; docs/simulator.md derives what is done here.
    """

    def __init__(self, flows: Flows) -> None:
        count = len(flows)
        self.work = flows.work_s.tolist()
        self.ports = [p if w else () for p, w in zip(flows.ports, self.work, strict=True)]
        self.first = flows.first_s.tolist()
        self.fed = flows.fed.tolist()
        self.feeds = [*self.fed[1:], False]
        self.waits = flows.waits.tolist()
        self.offsets, self.waiting = flows.waiting
        self.users: list[set[int]] = [set() for _ in flows.capacity_Bps]
        self.state = [_WAITING] * count
        self.under_way = [False] * count
        """Whether the first chunk is through."""
        self.start = [math.nan] * count
        self.end = [math.nan] * count
        self.cause = [-1] * count
        self.held = [False] * count
        self.end_known = [False] * count
        self.driver = [-1] * count
        """The nearest flow before it in its chain that contends, or did; -1 = none."""
        self.stamp = [0] * count
        """Entries of the timetable with an older stamp do not count any more."""
        self.timetable: list[tuple[float, int, int, int]] = []
        self.contending = ContendingFlows(flows)

    def loop(self) -> None:
        for flow, waits in enumerate(self.waits):
            if waits == 0:
                self.begin(flow, 0.0)
        self.contending.share_ports(0.0)
        timetable, contending = self.timetable, self.contending
        while True:
            now = min(timetable[0][0] if timetable else math.inf, contending.next_event)
            if now == math.inf:
                return
            firsts, ended = contending.take_due(now)
            for flow in firsts:
                self.first_chunk_through(flow, now)
            for flow in ended:
                self.drained(flow, now)
            while timetable and timetable[0][0] <= now:
                _, kind, flow, stamp = heapq.heappop(timetable)
                if stamp == self.stamp[flow]:
                    if kind == _FIRST:
                        self.first_chunk_through(flow, now)
                    else:
                        self.finish(flow, now)
            contending.share_ports(now)

    def begin(self, flow: int, now: float) -> None:
        """All that ``flow`` waited for is there."""
        self.start[flow] = now
        others = [other for p in self.ports[flow] for other in self.users[p]]
        for p in self.ports[flow]:
            self.users[p].add(flow)
        self.state[flow] = _ALONE
        if self.fed[flow]:
            before = self.state[flow - 1]
            self.driver[flow] = flow - 1 if before == _CONTENDING else self.driver[flow - 1]
        if others or self.may_fall_behind(flow):
            for other in (*others, flow):
                self.start_contending(other, now)
            return
        if self.feeds[flow]:
            self.schedule(now + self.first[flow], _FIRST, flow)
        if not self.fed[flow] or self.state[flow - 1] == _DONE:
            self.schedule_end(flow, now)

    def schedule_end(self, flow: int, now: float) -> None:
        """The feeder of ``flow``, which is alone on its ports, has ended (or there is none)."""
        self.end_known[flow] = True
        end = self.start[flow] + self.work[flow]
        if self.fed[flow]:
            last = self.end[flow - 1] + self.first[flow]
            self.held[flow] = last > end
            end = max(end, last)
        self.schedule(max(end, now), _END, flow)

    def schedule(self, time: float, kind: int, flow: int) -> None:
        heapq.heappush(self.timetable, (time, kind, flow, self.stamp[flow]))

    def may_fall_behind(self, flow: int) -> bool:
        """Whether a flow it follows, whose speed may change, can be faster: data may pile up."""
        driver = self.driver[flow]
        if driver < 0 or self.state[driver] != _CONTENDING:
            return False
        return self.first[flow] > self.first[driver] * (1 + 1e-12)

    def start_contending(self, flow: int, now: float) -> None:
        """A flow is not alone any more: it contends, with those of its chain that matter.

        Before it: all that have ports, so that others can come in their way, or are slower.
        After it: those that are slower, down to the next that contends already.
        """
        if self.state[flow] != _ALONE:
            return
        joining, back = [flow], flow
        while self.fed[back] and self.state[back - 1] == _ALONE:
            back -= 1
            if self.ports[back] or self.first[back] > self.first[flow]:
                joining.append(back)
        for other in reversed(joining):
            self.contend(other, now)
        driver = after = joining[-1]
        while self.feeds[after] and self.state[after + 1] in (_ALONE, _CONTENDING):
            after += 1
            self.driver[after] = driver
            if self.state[after] == _ALONE and self.may_fall_behind(after):
                self.contend(after, now)
            if self.state[after] == _CONTENDING:
                driver = after

    def contend(self, flow: int, now: float) -> None:
        """Take one flow from the timetable, as far as it has come, to the contending ones."""
        done = self.done_part(flow, now)
        delay = 0.0
        leader, back = -1, flow
        while leader < 0 and self.fed[back] and self.state[back - 1] in (_ALONE, _CONTENDING):
            back -= 1
            if self.state[back] == _CONTENDING:
                leader = back
            else:
                delay += self.first[back]
        lag = delay / self.work[leader] if leader >= 0 else 0.0
        starting = not self.under_way[flow] and (self.feeds[flow] or leader >= 0)
        self.state[flow] = _CONTENDING
        self.stamp[flow] += 1
        self.contending.add(flow, now, done, starting, leader, lag)

    def done_part(self, flow: int, now: float) -> float:
        """The part of a flow alone on its ports that is through by ``now``."""
        if now == self.start[flow]:
            return 0.0
        part, back, delay = 1.0, flow, 0.0
        while True:
            work = self.work[back]
            if self.state[back] == _CONTENDING:
                self.contending.advance(now)
                own = float(self.contending.done[back])
            elif work == 0:
                own = 1.0
            elif self.fed[back] and self.state[back - 1] == _DONE:
                end = max(self.start[back] + work, self.end[back - 1] + self.first[back])
                own = min((now - self.start[back]) / work, 1 - (end - now) / work)
            else:
                own = (now - self.start[back]) / work
            part = min(part, own - (delay / work if work else 0.0))
            if self.state[back] == _CONTENDING or not self.fed[back]:
                break
            if self.state[back - 1] not in (_ALONE, _CONTENDING):
                break
            back -= 1
            delay += self.first[back]
        return max(part, 0.0)

    def first_chunk_through(self, flow: int, now: float) -> None:
        """The first chunk of ``flow`` is there: what it feeds may start."""
        self.under_way[flow] = True
        if self.feeds[flow]:
            self.release(flow + 1, flow, now)

    def drained(self, flow: int, now: float) -> None:
        """A contending flow is through, but for a last chunk that the feeder has yet to bring."""
        self.state[flow] = _DRAINED
        if not self.fed[flow]:
            self.finish(flow, now)
        elif self.state[flow - 1] == _DONE:
            self.schedule(max(now, self.end[flow - 1] + self.first[flow]), _END, flow)

    def finish(self, flow: int, now: float) -> None:
        self.state[flow] = _DONE
        self.end[flow] = now
        for p in self.ports[flow]:
            self.users[p].discard(flow)
        if not self.under_way[flow]:
            self.first_chunk_through(flow, now)
        if self.feeds[flow]:
            self.feeder_ended(flow + 1, now)
        for other in self.waiting[self.offsets[flow] : self.offsets[flow + 1]]:
            self.release(other, flow, now)

    def feeder_ended(self, flow: int, now: float) -> None:
        """The last chunk has come in for ``flow``."""
        if self.state[flow] == _DRAINED:
            self.held[flow] = True
            self.schedule(now + self.first[flow], _END, flow)
        elif self.state[flow] == _CONTENDING:
            self.contending.advance(now)
            missing = (1 - self.contending.done[flow]) * self.work[flow]
            self.held[flow] = bool(missing <= 1.5 * self.first[flow])
        elif self.state[flow] == _ALONE and not self.end_known[flow]:
            self.schedule_end(flow, now)

    def release(self, flow: int, by: int, now: float) -> None:
        self.waits[flow] -= 1
        if self.waits[flow] == 0:
            self.cause[flow] = by
            self.begin(flow, now)
