"""Emulated clusters: what they deliver and say, what they refuse, what they leave behind."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import contextmanager

import pytest

import reshard_lab as rl
from reshard_lab import cli
from reshard_lab.runtime import launch, network
from support import leftovers

pytest.importorskip("torch")
needs_namespaces = pytest.mark.skipif(
    network.refused() is not None, reason=f"no network namespaces here: {network.refused()}"
)
pytestmark = [pytest.mark.distributed, needs_namespaces]


class Unprobed(rl.EmulatedCluster):
    """Without a measurement on entry."""

    def _probe(self):
        return None


@contextmanager
def unprobed(*arguments, **options):
    """A cluster whose speed is not measured on entry: the machine may be busy with other tests."""
    with Unprobed(*arguments, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster():
    """Host 0 with one device in use by a sender, hosts 1 and 2 with two NICs."""
    with unprobed(3, 2, nic=["400Mbit", "200Mbit", "200Mbit"], nics_per_host=[1, 2, 2]) as emulated:
        yield emulated


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only place for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def columns_to_rows(cluster, rows, columns, shape=(40, 30), **options):
    layouts = rl.Layout(rl.Mesh(rows), "S0R"), rl.Layout(rl.Mesh(columns), "RS0")
    return rl.plan(rl.ReshardingTask(shape, "int16", *layouts, cluster), **options)


@pytest.mark.parametrize("strategy", ["send_recv", "global_allgather", "broadcast", "alpa"])
def test_plans_are_carried_out_and_checked(cluster, strategy):
    src, dst = rl.Layout(rl.Mesh([0, 1]), "S0R"), rl.Layout(rl.Mesh([[2, 3], [4, 5]]), "RS0")
    task = rl.ReshardingTask((30, 44), "float32", src, dst, cluster.cluster)
    measured = cluster.run(rl.plan(task, strategy, chunks=7), repeats=2, warmup=1)
    assert measured.verified and len(measured.times_s) == 2


def test_a_measurement_says_what_it_was_taken_on(cluster):
    measured = cluster.run(columns_to_rows(cluster.cluster, [0, 2], [4, 5]), repeats=2)
    stamp = measured.environment
    cores = launch.available_cores()
    assert stamp["where"] == "emulated" and stamp["nic_Bps"] == 50e6
    link = f"gloo, emulated 400 Mbit/s and 200 Mbit/s NICs, {cores} core{'s' * (cores > 1)}"
    assert stamp["link"] == link
    assert 0 <= stamp["cpu_share"] <= 1


def test_on_entry_the_speed_is_measured_and_a_cluster_too_slow_is_refused(folder, monkeypatch):
    monkeypatch.setattr(launch, "LEAST_SHARE", 0.01)
    with rl.EmulatedCluster(2, 1, nic="200Mbit") as emulated:
        assert 0.01 < emulated.probe.share < 1.1 and 0 <= emulated.probe.cpu_share <= 1
        plan = columns_to_rows(emulated.cluster, [0], [1])
        measured = emulated.run(plan, repeats=1)
        assert measured.environment["nic_share"] == emulated.probe.share
        assert measured.predicted_here
        faster = columns_to_rows(rl.Cluster(2, 1, nic="400Mbit"), [0], [1])
        assert not emulated.run(faster, repeats=1).predicted_here
    monkeypatch.setattr(launch, "LEAST_SHARE", 2.0)
    text = (
        r"the NICs were to carry 200 Mbit/s each, and carry .*bit/s when all are at work, the "
        r"cores \d+% busy; use fewer hosts"
    )
    with pytest.raises(rl.ReshardError, match=text), rl.EmulatedCluster(2, 1, nic="200Mbit"):
        raise AssertionError("not reached")
    text = r"carry 300 Mbit/s each, .*; use a slower nic \(such as 200Mbit\), fewer hosts"
    with pytest.raises(rl.ReshardError, match=text), rl.EmulatedCluster(2, 1, nic="300Mbit"):
        raise AssertionError("not reached")
    assert leftovers.traces(folder)["files"] == []


def test_a_slow_nic_is_seen_to_carry_its_speed():
    with rl.EmulatedCluster(2, 1, nic="30Mbit") as emulated:
        assert emulated.probe.share > launch.LEAST_SHARE


@pytest.mark.parametrize(
    ("nics", "devices", "count"),
    [
        (1, None, 3),
        (2, None, 6),
        (4, [0, 4, 8], 3),  # more NICs than devices that have a process
        (4, [0, 1, 4, 8], 4),
        ([1, 2, 2], None, 5),
        ([1, 1, 4], None, 4),  # one has more than the others together
        (2, [4, 5, 6, 7, 8, 9], 2),
    ],
)
def test_what_is_measured_on_entry_leaves_its_host(nics, devices, count):
    emulated = rl.EmulatedCluster(3, 4, "100Mbit", nics, devices=devices)
    ring = launch._ring(emulated.cluster, emulated.devices)
    hosts = [tuple(map(emulated.cluster.host_of, t.path)) for t in ring.transfers]
    assert all(len(ends) == 2 and ends[0] != ends[1] for ends in hosts)
    for side in (0, -1):  # as many NICs at both ends, each once
        near = [emulated.cluster.nic_of(t.path[side]) for t in ring.transfers]
        assert len(set(near)) == len(near) == count


def test_a_cluster_of_one_host_has_no_nic_to_measure():
    with rl.EmulatedCluster(1, 2) as emulated:
        assert emulated.probe is None
        assert emulated.run(columns_to_rows(emulated.cluster, [0], [1]), repeats=1).verified


def test_run_emulates_the_hosts_of_the_plan_with_nics_slowed_down(monkeypatch):
    monkeypatch.setattr(launch, "LEAST_SHARE", 0.0)
    fast = rl.Cluster(hosts=9, devices_per_host=2, nic=["100Gbps"] * 8 + ["50Gbps"])
    measured = rl.run(columns_to_rows(fast, [4], [16, 17]), "emulated", repeats=2, warmup=0)
    assert measured.verified
    assert "emulated 400 Mbit/s and 200 Mbit/s NICs" in measured.environment["link"]


def test_speeds_that_can_be_emulated_are_kept():
    plan = columns_to_rows(rl.Cluster(hosts=2, devices_per_host=1, nic="30Mbit"), [0], [1])
    assert launch.emulation_of(plan.cluster, [0, 1]).cluster.nic_Bps == 30e6 / 8


def test_nics_may_be_as_fast_as_the_processor_emulates():
    limit = launch.fastest_nic_Bps()
    assert rl.EmulatedCluster(2, 1, nic=limit).cluster.nic_Bps == limit


@pytest.mark.parametrize(
    "other",
    [
        rl.Cluster(hosts=6, devices_per_host=1),
        rl.Cluster(hosts=3, devices_per_host=2, nics_per_host=2),
    ],
)
def test_plans_for_other_hosts_are_refused(cluster, other):
    text = "the plan puts device 1 on host 1 of" if other.hosts == 6 else "device 0 on host 0 of"
    with pytest.raises(rl.ReshardError, match=text):
        cluster.run(columns_to_rows(other, [0], [1]))


def test_two_clusters_at_once_do_not_meet(cluster):
    with unprobed(3, 2) as other:
        for _ in range(2):
            for emulated in (cluster, other):
                plan = columns_to_rows(emulated.cluster, [0, 2], [1, 5])
                assert emulated.run(plan, repeats=1, warmup=0).verified


def test_nothing_is_left_after_success_and_after_an_exception(folder):
    before = leftovers.traces(folder)
    with unprobed(2, 2) as emulated:
        plan = columns_to_rows(emulated.cluster, [0, 1], [2, 3])
        emulated.run(plan, repeats=1)
        pids = leftovers.processes(emulated)
        assert len(leftovers.workers(emulated)) == 4 and len(pids) >= 6
    assert leftovers.gone(pids) and leftovers.traces(folder) == before
    with pytest.raises(KeyError), unprobed(2, 2) as emulated:
        emulated.run(plan, repeats=1)
        pids = leftovers.processes(emulated)
        raise KeyError
    assert leftovers.gone(pids) and leftovers.traces(folder) == before


def test_a_worker_that_dies_is_named_with_what_it_did(folder):
    with unprobed(2, 2) as emulated:
        plan = columns_to_rows(emulated.cluster, [0, 1], [2, 3], shape=(2000, 1000))
        emulated.run(plan, repeats=1)
        victim = leftovers.workers(emulated)[3]
        threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
        text = r"device 3 died \(killed by SIGKILL\); last operation, in repeat \d+"
        with pytest.raises(rl.ReshardError, match=text):
            emulated.run(plan, repeats=10**6)
        assert emulated.run(plan, repeats=1).verified  # on fresh processes
    assert leftovers.traces(folder)["files"] == []


LAUNCHER = """
import reshard_lab as rl
rl.EmulatedCluster._probe = lambda self: None
with rl.EmulatedCluster(2, 2) as made:
    layouts = rl.Layout(rl.Mesh([0, 1]), "S0R"), rl.Layout(rl.Mesh([2, 3]), "RS0")
    plan = rl.plan(rl.ReshardingTask((400, 500), "int8", *layouts, made.cluster))
    made.run(plan, repeats=1)
    print("running", flush=True)
    made.run(plan, repeats=10**6)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_launcher_that_is_stopped(tmp_path, number):
    before = leftovers.traces(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LAUNCHER)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
        text=True,
    )
    try:
        assert process.stdout.readline() == "running\n"
        pids = leftovers.below(process.pid)
        assert len(pids) >= 6
        os.killpg(process.pid, number)  # as a terminal does for Ctrl-C
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert leftovers.gone(pids) and leftovers.traces(tmp_path) == before


