"""Where plans are carried out: launch targets by name; clusters emulated on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.runtime.context import devices_of
from reshard_lab.runtime.measure import Measurement, available_cores
from reshard_lab.runtime.network import BUCKET, INTERFACE, RECIPE, Network, need_namespaces
from reshard_lab.runtime.pool import Pool, check_run
from reshard_lab.runtime.torchrun import run_torchrun
from reshard_lab.units import format_rate, parse_bandwidth

DEFAULT_NIC = "400Mbit"
LADDER = ("1Gbps", "400Mbit", "200Mbit")
"""Speeds to try from the top, where one is looked for that the machine carries."""
CORE_Bps = 62.5e6
"""Fastest NIC for each core: above, the processor makes the time, not the NIC."""
LEAST_SHARE = 0.9
"""Of the asked speed, that all NICs must reach together."""
_PROBE_S = 0.15  # long against the start of a run, short against everything else
_PROBE_BUCKETS = 16  # so much that it hardly matters whether a NIC starts with a full bucket


class SlowError(ReshardError):
    """The machine does not carry the speed asked for."""


class Probe(NamedTuple):
    """What the NICs carry when all of them send and receive at once."""

    share: float
    """Of the asked speed, in payload."""
    cpu_share: float | None
    """How busy the cores were meanwhile."""


class EmulatedCluster(Pool):
    """A pool with hosts as network namespaces and NICs as rate-limited cables.

    hosts, devices_per_host, nic, nics_per_host:
        as in ``Cluster``; ``nic`` is the rate of payload each way. Inside a host nothing is
        limited.
    devices:
        those that get a process, as in ``Pool``; default: all.

    Use it in a ``with`` statement: it starts the processes, and measures whether the machine
    carries the speed. Plans are made for ``.cluster``: ``.run`` carries out those whose devices
    are on the same hosts, with as many NICs. The environment of a measurement says what the NICs
    reached on entry, and how busy the cores were during the timed repeats. Nothing is left behind,
    also when this process is killed. Raises ReshardError where namespaces are not allowed and
    where the machine does not carry the speed: a time that the processor made is not reported as
    the network's.
    """

    where, prefix = "emulated", RECIPE
    cluster: Cluster

    def __init__(
        self,
        hosts: int,
        devices_per_host: int,
        nic: str | float | Sequence[str | float] = DEFAULT_NIC,
        nics_per_host: int | Sequence[int] = 1,
        *,
        devices: int | Iterable[int] | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        # Only the NICs are made slow: what a message costs beside its bytes is what software costs
        # here, so it shows as a difference between measured and predicted, as it should.
        self.cluster = Cluster(
            hosts, devices_per_host, nic, nics_per_host, nic_latency=0, intra="inf", intra_latency=0
        )
        limit = fastest_nic_Bps()
        if self.cluster.nic_Bps > limit:
            raise ReshardError(
                f"nic {format_rate(self.cluster.nic_Bps)} is more than {available_cores()} cores "
                f"can emulate: at most {format_rate(limit)}; a faster one would show the speed of "
                f"the processor. Use nic={DEFAULT_NIC!r}"
            )
        super().__init__(
            self.cluster.size if devices is None else devices, start_timeout_s=start_timeout_s
        )
        self.cluster.check(Mesh(self.devices), "the list of devices")
        self.network = Network.of(self.cluster, self.devices)
        self.rates_Bps = tuple(dict.fromkeys(nic.rate_Bps for nic in self.network.nics))
        self.link = f"emulated {' and '.join(map(format_rate, self.rates_Bps))} NICs"
        self.probe: Probe | None = None
        """Measured on entry; None before, and for a cluster of one host."""
        self.is_open = False  # whether its ``with`` statement is under way

    def __enter__(self) -> EmulatedCluster:
        need_namespaces()
        try:
            self.probe = self._probe()
        except BaseException:
            self.close()
            raise
        self.is_open = True
        return self

    def close(self) -> None:
        """End all processes; the network vanishes with them."""
        self.is_open = False
        super().close()

    def check_plan(self, plan: Plan) -> None:
        """Raise ReshardError if the plan is not right, or for other hosts."""
        for device in devices_of(plan):
            host = plan.cluster.host_of(device)
            same = device < self.cluster.size and host == self.cluster.host_of(device)
            if not same or plan.cluster.host_nics[host] != self.cluster.host_nics[host]:
                raise ReshardError(
                    f"the plan puts device {device} on host {host} of {plan.cluster!r}, which is "
                    f"not how {self.cluster!r} has it; plan for the cluster of the EmulatedCluster"
                )
        super().check_plan(plan)

    def stamp(self, cpu: Iterable[Sequence[float] | None]) -> dict[str, Any]:
        """The environment of what was measured, with the rates of the NICs as well."""
        stamp = super().stamp(cpu) | {"nic_Bps": max(self.rates_Bps)}
        return stamp if self.probe is None else stamp | {"nic_share": self.probe.share}

    def _interface(self) -> str:
        return INTERFACE

    def _probe(self) -> Probe | None:
        """Send from NIC to NIC, all at once, for some tenths of a second."""
        ring = _ring(self.cluster, self.devices)
        if ring is None:
            return None
        measured = self.run(ring, repeats=5, warmup=2)
        ends = devices_of(ring)
        rate = _slowest_Bps(self.cluster, ends)
        share = (ring.nbytes // len(ends) - BUCKET) / measured.min_s / rate
        probe = Probe(share, measured.environment["cpu_share"])
        if share < LEAST_SHARE:
            busy = "" if probe.cpu_share is None else f", the cores {probe.cpu_share:.0%} busy"
            slower = ", ".join(nic for nic in LADDER if parse_bandwidth(nic) < rate)
            other = f"a slower nic (such as {slower}), " if slower else ""
            raise SlowError(
                f"the NICs were to carry {format_rate(rate)} each, and carry "
                f"{format_rate(share * rate)} when all are at work{busy}; use {other}fewer "
                "hosts, or a machine that does nothing else"
            )
        return probe


def fastest_nic_Bps() -> float:
    """Fastest NIC that this machine is allowed to emulate, in bytes a second."""
    return CORE_Bps * available_cores()


def emulation_of(cluster: Cluster, devices: Sequence[int]) -> EmulatedCluster:
    """``cluster`` as this machine can emulate it, with processes for ``devices``.

    Its NICs keep their speed if it is not too fast; else all are slowed down alike, so that the
    fastest has the default speed.
    """
    slow = Cluster(1, 1, DEFAULT_NIC).nic_Bps / cluster.nic_Bps
    factor = 1.0 if cluster.nic_Bps <= fastest_nic_Bps() else slow
    return EmulatedCluster(
        cluster.hosts,
        cluster.devices_per_host,
        [rate * factor for rate in cluster.host_nic_Bps],
        cluster.host_nics,
        devices=devices,
    )


def _slowest_Bps(cluster: Cluster, devices: Iterable[int]) -> float:
    return min(cluster.host_nic_Bps[cluster.host_of(device)] for device in devices)


def _ring(cluster: Cluster, devices: Sequence[int]) -> Plan | None:
    """From one device at every NIC to such a device on another host; None for a single host.

    Of a host with more NICs than all the others together, as many as those have.
    """
    first = {cluster.nic_of(device): device for device in sorted(devices, reverse=True)}
    by_host: dict[int, list[int]] = {}
    for device in sorted(first.values()):
        by_host.setdefault(cluster.host_of(device), []).append(device)
    most = max(map(len, by_host.values()))
    shift = min(most, len(first) - most)
    if not shift:
        return None
    ends = [device for near in by_host.values() for device in near[:shift]]
    piece = max(int(_PROBE_S * _slowest_Bps(cluster, ends)), _PROBE_BUCKETS * BUCKET)
    src, dst = (Layout(Mesh(ids), "S0") for ids in (ends, ends[shift:] + ends[:shift]))
    task = ReshardingTask((piece * len(ends),), "uint8", src, dst, cluster)
    return plan(task, "send_recv", scheduler="naive")


POOL_TARGETS: dict[str, Callable[[Cluster, Sequence[int]], Pool]] = {
    "local": lambda cluster, devices: Pool(devices),
    "emulated": emulation_of,
}
"""Where there is a pool, to train in and to measure figures: what makes that of the listed devices.

