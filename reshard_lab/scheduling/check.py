"""Whether a schedule is one: an independent check on plain numbers.

Nothing here is shared with the schedulers: it reads the problem and the answer only.
"""

from __future__ import annotations

import itertools

from reshard_lab.errors import ReshardError
from reshard_lab.scheduling.schedule import Assignment, Schedule, Sharing

_SLACK = 1e-9
"""Rounding allowed, as part of the makespan (times) or of a task (shares)."""


def check(schedule: Schedule) -> None:
    """Raise ReshardError unless ``schedule`` can be carried out and delivers every task.

    No NIC sends two tasks at once or receives two at once; senders are allowed ones, or NICs that
    have received the part before; nothing is sent faster than a NIC's speed; every receiver gets
    every task whole and once. For ``concurrent``: the rates never exceed a NIC's speed and the
    tasks are complete when they are said to be.
    """
    slack = _SLACK * schedule.makespan
    for a in schedule.assignments:
        _check_one(schedule, a, slack)
    if schedule.sharing is None:
        _check_exclusive(schedule, slack)
    else:
        _check_rates(schedule, schedule.sharing, slack)
    _check_delivered(schedule, slack)


def _receivers(schedule: Schedule, a: Assignment) -> tuple[int, ...]:
    return a.receivers or schedule.problem.receivers[a.task]


def _check_one(schedule: Schedule, a: Assignment, slack: float) -> None:
    problem = schedule.problem
    if not 0 <= a.task < len(problem):
        raise ReshardError(f"{a} is of no task; the problem has {len(problem)}")
    lasts = problem.durations[a.task] if problem.receivers[a.task] else 0.0
    inside = a.share > 0 and a.first >= 0 and a.first + a.share <= 1 + _SLACK
    if not (0 <= a.start <= a.end and inside):
        raise ReshardError(f"{a} ends before it starts, or carries no part of its task")
    if a.end - a.start < a.share * lasts - slack:
        raise ReshardError(f"{a} is faster than a NIC: the whole task lasts {lasts}")
    if not set(_receivers(schedule, a)) <= set(problem.receivers[a.task]):
        raise ReshardError(f"{a} goes to a NIC that does not need the task")


def _check_exclusive(schedule: Schedule, slack: float) -> None:
    busy: dict[tuple[str, int], list[Assignment]] = {}
    for a in schedule.assignments:
        if _receivers(schedule, a) and a.end - a.start > slack:
            for nic in [("tx", a.sender), *(("rx", r) for r in _receivers(schedule, a))]:
                busy.setdefault(nic, []).append(a)
    for nic, spans in busy.items():
        spans.sort(key=lambda a: a.start)
        for first, second in itertools.pairwise(spans):
            if second.start < first.end - slack:
                raise ReshardError(f"{nic[0]} of NIC {nic[1]} is busy twice: {first} and {second}")


def _check_delivered(schedule: Schedule, slack: float) -> None:
    problem = schedule.problem
    arrived: dict[tuple[int, int], list[Assignment]] = {}
    listed = {a.task for a in schedule.assignments}
    for a in schedule.assignments:
        for r in _receivers(schedule, a):
            arrived.setdefault((a.task, r), []).append(a)
    for task, receivers in enumerate(problem.receivers):
        if task not in listed:
            raise ReshardError(f"task {task} is not in the schedule")
        for r in receivers:
            got = sorted(arrived.get((task, r), []), key=lambda a: a.first)
            at = 0.0
            for a in got:
                if abs(a.first - at) > _SLACK:
                    raise ReshardError(
                        f"NIC {r} gets task {task} up to {at}, then from {a.first} on"
                    )
                at = a.first + a.share
            if abs(at - 1) > _SLACK:
                raise ReshardError(f"NIC {r} gets task {task} up to {at} only")
    for a in schedule.assignments:
        if a.sender not in problem.senders[a.task]:
            _check_relay(a, arrived.get((a.task, a.sender), []), slack)


def _check_relay(a: Assignment, got: list[Assignment], slack: float) -> None:
    at = a.first
    for b in sorted(got, key=lambda b: b.first):
        if b.end <= a.start + slack and b.first <= at + _SLACK:
            at = max(at, b.first + b.share)
    if at < a.first + a.share - _SLACK:
        raise ReshardError(f"{a} leaves a NIC that is no sender and has not received it by then")


def _check_rates(schedule: Schedule, sharing: Sharing, slack: float) -> None:
    problem = schedule.problem
    by_task = {a.task: a for a in schedule.assignments}
    flow_of = {i: f for f, tasks in enumerate(sharing.flows) for i in tasks}
    got = dict.fromkeys(flow_of, 0.0)
    for start, end, rates in zip(sharing.times, sharing.times[1:], sharing.rates, strict=False):
        used: dict[tuple[str, int], float] = {}
        for i, f in flow_of.items():
            if by_task[i].end <= start + slack:
                continue
            got[i] += rates[f] * (min(end, by_task[i].end) - start)
            for nic in [("tx", by_task[i].sender), *(("rx", r) for r in problem.receivers[i])]:
                used[nic] = used.get(nic, 0.0) + rates[f]
        for nic, total in used.items():
            if total > 1 + _SLACK:
                raise ReshardError(
                    f"{nic[0]} of NIC {nic[1]} is used {total} times over from {start} on"
                )
    for i, (lasts, to) in enumerate(zip(problem.durations, problem.receivers, strict=True)):
        if to and abs(got.get(i, 0.0) - lasts) > slack:
            raise ReshardError(f"task {i} lasts {lasts}, but gets {got.get(i, 0.0)}")
