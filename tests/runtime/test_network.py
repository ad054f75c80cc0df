"""The emulated network by itself: namespaces, cables and buckets, with plain TCP."""

import json
import os
import signal
import subprocess
import sys

import pytest

import reshard_lab as rl
from reshard_lab.runtime import network
from support import leftovers
from support.paths import PROGRAMS

SCRIPT = PROGRAMS / "network_scenarios.py"
needs_namespaces = pytest.mark.skipif(
    network.refused() is not None, reason=f"no network namespaces here: {network.refused()}"
)


def start(*arguments: str) -> subprocess.Popen:
    command = [*network.RECIPE, sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def results():
    """What the scenarios found; all in one set of namespaces."""
    with start() as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out)


@needs_namespaces
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("way", "peer", "left_by"),
    [
        ("other host", "10.77.0.1", ["eth0"]),
        ("second NIC", "10.77.0.1", ["eth0"]),
        ("siblings", "10.77.1.1", ["x1"]),  # inside a host, by the cable without a limit
        ("itself", "10.77.1.2", ["lo"]),
    ],
)
def test_payloads_take_the_way_of_the_cluster(results, way, peer, left_by):
    assert results["transfers"][way] == {"arrived": True, "peer": peer, "left_by": left_by}


@needs_namespaces
@pytest.mark.distributed
def test_every_nic_is_limited_both_ways_and_nothing_else_is(results):
    wire = {"400": 50e6, "200": 25e6, "1000": 125e6}
    wire = {name: round(rate * 9014 / 8948) for name, rate in wire.items()}
    assert results["hub"]["buckets"] == pytest.approx(
        {"s0": wire["400"], "s1": wire["200"], "s2": wire["200"], "s3": wire["1000"]}, abs=1
    )
    for name, rate in (("h0n0", "400"), ("h1n0", "200"), ("h1n1", "200"), ("h2n0", "1000")):
        assert results["nics"][name]["buckets"] == pytest.approx({"eth0": wire[rate]}, abs=1)


@needs_namespaces
@pytest.mark.distributed
def test_frames_are_large_and_tcp_is_tuned(results):
    for name, nic in results["nics"].items():
        assert nic["mtu"].pop("lo") == 65536
        cables = {"h1n0": {"x1"}, "h1n1": {"x0"}}.get(name, set())
        assert nic["mtu"] == dict.fromkeys({"eth0"} | cables, 9000)
        assert (nic["window"], nic["control"]) == ("524288", "reno")
    assert results["pid"] == 1


@needs_namespaces
@pytest.mark.distributed
@pytest.mark.parametrize("how", ["pipe", "kill"])
def test_everything_in_the_namespaces_ends_with_the_pipe_or_with_unshare(how):
    with start("wait") as process:
        assert process.stdout.readline() == "ready\n"
        below = leftovers.below(process.pid)
        assert len(below) == 3  # the init and the two that sleep
        if how == "pipe":
            process.stdin.close()
        else:
            os.kill(process.pid, signal.SIGKILL)
        assert leftovers.gone(below)


def test_near_nics_are_those_of_the_cluster():
    cluster = rl.Cluster(hosts=2, devices_per_host=4, nic="400Mbit", nics_per_host=[1, 2])
    near = network.Network.of(cluster).near
    assert [near[d] for d in range(8)] == ["h0n0"] * 4 + ["h1n0"] * 2 + ["h1n1"] * 2


def test_where_namespaces_are_not_allowed_the_error_names_the_way_out(monkeypatch):
    monkeypatch.setattr(network, "RECIPE", ("sh", "-c", "echo not permitted >&2; exit 1"))
    network.refused.cache_clear()
    with pytest.raises(rl.ReshardError, match=r"emulate a cluster: .*not permitted; use where='lo"):
        network.need_namespaces()
    network.refused.cache_clear()


def test_a_missing_program_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(network, "_PATH", "/nowhere")
    network.refused.cache_clear()
    assert network.refused() == "the program unshare is missing (package util-linux)"
    network.refused.cache_clear()
