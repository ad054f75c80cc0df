"""The plan as a table: which NICs carry what, when, and what each delivery waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reshard_lab.boxes import box_text
from reshard_lab.errors import check_int, need
from reshard_lab.planning.record import PlanRecord, ScheduledDelivery
from reshard_lab.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd


class Idle(NamedTuple):
    """One side of a NIC that carries something."""

    nic: int
    side: str
    """``"tx"`` or ``"rx"``."""
    share: float
    """Part of the makespan in which nothing uses it."""


@dataclass(frozen=True, repr=False)
class Gantt:
    """When which NICs carry what, as the plan predicts it."""

    deliveries: tuple[ScheduledDelivery, ...]
    """In order of their start."""
    makespan_s: float
    lower_bound_s: float
    ordered: bool
    """False: deliveries overlap on a NIC, because tasks share it."""
    nics: tuple[str, ...]
    """What every NIC of the cluster is called."""
    boxes: tuple[str, ...]
    """Box of every unit task."""
    sizes: tuple[int, ...]
    """Bytes of every unit task."""

    @property
    def idle(self) -> tuple[Idle, ...]:
        """How much of the makespan every NIC that is used lies idle, each way."""
        spans: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for delivery in self.deliveries:
            for nic, side in _sides(delivery):
                spans.setdefault((nic, side), []).append((delivery.start_s, delivery.end_s))
        total = self.makespan_s or 1.0
        return tuple(
            Idle(nic, side, max(0.0, 1 - _covered(spans[nic, side]) / total))
            for nic, side in sorted(spans)
        )

    def route_text(self, delivery: ScheduledDelivery) -> str:
        """By which NICs a delivery goes, in words."""
        if delivery.sender_nic is None:
            return f"inside the host of device {delivery.sender}"
        to = ", ".join(self.nics[nic] for nic in delivery.receiver_nics)
        return f"{self.nics[delivery.sender_nic]} -> {to}"

    def steps(self, limit: int = 50) -> list[str]:
        """The deliveries in order, each with what it waits for; at most ``limit`` of them."""
        check_int("limit", limit)
        lines = []
        for number, d in enumerate(self.deliveries[:limit], 1):
            part = " of it" if d.nbytes < self.sizes[d.task] else ""
            lines.append(
                f"{number}. {format_seconds(d.start_s)} to {format_seconds(d.end_s)}: "
                f"task {d.task} {self.boxes[d.task]}, {format_bytes(d.nbytes)}{part}, "
                f"{self.route_text(d)}; {d.why}"
            )
        if len(self.deliveries) > limit:
            lines.append(f"... and {len(self.deliveries) - limit} more")
        return lines

    def to_frame(self) -> pd.DataFrame:
        """The deliveries as a table."""
        frame = need("pandas", "notebooks", "a table").DataFrame(
            self.deliveries, columns=ScheduledDelivery._fields
        )
        return frame.drop(columns="receivers")

    def __repr__(self) -> str:
        nics = len({nic for delivery in self.deliveries for nic, _ in _sides(delivery)})
        return (
            f"Gantt({len(self.deliveries)} deliveries over {nics} NICs in "
            f"{format_seconds(self.makespan_s)}, bound {format_seconds(self.lower_bound_s)})"
        )


def gantt(plan: PlanRecord) -> Gantt:
    """The Gantt record of ``plan``; local copies take no time and are left out."""
    cluster = plan.cluster
    return Gantt(
        deliveries=tuple(sorted(plan.deliveries, key=lambda d: d.start_s)),
        makespan_s=plan.makespan_s,
        lower_bound_s=plan.lower_bound_s,
        ordered=plan.ordered,
        nics=tuple(map(cluster.nic_text, range(cluster.nics))),
        boxes=tuple(box_text(unit.box) for unit in plan.unit_tasks),
        sizes=tuple(unit.nbytes for unit in plan.unit_tasks),
    )


def _sides(d: ScheduledDelivery) -> list[tuple[int, str]]:
    if d.sender_nic is None:
        return []
    return [(d.sender_nic, "tx"), *((nic, "rx") for nic in d.receiver_nics)]


def _covered(spans: list[tuple[float, float]]) -> float:
    """Time in which at least one of the spans lasts."""
    total = until = 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
