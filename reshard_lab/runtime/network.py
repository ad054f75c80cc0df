"""A cluster's network on one Linux machine: network namespaces, a bridge, rate-limited cables.

Every NIC is a network namespace with one cable (a veth pair) to one bridge, and a token bucket at
each end of the cable: one limits what the NIC sends, the other what it receives. A host with one
NIC is thus one namespace; the namespaces of a host with several are joined by cables without a
limit. Inside a host nothing is shaped. All of it lives in namespaces of its own and vanishes with
their last process, so that no two clusters meet and nothing has to be taken down.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.runtime.process import child_environment

RECIPE = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid"),
    *("--fork", "--kill-child", "--mount-proc"),
)
"""Runs a command as root of namespaces of its own. The command is their first process: the others
die with it, and it dies with ``unshare``."""
MTU = 9000
BUCKET = 128 * 1024
"""Bytes a NIC may be ahead of its rate, so that a process that comes late can catch up."""
INTERFACE = "eth0"
"""A NIC, in its namespace."""
_QUEUE = 16 * 2**20  # bytes waiting at a NIC: more than all windows together, so nothing is dropped
_IP, _TCP, _ETHERNET = 20, 32, 14  # bytes of header; TCP with timestamps
_TUNING = {
    # The window bounds what waits at a receiver's NIC, where the small words of the executor wait
    # too. As nothing is dropped, the oldest congestion control will do: every kernel has it.
    "tcp_rmem": "4096 131072 524288",
    "tcp_congestion_control": "reno",
    "tcp_slow_start_after_idle": "0",
}
_NEW_NETWORK = 0x40000000
_NETWORKS = Path("/run/netns")
_PATH = os.pathsep.join(filter(None, (os.environ.get("PATH"), "/usr/sbin", "/sbin")))
_LIMIT_S = 30.0


class Nic(NamedTuple):
    """A NIC and its namespace."""

    host: int
    number: int
    """Among the NICs of its host."""
    rate_Bps: float
    """Payload bytes a second, each way."""

    @property
    def name(self) -> str:
        """The namespace of the NIC, as ``ip netns`` knows it."""
        return f"h{self.host}n{self.number}"

    @property
    def address(self) -> str:
        """IPv4 address."""
        return f"10.77.{self.host}.{self.number + 1}"


class Network(NamedTuple):
    """All NICs of a cluster, and where its devices are."""

    nics: tuple[Nic, ...]
    near: Mapping[int, str]
    """Namespace of every device: that of its near NIC."""

    @classmethod
    def of(cls, cluster: Cluster, devices: Iterable[int] | None = None) -> Network:
        """The network of ``cluster``: of the hosts of ``devices``, or of all of them."""
        used = range(cluster.size) if devices is None else sorted(devices)
        hosts = sorted({cluster.host_of(device) for device in used})
        if hosts[-1] > 255 or cluster.nics_per_host > 254:
            raise ReshardError(
                f"{cluster!r} is too large to emulate: at most 256 hosts of 254 NICs have addresses"
            )
        every = [
            Nic(host, number, cluster.host_nic_Bps[host])
            for host in range(cluster.hosts)
            for number in range(cluster.host_nics[host])
        ]
        near = {device: every[cluster.nic_of(device)].name for device in used}
        return cls(tuple(nic for nic in every if nic.host in hosts), near)

    @classmethod
    def from_json(cls, data: Any) -> Network:
        """Read back what JSON made of a network."""
        nics, near = data
        return cls(tuple(Nic(*n) for n in nics), {int(d): name for d, name in near.items()})

    @property
    def hosts(self) -> dict[int, list[Nic]]:
        """NICs by host."""
        grouped = itertools.groupby(self.nics, key=lambda nic: nic.host)
        return {host: list(nics) for host, nics in grouped}


def build(network: Network) -> None:
    """Make the network. Called once, by a process that ``RECIPE`` started."""
    _call("mount", "-t", "tmpfs", "tmpfs", "/run")
    _batch(("ip",), [f"link add hub mtu {MTU} type bridge", "link set hub up", *_cables(network)])
    _batch(("tc",), [_bucket(f"s{i}", nic.rate_Bps) for i, nic in enumerate(network.nics)])
    for nics in network.hosts.values():
        for nic in nics:
            _batch(("ip", "-n", nic.name), _settings(nic, nics))
            _batch(("tc", "-n", nic.name), [_bucket(INTERFACE, nic.rate_Bps)])


def _cables(network: Network) -> Iterable[str]:
    """Namespaces, a cable from each to the hub, and one between any two NICs of a host."""
    for i, nic in enumerate(network.nics):
        yield f"netns add {nic.name}"
        yield f"link add s{i} mtu {MTU} type veth peer name {INTERFACE} mtu {MTU} netns {nic.name}"
        yield f"link set s{i} master hub up"
    for nics in network.hosts.values():
        for a, b in itertools.combinations(nics, 2):
            yield (
                f"link add x{b.number} mtu {MTU} netns {a.name} type veth "
                f"peer name x{a.number} mtu {MTU} netns {b.name}"
            )


def _settings(nic: Nic, siblings: Iterable[Nic]) -> Iterable[str]:
    """Addresses and routes inside the namespace of a NIC."""
    yield "link set lo up"
    yield f"addr add {nic.address}/16 dev {INTERFACE}"
    yield f"link set {INTERFACE} up"
    for other in siblings:
        if other != nic:
            yield f"link set x{other.number} up"
            yield f"route add {other.address}/32 dev x{other.number} src {nic.address}"


def _bucket(interface: str, payload_Bps: float) -> str:
    # It counts whole Ethernet frames, and a full frame of 9014 bytes carries 8948.
    bits = round(8 * payload_Bps * (MTU + _ETHERNET) / (MTU - _IP - _TCP))
    return f"qdisc add dev {interface} root tbf rate {bits}bit burst {BUCKET} limit {_QUEUE}"


def enter(name: str) -> None:
    """Move this process, which must have one thread, into the namespace ``name``."""
    library = ctypes.CDLL(None, use_errno=True)
    with open(_NETWORKS / name, "rb", buffering=0) as namespace:
        if library.setns(namespace.fileno(), _NEW_NETWORK):
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter namespace {name}: {os.strerror(code)}")
    for key, value in _TUNING.items():
        Path("/proc/sys/net/ipv4", key).write_text(value)


@lru_cache(maxsize=1)
def refused() -> str | None:
    """Why this machine does not let this user emulate a network; None if it does.

    Tries the recipe on a cluster of one host with two NICs, which takes a fraction of a second.
    """
    if not sys.platform.startswith("linux"):
        return f"network namespaces are a part of Linux, and this is {sys.platform}"
    for tool in ("unshare", "mount", "ip", "tc"):
        if shutil.which(tool, path=_PATH) is None:
            package = "iproute2" if tool in ("ip", "tc") else "util-linux"
            return f"the program {tool} is missing (package {package})"
    trial = Network.of(Cluster(hosts=1, devices_per_host=1, nic="400Mbit", nics_per_host=2))
    code = (
        "import json, sys; from reshard_lab.runtime.network import *;"
        "network = Network.from_json(json.loads(sys.argv[1]));"
        "build(network); enter(network.nics[1].name)"
    )
    try:
        _call(*RECIPE, sys.executable, "-c", code, json.dumps(trial), env=child_environment())
    except ReshardError as error:
        return str(error)
    return None


def need_namespaces() -> None:
    """Raise, saying why, where a network cannot be emulated."""
    if (reason := refused()) is not None:
        raise ReshardError(
            f"this machine does not let you emulate a cluster: {reason}; use where='local', which "
            "runs the same processes over loopback, without limits of rate"
        )


def _batch(tool: tuple[str, ...], lines: Iterable[str]) -> None:
    _call(*tool, "-batch", "-", text="".join(f"{line}\n" for line in lines))


def _call(*command: str, text: str = "", env: dict[str, str] | None = None) -> None:
    """Run a program to its end; raises ReshardError with the last line that it complained in."""
    environment = (env or os.environ) | {"PATH": _PATH}
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=environment, timeout=_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ReshardError(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        raise ReshardError(f"{' '.join(command[:4])} ended with {done.returncode}: {said}")
