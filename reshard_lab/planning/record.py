"""The plan: everything an executor, a simulator or a picture needs, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.planning.hops import HopTable, hops_of
from reshard_lab.planning.memory import peak_bytes
from reshard_lab.planning.programs import programs_of
from reshard_lab.resharding import ReshardingTask, UnitTask, lower_bound_s, need_cluster
from reshard_lab.transfer import Step, Transfer
from reshard_lab.units import format_seconds

if TYPE_CHECKING:
    from reshard_lab.planning.gantt import Gantt


class PlannedUnit(NamedTuple):
    """When and from where one unit task is carried, under the strategy's idle-link time."""

    task: int
    """Index of its tensor in ``Plan.tasks``."""
    unit: int
    """Index in ``Plan.tasks[task].unit_tasks``."""
    sender: int
    """Device chosen to send it (a holder of the box, also where nothing crosses the network)."""
    start_s: float
    duration_s: float
    """0 where every receiver holds the box already."""


class Stretch(NamedTuple):
    """One delivery as the plan times it: all of a unit task, or a part of it."""

    unit: int
    """Index in ``Plan.units``."""
    sender: int
    """Device it comes from."""
    receivers: tuple[int, ...]
    """Devices that take it in, in the order in which it reaches them."""
    nbytes: int
    start_s: float
    end_s: float


@dataclass(frozen=True, repr=False)
class Plan:
    """Ordered transfers that carry one or several tensors to their destination layouts.

    Built by ``reshard_lab.plan``; immutable. ``makespan_s`` is the strategy's time for each task
    (latency and pipeline fill included) under the schedule.
    """

    tasks: tuple[ReshardingTask, ...]
    strategy: str
    scheduler: str
    chunks: int
    seed: int
    units: tuple[PlannedUnit, ...]
    """One for every unit task: those of the first tensor, then of the second, and so on."""
    transfers: tuple[Transfer, ...]
    """In order of issue."""
    makespan_s: float
    optimal: str | None
    """What is proven of the schedule in the bandwidth model (equations 1 to 4, tasks lasting bytes
    over NIC bandwidth): ``"fluid"`` (no schedule at all is shorter), ``"unsplit"`` (none of whole
    tasks is), or None. Latency, fill and links inside hosts come on top in ``makespan_s``."""
    notes: tuple[str, ...] = ()
    """Choices made on the way, one sentence each."""
    ordered: bool = True
    """False under ``concurrent``: every transfer starts as soon as what it comes ``after`` is
    complete, all share their devices and NICs, and between two devices their messages take
    turns."""
    stretches: tuple[Stretch, ...] = ()
    """What is sent when, in order of issue; local copies left out."""

    @property
    def cluster(self) -> Cluster:
        """The cluster of all tasks."""
        return need_cluster(self.tasks)

    @property
    def delivers(self) -> bool:
        """False for ``signal``, which moves a byte in place of each payload."""
        return self.strategy != "signal"

    @cached_property
    def unit_tasks(self) -> tuple[UnitTask, ...]:
        """The unit tasks of all tensors, in the order of ``units``."""
        return tuple(u for task in self.tasks for u in task.unit_tasks)

    @cached_property
    def hops(self) -> HopTable:
        """The transfers hop by hop, with what each hop waits for."""
        return hops_of(self.transfers, self.ordered)

    @cached_property
    def programs(self) -> Mapping[int, tuple[Step, ...]]:
        """``{device: its steps in order}`` for every device that takes part."""
        return programs_of(self.hops, [self.tasks[u.task].dtype for u in self.units])

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(task.nbytes for task in self.tasks)

    @cached_property
    def lower_bound_s(self) -> float:
        """Seconds no plan for these tasks can beat (fluid bound; NIC traffic, no latency)."""
        return lower_bound_s(self.tasks)

    @cached_property
    def peak_bytes(self) -> dict[int, int]:
        """``{device: bytes}``: source and destination pieces plus the most that is staged."""
        return peak_bytes(self)

    def verify(self) -> Verified:
        """Prove the plan right, or raise naming the transfer at fault (see ``planning.verify``)."""
        from reshard_lab.planning.verify import verify

        return verify(self)

    def explain(self, limit: int = 20) -> str:
        """The plan in words: unit tasks, who sends what when, time, bound and what is proven."""
        from reshard_lab.planning.explain import explain

        return explain(self, limit)

    def gantt(self) -> Gantt:
        """The plan as a table: when which NICs carry what, and what each waits for."""
        from reshard_lab.planning.gantt import gantt

        return gantt(self)

    def to_json(self, path: str | Path | None = None, programs: bool = False) -> str:
        """The plan as JSON text, also written to ``path`` if given.

        ``programs`` adds what every device does in order, which ``from_json`` has no need of: for
        readers without this library.
        """
        from reshard_lab.planning.serial import dump

        return dump(self, path, programs)

    @classmethod
    def from_json(cls, path: str | Path) -> Plan:
        """Read a plan that ``to_json`` wrote. It is verified when it is executed."""
        from reshard_lab.planning.serial import load

        return load(path)

    def __repr__(self) -> str:
        proof = f"schedule {self.optimal}-optimal" if self.optimal else "optimality not proven"
        return (
            f"Plan({self.strategy}, {self.scheduler}: {len(self.units)} unit tasks, "
            f"{len(self.transfers)} transfers, {format_seconds(self.makespan_s)} "
            f"(bound {format_seconds(self.lower_bound_s)}, {proof}))"
        )


class Verified(NamedTuple):
    """What ``Plan.verify`` proved."""

    devices: int
    transfers: int
    elements: int
    """Elements of destination pieces, each proven to be written exactly once."""
    delivers: bool
    """False for ``signal``: order and waits were checked, delivery does not happen."""
