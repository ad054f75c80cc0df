"""List scheduling by most remaining load, with restarts."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.problem import Group
from reshard_lab.scheduling.schedule import Assignment, meets, span

_PACE = 5e3
"""Tasks started a second, well below what a slow machine does."""
_NOISES = (0.02, 0.1, 0.3, 1.0)
"""How far a restart may deviate from the rule, one after the other."""


class Table:
    """Groups of tasks as arrays: who may send what to whom."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.tx = sorted({s for g in groups for s in g.senders})
        self.rx = sorted({r for g in groups for r in g.receivers})
        tx = {s: i for i, s in enumerate(self.tx)}
        rx = {r: i for i, r in enumerate(self.rx)}
        self.senders = [[tx[s] for s in g.senders] for g in groups]
        self.receivers = [[rx[r] for r in g.receivers] for g in groups]
        self.sends = _incidence(self.senders, len(tx))
        self.takes = _incidence(self.receivers, len(rx))
        self.sent_by = [np.flatnonzero(column) for column in self.sends.T]
        self.taken_by = [np.flatnonzero(column) for column in self.takes.T]
        self.duration = np.array([g.duration for g in groups])
        self.count = np.array([len(g.tasks) for g in groups])

    def __len__(self) -> int:
        return int(self.count.sum())


def _incidence(rows: list[list[int]], width: int) -> np.ndarray:
    made = np.zeros((len(rows), width), dtype=bool)
    for i, columns in enumerate(rows):
        made[i, columns] = True
    return made


class _Run:
    """The state of one pass: what is left, and which NICs are busy."""

    def __init__(self, table: Table, rng: np.random.Generator | None, noise: float) -> None:
        self.table, self.rng, self.noise = table, rng, noise
        work = table.duration * table.count
        options = table.sends.sum(1)
        self.each = table.duration / options
        self.to_take = work @ table.takes
        self.to_send = (work / options) @ table.sends
        self.left = table.count.copy()
        self.blocked = np.zeros(len(table.groups), dtype=np.int64)  # busy receivers, by group
        self.free = options.copy()  # free senders, by group
        self.sending = [False] * len(table.tx)
        self.ends: list[tuple[float, int, int]] = []
        self.made: list[Assignment] = []

    def ranked(self, groups: np.ndarray) -> list[int]:
        """Those of ``groups`` that could start now, the one with the most loaded NIC first."""
        startable = (self.left[groups] > 0) & (self.blocked[groups] == 0) & (self.free[groups] > 0)
        ready = np.sort(groups[startable])
        if len(ready) < 2:
            return ready.tolist()
        table = self.table
        takes = table.takes[ready] * self.to_take
        sends = table.sends[ready] * self.to_send
        key = np.maximum(takes.max(1), sends.max(1))
        second = takes.sum(1) + sends.sum(1)
        if self.rng is not None:
            key = key * (1 + self.noise * self.rng.random(len(ready)))
        return ready[np.lexsort((-second, -key))].tolist()

    def start(self, group: int, now: float) -> None:
        """Start one task of ``group`` from its free sender with least left to send."""
        table = self.table
        options = [s for s in table.senders[group] if not self.sending[s]]
        sender = min(options, key=self.to_send.__getitem__)
        source = table.groups[group]
        self.left[group] -= 1
        task = source.tasks[self.left[group]]
        self.sending[sender] = True
        self.free[table.sent_by[sender]] -= 1
        for r in table.receivers[group]:
            self.blocked[table.taken_by[r]] += 1
        self.to_take[table.receivers[group]] -= source.duration
        self.to_send[table.senders[group]] -= self.each[group]
        end = now + source.duration
        heapq.heappush(self.ends, (end, sender, group))
        self.made.append(Assignment(task, table.tx[sender], now, end, 1.0))

    def finish_next(self) -> tuple[float, np.ndarray]:
        """Free the NICs of the tasks that end next: when, and the groups that use those NICs.

        A group that uses several of them is listed as often; no other group can become ready.
        """
        now = self.ends[0][0]
        touched = []
        while self.ends and self.ends[0][0] <= now * (1 + 1e-12):
            now, sender, group = heapq.heappop(self.ends)
            self.sending[sender] = False
            users = self.table.sent_by[sender]
            self.free[users] += 1
            touched.append(users)
            for r in self.table.receivers[group]:
                users = self.table.taken_by[r]
                self.blocked[users] -= 1
                touched.append(users)
        return now, np.concatenate(touched)


def dispatch(
    table: Table, rng: np.random.Generator | None = None, noise: float = 0.0
) -> list[Assignment]:
    """A schedule in which no task waits that could start.

    Whenever a task ends, of the tasks whose NICs are free those go first whose most loaded NIC
    has most left to do; where several senders are free, the least loaded one sends. With an
    ``rng`` the loads are blurred by up to ``noise`` of themselves.
    """
    run = _Run(table, rng, noise)
    now, touched = 0.0, np.arange(len(table.groups))
    while True:
        for group in run.ranked(touched):
            if run.left[group] and not run.blocked[group] and run.free[group] > 0:
                run.start(group, now)
        if not run.ends:
            return run.made
        now, touched = run.finish_next()


def best_of_restarts(
    tables: Sequence[Table], bound: float, budget: Budget, seed: int
) -> list[Assignment]:
    """The shortest of many passes, the first over each table without noise.

    Stops at ``bound``; at least one pass is made, however short the time.
    """
    best = dispatch(tables[0])
    rng = np.random.default_rng(seed)
    work = budget.steps(_PACE) - len(tables[0])
    runs = 1
    while not meets(span(best), bound) and work > 0 and not budget.over:
        table = tables[runs % len(tables)]
        blurred = runs >= len(tables)
        noise = _NOISES[(runs // len(tables) - 1) % len(_NOISES)]
        made = dispatch(table, rng if blurred else None, noise)
        best = min(best, made, key=span)
        work -= len(table)
        runs += 1
    return best
