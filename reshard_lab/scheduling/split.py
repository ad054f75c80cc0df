"""Tasks shared out among several senders, and relayed where receiver sets overlap.

Where receiver sets are equal or disjoint this is a preemptive open shop and reaches the fluid
bound. Elsewhere each share is sent to one class of receivers and forwarded from there; data are
cut into Q batches, and while batch q is forwarded, batch q + 1 is sent: (Q + 1)/Q of the bound.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reshard_lab.scheduling.list_scheduling import GroupTable, best_of_restarts, dispatch, tables_of
from reshard_lab.scheduling.problem import Budget, Group, Problem
from reshard_lab.scheduling.schedule import (
    Assignment,
    Schedule,
    certified,
    meets,
    span,
    with_idle,
)
from reshard_lab.scheduling.senders import (
    VARIABLES_A_SECOND,
    ReceiverClass,
    Share,
    share_out,
    variables,
)

PERIODS = 32
"""Q: batches that relayed tasks are pipelined in."""
_TICKS = 2**40
"""Ticks in the longest load of a period: shares are whole ticks, so sums are exact."""
_Cell = tuple[int, ReceiverClass]
"""A sender and a class of receivers."""
_Node = tuple[int, Any]
"""(0, a row or column of cells) or (1, the idle partner of one)."""
_Graph = dict[_Node, dict[_Node, int]]
_Partners = dict[_Node, _Node]


def split(problem: Problem, budget: Budget, seed: int, periods: int = PERIODS) -> Schedule:
    """The shortest of: whole tasks, shares sent in one piece each, shares cut into phases.

    Tasks are cut only where the schedule gets shorter by it. Relays work in ``periods`` batches.
    """
    bound, groups = problem.fluid_bound, problem.groups
    if not groups:
        notes = ["no task moves anything"]
        return certified("split", problem, with_idle(problem, ()), bound, "fluid", notes)
    best = best_of_restarts(tables_of(groups), bound, budget.part(0.2), seed)
    notes = ["no task had to be cut"]
    if not meets(span(best), bound):
        notes = ["cutting tasks makes nothing shorter"]
        size = variables(groups)
        if size > budget.steps(VARIABLES_A_SECOND):
            notes = [f"no task was cut: {size} choices are too many for {budget.limit_s:g} s"]
        else:
            budget.load("scipy.optimize")
            shares = share_out(groups, budget.left_s)
            for cut, note in _cut(groups, shares, bound, budget, periods) if shares else ():
                if span(cut) < span(best) * (1 - 1e-12):
                    best, notes = cut, [note]
        if budget.over:
            notes.append(f"the time limit of {budget.limit_s:g} s ended the search")
    return certified("split", problem, with_idle(problem, best), bound, "fluid", notes)


def _cut(
    groups: Sequence[Group], shares: list[Share], bound: float, budget: Budget, periods: int
) -> Iterator[tuple[list[Assignment], str]]:
    """Schedules that cut tasks, the one with fewest cuts first; stops at ``bound``."""
    relayed = any(s.onward for s in shares)
    batches = _Batches(groups, shares, periods if relayed else 1)
    if not relayed and all(len(s.to) == 1 for s in shares):
        assignments = _in_one_piece(batches)
        yield assignments, "tasks shared out among senders, each share sent in one piece"
        if meets(span(assignments), bound):
            return
    note = f", relayed in {periods} batches" if relayed else ""
    phased = _in_phases(batches, budget)
    if phased is not None:
        yield phased, f"tasks shared out among senders in phases{note}"


class _BatchSend(NamedTuple):
    """What ``sender`` sends to one class in every batch, in ticks of the group's batch."""

    group: int
    sender: int
    to: ReceiverClass
    first: int
    ticks: int
    forwards: bool
    """Whether this is what arrived in the batch before."""


class _Run(NamedTuple):
    """A send, or part of it, without a break; all in ticks."""

    send: _BatchSend
    before: int
    """What was sent of it earlier in the period."""
    ticks: int
    at: int


class _Batches:
    """Shares as whole ticks, laid end to end inside every group's batch."""

    def __init__(self, groups: Sequence[Group], shares: list[Share], count: int) -> None:
        self.groups, self.count = groups, count
        load: dict[tuple[str, object], float] = {}
        for p in shares:
            for nic, to in ((p.sender, p.to), (p.to[0][-1], p.onward)):
                load["tx", nic] = load.get(("tx", nic), 0.0) + p.amount * len(to)
                for c in to:
                    load["rx", c] = load.get(("rx", c), 0.0) + p.amount
        self.tick = max(load.values()) / count / _TICKS
        """Length of a tick in the unit of durations."""
        self.sends: list[_BatchSend] = []
        self.size: dict[int, int] = {}
        """Ticks of one batch of every group."""
        for p in shares:
            ticks = max(1, round(p.amount / count / self.tick))
            first = self.size.get(p.group, 0)
            self.size[p.group] = first + ticks
            self.sends += [_BatchSend(p.group, p.sender, c, first, ticks, False) for c in p.to]
            relay = p.to[0][-1]
            self.sends += [_BatchSend(p.group, relay, c, first, ticks, True) for c in p.onward]

    def assignments(
        self, send: _BatchSend, batch: int, before: int, ticks: int, start: float
    ) -> Iterator[Assignment]:
        """``ticks`` of a send, after ``before`` others: batches lie end to end over the tasks.

        Positions are whole numbers, in ticks times the number of tasks: a task is ``total`` long.
        """
        g = self.groups[send.group]
        size, count = self.size[send.group], len(g.tasks)
        total = size * self.count
        lo = at = (batch * size + send.first + before) * count
        hi = lo + ticks * count
        receivers = () if len(send.to) == len(g.receivers) else send.to
        while at < hi:
            k = at // total
            end = min(hi, (k + 1) * total)
            yield Assignment(
                g.tasks[k],
                send.sender,
                start + (at - lo) / count * self.tick,
                start + (end - lo) / count * self.tick,
                (end - at) / total,
                (at - k * total) / total,
                receivers,
            )
            at = end


