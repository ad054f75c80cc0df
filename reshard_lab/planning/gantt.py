"""The plan as a table: which NICs carry what, when, and what each delivery waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from reshard_lab.boxes import box_text
from reshard_lab.errors import check_int, need
from reshard_lab.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from reshard_lab.cluster import Cluster
    from reshard_lab.planning.record import Plan, Stretch

_SAME = 1e-9
"""Part of the makespan that two times may differ by and count as one."""


class Bar(NamedTuple):
    """One delivery of a unit task, or of a part of it."""

    start_s: float
    end_s: float
    tensor: int
    """Index in ``Plan.tasks``."""
    task: int
    """Index of the unit task in ``Plan.units``."""
    sender: int
    """Device it comes from."""
    sender_nic: int | None
    """NIC it leaves by, numbered over all hosts; None for a delivery inside a host."""
    receiver_nics: tuple[int, ...]
    """NICs it enters hosts by."""
    nbytes: int
    why: str
    """What it waits for, if it does not start at once."""


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

    bars: tuple[Bar, ...]
    """In order of their start."""
    makespan_s: float
    lower_bound_s: float
    ordered: bool
    """False: bars of one NIC overlap, because tasks share it."""
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
        for bar in self.bars:
            for nic, side in _sides(bar):
                spans.setdefault((nic, side), []).append((bar.start_s, bar.end_s))
        total = self.makespan_s or 1.0
        return tuple(
            Idle(nic, side, max(0.0, 1 - _covered(found) / total))
            for (nic, side), found in sorted(spans.items())
        )

    def way(self, bar: Bar) -> str:
        """By which NICs a delivery goes, in words."""
        if bar.sender_nic is None:
            return f"inside the host of device {bar.sender}"
        to = ", ".join(self.nics[nic] for nic in bar.receiver_nics)
        return f"{self.nics[bar.sender_nic]} -> {to}"

    def steps(self, limit: int = 50) -> list[str]:
        """The deliveries in order, each with what it waits for; at most ``limit`` of them."""
        check_int("limit", limit)
        lines = []
        for number, bar in enumerate(self.bars[:limit], 1):
            part = " of it" if bar.nbytes < self.sizes[bar.task] else ""
            lines.append(
                f"{number}. {format_seconds(bar.start_s)} to {format_seconds(bar.end_s)}: "
                f"task {bar.task} {self.boxes[bar.task]}, {format_bytes(bar.nbytes)}{part}, "
                f"{self.way(bar)}; {bar.why}"
            )
        if len(self.bars) > limit:
            lines.append(f"... and {len(self.bars) - limit} more")
        return lines

    def to_frame(self) -> pd.DataFrame:
        """The bars as a table."""
        return need("pandas", "notebooks", "a table").DataFrame(self.bars, columns=Bar._fields)

    def __repr__(self) -> str:
        nics = len({nic for bar in self.bars for nic, _ in _sides(bar)})
        return (
            f"Gantt({len(self.bars)} deliveries over {nics} NICs in "
            f"{format_seconds(self.makespan_s)}, bound {format_seconds(self.lower_bound_s)})"
        )


def gantt(plan: Plan) -> Gantt:
    """The Gantt record of ``plan``; local copies take no time and are left out."""
    cluster = plan.cluster
    made = Gantt(
        bars=(),
        makespan_s=plan.makespan_s,
        lower_bound_s=plan.lower_bound_s,
        ordered=plan.ordered,
        nics=tuple(map(cluster.nic_text, range(cluster.nics))),
        boxes=tuple(box_text(unit.box) for unit in plan.unit_tasks),
        sizes=tuple(unit.nbytes for unit in plan.unit_tasks),
    )
    order = sorted(plan.stretches, key=lambda s: s.start_s)
    bars = [_bar(plan, s) for s in order]
    whys = _waits(plan, made, order, bars) if plan.ordered else [_SHARED] * len(bars)
    named = [bar._replace(why=why) for bar, why in zip(bars, whys, strict=True)]
    return replace(made, bars=tuple(named))


_SHARED = "does not wait: tasks share the NICs"


def _bar(plan: Plan, s: Stretch) -> Bar:
    cluster = plan.cluster
    home = cluster.host_of(s.sender)
    entered: dict[int, int] = {}
    for device in s.receivers:
        if cluster.host_of(device) != home:
            entered.setdefault(cluster.nic_of(device), device)
    return Bar(
        s.start_s,
        s.end_s,
        plan.units[s.unit].task,
        s.unit,
        s.sender,
        cluster.nic_of(s.sender) if entered else None,
        tuple(entered),
        s.nbytes,
        "",
    )


def _sides(bar: Bar) -> list[tuple[int, str]]:
    if bar.sender_nic is None:
        return []
    return [(bar.sender_nic, "tx"), *((nic, "rx") for nic in bar.receiver_nics)]


class _Past:
    """What has used every port last, and where data has arrived."""

    def __init__(self, chart: Gantt) -> None:
        self.chart = chart
        self.slack = _SAME * chart.makespan_s
        self.last: dict[tuple[str, int], tuple[float, int]] = {}
        self.arrived: dict[tuple[int, int], list[float]] = {}

    def why(self, s: Stretch, ports: Sequence[tuple[str, int]]) -> str:
        """What ``s`` waits for: whatever ends as it starts and had a port or its data."""
        if s.start_s <= self.slack:
            return "starts at once"
        gathers = s.sender in s.receivers
        if gathers and self._comes(s.unit, s.receivers, s.start_s):
            return "waits: the last of its parts reaches the host"
        for side, number in ports:
            end, unit = self.last.get((side, number), (-1.0, -1))
            if abs(end - s.start_s) <= self.slack:
                device = side.startswith("device")
                where = f"device {number}" if device else self.chart.nics[number]
                what = f"task {unit}" if unit != s.unit else f"another part of task {unit}"
                return f"waits: {where} busy with {what}"
        if self._comes(s.unit, (s.sender,), s.start_s):
            return f"waits: its data reaches device {s.sender}"
        return "waits: devices inside the host pass other data on"

    def _comes(self, unit: int, devices: Sequence[int], now: float) -> bool:
        """Whether data of a unit task reaches one of ``devices`` just then."""
        return any(
            abs(at - now) <= self.slack for d in devices for at in self.arrived.get((unit, d), ())
        )

    def add(self, s: Stretch, ports: Sequence[tuple[str, int]]) -> None:
        """Note a stretch for those after it."""
        for port in ports:
            if s.end_s >= self.last.get(port, (-1.0, -1))[0]:
                self.last[port] = (s.end_s, s.unit)
        for device in s.receivers:
            self.arrived.setdefault((s.unit, device), []).append(s.end_s)


def _waits(plan: Plan, chart: Gantt, order: Sequence[Stretch], bars: Sequence[Bar]) -> list[str]:
    past = _Past(chart)
    whys = []
    for s, bar in zip(order, bars, strict=True):
        ports = _ports(plan.cluster, s, bar)
        whys.append(past.why(s, ports))
        past.add(s, ports)
    return whys


def _ports(cluster: Cluster, s: Stretch, bar: Bar) -> list[tuple[str, int]]:
    """What a stretch keeps busy, what matters most first."""
    found = [(side, nic) for nic, side in _sides(bar)]
    chain = (s.sender, *(d for d in s.receivers if d != s.sender))
    for a, b in pairwise(chain):
        found += cluster.nic_ports(a, b)[:1]
    found += [("device tx", a) for a in chain[:-1]] + [("device rx", b) for b in chain[1:]]
    return list(dict.fromkeys(found))


def _covered(spans: list[tuple[float, float]]) -> float:
    """Time in which at least one of the spans lasts."""
    total = until = 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
