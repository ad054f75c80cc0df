"""How long a search may go on: by the clock, and by counted work.

Searches stop after a number of steps that follows from the time limit at a pace any machine
keeps, so that one seed gives one schedule. The clock is there for machines that do not; it counts
processor time of this thread, since what else a machine is doing must not change the schedule.
"""

from __future__ import annotations

import importlib
import math
import time

from reshard_lab.errors import ReshardError


class Budget:
    """The time from now to the limit of one call."""

    def __init__(self, limit_s: float) -> None:
        try:
            limit = float(limit_s)
        except (TypeError, ValueError):
            limit = math.nan
        if not limit >= 0 or isinstance(limit_s, bool):
            raise ReshardError(f"time_limit_s must be seconds of at least 0, not {limit_s!r}")
        self.limit_s = limit
        self.ends = time.thread_time() + limit

    @property
    def left_s(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(0.0, self.ends - time.thread_time())

    @property
    def over(self) -> bool:
        """Whether the limit has passed."""
        return time.thread_time() >= self.ends

    def load(self, module: str) -> None:
        """Import a solver; what that takes is not taken from the time."""
        before = time.thread_time()
        importlib.import_module(module)
        self.ends += time.thread_time() - before

    def part(self, share: float) -> Budget:
        """``share`` of the work, by whenever the limit itself ends."""
        made = Budget(self.limit_s * share)
        made.ends = self.ends
        return made

    def slot(self, share: float) -> Budget:
        """``share`` of the time that is left, for solvers that only look at the clock."""
        return Budget(self.left_s * share)

    def steps(self, a_second: float) -> float:
        """Steps of work the limit stands for at a pace of ``a_second``."""
        return self.limit_s * a_second
