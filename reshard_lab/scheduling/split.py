"""Tasks shared out among several senders, and relayed where receiver sets overlap.

Where receiver sets are equal or disjoint this is a preemptive open shop and reaches the fluid
bound. Elsewhere each part is sent to one class of receivers and forwarded from there; data are
cut into Q batches, and while batch q is forwarded, batch q + 1 is sent: (Q + 1)/Q of the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reshard_lab.scheduling.budget import Budget
from reshard_lab.scheduling.dispatch import Table, best_of_restarts, dispatch
from reshard_lab.scheduling.openshop import decompose
from reshard_lab.scheduling.problem import Group, Problem
from reshard_lab.scheduling.schedule import (
    Assignment,
    Schedule,
    idle_assignments,
    meets,
    span,
    true_bound,
)
from reshard_lab.scheduling.senders import balanced_equal, longest_first
from reshard_lab.scheduling.shares import CHOICES_A_SECOND, Class, Part, choices, share_out

PERIODS = 32
"""Q: batches that relayed tasks are pipelined in."""
_TICKS = 2**40
"""Ticks in the longest load of a period: shares are whole ticks, so sums are exact."""


def split(problem: Problem, budget: Budget, seed: int, periods: int = PERIODS) -> Schedule:
    """The shortest of: whole tasks, shares sent in one piece each, shares cut into phases.

    Tasks are cut only where the schedule gets shorter by it. Relays work in ``periods`` batches.
    """
    bound = problem.fluid_bound
    groups = problem.groups
    best: list[Assignment] = []
    notes = ["no task moves anything"]
    if groups:
        best, notes = _whole(problem, budget.part(0.2), seed), ["no task had to be cut"]
        if not meets(span(best), bound):
            notes = ["cutting tasks makes nothing shorter"]
            size = choices(groups)
            if size > budget.steps(CHOICES_A_SECOND):
                notes = [f"no task was cut: {size} choices are too many for {budget.limit_s:g} s"]
            else:
                budget.load("scipy.optimize")
                parts = share_out(groups, budget.left_s)
                for made, note in _cut(groups, parts, bound, budget, periods) if parts else ():
                    if span(made) < span(best) * (1 - 1e-12):
                        best, notes = made, [note]
            if budget.over:
                notes.append(f"the time limit of {budget.limit_s:g} s ended the search")
    made = idle_assignments(problem) + sorted(best, key=lambda a: a.start)
    optimal = "fluid" if meets(span(made), bound) else None
    return Schedule("split", problem, tuple(made), true_bound(made, bound), optimal, tuple(notes))


def _whole(problem: Problem, budget: Budget, seed: int) -> list[Assignment]:
    groups = problem.groups
    tables = [Table(groups)]
    if any(len(g.senders) > 1 for g in groups):
        equal = len({g.duration for g in groups}) == 1
        tables.append(Table((balanced_equal if equal else longest_first)(groups)))
    return best_of_restarts(tables, problem.fluid_bound, budget, seed)


def _cut(
    groups: Sequence[Group], parts: list[Part], bound: float, budget: Budget, periods: int
) -> Iterator[tuple[list[Assignment], str]]:
    """Schedules that cut tasks, the one with fewest cuts first; stops at ``bound``."""
    relayed = any(p.onward for p in parts)
    items = _items(parts, periods if relayed else 1)
    if not relayed and all(len(p.to) == 1 for p in parts):
        made = _in_one_piece(groups, items)
        yield made, "tasks shared out among senders, each share sent in one piece"
        if meets(span(made), bound):
            return
    note = f", relayed in {periods} batches" if relayed else ""
    phased = _in_phases(groups, items, budget)
    if phased is not None:
        yield phased, f"tasks shared out among senders in phases{note}"


class _Item(NamedTuple):
    """What ``sender`` sends to one class in every batch, in ticks of the group's batch."""

    group: int
    sender: int
    to: Class
    first: int
    ticks: int
    wait: bool
    """Whether this forwards what arrived in the batch before."""


class _Items(NamedTuple):
    all: list[_Item]
    batches: int
    tick: float
    """Length of a tick in the unit of durations."""
    size: dict[int, int]
    """Ticks of one batch of every group."""