It starts nothing before it is used. Its ``cluster``, if any, takes the place of the one given."""
LAUNCH_TARGETS = (*POOL_TARGETS, "torchrun")
"""Where a plan can be carried out."""


def open_pool(where: str, cluster: Cluster, devices: Sequence[int]) -> Pool:
    """The pool of one of ``POOL_TARGETS``, to be used in a ``with`` statement."""
    return POOL_TARGETS[check_choice("place to run (where)", where, POOL_TARGETS)](cluster, devices)


def run(
    plan: Plan,
    where: str = "local",
    repeats: int = 10,
    warmup: int = 3,
    timeout_s: float = 60.0,
    seed: int = 0,
) -> Measurement:
    """Carry ``plan`` out on processes started for it, and measure it (see ``Pool.run``).

    where:
        ``"local"``: one process a device on this machine, over loopback. ``"emulated"``: the
        same, each host in a network namespace behind NICs of the plan's speed; where that is more
        than this machine can emulate, all NICs are slowed down alike, and the measurement says
        so. ``"torchrun"``: one process a GPU of this machine, with NCCL (with gloo, on the CPU,
        where there is no GPU); prints a line a run.

    A sweep of plans is faster on one ``Pool`` or ``EmulatedCluster``.
    """
    check_choice("place to run (where)", where, LAUNCH_TARGETS)
    checked = check_run(plan, repeats, warmup, timeout_s, seed)
    if where == "torchrun":
        return run_torchrun(plan, *checked)
    with open_pool(where, plan.cluster, devices_of(plan)) as pool:
        return pool.run(plan, *checked)
