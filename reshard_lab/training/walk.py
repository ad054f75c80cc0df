"""One device's walk through a step: its ops and transfers, in the order the simulation has them.

Blocking, one thread works through all items in the global order. Overlapped, it works through the
ops alone, and every link (ordered pair of stages) has a thread of its own at both ends, which
makes the calls of ``run_rank`` in the link's order; gloo has no callbacks, so somebody waits.

All of this relies on the order in which ``pipeline.graph`` numbers items: to carry them out one by
one by number is possible, a stage's ops by number are its list, and a link's transfers by number
are in the order in which their ops end, which is that of sending at both ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from reshard_lab.pipelining.graph import Graph
from reshard_lab.runtime.board import LateError, Stopped
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
    ops = [i for i in mine if graph.targets[i] < 0]
    if not overlap:
        _work_through(mine, lambda i: (compute if graph.targets[i] < 0 else carry)(i), mailbox)
    else:
        links: dict[tuple[int, int], list[int]] = {}
        for i in mine:
            if graph.targets[i] >= 0:
                links.setdefault((graph.stages[i], graph.targets[i]), []).append(i)
        threads = [
            threading.Thread(target=_work_through, args=(items, carry, mailbox), daemon=True)
            for items in links.values()
        ]
        for thread in threads:
            thread.start()
        _work_through(ops, compute, mailbox)
        for thread in threads:
            thread.join(mailbox.deadline.left() if mailbox.error is None else 0)
            if thread.is_alive() and mailbox.error is None:
                text = f"the transfers of stage {stage} were not over"
                mailbox.fail(LateError(f"{text} within {mailbox.deadline.timeout_s:g} s"))
    if mailbox.error is not None:
        raise mailbox.error


def _work_through(items: Sequence[int], work: Work, mailbox: Mailbox) -> None:
    try:
        for item in items:
            work(item)
    except Stopped:
        pass
    except BaseException as error:
        mailbox.fail(error)
