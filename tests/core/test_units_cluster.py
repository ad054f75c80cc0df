"""Units at the edge, and clusters."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab import units
from support.paths import ROOT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gbps", 1.25e9),
        ("400Mbit", 50e6),
        ("400 Mbit/s", 50e6),
        ("150GB/s", 150e9),
        ("1GiB/s", 2.0**30),
        ("2.5Gbit", 312.5e6),
        ("8bps", 1.0),
        ("inf", math.inf),
        (125, 125.0),
    ],
)
def test_bandwidth(text, value):
    assert units.parse_bandwidth(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("64MiB", 2**26), ("1GB", 10**9), ("512B", 512), ("1.5KiB", 1536), (7, 7)]
)
def test_bytes(text, value):
    assert units.parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("20us", 2e-5), ("1.5ms", 1.5e-3), ("3 ns", 3e-9), ("2s", 2.0), (0, 0.0)]
)
def test_seconds(text, value):
    assert units.parse_seconds(text) == value


def test_dtypes_from_numpy_and_torch():
    torch = pytest.importorskip("torch")
    assert units.dtype_name(torch.bfloat16) == "bfloat16"
    assert units.dtype_name(np.float32) == units.dtype_name(torch.float32) == "float32"
    for name, size in units.ITEMSIZE.items():
        if hasattr(torch, name):
            assert getattr(torch, name).itemsize == size
        if hasattr(np, name):
            assert np.dtype(name).itemsize == size


def test_hosts_and_near_nics():
    cluster = rl.Cluster(hosts=2, devices_per_host=8, nics_per_host=4)
    assert [cluster.host_of(d) for d in (0, 7, 8, 15)] == [0, 0, 1, 1]
    assert [cluster.nic_of(d) for d in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert cluster.nic_of(8) == 4
    assert rl.Cluster(hosts=1, devices_per_host=3, nics_per_host=1).nic_of(2) == 0


def test_hop_time():
    cluster = rl.Cluster(2, 2, nic=100, nic_latency=1, intra=1000, intra_latency=0.5)
    assert cluster.hop_s(0, 1, 1000) == 1.5
    assert cluster.hop_s(1, 2, 1000) == 11.0


def test_hosts_that_differ():
    cluster = rl.Cluster(3, 4, nic=[100, 50, 100], nics_per_host=[1, 1, 2], nic_latency=1)
    assert not cluster.uniform
    assert rl.Cluster(3, 4).uniform
    assert [cluster.nic_of(d) for d in range(12)] == [0] * 4 + [1] * 4 + [2, 2, 3, 3]
    assert [cluster.host_of_nic(n) for n in range(cluster.nics)] == [0, 1, 2, 2]
    assert cluster.hop_s(0, 4, 1000) == cluster.hop_s(4, 8, 1000) == 21.0
    assert cluster.hop_s(0, 8, 1000) == 11.0
    assert (cluster.nic_Bps, cluster.nics_per_host) == (100.0, 2)
    assert cluster.to_dict()["nic"] == [100.0, 50.0, 100.0]
    assert rl.Cluster(**cluster.to_dict()) == cluster
    assert repr(cluster) == (
        "Cluster(hosts=3, devices_per_host=4, "
        "nic='800bit/s' x 1 or '400bit/s' x 1 or '800bit/s' x 2, nic_latency='1s')"
    )
    assert rl.Cluster(3, 4, nic=[5, 5, 5]) == rl.Cluster(3, 4, nic=5)


def test_mesh_from_host():
    cluster = rl.Cluster(hosts=4, devices_per_host=2)
    assert cluster.mesh((2, 2), first_host=2) == rl.Mesh([[4, 5], [6, 7]])
    assert cluster.mesh(3) == rl.Mesh([0, 1, 2])


@pytest.mark.parametrize("name", ["p3.8xlarge", "p4d", "DGX-H100", "laptop"])
def test_presets_name_a_source_for_every_number(name):
    cluster = rl.Cluster.preset(name, hosts=3)
    assert cluster.hosts == 3
    folder = ROOT / "data" / "clusters"
    fields = json.loads((folder / f"{name}.json").read_text())["cluster"]
    assert set(fields) == set(cluster.to_dict())
    assert all(len(entry["source"]) > 5 for entry in fields.values())


def test_paper_preset_and_round_trip():
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=4)
    assert (cluster.devices_per_host, cluster.nic_Bps, cluster.nics_per_host) == (4, 1.25e9, 1)
    assert rl.Cluster(**cluster.to_dict()) == cluster
    assert repr(cluster) == "Cluster(hosts=4, devices_per_host=4, nic='10Gbit/s' x 1)"
    fast = rl.Cluster(4, 4, intra="inf", intra_latency="1ms")
    assert repr(fast).endswith("nic='10Gbit/s' x 1, intra='inf', intra_latency='1ms')")
    assert repr(rl.Cluster(4, 4, intra="25GB/s")).endswith(" x 1, intra='25GB/s')")
