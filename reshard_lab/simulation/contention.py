"""Flows that share ports at the moment, and their rates (docs/simulator.md derives them)."""

import numpy as np

from reshard_lab.max_min import headroom, max_min
from reshard_lab.simulation.flows import Flows

_SAME_PART = 1e-9
"""Part of a flow that does not count when two flows of a chain are compared."""
_SAME_TIME = 1e-12
"""Relative difference below which two times are one."""


class ContendingFlows:
    """Flows on ports of each other. Arrays hold all flows of the plan, by number."""

    def __init__(self, flows: Flows) -> None:
        count, spare = len(flows), len(flows.capacity_Bps)
        width = max(map(len, flows.ports), default=0)
        self.ports = np.array(
            [p + (spare,) * (width - len(p)) for p in flows.ports], dtype=np.int64
        ).reshape(count, width)
        self.capacity = np.append(flows.capacity_Bps, np.inf)
        self.work = flows.work_s
        self.full_rate = np.where(np.isfinite(flows.rate_Bps), flows.rate_Bps, 1.0)
        """Bytes a second alone; any number will do where that is infinite, without a port."""
        self.first_part = np.ones(count)
        """The first chunk's part of the flow."""
        np.divide(flows.first_s, flows.work_s, out=self.first_part, where=flows.work_s > 0)
        self.done = np.zeros(count)
        """Part of the flow that is through, 0 to 1."""
        self.speed = np.zeros(count)
        """Part of the flow a second."""
        self.leader = np.full(count, -1)
        """The nearest flow before it in the chain that contends too."""
        self.lag = np.zeros(count)
        """Part of the leader that goes through while a chunk passes the flows between the two."""
        self.duty = np.ones(count)
        """Part of the time a flow is moving a chunk: under 1 where its leader is slower, so that
        a whole chunk comes in before it moves on, and then moves fast."""
        self.starting = np.zeros(count, dtype=bool)
        """Whether the first chunk is not through yet."""
        self.present = np.zeros(count, dtype=bool)
        self.slot = np.zeros(count, dtype=np.int64)
        self.ids = np.zeros(0, dtype=np.int64)
        self.time = 0.0
        self.next_event = np.inf
        """When something happens to one of them, as long as none joins or ends."""
        self.meeting = np.inf
        """When the first flow meets its leader, likewise."""
        self.stale = False
        self.added: list[int] = []

    def add(
        self, flow: int, now: float, done: float, starting: bool, leader: int, lag: float
    ) -> None:
        """Take in a flow that is ``done`` in part."""
        self.advance(now)
        self.done[flow], self.starting[flow] = done, starting
        self.leader[flow], self.lag[flow] = leader, lag
        self.speed[flow] = 0.0
        self.present[flow] = True
        self.added.append(flow)
        self.stale = True

    def take_due(self, now: float) -> tuple[list[int], list[int]]:
        """Flows whose first chunk is through by ``now``, and flows that are; these leave."""
        if now < self.next_event:
            return [], []
        self.advance(now)
        ids, speed = self.ids, self.speed[self.ids]
        slack = speed * (_SAME_TIME * now)
        firsts = ids[self.starting[ids] & (self.done[ids] + slack >= self.first_part[ids])]
        ended = ids[self.done[ids] + slack >= 1.0]
        self.starting[firsts] = False
        self.present[ended] = False
        if len(ended) or not len(firsts) or (self.leader[firsts] >= 0).any():
            self.stale = True
        else:  # rates stay, but there is another next event
            self.next_event = now + self._until_next()
        return firsts.tolist(), ended.tolist()

    def share_ports(self, now: float) -> None:
        """Share the ports anew after flows came or went."""
        if not self.stale:
            return
        self.advance(now)
        ids = np.sort(np.concatenate((self.ids, np.array(self.added, dtype=np.int64))))
        self.ids = ids = ids[self.present[ids]]
        self.added, self.stale, self.next_event = [], False, np.inf
        if not len(ids):
            return
        self.slot[ids] = np.arange(len(ids))
        leader = self.leader[ids]
        led = (leader >= 0) & self.present[leader] & ~self.starting[ids]
        leader = np.where(led, leader, ids)
        even = _SAME_PART + 10 * _SAME_TIME * now * (1 / self.work[ids] + 1 / self.work[leader])
        relayed = led.any() and bool((led & led[self.slot[leader]]).any())
        for _ in range(3 if relayed else 1):
            ahead = self.duty[leader] * self.first_part[leader] + self.lag[ids]
            behind = np.where(led, self.done[leader] - ahead - self.done[ids], np.inf)
            held = led & (np.abs(behind) <= even)
            rate = self._rates(ids, leader, held, behind < -even)
            if not relayed or self._update_duty(ids, held | (behind < -even), rate):
                break
        self.speed[ids] = rate / (self.full_rate[ids] * self.work[ids])
        closing = self.speed[ids] - self.speed[leader]
        meets = np.full(len(ids), np.inf)
        np.divide(behind, closing, out=meets, where=led & ~held & (closing != 0))
        self.meeting = float(meets[meets > 0].min(initial=np.inf)) + now
        self.next_event = now + self._until_next()

    def _rates(
        self, ids: np.ndarray, leader: np.ndarray, held: np.ndarray, idle: np.ndarray
    ) -> np.ndarray:
        """Bytes a second of every flow; of an ``idle`` one the next chunk is not there."""
        full = self.full_rate[ids]
        cap = np.where(idle, 0.0, full)
        if not held.any():
            return max_min(self.ports[ids], self.capacity, cap)
        size, slot = full * self.work[ids], self.slot[leader]
        follow = np.where(held, slot, -1)
        return max_min(self.ports[ids], self.capacity, cap, follow, size / size[slot])

    def _update_duty(self, ids: np.ndarray, waits: np.ndarray, rate: np.ndarray) -> bool:
        """Note how busy the flows are that wait for their data; whether nothing changed."""
        could = headroom(self.ports[ids], self.capacity, rate)
        most = np.minimum(self.full_rate[ids], could)
        duty = np.where(waits, np.minimum(1.0, rate / most), 1.0)
        same = bool(np.abs(duty - self.duty[ids]).max() <= _SAME_PART)
        self.duty[ids] = duty
        return same

    def _until_next(self) -> float:
        """Seconds to the first end, first chunk, or flow that meets its leader."""
        ids = self.ids[self.present[self.ids]]
        target = np.where(self.starting[ids], np.minimum(self.first_part[ids], 1.0), 1.0)
        times = np.full(len(ids), np.inf)
        speed = self.speed[ids]
        np.divide(target - self.done[ids], speed, out=times, where=speed > 0)
        return max(min(float(times.min()), self.meeting - self.time), 0.0)

    def advance(self, now: float) -> None:
        """Bring ``done`` up to ``now``."""
        if now > self.time:
            if len(self.ids):
                self.done[self.ids] += self.speed[self.ids] * (now - self.time)
            self.time = now
