"""List scheduling: in a given order, by most remaining load with restarts, and with insertion."""

import heapq
from bisect import bisect_right, insort
from collections.abc import Sequence

import numpy as np

from reshard_lab.scheduling.problem import Budget, Group, Problem
from reshard_lab.scheduling.schedule import Assignment, meets, span
from reshard_lab.scheduling.senders import one_sender_each

_PACE = 5e3
"""Tasks placed a second, well below what a slow machine does."""
_NOISES = (0.02, 0.1, 0.3, 1.0)
"""How far a restart may deviate from the rule, one after the other."""
_NOISE = 0.5
"""The same, of insertion."""


def list_schedule(
    problem: Problem, order: Sequence[int], sender: Sequence[int]
) -> list[Assignment]:
    """Start the tasks in ``order``, each as soon as all its NICs are free after earlier tasks."""
    sends: dict[int, float] = {}  # when each NIC is free
    takes: dict[int, float] = {}
    assignments = []
    for i in order:
        source, receivers = sender[i], problem.receivers[i]
        start = end = 0.0
        if receivers:
            start = max(sends.get(source, 0.0), max(takes.get(r, 0.0) for r in receivers))
            end = start + problem.durations[i]
            sends[source] = end
            takes.update(dict.fromkeys(receivers, end))
        assignments.append(Assignment(i, source, start, end, 1.0))
    return assignments


class GroupTable:
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
    incidence = np.zeros((len(rows), width), dtype=bool)
    for i, columns in enumerate(rows):
        incidence[i, columns] = True
    return incidence


class _Pass:
    """The state of one pass over the tasks: what is left, and which NICs are busy."""

    def __init__(self, table: GroupTable, rng: np.random.Generator | None, noise: float) -> None:
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
        self.assignments: list[Assignment] = []

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
        self.assignments.append(Assignment(task, table.tx[sender], now, end, 1.0))

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
    table: GroupTable, rng: np.random.Generator | None = None, noise: float = 0.0
) -> list[Assignment]:
    """A schedule in which no task waits that could start.

    Whenever a task ends, of the tasks whose NICs are free those go first whose most loaded NIC
    has most left to do; where several senders are free, the least loaded one sends. With an
    ``rng`` the loads are blurred by up to ``noise`` of themselves.
    """
    state = _Pass(table, rng, noise)
    now, touched = 0.0, np.arange(len(table.groups))
    while True:
        for group in state.ranked(touched):
            if state.left[group] and not state.blocked[group] and state.free[group] > 0:
                state.start(group, now)
        if not state.ends:
            return state.assignments
        now, touched = state.finish_next()


def tables_of(groups: Sequence[Group]) -> list[GroupTable]:
    """The groups as they are and, where some have a choice, with senders fixed beforehand."""
    tables = [GroupTable(groups)]
    if any(len(g.senders) > 1 for g in groups):
        tables.append(GroupTable(one_sender_each(groups)))
    return tables


def best_of_restarts(
    tables: Sequence[GroupTable], bound: float, budget: Budget, seed: int
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
        best = min(best, dispatch(table, rng if blurred else None, noise), key=span)
        work -= len(table)
        runs += 1
    return best


def _insert(tasks: Sequence[tuple[int, Group]]) -> list[Assignment]:
    """Place each (task, its group) in its first gap, from the sender that can start first."""
    busy: dict[tuple[str, int], list[tuple[float, float]]] = {}
    load: dict[int, float] = {}
    assignments = []
    for task, g in tasks:
        takes = [busy.setdefault(("rx", r), []) for r in g.receivers]
        start, _, sender = min(
            (_gap([busy.setdefault(("tx", s), []), *takes], g.duration), load.get(s, 0.0), s)
            for s in g.senders
        )
        end = start + g.duration
        for spans in (busy["tx", sender], *takes):
            insort(spans, (start, end))
        load[sender] = load.get(sender, 0.0) + g.duration
        assignments.append(Assignment(task, sender, start, end, 1.0))
    return assignments


def _gap(spans: Sequence[list[tuple[float, float]]], duration: float) -> float:
    """The earliest time at which all NICs are free for ``duration``, given when each is busy."""
    at, fits = 0.0, False
    while not fits:
        fits = True
        for busy in spans:
            k = max(0, bisect_right(busy, (at, np.inf)) - 1)
            while k < len(busy) and busy[k][0] < at + duration * (1 - 1e-12):
                if busy[k][1] > at:
                    at, fits = busy[k][1], False
                k += 1
    return at


def insert_widest(
    groups: Sequence[Group], bound: float, budget: Budget, seed: int
) -> list[Assignment]:
    """The best of several orders: by duration times NICs, descending, then blurred.

    Each task goes into the first gap that fits all its NICs. Where a task goes to many receivers
    at once, passes that start whatever can start keep it waiting; placing wide and long tasks
    first, and filling the gaps with small ones, does better there.
    """
    rng = np.random.default_rng(seed)
    tasks = [(task, g) for g in groups for task in g.tasks]
    area = np.array([g.duration * (1 + len(g.receivers)) for _, g in tasks])
    best = _insert([tasks[i] for i in np.argsort(-area, kind="stable").tolist()])
    work = budget.steps(_PACE) - len(tasks)
    while not meets(span(best), bound) and work > 0 and not budget.over:
        blurred = area * (1 + _NOISE * rng.random(len(area)))
        order = np.argsort(-blurred, kind="stable").tolist()
        best = min(best, _insert([tasks[i] for i in order]), key=span)
        work -= len(tasks)
    return best
