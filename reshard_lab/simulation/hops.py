"""A plan as a table of hops, and which hop waits for which."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError

if TYPE_CHECKING:
    from reshard_lab.planning import Plan


@dataclass(frozen=True, eq=False)
class Hops:
    """One row a hop of a transfer (a local copy is one row), by transfer and then by hop.

    Columns are arrays of one length; devices and NICs are numbered over the whole cluster.
    """

    transfer: np.ndarray
    hop: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    """The source itself for a local copy."""
    tx_nic: np.ndarray
    """NIC that sends; -1 inside a host."""
    rx_nic: np.ndarray
    nbytes: np.ndarray
    chunks: np.ndarray
    latency_s: np.ndarray
    """Of every chunk."""
    rate_Bps: np.ndarray
    """With the links idle: the slower end counts."""
    ordered: bool
    """Whether every device works through its sends, and its receives, one after another; else
    all of them share its ports."""
    before: np.ndarray
    """(waits, 2) pairs: the first row is complete before the second starts."""

    def __len__(self) -> int:
        return len(self.transfer)

    @property
    def crosses(self) -> np.ndarray:
        """Whether the hop leaves its host."""
        return self.tx_nic >= 0

    @property
    def chunk_s(self) -> np.ndarray:
        """Seconds one chunk of equal chunks takes alone."""
        return self.latency_s + self.nbytes / self.chunks / self.rate_Bps


def hops_of(plan: Plan, cluster: Cluster) -> Hops:
    """The hops of ``plan``, timed on ``cluster``; raises for devices the cluster lacks."""
    transfers = plan.transfers
    paths = [t.path if len(t.path) > 1 else (t.path[0], t.path[0]) for t in transfers]
    count = np.array([len(p) - 1 for p in paths], dtype=np.int64)
    stops = np.cumsum(count)
    source = _column(p[:-1] for p in paths)
    destination = _column(p[1:] for p in paths)
    for devices in (source, destination):
        unknown = np.flatnonzero((devices < 0) | (devices >= cluster.size))
        if len(unknown):
            number = int(np.searchsorted(stops, unknown[0], side="right"))
            raise ReshardError(
                f"transfer {number} uses device {devices[unknown[0]]}, but the cluster has "
                f"devices 0 to {cluster.size - 1}; simulate on a cluster as large as the plan's"
            )
    transfer = np.repeat(np.arange(len(transfers)), count)
    per = cluster.devices_per_host
    crosses = source // per != destination // per
    nic = np.array([cluster.nic_of(d) for d in range(cluster.size)])
    speed = np.repeat(np.array(cluster.host_nic_Bps), per)
    copies = source == destination
    latency = np.where(crosses, cluster.nic_latency_s, cluster.intra_latency_s)
    rate = np.where(crosses, np.minimum(speed[source], speed[destination]), cluster.intra_Bps)
    before = [_waits_of(plan, stops, stops - count)]
    if plan.ordered:
        before += _lanes(plan, transfer, source, destination, cluster.size)
    return Hops(
        transfer=transfer,
        hop=np.arange(len(transfer)) - np.repeat(stops - count, count),
        source=source,
        destination=destination,
        tx_nic=np.where(crosses, nic[source], -1),
        rx_nic=np.where(crosses, nic[destination], -1),
        nbytes=np.repeat(np.array([t.nbytes for t in transfers], dtype=np.int64), count),
        chunks=np.repeat(np.array([t.chunks for t in transfers], dtype=np.int64), count),
        latency_s=np.where(copies, 0.0, latency),
        rate_Bps=np.where(copies, np.inf, rate),
        ordered=plan.ordered,
        before=np.concatenate(before),
    )


def _column(parts: itertools.chain[int] | object) -> np.ndarray:
    return np.fromiter(itertools.chain.from_iterable(parts), dtype=np.int64)  # type: ignore[arg-type]


def _waits_of(plan: Plan, stops: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """``Transfer.after``: the last hop of the one before the first hop of the other."""
    pairs = [(other, t.id) for t in plan.transfers for other in t.after]
    if not pairs:
        return np.zeros((0, 2), dtype=np.int64)
    first, then = np.array(pairs, dtype=np.int64).T
    return np.column_stack((stops[first] - 1, starts[then]))


def _lanes(
    plan: Plan, transfer: np.ndarray, source: np.ndarray, destination: np.ndarray, size: int
) -> list[np.ndarray]:
    """Neighbours in the programs: a device's sends in order, and its receives in order."""
    made = []
    for op, end in (("send", source), ("recv", destination)):
        steps = [
            (device, step.transfer)
            for device, program in plan.programs.items()
            for step in program
            if step.op == op
        ]
        if not steps:
            continue
        device, number = np.array(steps, dtype=np.int64).T
        keys = transfer * size + end
        by_key = np.argsort(keys)
        asked = number * size + device
        found = by_key[np.minimum(np.searchsorted(keys[by_key], asked), len(keys) - 1)]
        wrong = np.flatnonzero(keys[found] != asked)
        if len(wrong):
            raise ReshardError(
                f"device {device[wrong[0]]} lists a {op} of transfer {number[wrong[0]]}, which has "
                "no such hop; verify the plan"
            )
        same = device[1:] == device[:-1]
        made.append(np.column_stack((found[:-1], found[1:]))[same])
    return made
