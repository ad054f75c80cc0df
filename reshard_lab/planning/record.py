"""The plan as plain records: everything an executor, a simulator or a picture needs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshard_lab.boxes import box_volume, contains
from reshard_lab.cluster import Cluster
from reshard_lab.planning.hops import HopTable, hops_of, programs_of
from reshard_lab.resharding import ReshardingTask, UnitTask, lower_bound_s, need_cluster
from reshard_lab.transfer import Step, Transfer
from reshard_lab.units import format_seconds


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


class ScheduledDelivery(NamedTuple):
    """One delivery as the plan times it: all of a unit task, or a part of it."""

    start_s: float
    end_s: float
    tensor: int
    """Index in ``Plan.tasks``."""
    task: int
    """Index of the unit task in ``Plan.units``."""
    sender: int
    """Device it comes from."""
    receivers: tuple[int, ...]
    """Devices that take it in, in the order in which it reaches them."""
    sender_nic: int | None
    """NIC it leaves by, numbered over all hosts; None for a delivery inside a host."""
    receiver_nics: tuple[int, ...]
    """NICs it enters hosts by."""
    nbytes: int
    why: str
    """What it waits for, in words."""

    @property
    def nic_ports(self) -> list[tuple[int, str]]:
        """The sides of NICs, ``"tx"`` or ``"rx"``, that it keeps busy."""
        sent = [] if self.sender_nic is None else [(self.sender_nic, "tx")]
        return [*sent, *((nic, "rx") for nic in self.receiver_nics)]


class StagedEnd(NamedTuple):
    """One end of a hop whose data lies scattered in memory."""

    transfer: int
    hop: int
    device: int
    sends: bool
    """Whether the device sends it on; False = it takes it in."""
    nbytes: int
    """Bytes staged while the hop is under way."""


@dataclass(frozen=True, repr=False)
class PlanRecord:
    """The fields of a plan, and what follows from them; users hold a ``Plan``."""

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
    deliveries: tuple[ScheduledDelivery, ...] = ()
    """What is sent when, in order of issue; local copies left out."""

    @property
    def cluster(self) -> Cluster:
        """The cluster of all tasks."""
        return need_cluster(self.tasks)

    @property
    def delivers(self) -> bool:
        """False for ``signal``, which moves a byte in place of each payload."""
        return self.strategy != "signal"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(task.nbytes for task in self.tasks)

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
        return programs_of(self.hops, [self.tasks[unit.task].dtype for unit in self.units])

    @cached_property
    def lower_bound_s(self) -> float:
        """Seconds no plan for these tasks can beat (fluid bound; NIC traffic, no latency)."""
        return lower_bound_s(self.tasks)

    def staged_ends(self) -> Iterator[StagedEnd]:
        """Every end of every hop that stages bytes; none in a ``signal`` plan."""
        if not self.delivers:
            return
        have = [task.src.boxes(task.shape) for task in self.tasks]
        need = [task.dst.boxes(task.shape) for task in self.tasks]
        hops = self.hops
        columns = (hops.transfer, hops.hop, hops.source, hops.destination)
        for number, hop, device, peer in zip(*(c.tolist() for c in columns), strict=True):
            if device == peer:
                continue
            t = self.transfers[number]
            task = self.units[t.unit].task
            held = have[task].get(device) if hop == 0 else None
            source = held if held is not None and contains(held, t.box) else need[task][device]
            for end, piece in ((device, source), (peer, need[task][peer])):
                staged = t.staged_bytes(piece)
                if staged:
                    yield StagedEnd(number, hop, end, end == device, staged)

    @cached_property
    def peak_bytes(self) -> dict[int, int]:
        """``{device: bytes}``: source and destination pieces plus the most that is staged.

        In a plan without an order all transfers of a device may be under way at once.
        """
        total: dict[int, int] = {}
        for task in self.tasks:
            for layout in (task.src, task.dst):
                for device, box in layout.boxes(task.shape).items():
                    total[device] = total.get(device, 0) + box_volume(box) * task.itemsize
        staged: dict[tuple[int, bool, int], int] = {}
        for end in self.staged_ends():
            key = (end.device, end.sends, 0 if self.ordered else end.transfer)
            staged[key] = max(staged.get(key, 0), end.nbytes)
        for (device, _, _), nbytes in staged.items():
            total[device] += nbytes
        return dict(sorted(total.items()))

    def __repr__(self) -> str:
        proof = f"schedule {self.optimal}-optimal" if self.optimal else "optimality not proven"
        return (
            f"Plan({self.strategy}, {self.scheduler}: {len(self.units)} unit tasks, "
            f"{len(self.transfers)} transfers, {format_seconds(self.makespan_s)} "
            f"(bound {format_seconds(self.lower_bound_s)}, {proof}))"
        )


NICs = tuple[int | None, tuple[int, ...]]
"""The NIC a delivery leaves by (None inside a host), and those it enters other hosts by."""


def nics_of(sender: int, receivers: tuple[int, ...], cluster: Cluster) -> NICs:
    """The NICs of a delivery from ``sender``."""
    home = cluster.host_of(sender)
    entered = dict.fromkeys(cluster.nic_of(d) for d in receivers if cluster.host_of(d) != home)
    return cluster.nic_of(sender) if entered else None, tuple(entered)
