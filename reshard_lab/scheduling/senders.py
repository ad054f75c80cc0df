"""Who sends each task, or how much of it, so that the largest load is least (equation 4)."""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reshard_lab.bounds import Rows
from reshard_lab.scheduling.problem import Group

CHOICES_A_SECOND = 3000
"""Integer programs with more choices than this for every second of the limit take too long."""
VARIABLES_A_SECOND = 15_000
"""Linear programs of more variables than this for every second of the limit take too long."""
_NOTHING = 1e-9
"""A share below this part of its group is rounding."""

ReceiverClass = tuple[int, ...]
"""Receiver NICs that always take the same tasks, ascending."""


def balanced_equal(groups: Sequence[Group]) -> list[Group]:
    """Groups with one sender each, the largest number of tasks a sender as small as possible.

    All tasks last equally long. The tasks are dealt out to the least loaded sender; then, as in a
    maximum flow, tasks move along paths from a most loaded sender to one that has at least two
    fewer, until there is no such path, which proves that the largest load is least.
    """
    count = [dict.fromkeys(g.senders, 0) for g in groups]
    load = {s: 0 for g in groups for s in g.senders}
    may_send: dict[int, list[int]] = {s: [] for s in load}
    for i, g in sorted(enumerate(groups), key=lambda item: len(item[1].senders) > 1):
        heap = [(load[s], s) for s in g.senders]
        heapq.heapify(heap)
        for _ in g.tasks:
            least, s = heap[0]
            heapq.heapreplace(heap, (least + 1, s))
            count[i][s] += 1
            load[s] += 1
        if len(g.senders) > 1:
            for s in g.senders:
                may_send[s].append(i)
    while load:
        most = max(load.values())
        fullest = [s for s in sorted(load) if load[s] == most]
        path = next((p for s in fullest if (p := _path(s, count, load, may_send))), None)
        if path is None:
            break
        first, last = path[0][1], path[-1][2]
        n = min((load[first] - load[last]) // 2, min(count[g][a] for g, a, _ in path))
        for group, a, b in path:
            count[group][a] -= n
            count[group][b] += n
        load[first] -= n
        load[last] += n
    return _dealt(groups, count)


def _path(
    start: int, count: list[dict[int, int]], load: dict[int, int], may_send: dict[int, list[int]]
) -> list[tuple[int, int, int]] | None:
    """The shortest path from ``start`` to a sender with at least two tasks fewer.

    In steps (group, from sender, to sender).
    """
    came = {start: (-1, start)}  # the group and the sender before
    queue = [start]
    for s in queue:
        if load[s] <= load[start] - 2:
            path = []
            while s != start:
                group, before = came[s]
                path.append((group, before, s))
                s = before
            return path[::-1]
        for group in may_send[s]:
            if count[group][s]:
                for other in count[group]:
                    if other not in came:
                        came[other] = group, s
                        queue.append(other)
    return None


def longest_first(groups: Sequence[Group]) -> list[Group]:
    """Groups with one sender each: longest task first, each to its least loaded sender (LPT)."""
    load = {s: 0.0 for g in groups for s in g.senders}
    tasks: dict[tuple[int, int], list[int]] = {}
    for i, g in sorted(enumerate(groups), key=lambda item: -item[1].duration):
        for task in g.tasks:
            s = min(g.senders, key=load.__getitem__)
            load[s] += g.duration
            tasks.setdefault((i, s), []).append(task)
    return [
        groups[i]._replace(senders=(s,), tasks=tuple(sent))
        for (i, s), sent in sorted(tasks.items())
    ]


def one_sender_each(groups: Sequence[Group]) -> list[Group]:
    """Groups with one sender each, loads balanced by whichever of the two rules applies."""
    equal = len({g.duration for g in groups}) == 1
    return balanced_equal(groups) if equal else longest_first(groups)


def least_largest_load(
    groups: Sequence[Group], time_limit_s: float
) -> tuple[float, list[Group] | None]:
    """A lower bound of the largest sender load of whole tasks, and an assignment if one is found.

    An integer program: how many tasks of each group each sender takes, the largest load least.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    pairs = [(i, s) for i, g in enumerate(groups) for s in g.senders]
    senders = sorted({s for _, s in pairs})
    scale = max(g.duration for g in groups)
    n = len(pairs)
    sent, loads = Rows(range(len(groups))), Rows(senders)
    for column, (i, s) in enumerate(pairs):
        sent.add(i, column)
        loads.add(s, column, groups[i].duration / scale)
    for s in senders:
        loads.add(s, n, -1.0)
    tasks = np.array([len(g.tasks) for g in groups], dtype=float)
    result = milp(
        np.eye(1, n + 1, n)[0],
        integrality=np.append(np.ones(n), 0),
        bounds=Bounds(0, np.append([tasks[i] for i, _ in pairs], np.inf)),
        constraints=[
            LinearConstraint(sent.matrix(n + 1), tasks, tasks),
            LinearConstraint(loads.matrix(n + 1), -np.inf, 0),
        ],
        options={"time_limit": max(time_limit_s, 0.01), "mip_rel_gap": 0},
    )
    bound = result.mip_dual_bound
    lower = 0.0 if bound is None or not np.isfinite(bound) else float(bound) * (1 - 1e-7) * scale
    if result.x is None:
        return lower, None
    count: list[dict[int, int]] = [{} for _ in groups]
    for (i, s), value in zip(pairs, np.round(result.x[:n]).astype(int).tolist(), strict=True):
        count[i][s] = value
    return lower, _dealt(groups, count)


def _dealt(groups: Sequence[Group], count: Sequence[dict[int, int]]) -> list[Group]:
    """Groups with one sender each, which sends so many of the group's tasks."""
    dealt = []
    for g, by_sender in zip(groups, count, strict=True):
        first = 0
        for s, n in sorted(by_sender.items()):
            if n:
                dealt.append(g._replace(senders=(s,), tasks=g.tasks[first : first + n]))
                first += n
    return dealt


class Share(NamedTuple):
    """A part of a group's total: sent by one NIC, first to ``to``, then from there onwards."""

    group: int
    sender: int
    amount: float
    to: tuple[ReceiverClass, ...]
    """The classes the sender serves, one after another."""
    onward: tuple[ReceiverClass, ...]
    """The classes that the last NIC of ``to[0]`` serves once it has the share; () = no relay."""


def receiver_classes(groups: Sequence[Group]) -> list[tuple[ReceiverClass, ...]]:
    """For every group, the classes its receivers form, in order of their lowest NIC."""
    taken_by: dict[int, list[int]] = {}
    for i, g in enumerate(groups):
        for r in g.receivers:
            taken_by.setdefault(r, []).append(i)
    alike: dict[tuple[int, ...], list[int]] = {}
    for r in sorted(taken_by):
        alike.setdefault(tuple(taken_by[r]), []).append(r)
    class_of = {r: tuple(nics) for nics in alike.values() for r in nics}
    return [tuple(dict.fromkeys(class_of[r] for r in g.receivers)) for g in groups]


def variables(groups: Sequence[Group]) -> int:
    """Variables of the linear program: the size of the work."""
    return sum(
        2 * len(g.senders) + len(classes) if len(classes) > 1 else len(g.senders)
        for g, classes in zip(groups, receiver_classes(groups), strict=True)
    )


def share_out(groups: Sequence[Group], time_limit_s: float) -> list[Share]:
    """Shares whose largest load on any sending side is least; none if the time ran out.

    Receiver NICs that always take the same tasks form one *class*: a broadcast down a chain
    serves all of them at the rate of one. A group whose receivers are several classes cannot go
    to all of them at once without holding them all busy at once, so it is *relayed*: every share
    goes to one class, whose last NIC (the end of the chain, which forwards nothing inside the
    class) passes it on to the other classes. Every NIC still takes each byte in once, so the load
    of a receiver does not change; what a relay sends counts as load of its own sending side.

    A linear program: what a sender hands to relays, what a relay forwards, and what a sender
    sends to every class by itself. A basic solution cuts few groups.
    """
    from scipy.optimize import linprog

    classes = receiver_classes(groups)
    totals = [g.duration * len(g.tasks) for g in groups]
    scale = max(totals)
    nics = sorted({s for g in groups for s in g.senders} | {c[-1] for cs in classes for c in cs})
    loads = Rows(nics)
    sums = Rows([(name, i) for name in ("sent", "relayed") for i in range(len(groups))])
    columns: list[tuple[str, int, tuple[int, ...]]] = []

    def column(kind: str, i: int, who: tuple[int, ...], times: int, **rows: float) -> None:
        loads.add(who[-1], len(columns), totals[i] / scale * times)
        for name, sign in rows.items():
            sums.add((name, i), len(columns), sign)
        columns.append((kind, i, who))

    for i, g in enumerate(groups):
        count = len(classes[i])
        for s in g.senders:
            column("direct", i, (s,), count, sent=1.0)
        if count > 1:
            for s in g.senders:
                column("handed", i, (s,), 1, sent=1.0, relayed=1.0)
            for c in classes[i]:
                column("forwarded", i, c, count - 1, relayed=-1.0)
    most = len(columns)
    for nic in nics:
        loads.add(nic, most, -1.0)
    result = linprog(
        np.eye(1, most + 1, most)[0],
        A_ub=loads.matrix(most + 1),
        b_ub=np.zeros(len(nics)),
        A_eq=sums.matrix(most + 1),
        b_eq=np.repeat([1.0, 0.0], len(groups)),
        method="highs-ds",
        options={"time_limit": max(time_limit_s, 0.01)},
    )
    if result.x is None:
        return []
    amounts: dict[tuple[str, int], list[tuple[tuple[int, ...], float]]] = {}
    for (kind, i, who), x in zip(columns, result.x[:most].tolist(), strict=True):
        if x > _NOTHING:
            amounts.setdefault((kind, i), []).append((who, x * totals[i]))
    shares = []
    for i in range(len(groups)):
        shares += [Share(i, s, x, classes[i], ()) for (s,), x in amounts.get(("direct", i), [])]
        relays = amounts.get(("forwarded", i), [])
        for (s,), amount in amounts.get(("handed", i), []):
            while amount > _NOTHING * totals[i] and relays:
                relay, room = relays[0]
                x = min(amount, room)
                others = tuple(c for c in classes[i] if c != relay)
                shares.append(Share(i, s, x, (relay,), others))
                amount -= x
                relays = relays[1:] if x >= room else [(relay, room - x), *relays[1:]]
    return shares
