"""How much of every task each sender sends and each receiver forwards (a linear program).

Receiver NICs that always take the same tasks form one *class*: a broadcast down a chain serves
all of them at the rate of one. A group whose receivers are several classes cannot go to all of
them at once without holding them all busy at once, so it is *relayed*: every part goes to one
class, whose last NIC (the end of the chain, which forwards nothing inside the class) passes it
on to the other classes. Every NIC still takes each byte in once, so the load of a receiver does
not change; what a relay sends counts as load of its own sending side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reshard_lab.scheduling.problem import Group

Class = tuple[int, ...]
"""Receiver NICs that always take the same tasks, ascending."""
CHOICES_A_SECOND = 15_000
"""Programs of more variables than this for every second of the limit take too long."""
_NOTHING = 1e-9
"""A share below this part of its group is rounding."""


class Part(NamedTuple):
    """A part of a group's total: sent by one NIC, first to ``to``, then from there onwards."""

    group: int
    sender: int
    amount: float
    to: tuple[Class, ...]
    """The classes the sender serves, one after another."""
    onward: tuple[Class, ...]
    """The classes that the last NIC of ``to[0]`` serves once it has the part; () = no relay."""


def receiver_classes(groups: Sequence[Group]) -> list[tuple[Class, ...]]:
    """For every group, the classes its receivers form, in order of their lowest NIC."""
    member: dict[int, list[int]] = {}
    for i, g in enumerate(groups):
        for r in g.receivers:
            member.setdefault(r, []).append(i)
    alike: dict[tuple[int, ...], list[int]] = {}
    for r in sorted(member):
        alike.setdefault(tuple(member[r]), []).append(r)
    class_of = {r: tuple(nics) for nics in alike.values() for r in nics}
    return [tuple(dict.fromkeys(class_of[r] for r in g.receivers)) for g in groups]


def choices(groups: Sequence[Group]) -> int:
    """Variables of the linear program: the size of the work."""
    classes = receiver_classes(groups)
    return sum(
        len(g.senders) * (2 if len(cs) > 1 else 1) + (len(cs) if len(cs) > 1 else 0)
        for g, cs in zip(groups, classes, strict=True)
    )


def share_out(groups: Sequence[Group], time_limit_s: float) -> list[Part]:
    """Parts whose largest load on any sending side is least; none if the time ran out.

    Variables: what a sender hands to relays, what a relay forwards, and what a sender sends to
    every class by itself. A basic solution cuts few groups.
    """
    classes = receiver_classes(groups)
    totals = [g.duration * len(g.tasks) for g in groups]
    solved = _solve(groups, classes, totals, time_limit_s)
    if solved is None:
        return []
    handed, forwarded, direct = solved
    parts = []
    for i in range(len(groups)):
        parts += [Part(i, s, x, classes[i], ()) for s, x in direct[i]]
        relays = forwarded[i]
        for s, amount in handed[i]:
            while amount > _NOTHING * totals[i] and relays:
                relay, room = relays[0]
                x = min(amount, room)
                others = tuple(c for c in classes[i] if c != relay)
                parts.append(Part(i, s, x, (relay,), others))
                amount -= x
                relays = relays[1:] if x >= room else [(relay, room - x), *relays[1:]]
    return parts


Shares = tuple[
    list[list[tuple[int, float]]], list[list[tuple[Class, float]]], list[list[tuple[int, float]]]
]
"""By group: what each sender hands to relays, what each relay forwards, what is sent directly."""


def _solve(
    groups: Sequence[Group],
    classes: list[tuple[Class, ...]],
    totals: list[float],
    time_limit_s: float,
) -> Shares | None:
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    scale = max(totals)
    nics = sorted({s for g in groups for s in g.senders} | {c[-1] for cs in classes for c in cs})
    row = {nic: i for i, nic in enumerate(nics)}
    columns: list[tuple[str, int, int | Class]] = []
    load: list[tuple[int, int, float]] = []  # (NIC, column, what one unit loads it with)
    sums: list[
        tuple[int, int, float]
    ] = []  # rows: all of group i is sent; relays get what they send
    for i, g in enumerate(groups):
        count = len(classes[i])
        part = totals[i] / scale
        for s in g.senders:
            load.append((row[s], len(columns), part * count))
            sums.append((i, len(columns), 1.0))
            columns.append(("direct", i, s))
        if count > 1:
            for s in g.senders:
                load.append((row[s], len(columns), part))
                sums += [(i, len(columns), 1.0), (len(groups) + i, len(columns), 1.0)]
                columns.append(("handed", i, s))
            for c in classes[i]:
                load.append((row[c[-1]], len(columns), part * (count - 1.0)))
                sums.append((len(groups) + i, len(columns), -1.0))
                columns.append(("forwarded", i, c))
    most = len(columns)
    load += [(i, most, -1.0) for i in range(len(nics))]

    def matrix(entries: list[tuple[int, int, float]], rows: int) -> object:
        r, c, v = zip(*entries, strict=True)
        return coo_array((v, (r, c)), shape=(rows, most + 1)).tocsr()

    result = linprog(
        np.eye(1, most + 1, most)[0],
        A_ub=matrix(load, len(nics)),
        b_ub=np.zeros(len(nics)),
        A_eq=matrix(sums, 2 * len(groups)),
        b_eq=np.concatenate([np.ones(len(groups)), np.zeros(len(groups))]),
        method="highs-ds",
        options={"time_limit": max(time_limit_s, 0.01)},
    )
    if result.x is None:
        return None
    found: dict[str, list[list[tuple[int | Class, float]]]] = {
        kind: [[] for _ in groups] for kind in ("handed", "forwarded", "direct")
    }
    for (kind, i, who), x in zip(columns, result.x[:most].tolist(), strict=True):
        if x > _NOTHING:
            found[kind][i].append((who, x * totals[i]))
    return found["handed"], found["forwarded"], found["direct"]  # type: ignore[return-value]
