"""Where a training run takes place: a pool of processes, and the cluster to plan for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice, check_type
from reshard_lab.runtime.emulated import EmulatedCluster, emulation_of
from reshard_lab.runtime.launch import POOL_TARGETS
from reshard_lab.runtime.pool import Pool


class Venue(NamedTuple):
    """A place that has been chosen."""

    where: str | Pool | EmulatedCluster
    cluster: Cluster | None
    """To place stages on; None: one that fits them."""

    def for_devices(self, cluster: Cluster, devices: Sequence[int]) -> Opened:
        """The pool for ``devices`` and the cluster it stands for; starts nothing yet."""
        if isinstance(self.where, EmulatedCluster):
            return Opened(self.where, cluster, nullcontext(), self.where)
        if isinstance(self.where, Pool):
            return Opened(self.where, cluster, nullcontext(), None)
        if self.where == "emulated":
            made = emulation_of(cluster, devices)
            return Opened(made, made.cluster, made, made)
        pool = Pool(devices)
        return Opened(pool, cluster, pool, None)


class Opened(NamedTuple):
    """A pool of processes, to be used within ``held``."""

    pool: Pool
    cluster: Cluster
    held: AbstractContextManager[Any]
    emulated: EmulatedCluster | None

    def stamp(self, cpu: Iterable[Sequence[int] | None]) -> dict[str, Any]:
        """The environment of what was measured."""
        return self.pool.stamp(cpu)


def find_venue(where: str | Pool | EmulatedCluster, cluster: Cluster | None) -> Venue:
    """The place called ``where``; an EmulatedCluster has its own cluster."""
    if cluster is not None:
        check_type("cluster", cluster, Cluster, "reshard_lab.Cluster(...) makes one")
    if isinstance(where, EmulatedCluster):
        if cluster is not None and cluster != where.cluster:
            raise ReshardError(
                f"cluster={cluster!r} is not that of the EmulatedCluster; leave cluster out"
            )
        if not where.is_open:
            raise ReshardError(
                "the EmulatedCluster is not open: its NICs have not been measured, and nothing "
                "would end its processes; use it in a with statement, and train inside"
            )
        return Venue(where, where.cluster)
    if isinstance(where, Pool):
        return Venue(where, cluster)
    if not isinstance(where, str):
        raise ReshardError(
            f"where must be 'local', 'emulated', an EmulatedCluster or a Pool, not {where!r}"
        )
    return Venue(check_choice("place to run (where)", where, POOL_TARGETS), cluster)