def _items(parts: list[Part], batches: int) -> _Items:
    """Parts as whole ticks, laid end to end inside every group's batch."""
    load: dict[tuple[str, object], float] = {}
    for p in parts:
        for nic, to in [(p.sender, p.to), *([(p.to[0][-1], p.onward)] if p.onward else [])]:
            load["tx", nic] = load.get(("tx", nic), 0.0) + p.amount * len(to)
            for c in to:
                load["rx", c] = load.get(("rx", c), 0.0) + p.amount
    tick = max(load.values()) / batches / _TICKS
    items: list[_Item] = []
    size: dict[int, int] = {}
    for p in parts:
        ticks = max(1, round(p.amount / batches / tick))
        first = size.get(p.group, 0)
        size[p.group] = first + ticks
        items += [_Item(p.group, p.sender, c, first, ticks, False) for c in p.to]
        items += [_Item(p.group, p.to[0][-1], c, first, ticks, True) for c in p.onward]
    return _Items(items, batches, tick, size)


def _in_one_piece(groups: Sequence[Group], items: _Items) -> list[Assignment]:
    """List scheduling of the shares; a share of a group is its tasks, cut at both ends at most."""
    pieces: list[tuple[_Item, Assignment]] = []
    jobs: list[Group] = []
    for item in items.all:
        for a in _stretches(groups, items, item, 0, 0, item.ticks, 0.0):
            jobs.append(Group(a.end - a.start, (item.sender,), item.to, (len(pieces),)))
            pieces.append((item, a))
    made = []
    for job in dispatch(Table(jobs)):
        _, a = pieces[job.task]
        made.append(a._replace(start=job.start, end=job.end))
    return made


def _in_phases(groups: Sequence[Group], items: _Items, budget: Budget) -> list[Assignment] | None:
    """Period after period: what is sent in it of one batch, what is forwarded of the one before.

    None if the time ran out.
    """
    fresh = [i for i in items.all if not i.wait]
    onward = [i for i in items.all if i.wait]
    first = _template(fresh, budget)
    middle = last = _Template([], 0)
    if onward:
        middle, last = _template(fresh + onward, budget), _template(onward, budget)
    made: list[Assignment] = []
    now = 0.0
    for period in range(items.batches + bool(onward)):
        template = first if not period else last if period == items.batches else middle
        for item, before, ticks, at in template.stretches:
            start = now + at * items.tick
            batch = period - item.wait
            made += _stretches(groups, items, item, batch, before, ticks, start)
        now += template.ticks * items.tick
        if budget.over:
            return None
    return made


class _Template(NamedTuple):
    """One period, in ticks: item, ticks of it that are done before, how many more, and when."""

    stretches: list[tuple[_Item, int, int, int]]
    ticks: int


def _template(items: list[_Item], budget: Budget) -> _Template:
    """Phases for the items, those of one (sender, class) one after another.

    Cut short if the time runs out; the caller looks at the clock.
    """
    cells: dict[tuple[int, Class], int] = {}
    queue: dict[tuple[int, Class], list[_Item]] = {}
    for item in items:
        cell = item.sender, item.to
        cells[cell] = cells.get(cell, 0) + item.ticks
        queue.setdefault(cell, []).append(item)
    done = dict.fromkeys(cells, 0)  # ticks of the first item in the queue
    stretches: list[tuple[_Item, int, int, int]] = []
    open_ends: dict[_Item, int] = {}  # position of the item's last stretch
    now = 0
    for phase in decompose(cells):
        if budget.over:
            break
        for pair in phase.pairs:
            at, left = now, phase.ticks
            while left:
                item = queue[pair][0]
                n = min(left, item.ticks - done[pair])
                before = open_ends.get(item)
                if before is not None and sum(stretches[before][2:]) == at:
                    _, start, ticks, since = stretches[before]
                    stretches[before] = item, start, ticks + n, since
                else:
                    open_ends[item] = len(stretches)
                    stretches.append((item, done[pair], n, at))
                done[pair] += n
                if done[pair] == item.ticks:
                    queue[pair].pop(0)
                    done[pair] = 0
                at += n
                left -= n
        now += phase.ticks
    return _Template(stretches, now)


def _stretches(
    groups: Sequence[Group],
    items: _Items,
    item: _Item,
    batch: int,
    before: int,
    ticks: int,
    start: float,
) -> Iterator[Assignment]:
    """The assignments of ``ticks`` of an item: a group's batches lie end to end over its tasks.

    Positions are whole numbers, in ticks times the number of tasks: a task is ``total`` long.
    """
    g = groups[item.group]
    size, count = items.size[item.group], len(g.tasks)
    total = size * items.batches
    lo = (batch * size + item.first + before) * count
    hi = lo + ticks * count
    receivers = () if len(item.to) == len(g.receivers) else item.to
    at = lo
    while at < hi:
        k = at // total
        end = min(hi, (k + 1) * total)
        yield Assignment(
            g.tasks[k],
            item.sender,
            start + (at - lo) / count * items.tick,
            start + (end - lo) / count * items.tick,
            (end - at) / total,
            (at - k * total) / total,
            receivers,
        )
        at = end
