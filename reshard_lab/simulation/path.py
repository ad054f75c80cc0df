"""The chain of waits that made a plan as long as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from reshard_lab.simulation.timeline import Timeline


class PathStep(NamedTuple):
    """A stretch of the critical path: one hop under way. The steps follow without a gap."""

    operation: str
    transfer: int
    hop: int
    source: int
    destination: int
    start_s: float
    end_s: float
    waits: str
    """Why it did not start sooner."""


def critical_path(timeline: Timeline) -> tuple[PathStep, ...]:
    """From time 0 to the end of the last transmission.

    Backwards: a transmission is on the path from when the last thing it waited for was there. In
    ``fluid``, a hop held to the pace of the one before it is on the path for its last chunk only.
    """
    if not len(timeline):
        return ()
    column = timeline.columns
    start, end = column["start_s"], column["end_s"]
    steps: list[PathStep] = []
    row = int(np.argmax(end))
    until = float(end[row])
    while row >= 0:
        if timeline.held[row] and until == end[row]:
            since, before = float(end[row - 1]), row - 1
            why = "its data comes in chunk by chunk"
        else:
            since, before = float(start[row]), int(timeline.cause[row])
            why = _reason(timeline, row, before)
        steps.append(_step(timeline, row, since, until, why))
        row, until = before, since
    return tuple(_merged(steps[::-1]))


def _step(timeline: Timeline, row: int, since: float, until: float, why: str) -> PathStep:
    column = timeline.columns
    return PathStep(
        str(column["operation"][row]),
        int(column["transfer"][row]),
        int(column["hop"][row]),
        int(column["source"][row]),
        int(column["destination"][row]),
        since,
        until,
        why,
    )


def _reason(timeline: Timeline, row: int, before: int) -> str:
    if before < 0:
        return "starts at once"
    column = timeline.columns
    transfer, other = int(column["transfer"][row]), int(column["transfer"][before])
    if transfer == other:
        if column["hop"][row] == column["hop"][before]:
            return "the chunk before it is on the way"
        return f"its data comes in from device {int(column['source'][before])}"
    if other in timeline.plan.transfers[transfer].after and column["hop"][row] == 0:
        return f"transfer {other} has to be complete"
    if column["source"][row] == column["source"][before]:
        return f"device {int(column['source'][row])} is sending transfer {other}"
    return f"device {int(column['destination'][row])} is taking in transfer {other}"


def _merged(steps: list[PathStep]) -> list[PathStep]:
    """Neighbouring chunks of one hop as one step."""
    made: list[PathStep] = []
    for step in steps:
        last = made[-1] if made else None
        if last is not None and (last.transfer, last.hop) == (step.transfer, step.hop):
            made[-1] = last._replace(end_s=step.end_s)
        else:
            made.append(step)
    return made
