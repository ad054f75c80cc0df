"""What users hold: a plan, and all that can be asked of it."""

from __future__ import annotations

from pathlib import Path

from reshard_lab.planning.explain import explain
from reshard_lab.planning.json_file import dump, load
from reshard_lab.planning.nics import Gantt, gantt
from reshard_lab.planning.record import PlanRecord
from reshard_lab.planning.verify import Verified, verify


class Plan(PlanRecord):
    """Ordered transfers that carry one or several tensors to their destination layouts.

    Built by ``reshard_lab.plan``; immutable. ``makespan_s`` is the strategy's time for each task
    (latency and pipeline fill included) under the schedule.
    """

    def verify(self) -> Verified:
        """Prove the plan right, or raise naming the transfer at fault (see ``planning.verify``)."""
        return verify(self)

    def explain(self, limit: int = 20) -> str:
        """The plan in words: unit tasks, who sends what when, time, bound and what is proven."""
        return explain(self, limit)

    def gantt(self) -> Gantt:
        """The plan as a table: when which NICs carry what, and what each waits for."""
        return gantt(self)

    def to_json(self, path: str | Path | None = None, programs: bool = False) -> str:
        """The plan as JSON text, also written to ``path`` if given (see docs/plan_file.md).

        ``programs`` adds what every device does in order, which ``from_json`` has no need of: for
        readers without this library.
        """
        return dump(self, path, programs)

    @classmethod
    def from_json(cls, path: str | Path) -> Plan:
        """Read a plan that ``to_json`` wrote. It is verified when it is executed."""
        return cls(**load(path))