def _in_one_piece(batches: _Batches) -> list[Assignment]:
    """List scheduling of the shares; a share of a group is its tasks, cut at both ends at most."""
    parts = [
        (send, a)
        for send in batches.sends
        for a in batches.assignments(send, 0, 0, send.ticks, 0.0)
    ]
    tasks = [
        Group(a.end - a.start, (send.sender,), send.to, (i,)) for i, (send, a) in enumerate(parts)
    ]
    return [
        parts[placed.task][1]._replace(start=placed.start, end=placed.end)
        for placed in dispatch(GroupTable(tasks))
    ]


def _in_phases(batches: _Batches, budget: Budget) -> list[Assignment] | None:
    """Period after period: what is sent in it of one batch, what is forwarded of the one before.

    None if the time ran out.
    """
    fresh, onward = ([s for s in batches.sends if s.forwards is f] for f in (False, True))
    first, last = _period(fresh, budget), _period(onward, budget)
    middle = _period(fresh + onward, budget) if onward else first
    assignments: list[Assignment] = []
    now = 0.0
    for number in range(batches.count + bool(onward)):
        runs, length = first if not number else last if number == batches.count else middle
        for send, before, ticks, at in runs:
            start = now + at * batches.tick
            batch = number - send.forwards
            assignments += batches.assignments(send, batch, before, ticks, start)
        now += length * batches.tick
        if budget.over:
            return None
    return assignments


def _period(sends: list[_BatchSend], budget: Budget) -> tuple[list[_Run], int]:
    """What goes on in one period, and its ticks; those of one (sender, class) one after another.

    Cut short if the time runs out; the caller looks at the clock.
    """
    queue: dict[_Cell, deque[_BatchSend]] = {}
    for send in sends:
        queue.setdefault((send.sender, send.to), deque()).append(send)
    cells = {cell: sum(send.ticks for send in waiting) for cell, waiting in queue.items()}
    done = dict.fromkeys(cells, 0)  # ticks of the first send in the queue
    runs: list[_Run] = []
    last_run: dict[_BatchSend, int] = {}  # its position in runs
    now = 0
    for phase, pairs in decompose(cells):
        if budget.over:
            break
        for pair in pairs:
            at, end = now, now + phase
            while at < end:
                send = queue[pair][0]
                n = min(end - at, send.ticks - done[pair])
                run = runs[last_run[send]] if send in last_run else None
                if run is not None and run.at + run.ticks == at:
                    runs[last_run[send]] = run._replace(ticks=run.ticks + n)
                else:
                    last_run[send] = len(runs)
                    runs.append(_Run(send, done[pair], n, at))
                done[pair] += n
                if done[pair] == send.ticks:
                    queue[pair].popleft()
                    done[pair] = 0
                at += n
        now += phase
    return runs, now


def decompose(cells: Mapping[_Cell, int]) -> Iterator[tuple[int, list[_Cell]]]:
    """Phases (ticks, cells served side by side) that serve every cell for its ticks.

    In a phase every row and column has at most one partner. The total is the largest row or
    column sum, the least possible (after Birkhoff). Rows and columns are filled up to that sum with
    idle cells, so that a perfect matching of what is left always exists; each phase takes one
    whose smallest cell is within a factor of two of the largest possible, and keeps to the one
    before where it can.

    >>> for ticks, pairs in decompose({("a", 0): 2, ("b", 0): 1, ("b", 1): 2}):
    ...     print(ticks, sorted(pairs))
    2 [('a', 0), ('b', 1)]
    1 [('b', 0)]
    """
    rows: Counter[int] = Counter()
    columns: Counter[ReceiverClass] = Counter()
    edges: list[tuple[_Node, _Node, int]] = []
    for (a, b), ticks in cells.items():
        rows[a] += ticks
        columns[b] += ticks
        edges += [((0, a), (0, b), ticks), ((1, b), (1, a), ticks)]
    length = max([*rows.values(), *columns.values()], default=0)
    edges += [((0, a), (1, a), length - total) for a, total in rows.items()]
    edges += [((1, b), (0, b), length - total) for b, total in columns.items()]
    left: _Graph = {}
    for u, v, ticks in edges:
        if ticks:
            left.setdefault(u, {})[v] = ticks
    least = max((ticks for _, _, ticks in edges), default=1)
    right_of: _Partners = {}
    left_of: _Partners = {}
    done = 0
    while done < length:
        while not all(u in right_of or _augment(u, left, least, right_of, left_of) for u in left):
            least = max(1, least // 2)
        phase = min(left[u][v] for u, v in right_of.items())
        yield phase, [(u[1], v[1]) for u, v in right_of.items() if u[0] == v[0] == 0]
        done += phase
        for u, v in list(right_of.items()):
            left[u][v] -= phase
            if left[u][v] < least:
                del right_of[u], left_of[v]
            if not left[u][v]:
                del left[u][v]


def _augment(
    start: _Node, left: _Graph, least: int, right_of: _Partners, left_of: _Partners
) -> bool:
    """Match ``start`` along an alternating path (breadth first) of at least ``least`` ticks."""
    came: dict[_Node, _Node] = {}
    queue = [start]
    for u in queue:
        for v, ticks in left[u].items():
            if ticks < least or v in came:
                continue
            came[v] = u
            if v not in left_of:
                end: _Node | None = v
                while end is not None:
                    u = came[end]
                    right_of[u], left_of[end], end = end, u, right_of.get(u)
                return True
            queue.append(left_of[v])
    return False
