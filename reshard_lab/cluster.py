"""Clusters: hosts, devices, NICs and their speeds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reshard_lab.errors import ReshardError, choose, whole
from reshard_lab.mesh import Mesh
from reshard_lab.units import format_rate, parse_bandwidth, parse_seconds

_HERE = Path(__file__).resolve().parent
_PRESETS = (_HERE / "_data" / "clusters", _HERE.parent / "data" / "clusters")


@dataclass(frozen=True, init=False, repr=False)
class Cluster:
    """Equal hosts, each with devices on a fast link and NICs on a slow one.

    Device ``d`` sits on host ``d // devices_per_host``; its near NIC is number
    ``(d % devices_per_host) * nics_per_host // devices_per_host`` of that host. Speeds are one
    way: a NIC sends and receives at ``nic`` at the same time, a device likewise at ``intra``.

    >>> cluster = Cluster(hosts=4, devices_per_host=2, nic="10Gbps", intra="150GB/s")
    >>> cluster.nic_Bps, cluster.host_of(5), cluster.mesh((2, 2), first_host=2).devices
    (1250000000.0, 2, (4, 5, 6, 7))
    """

    hosts: int
    devices_per_host: int
    nic_Bps: float
    nics_per_host: int
    nic_latency_s: float
    intra_Bps: float
    intra_latency_s: float

    def __init__(
        self,
        hosts: int,
        devices_per_host: int,
        nic: str | float = "10Gbps",
        nics_per_host: int = 1,
        nic_latency: str | float = "20us",
        intra: str | float = "150GB/s",
        intra_latency: str | float = "5us",
    ) -> None:
        values = {
            "hosts": whole("hosts", hosts, 1),
            "devices_per_host": whole("devices_per_host", devices_per_host, 1),
            "nic_Bps": parse_bandwidth(nic, "nic"),
            "nics_per_host": whole("nics_per_host", nics_per_host, 1),
            "nic_latency_s": parse_seconds(nic_latency, "nic_latency"),
            "intra_Bps": parse_bandwidth(intra, "intra"),
            "intra_latency_s": parse_seconds(intra_latency, "intra_latency"),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def preset(cls, name: str, hosts: int | None = None) -> Cluster:
        """A described machine from ``data/clusters/`` (every number there names its source).

        >>> Cluster.preset("p3.8xlarge", hosts=4).devices_per_host
        4
        """
        files = {f.stem: f for folder in _PRESETS if folder.is_dir() for f in folder.glob("*.json")}
        data = json.loads(files[choose("cluster preset", name, sorted(files))].read_text())
        fields = {key: entry["value"] for key, entry in data["cluster"].items()}
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
        return host * self.nics_per_host + local * self.nics_per_host // self.devices_per_host

    def hop_s(self, source: int, destination: int, nbytes: float) -> float:
        """Seconds one message of ``nbytes`` takes from device to device on idle links."""
        if self.host_of(source) != self.host_of(destination):
            return self.nic_latency_s + nbytes / self.nic_Bps
        return self.intra_latency_s + nbytes / self.intra_Bps

    def mesh(self, shape: tuple[int, ...] | int, first_host: int = 0) -> Mesh:
        """A mesh of ``shape`` on consecutive devices, row-major, from ``first_host`` on."""
        first = whole("first_host", first_host) * self.devices_per_host
        sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        sizes = tuple(
            whole(f"length of axis {i} of mesh {sizes}", n, 1) for i, n in enumerate(sizes)
        )
        count = int(np.prod(sizes))
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

    def to_dict(self) -> dict[str, float]:
        """Keyword arguments that build this cluster again (SI numbers)."""
        return {
            "hosts": self.hosts,
            "devices_per_host": self.devices_per_host,
            "nic": self.nic_Bps,
            "nics_per_host": self.nics_per_host,
            "nic_latency": self.nic_latency_s,
            "intra": self.intra_Bps,
            "intra_latency": self.intra_latency_s,
        }

    def __repr__(self) -> str:
        return (
            f"Cluster(hosts={self.hosts}, devices_per_host={self.devices_per_host}, "
            f"nic={format_rate(self.nic_Bps).replace(' ', '')!r} x {self.nics_per_host})"
        )
