"""Unit tasks on the NICs of a cluster.

With one NIC a host, a unit task is one task between hosts. With several, it is cut into as many
parts as there are NICs that can take it in (section 3.1 leaves this to future work): each part
goes from one sending NIC to one NIC of every receiving host, and the devices of the host then
all-gather the parts among themselves. A device uses the NIC near it, so a part enters a host at a
device that needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from reshard_lab.boxes import box_volume, cut
from reshard_lab.cluster import Cluster
from reshard_lab.resharding import ReshardingTask, UnitTask, need_cluster, nic_hosts


class Piece(NamedTuple):
    """A unit task, or one of the parts it is cut into, as a task of the scheduling problem."""

    unit: int
    """Index of the unit task among those of all tasks."""
    first: int
    """First of its elements, in row-major order of the unit task's box."""
    stop: int
    nbytes: int
    senders: tuple[int, ...]
    """NICs near a device that holds it."""
    receivers: tuple[int, ...]
    """One NIC of every host that must take it in."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.stop - self.first


def duration_s(piece: Piece, cluster: Cluster) -> float:
    """Seconds the piece takes through its NICs: the slowest receiver, the fastest sender."""
    if cluster.uniform or not piece.receivers:
        return piece.nbytes / cluster.nic_Bps
    rate = [cluster.host_nic_Bps[host] for host in map(cluster.host_of_nic, piece.receivers)]
    sends = [cluster.host_nic_Bps[host] for host in map(cluster.host_of_nic, piece.senders)]
    return piece.nbytes / min(*rate, max(sends))


def one_nic_a_host(cluster: Cluster) -> bool:
    """Whether NICs and hosts are one to one."""
    return cluster.nics == cluster.hosts


def pieces_of(tasks: Sequence[ReshardingTask], cut_up: bool = True) -> list[Piece]:
    """The pieces of all unit tasks, in order; boxes that stay local are pieces without receivers.

    With several NICs a host a unit task is cut into parts of like size: as many as the most NICs
    that one host can take it in with, but no more than there are NICs to send it from. On every
    host a part enters through the NIC with the least to take in so far. Where ``cut_up`` is
    false, tasks stay whole, and enter through the NICs of all devices that need them.
    """
    cluster = need_cluster(tasks)
    made: list[Piece] = []
    if one_nic_a_host(cluster):
        known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], ...]] = {}
        for index, unit in enumerate(u for task in tasks for u in task.unit_tasks):
            key = unit.senders, unit.receivers
            if key not in known:
                known[key] = nic_hosts(unit, cluster)
            made.append(Piece(index, 0, box_volume(unit.box), unit.nbytes, *known[key]))
        return made
    load: Counter[int] = Counter()
    index = 0
    for task in tasks:
        for unit in task.unit_tasks:
            made += _parts(index, unit, task.itemsize, cluster, load, cut_up)
            index += 1
    return made


def _parts(
    index: int, unit: UnitTask, itemsize: int, cluster: Cluster, load: Counter[int], cut_up: bool
) -> list[Piece]:
    senders = tuple(sorted({cluster.nic_of(d) for d in unit.senders}))
    taking = set(nic_hosts(unit, cluster)[1])
    entries: dict[int, list[int]] = {}
    for device in unit.receivers:
        host, nic = cluster.host_of(device), cluster.nic_of(device)
        if host in taking and nic not in entries.setdefault(host, []):
            entries[host].append(nic)
    volume = box_volume(unit.box)
    if not cut_up:
        every = tuple(sorted(nic for nics in entries.values() for nic in nics))
        return [Piece(index, 0, volume, unit.nbytes, senders, every)]
    count = max((len(nics) for nics in entries.values()), default=1)
    made = []
    for first, stop in cut(0, volume, min(count, len(senders), volume), "balanced"):
        nbytes = (stop - first) * itemsize
        through = []
        for host in sorted(entries):
            nic = min(entries[host], key=lambda n: (load[n], n))
            load[nic] += nbytes
            through.append(nic)
        made.append(Piece(index, first, stop, nbytes, senders, tuple(through)))
    return made
