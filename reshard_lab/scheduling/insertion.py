"""List scheduling with insertion: each task goes into the first gap that fits all its NICs.

Where a task goes to many receivers at once, passes that start whatever can start keep it waiting;
placing wide and long tasks first, and filling the gaps with small ones, does better there.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

import numpy as np

from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.problem import Group
from reshard_lab.scheduling.schedule import Assignment, meets, span

_PACE = 5e3
"""Tasks placed a second, well below what a slow machine does."""
_NOISE = 0.5

Nic = tuple[str, int]


def insert(jobs: Sequence[tuple[int, Group]]) -> list[Assignment]:
    """Place (task, its group) one after another, from the sender that lets it start first."""
    busy: dict[Nic, list[tuple[float, float]]] = {}
    load: dict[int, float] = {}
    made = []
    for task, g in jobs:
        takes = [busy.setdefault(("rx", r), []) for r in g.receivers]
        start, _, sender = min(
            (_gap([busy.setdefault(("tx", s), []), *takes], g.duration), load.get(s, 0.0), s)
            for s in g.senders
        )
        end = start + g.duration
        for spans in (busy["tx", sender], *takes):
            insort(spans, (start, end))
        load[sender] = load.get(sender, 0.0) + g.duration
        made.append(Assignment(task, sender, start, end, 1.0))
    return made


def _gap(spans: Sequence[list[tuple[float, float]]], lasts: float) -> float:
    """The earliest time at which all NICs are free for ``lasts``, given when each is busy."""
    at, settled = 0.0, False
    while not settled:
        settled = True
        for busy in spans:
            k = max(0, bisect_right(busy, (at, np.inf)) - 1)
            while k < len(busy) and busy[k][0] < at + lasts * (1 - 1e-12):
                if busy[k][1] > at:
                    at, settled = busy[k][1], False
                k += 1
    return at


def insert_widest(
    groups: Sequence[Group], bound: float, budget: Budget, seed: int
) -> list[Assignment]:
    """The best of several orders: by duration times NICs, descending, then blurred."""
    rng = np.random.default_rng(seed)
    jobs = [(task, g) for g in groups for task in g.tasks]
    area = np.array([g.duration * (1 + len(g.receivers)) for _, g in jobs])
    best = insert([jobs[i] for i in np.argsort(-area, kind="stable").tolist()])
    work = budget.steps(_PACE) - len(jobs)
    while not meets(span(best), bound) and work > 0 and not budget.over:
        blurred = area * (1 + _NOISE * rng.random(len(area)))
        made = insert([jobs[i] for i in np.argsort(-blurred, kind="stable").tolist()])
        best = min(best, made, key=span)
        work -= len(jobs)
    return best
