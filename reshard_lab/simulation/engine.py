"""The event loop: what starts when, what shares what, what ends when."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.simulation.crowd import Crowd
from reshard_lab.simulation.jobs import Jobs

_WAITING, _ALONE, _CROWDED, _DRAINED, _DONE = range(5)
_FIRST, _END = 0, 1


@dataclass(frozen=True, eq=False)
class Run:
    """What happened to every job."""

    start_s: np.ndarray
    end_s: np.ndarray
    cause: np.ndarray
    """The job whose end, or first chunk, let it start; -1 = it started at time 0."""
    held: np.ndarray
    """Whether its end was that of its feeder and one chunk more."""


def run(jobs: Jobs) -> Run:
    """Work all jobs off; raises if some wait for each other."""
    engine = _Engine(jobs)
    engine.loop()
    if engine.left:
        raise ReshardError(
            f"{engine.left} of {len(jobs)} transmissions wait for each other and never start; "
            "verify() names the transfers"
        )
    return Run(
        np.array(engine.start), np.array(engine.end), np.array(engine.cause), np.array(engine.held)
    )


class _Engine:
    """A job that has its ports to itself runs on a timetable; the others are in the crowd."""

    def __init__(self, jobs: Jobs) -> None:
        count = len(jobs)
        self.work = jobs.work_s.tolist()
        self.ports = [p if w else () for p, w in zip(jobs.ports, self.work, strict=True)]
        self.first = jobs.first_s.tolist()
        self.fed = jobs.fed.tolist()
        self.feeds = [*self.fed[1:], False]
        self.waits = jobs.waits.tolist()
        self.first_then, self.then = jobs.then
        self.on: list[set[int]] = [set() for _ in jobs.capacity_Bps]
        self.state = [_WAITING] * count
        self.begun = [False] * count
        """Whether the first chunk is through."""
        self.start = [math.nan] * count
        self.end = [math.nan] * count
        self.cause = [-1] * count
        self.held = [False] * count
        self.planned = [False] * count
        self.driver = [-1] * count
        """The nearest job before it in its chain that is, or was, in the crowd; -1 = none."""
        self.stamp = [0] * count
        """Entries of the timetable with an older stamp do not count any more."""
        self.table: list[tuple[float, int, int, int]] = []
        self.crowd = Crowd(jobs)
        self.left = count

    def loop(self) -> None:
        for job, waits in enumerate(self.waits):
            if waits == 0:
                self.begin(job, 0.0)
        self.crowd.settle(0.0)
        table, crowd = self.table, self.crowd
        while True:
            now = min(table[0][0] if table else math.inf, crowd.next)
            if now == math.inf:
                return
            firsts, ended = crowd.due(now)
            for job in firsts:
                self.first_through(job, now)
            for job in ended:
                self.drained(job, now)
            while table and table[0][0] <= now:
                _, kind, job, stamp = heapq.heappop(table)
                if stamp == self.stamp[job]:
                    if kind == _FIRST:
                        self.first_through(job, now)
                    else:
                        self.finish(job, now)
            crowd.settle(now)

    def begin(self, job: int, now: float) -> None:
        """All that ``job`` waited for is there."""
        self.start[job] = now
        others = [other for p in self.ports[job] for other in self.on[p]]
        for p in self.ports[job]:
            self.on[p].add(job)
        self.state[job] = _ALONE
        if self.fed[job]:
            before = self.state[job - 1]
            self.driver[job] = job - 1 if before == _CROWDED else self.driver[job - 1]
        if others or self.outrun(job):
            for other in (*others, job):
                self.crowd_in(other, now)
            return
        if self.feeds[job]:
            self.at(now + self.first[job], _FIRST, job)
        if not self.fed[job] or self.state[job - 1] == _DONE:
            self.plan_end(job, now)

    def plan_end(self, job: int, now: float) -> None:
        """The feeder of ``job``, which is alone on its ports, has ended (or there is none)."""
        self.planned[job] = True
        end = self.start[job] + self.work[job]
        if self.fed[job]:
            last = self.end[job - 1] + self.first[job]
            self.held[job] = last > end
            end = max(end, last)
        self.at(max(end, now), _END, job)

    def at(self, time: float, kind: int, job: int) -> None:
        heapq.heappush(self.table, (time, kind, job, self.stamp[job]))

    def outrun(self, job: int) -> bool:
        """Whether a job it follows, whose speed may change, can be faster: data may pile up."""
        driver = self.driver[job]
        if driver < 0 or self.state[driver] != _CROWDED:
            return False
        return self.first[job] > self.first[driver] * (1 + 1e-12)

    def crowd_in(self, job: int, now: float) -> None:
        """A job is not alone any more: it joins the crowd with those of its chain that matter.

        Before it: all that have ports, so that others can come in their way, or are slower.
        After it: those that are slower, down to the next that is in the crowd already.
        """
        if self.state[job] != _ALONE:
            return
        joining, back = [job], job
        while self.fed[back] and self.state[back - 1] == _ALONE:
            back -= 1
            if self.ports[back] or self.first[back] > self.first[job]:
                joining.append(back)
        for member in reversed(joining):
            self.join(member, now)
        driver = after = joining[-1]
        while self.feeds[after] and self.state[after + 1] in (_ALONE, _CROWDED):
            after += 1
            self.driver[after] = driver
            if self.state[after] == _ALONE and self.outrun(after):
                self.join(after, now)
            if self.state[after] == _CROWDED:
                driver = after

    def join(self, job: int, now: float) -> None:
        """Put one job into the crowd, as far as it has come on its own."""
        done = self.progress(job, now)
        delay = 0.0
        leader, back = -1, job
        while leader < 0 and self.fed[back] and self.state[back - 1] in (_ALONE, _CROWDED):
            back -= 1
            if self.state[back] == _CROWDED:
                leader = back
            else:
                delay += self.first[back]
        lag = delay / self.work[leader] if leader >= 0 else 0.0
        starting = not self.begun[job] and (self.feeds[job] or leader >= 0)
        self.state[job] = _CROWDED
        self.stamp[job] += 1
        self.crowd.add(job, now, done, starting, leader, lag)

    def progress(self, job: int, now: float) -> float:
        """The part of a job alone on its ports that is through by ``now``."""
        if now == self.start[job]:
            return 0.0
        part, back, delay = 1.0, job, 0.0
        while True:
            work = self.work[back]
            if self.state[back] == _CROWDED:
                self.crowd.advance(now)
                own = float(self.crowd.done[back])
            elif work == 0:
                own = 1.0
            elif self.fed[back] and self.state[back - 1] == _DONE:
                end = max(self.start[back] + work, self.end[back - 1] + self.first[back])
                own = min((now - self.start[back]) / work, 1 - (end - now) / work)
            else:
                own = (now - self.start[back]) / work
            part = min(part, own - (delay / work if work else 0.0))
            if self.state[back] == _CROWDED or not self.fed[back]:
                break
            if self.state[back - 1] not in (_ALONE, _CROWDED):
                break
            back -= 1
            delay += self.first[back]
        return max(part, 0.0)

    def first_through(self, job: int, now: float) -> None:
        """The first chunk of ``job`` is there: what it feeds may start."""
        self.begun[job] = True
        if self.feeds[job]:
            self.release(job + 1, job, now)

    def drained(self, job: int, now: float) -> None:
        """The crowd is done with ``job``; its last chunk is not ahead of the feeder's."""
        self.state[job] = _DRAINED
        if not self.fed[job]:
            self.finish(job, now)
        elif self.state[job - 1] == _DONE:
            self.at(max(now, self.end[job - 1] + self.first[job]), _END, job)

    def finish(self, job: int, now: float) -> None:
        self.state[job] = _DONE
        self.end[job] = now
        self.left -= 1
        for p in self.ports[job]:
            self.on[p].discard(job)
        if not self.begun[job]:
            self.first_through(job, now)
        if self.feeds[job]:
            self.feeder_ended(job + 1, now)
        for other in self.then[self.first_then[job] : self.first_then[job + 1]]:
            self.release(other, job, now)

    def feeder_ended(self, job: int, now: float) -> None:
        """The last chunk has come in for ``job``."""
        if self.state[job] == _DRAINED:
            self.held[job] = True
            self.at(now + self.first[job], _END, job)
        elif self.state[job] == _CROWDED:
            self.crowd.advance(now)
            missing = (1 - self.crowd.done[job]) * self.work[job]
            self.held[job] = bool(missing <= 1.5 * self.first[job])
        elif self.state[job] == _ALONE and not self.planned[job]:
            self.plan_end(job, now)

    def release(self, job: int, by: int, now: float) -> None:
        self.waits[job] -= 1
        if self.waits[job] == 0:
            self.cause[job] = by
            self.begin(job, now)
