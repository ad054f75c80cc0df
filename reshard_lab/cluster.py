"""Clusters: hosts, devices, NICs and their speeds."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from reshard_lab.errors import ReshardError, check_choice, check_each, check_int
from reshard_lab.mesh import Mesh
from reshard_lab.units import format_rate, format_seconds, parse_bandwidth, parse_seconds

_HERE = Path(__file__).resolve().parent
_PRESETS = (_HERE / "_data" / "clusters", _HERE.parent / "data" / "clusters")

_MOST = 10**6
"""Hosts, devices a host and NICs a host: more is taken for a slip."""


def _preset_files() -> dict[str, Path]:
    folder = next((f for f in _PRESETS if f.is_dir()), _PRESETS[0])
    return {f.stem: f for f in folder.glob("*.json")}


def presets() -> list[str]:
    """Names of the described machines."""
    return sorted(_preset_files())


def preset_data(name: str) -> dict[str, Any]:
    """Everything that ``data/clusters/`` says of one machine, every number with its source."""
    files = _preset_files()
    data = json.loads(files[check_choice("cluster preset", name, sorted(files))].read_text())
    return dict(data)


@dataclass(frozen=True, init=False, repr=False)
class Cluster:
    """Hosts, each with devices on a fast link and NICs on a slow one.

    Device ``d`` sits on host ``d // devices_per_host``; its near NIC is number
    ``(d % devices_per_host) * nics_per_host // devices_per_host`` of that host. Speeds are one
    way: a NIC sends and receives at ``nic`` at the same time, a device likewise at ``intra``.
    ``nic`` and ``nics_per_host`` may be lists, one entry a host, where hosts differ.

    >>> cluster = Cluster(hosts=4, devices_per_host=2, nic="10Gbps", intra="150GB/s")
    >>> cluster.nic_Bps, cluster.host_of(5), cluster.mesh((2, 2), first_host=2).devices
    (1250000000.0, 2, (4, 5, 6, 7))
    >>> slow = Cluster(hosts=2, devices_per_host=1, nic=["10Gbps", "1Gbps"])
    >>> slow.link_Bps(0, 1)
    125000000.0
    """

    hosts: int
    devices_per_host: int
    nic_Bps: float
    """Bytes a second of one NIC (of the fastest, where hosts differ)."""
    nics_per_host: int
    """NICs of a host (of the host with most, where hosts differ)."""
    nic_latency_s: float
    intra_Bps: float
    intra_latency_s: float
    host_nic_Bps: tuple[float, ...]
    """Bytes a second of one NIC, by host."""
    host_nics: tuple[int, ...]
    """NICs by host."""
    uniform: bool = field(compare=False)
    """Whether all hosts are alike."""
    _first_nic: tuple[int, ...] = field(compare=False)

    def __init__(
        self,
        hosts: int,
        devices_per_host: int,
        nic: str | float | Sequence[str | float] = "10Gbps",
        nics_per_host: int | Sequence[int] = 1,
        nic_latency: str | float = "20us",
        intra: str | float = "150GB/s",
        intra_latency: str | float = "5us",
    ) -> None:
        count = check_int("hosts", hosts, 1, _MOST)
        rates = tuple(parse_bandwidth(*v) for v in _by_host("nic", nic, count))
        given = _by_host("nics_per_host", nics_per_host, count)
        nics = tuple(check_int(what, n, 1, _MOST) for n, what in given)
        vars(self).update(
            hosts=count,
            devices_per_host=check_int("devices_per_host", devices_per_host, 1, _MOST),
            nic_Bps=max(rates),
            nics_per_host=max(nics),
            nic_latency_s=parse_seconds(nic_latency, "nic_latency"),
            intra_Bps=parse_bandwidth(intra, "intra"),
            intra_latency_s=parse_seconds(intra_latency, "intra_latency"),
            host_nic_Bps=rates,
            host_nics=nics,
            uniform=len({*zip(rates, nics, strict=True)}) == 1,
            _first_nic=(0, *accumulate(nics)),
        )

    @classmethod
    def preset(cls, name: str, hosts: int | None = None) -> Cluster:
        """A described machine from ``data/clusters/`` (every number there names its source).

        >>> Cluster.preset("p3.8xlarge", hosts=4).devices_per_host
        4
        """
        fields = {key: entry["value"] for key, entry in preset_data(name)["cluster"].items()}
        if hosts is not None:
            fields["hosts"] = hosts
        return cls(**fields)

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.hosts * self.devices_per_host

    def host_of(self, device: int) -> int:
        """The host that device ``device`` sits on."""
        return device // self.devices_per_host

    def nic_of(self, device: int) -> int:
        """The near NIC of a device, numbered over all hosts (host by host)."""
        host, local = divmod(device, self.devices_per_host)
        return self._first_nic[host] + local * self.host_nics[host] // self.devices_per_host

    @property
    def nics(self) -> int:
        """Number of NICs of all hosts."""
        return self._first_nic[-1]

    def host_of_nic(self, nic: int) -> int:
        """The host that NIC ``nic`` is part of."""
        return bisect_right(self._first_nic, nic) - 1

    def nic_text(self, nic: int) -> str:
        """How messages call a NIC: by its host, and by its number where the host has several.

        >>> Cluster(2, 4).nic_text(1), Cluster(2, 4, nics_per_host=2).nic_text(3)
        ('NIC of host 1', 'NIC 1 of host 1')
        """
        host = self.host_of_nic(nic)
        number = f" {nic - self._first_nic[host]}" if self.host_nics[host] > 1 else ""
        return f"NIC{number} of host {host}"

    def link_Bps(self, source: int, destination: int) -> float:
        """Bytes a second from device to device on idle links: the slower end counts."""
        a, b = self.host_of(source), self.host_of(destination)
        return self.intra_Bps if a == b else min(self.host_nic_Bps[a], self.host_nic_Bps[b])

    def link_latency_s(self, source: int, destination: int) -> float:
        """Seconds every message from device to device takes on top of its bytes."""
        crosses = self.host_of(source) != self.host_of(destination)
        return self.nic_latency_s if crosses else self.intra_latency_s

    def hop_s(self, source: int, destination: int, nbytes: float) -> float:
        """Seconds one message of ``nbytes`` takes from device to device on idle links."""
        rate = self.link_Bps(source, destination)
        return self.link_latency_s(source, destination) + nbytes / rate

    def nic_ports(self, a: int, b: int) -> tuple[tuple[str, int], ...]:
        """What a message from device a to device b keeps busy of the NICs; none inside a host.

        >>> Cluster(2, 2).nic_ports(1, 2), Cluster(2, 2).nic_ports(0, 1)
        ((('tx', 0), ('rx', 1)), ())
        """
        if self.host_of(a) == self.host_of(b):
            return ()
        return ("tx", self.nic_of(a)), ("rx", self.nic_of(b))

    @property
    def intra_text(self) -> str:
        """The speed inside a host as ``Cluster`` takes it."""
        return "inf" if math.isinf(self.intra_Bps) else f"{self.intra_Bps / 1e9:.4g}GB/s"

    def mesh(self, shape: tuple[int, ...] | int, first_host: int = 0) -> Mesh:
        """A mesh of ``shape`` on consecutive devices, row-major, from ``first_host`` on.

        It fills host after host, whatever the shape; ``Mesh`` takes devices of any other hosts.
        """
        first = check_int("first_host", first_host) * self.devices_per_host
        sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        for i, n in enumerate(sizes):
            check_int(f"length of axis {i} of mesh {sizes}", n, 1)
        count = math.prod(sizes)
        if first + count > self.size:
            raise ReshardError(
                f"a mesh of shape {sizes} from host {first_host} needs devices {first} to "
                f"{first + count - 1}, but the cluster has devices 0 to {self.size - 1}; "
                "use more hosts or a smaller mesh"
            )
        return Mesh(np.arange(first, first + count).reshape(sizes))

    def check(self, mesh: Mesh, what: str) -> None:
        """Raise unless every device of ``mesh`` is in the cluster."""
        for device in mesh.devices:
            if device >= self.size:
                raise ReshardError(
                    f"{what} has device {device}, but the cluster has devices 0 to {self.size - 1} "
                    f"({self.hosts} hosts x {self.devices_per_host}); use ids from that range or "
                    "a larger cluster"
                )

    def to_dict(self) -> dict[str, Any]:
        """Keyword arguments that build this cluster again (SI; lists where hosts differ)."""
        return {
            "hosts": self.hosts,
            "devices_per_host": self.devices_per_host,
            "nic": _merged(self.host_nic_Bps),
            "nics_per_host": _merged(self.host_nics),
            "nic_latency": self.nic_latency_s,
            "intra": self.intra_Bps,
            "intra_latency": self.intra_latency_s,
        }

    def __repr__(self) -> str:
        kinds = dict.fromkeys(zip(self.host_nic_Bps, self.host_nics, strict=True))
        text = f"Cluster(hosts={self.hosts}, devices_per_host={self.devices_per_host}, nic="
        text += " or ".join(f"{_unspaced(format_rate(r))} x {n}" for r, n in kinds)
        if self.nic_latency_s != 20e-6:
            text += f", nic_latency={_unspaced(format_seconds(self.nic_latency_s))}"
        if self.intra_Bps != 150e9:
            text += f", intra={self.intra_text!r}"
        if self.intra_latency_s != 5e-6:
            text += f", intra_latency={_unspaced(format_seconds(self.intra_latency_s))}"
        return f"{text})"


def _unspaced(text: str) -> str:
    return repr(text.replace(" ", ""))


def _by_host(what: str, given: object, hosts: int) -> list[tuple[Any, str]]:
    """The value of every host and what to call it, from one value or one a host."""
    values = check_each(what, given, hosts, "host", "the cluster")
    return [(v, what if v is given else f"{what} of host {i}") for i, v in enumerate(values)]


def _merged(values: tuple[Any, ...]) -> Any:
    return values[0] if len(set(values)) == 1 else list(values)
