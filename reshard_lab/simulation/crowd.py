"""The jobs that share ports at the moment, with the rates they share them at."""

from __future__ import annotations

import numpy as np

from reshard_lab.max_min import headroom, max_min
from reshard_lab.simulation.jobs import Jobs

_SAME_PART = 1e-9
"""Part of a job that does not count when two jobs of a chain are compared."""
_SAME_TIME = 1e-12
"""Relative difference below which two times are one."""


class Crowd:
    """Jobs in each other's way. ``done`` is the part of a job that is through, 0 to 1."""

    def __init__(self, jobs: Jobs) -> None:
        count, spare = len(jobs), len(jobs.capacity_Bps)
        width = max(map(len, jobs.ports), default=0)
        self.ports = np.array(
            [p + (spare,) * (width - len(p)) for p in jobs.ports], dtype=np.int64
        ).reshape(count, width)
        self.capacity = np.append(jobs.capacity_Bps, np.inf)
        self.work = jobs.work_s
        self.full_rate = np.where(np.isfinite(jobs.rate_Bps), jobs.rate_Bps, 1.0)
        """Bytes a second alone (any number will do for a job of infinite speed: it has no port)."""
        self.first = np.divide(jobs.first_s, jobs.work_s, out=np.ones(count), where=jobs.work_s > 0)
        self.done = np.zeros(count)
        self.speed = np.zeros(count)
        """Part of the job a second."""
        self.leader = np.full(count, -1)
        """The nearest job before it in the chain that is in the crowd."""
        self.lag = np.zeros(count)
        """Part of the leader that goes through while a chunk passes the jobs between the two."""
        self.duty = np.ones(count)
        """Part of the time a job is moving a chunk: under 1 where its leader is slower, so that
        a whole chunk comes in before it moves on, and then moves fast."""
        self.starting = np.zeros(count, dtype=bool)
        """Whether the first chunk is not through yet."""
        self.inside = np.zeros(count, dtype=bool)
        self.slot = np.zeros(count, dtype=np.int64)
        self.ids = np.zeros(0, dtype=np.int64)
        self.time = 0.0
        self.next = np.inf
        """When something happens in here, as long as nobody comes or goes."""
        self.meeting = np.inf
        """When the first job meets its leader, likewise."""
        self.stale = False
        self.new: list[int] = []

    def add(
        self, job: int, now: float, done: float, starting: bool, leader: int, lag: float
    ) -> None:
        """Take in a job that is ``done`` in part."""
        self.advance(now)
        self.done[job], self.starting[job] = done, starting
        self.leader[job], self.lag[job] = leader, lag
        self.speed[job] = 0.0
        self.inside[job] = True
        self.new.append(job)
        self.stale = True

    def due(self, now: float) -> tuple[list[int], list[int]]:
        """Jobs whose first chunk is through by ``now``, and jobs that are; these leave."""
        if now < self.next:
            return [], []
        self.advance(now)
        ids, speed = self.ids, self.speed[self.ids]
        slack = speed * (_SAME_TIME * now)
        firsts = ids[self.starting[ids] & (self.done[ids] + slack >= self.first[ids])]
        ended = ids[self.done[ids] + slack >= 1.0]
        self.starting[firsts] = False
        self.inside[ended] = False
        if len(ended) or not len(firsts) or (self.leader[firsts] >= 0).any():
            self.stale = True
        else:  # rates stay; only the next event has to be found
            self.next = now + self._until_next()
        return firsts.tolist(), ended.tolist()

    def settle(self, now: float) -> None:
        """Share the ports anew after jobs came or went."""
        if not self.stale:
            return
        self.advance(now)
        ids = np.sort(np.concatenate((self.ids, np.array(self.new, dtype=np.int64))))
        self.ids = ids = ids[self.inside[ids]]
        self.new, self.stale, self.next = [], False, np.inf
        if not len(ids):
            return
        self.slot[ids] = np.arange(len(ids))
        leader = self.leader[ids]
        led = (leader >= 0) & self.inside[leader] & ~self.starting[ids]
        leader = np.where(led, leader, ids)
        even = _SAME_PART + 10 * _SAME_TIME * now * (1 / self.work[ids] + 1 / self.work[leader])
        relayed = led.any() and bool((led & led[self.slot[leader]]).any())
        for _ in range(3 if relayed else 1):
            ahead = self.duty[leader] * self.first[leader] + self.lag[ids]
            behind = np.where(led, self.done[leader] - ahead - self.done[ids], np.inf)
            held = led & (np.abs(behind) <= even)
            rate = self._rates(ids, leader, held, behind < -even)
            if not relayed or self._same_duty(ids, held | (behind < -even), rate):
                break
        self.speed[ids] = rate / (self.full_rate[ids] * self.work[ids])
        apart = led & ~held
        self.meeting = self._meetings(behind[apart], ids[apart], leader[apart]) + now
        self.next = now + self._until_next()

    def _rates(
        self, ids: np.ndarray, leader: np.ndarray, held: np.ndarray, idle: np.ndarray
    ) -> np.ndarray:
        """Bytes a second of every job; of an ``idle`` one the next chunk is not there."""
        full = self.full_rate[ids]
        cap = np.where(idle, 0.0, full)
        if not held.any():
            return max_min(self.ports[ids], self.capacity, cap)
        whole, slot = full * self.work[ids], self.slot[leader]
        follow = np.where(held, slot, -1)
        return max_min(self.ports[ids], self.capacity, cap, follow, whole / whole[slot])

    def _same_duty(self, ids: np.ndarray, waits: np.ndarray, rate: np.ndarray) -> bool:
        """Note how busy the jobs are that wait for their data; whether nothing changed."""
        could = headroom(self.ports[ids], self.capacity, rate)
        most = np.minimum(self.full_rate[ids], could)
        duty = np.where(waits, np.minimum(1.0, rate / most), 1.0)
        same = bool(np.abs(duty - self.duty[ids]).max() <= _SAME_PART)
        self.duty[ids] = duty
        return same

    def _until_next(self) -> float:
        """Seconds to the first end, first chunk, or job that meets its leader."""
        ids = self.ids[self.inside[self.ids]]
        target = np.where(self.starting[ids], np.minimum(self.first[ids], 1.0), 1.0)
        times = np.full(len(ids), np.inf)
        speed = self.speed[ids]
        np.divide(target - self.done[ids], speed, out=times, where=speed > 0)
        return max(min(float(times.min()), self.meeting - self.time), 0.0)

    def _meetings(self, behind: np.ndarray, ids: np.ndarray, leader: np.ndarray) -> float:
        """Seconds until the first job that is not level with its leader is."""
        closing = self.speed[ids] - self.speed[leader]
        meets = np.full(len(ids), np.inf)
        np.divide(behind, closing, out=meets, where=closing != 0)
        return float(meets[meets > 0].min(initial=np.inf))

    def advance(self, now: float) -> None:
        """Bring ``done`` up to ``now``."""
        if now > self.time:
            if len(self.ids):
                self.done[self.ids] += self.speed[self.ids] * (now - self.time)
            self.time = now
