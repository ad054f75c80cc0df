"""Which sender each task gets, so that the largest load is as small as it can be (equation 4)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

from reshard_lab.scheduling.problem import Group


def balanced_equal(groups: Sequence[Group]) -> list[Group]:
    """Groups with one sender each, the largest number of tasks a sender as small as possible.

    All tasks last equally long. The tasks are dealt out to the least loaded sender; then, as in a
    maximum flow, tasks move along paths from a most loaded sender to one that has at least two
    fewer, until there is no such path, which proves that the largest load is least.
    """
    count = [dict.fromkeys(g.senders, 0) for g in groups]
    load = {s: 0 for g in groups for s in g.senders}
    for i, g in enumerate(groups):
        if len(g.senders) == 1:
            count[i][g.senders[0]] = len(g.tasks)
            load[g.senders[0]] += len(g.tasks)
    for i, g in enumerate(groups):
        if len(g.senders) > 1:
            heap = [(load[s], s) for s in g.senders]
            heapq.heapify(heap)
            for _ in g.tasks:
                least, s = heap[0]
                heapq.heapreplace(heap, (least + 1, s))
                count[i][s] += 1
                load[s] += 1
    may_send: dict[int, list[int]] = {s: [] for s in load}
    for i, g in enumerate(groups):
        if len(g.senders) > 1:
            for s in g.senders:
                may_send[s].append(i)
    while load:
        most = max(load.values())
        path = next(
            (p for s in sorted(load) if load[s] == most if (p := _path(s, count, load, may_send))),
            None,
        )
        if path is None:
            break
        _move(path, count, load)
    made = []
    for i, g in enumerate(groups):
        first = 0
        for s, n in sorted(count[i].items()):
            if n:
                made.append(Group(g.duration, (s,), g.receivers, g.tasks[first : first + n]))
                first += n
    return made


CHOICES_A_SECOND = 3000
"""Integer programs with more choices than this for every second of the limit take too long."""
Path = list[tuple[int, int, int]]
"""Steps (group, from sender, to sender)."""


def _path(
    start: int, count: list[dict[int, int]], load: dict[int, int], may_send: dict[int, list[int]]
) -> Path | None:
    """The shortest path from ``start`` to a sender with at least two tasks fewer."""
    came: dict[int, tuple[int, int]] = {}
    seen = {start}
    queue = deque([start])
    while queue:
        s = queue.popleft()
        if load[s] <= load[start] - 2:
            path: Path = []
            while s != start:
                group, before = came[s]
                path.append((group, before, s))
                s = before
            return path[::-1]
        for group in may_send[s]:
            if count[group][s]:
                for other in count[group]:
                    if other not in seen:
                        seen.add(other)
                        came[other] = group, s
                        queue.append(other)
    return None


def _move(path: Path, count: list[dict[int, int]], load: dict[int, int]) -> None:
    first, last = path[0][1], path[-1][2]
    n = min((load[first] - load[last]) // 2, min(count[g][a] for g, a, _ in path))
    for group, a, b in path:
        count[group][a] -= n
        count[group][b] += n
    load[first] -= n
    load[last] += n


def longest_first(groups: Sequence[Group]) -> list[Group]:
    """Groups with one sender each: longest task first, each to its least loaded sender (LPT)."""
    load = {s: 0.0 for g in groups for s in g.senders}
    dealt: dict[tuple[int, int], list[int]] = {}
    for i in sorted(range(len(groups)), key=lambda i: -groups[i].duration):
        g = groups[i]
        for task in g.tasks:
            s = min(g.senders, key=load.__getitem__)
            load[s] += g.duration
            dealt.setdefault((i, s), []).append(task)
    return [
        Group(groups[i].duration, (s,), groups[i].receivers, tuple(tasks))
        for (i, s), tasks in sorted(dealt.items())
    ]


def least_largest_load(
    groups: Sequence[Group], time_limit_s: float
) -> tuple[float, list[Group] | None]:
    """A lower bound of the largest sender load of whole tasks, and an assignment if one is found.

    An integer program: how many tasks of each group each sender takes, the largest load least.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    pairs = [(i, s) for i, g in enumerate(groups) for s in g.senders]
    row = {s: i for i, s in enumerate(sorted({s for _, s in pairs}))}
    scale = max(g.duration for g in groups)
    n = len(pairs)
    group = np.array([i for i, _ in pairs])
    columns = np.arange(n)
    all_sent = csr_array((np.ones(n), (group, columns)), shape=(len(groups), n + 1))
    loads = csr_array(
        (
            np.concatenate([[groups[i].duration / scale for i, _ in pairs], -np.ones(len(row))]),
            (
                np.concatenate([[row[s] for _, s in pairs], np.arange(len(row))]),
                np.concatenate([columns, np.full(len(row), n)]),
            ),
        ),
        shape=(len(row), n + 1),
    )
    tasks = np.array([len(g.tasks) for g in groups], dtype=float)
    result = milp(
        np.eye(1, n + 1, n)[0],
        integrality=np.append(np.ones(n), 0),
        bounds=Bounds(0, np.append(tasks[group], np.inf)),
        constraints=[
            LinearConstraint(all_sent, tasks, tasks),
            LinearConstraint(loads, -np.inf, 0),
        ],
        options={"time_limit": max(time_limit_s, 0.01), "mip_rel_gap": 0},
    )
    bound = result.mip_dual_bound
    lower = 0.0 if bound is None or not np.isfinite(bound) else float(bound) * (1 - 1e-7) * scale
    if result.x is None:
        return lower, None
    made, first = [], [0] * len(groups)
    for (i, s), value in zip(pairs, np.round(result.x[:n]).astype(int).tolist(), strict=True):
        if value:
            g = groups[i]
            made.append(Group(g.duration, (s,), g.receivers, g.tasks[first[i] : first[i] + value]))
            first[i] += value
    return lower, made