TWO_HOSTS = shlex.split("--shape 64 --src-mesh 1 --src-spec R --dst-mesh 1 --dst-spec R")
FEW = ["--repeats", "2", "--warmup", "0", "--where", "emulated", "--json"]


def test_the_command_line_runs_and_compares_on_an_emulated_cluster(capsys, monkeypatch):
    monkeypatch.setattr(launch, "LEAST_SHARE", 0.0)
    assert cli.main(["run", *TWO_HOSTS, *FEW]) == 0
    stamp = json.loads(capsys.readouterr().out)["measurement"]["environment"]
    assert stamp["where"] == "emulated" and "emulated 400 Mbit/s NICs" in stamp["link"]
    strategies = ["--strategies", "send_recv,broadcast"]
    assert cli.main(["bench", *TWO_HOSTS, *FEW, *strategies]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (
        "the emulated cluster: Cluster(hosts=2, devices_per_host=1, nic='400Mbit/s'"
        in (data["predicted_on"])
    )
    wire = 64 * 4 / 50e6
    assert [row["predicted_s"] for row in data["rows"]] == pytest.approx([wire, wire])
    assert cli.main(["bench", *TWO_HOSTS, *FEW, "--fit"]) == 2
    assert "--fit is for --where local" in capsys.readouterr().err


def test_where_namespaces_are_not_allowed_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(network, "refused", lambda: "not permitted")
    with pytest.raises(rl.ReshardError, match="not permitted; use where='local'"):
        rl.run(columns_to_rows(rl.Cluster(2, 1), [0], [1]), "emulated")
