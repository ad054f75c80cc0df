"""One device's walk through a step: its ops and transfers, in the order the simulation has them.

Blocking, one thread works through all items in the global order. Overlapped, it works through the
ops alone, and every link (ordered pair of stages) has a thread of its own at both ends, which
makes the calls of ``run_rank`` in the link's order; gloo has no callbacks, so somebody waits.

All of this relies on the order in which ``pipeline.graph`` numbers items: to carry them out one by
one by number is possible, a stage's ops by number are its list, and a link's transfers by number
are in the order in which their ops end, which is that of sending at both ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from reshard_lab.pipelining.graph import Graph
from reshard_lab.training.mailbox import Mailbox

Work = Callable[[int], None]
"""Carries out one item of the graph."""


class Clock:
    """When items began and ended on this device, in seconds of the machine's monotonic clock."""

    def __init__(self, items: int) -> None:
        nan = float("nan")
        self.starts, self.ends = [nan] * items, [nan] * items

    def begin(self, item: int) -> None:
        """It begins now."""
        self.starts[item] = time.monotonic()

    def end(self, item: int) -> None:
        """It has ended."""
        self.ends[item] = time.monotonic()


def walk(
    graph: Graph, stage: int, overlap: bool, mailbox: Mailbox, compute: Work, carry: Work
) -> None:
    """All items in which ``stage`` takes part; raises the first error of any thread."""
    count = len(graph.ops)
    mine = [i for i in range(count) if stage in (graph.stages[i], graph.targets[i])]
    links: dict[tuple[int, int], list[int]] = {}
    for i in mine:
        if overlap and graph.targets[i] >= 0:
            links.setdefault((graph.stages[i], graph.targets[i]), []).append(i)
    ops = [i for i in mine if not overlap or graph.targets[i] < 0]

    def items(numbers: list[int]) -> None:
        for i in numbers:
            (compute if graph.targets[i] < 0 else carry)(i)

    threads = [partial(items, numbers) for numbers in (ops, *links.values())]
    mailbox.run(*threads, late=f"the transfers of stage {stage} were not over")
