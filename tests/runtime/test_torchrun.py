"""Plans under torchrun, with gloo where there is no GPU."""

import json
import os
import subprocess
import sys
import tempfile
import time

import pytest

import reshard_lab as rl
from reshard_lab.runtime import torchrun
from reshard_lab.runtime.process import child_environment
from support import leftovers

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def plan():
    """Both rows to both columns, each whole to two devices: two chains of three."""
    cluster = rl.Cluster(hosts=4, devices_per_host=1)
    layouts = rl.Layout(rl.Mesh([0, 1]), "S0R"), rl.Layout(rl.Mesh([2, 3]), "RR")
    return rl.plan(rl.ReshardingTask((40, 30), "bfloat16", *layouts, cluster), chunks=4)


def start(plan_file, ranks, *options):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    command += ["-m", "reshard_lab.worker", "--plan", str(plan_file), *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=child_environment()
    )


@pytest.fixture
def on_cpus():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: NCCL would be used (see docs/gpu.md)")


@pytest.mark.distributed
def test_run_streams_a_line_a_run_and_returns_the_measurement(plan, on_cpus, tmp_path, capsys):
    measured = rl.run(plan, where="torchrun", repeats=2, warmup=1)
    assert measured.verified and len(measured.times_s) == 2
    assert measured.environment["link"].startswith("gloo, 4 processes on 1 node (unshaped), ")
    assert measured.environment["carrier"] == "lanes"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "warm-up 1 of 3",
        "run 2 of 3",
        "run 3 of 3",
    ]


@pytest.mark.distributed
@pytest.mark.parametrize("carrier", ["broadcast", "chain"])
def test_the_worker_prints_its_measurement(plan, on_cpus, tmp_path, carrier):
    plan.to_json(tmp_path / "plan.json")
    options = ("--carrier", carrier, "--repeats", "2", "--warmup", "0")
    done = start(tmp_path / "plan.json", 4, *options)
    assert done.returncode == 0, done.stderr
    measured = torchrun.restored(json.loads(done.stdout))
    assert measured.verified and measured.environment["carrier"] == carrier
    assert measured.strategy == "broadcast" and measured.shapes == ((40, 30),)


@pytest.mark.distributed
def test_more_or_fewer_processes_than_devices_are_refused(plan, on_cpus, tmp_path):
    plan.to_json(tmp_path / "plan.json")
    done = start(tmp_path / "plan.json", 2)
    assert done.returncode == 1
    text = "the plan has 4 devices, and torchrun started 2 processes; start one a device, such as"
    assert text in done.stderr


@pytest.mark.distributed
def test_what_fails_on_a_rank_is_what_run_raises(plan, on_cpus):
    with pytest.raises(rl.ReshardError, match=r"(?s)exit code 1.*device \d \(rank \d\) failed: "):
        torchrun.run_torchrun(plan, 1, 3, 1e-3, 0, say=lambda line: None)


LAUNCHER = """
import sys, reshard_lab as rl
plan = rl.Plan.from_json(sys.argv[1])
rl.run(plan, where="torchrun", repeats=10**6)
"""


@pytest.mark.distributed
def test_nothing_is_left_when_the_launcher_is_killed(plan, on_cpus, tmp_path):
    plan.to_json(tmp_path / "plan.json")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-u", "-c", LAUNCHER, str(tmp_path / "plan.json")]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as launcher:
        assert launcher.stdout.readline().startswith("warm-up 1")
        pids = leftovers.below(launcher.pid)
        assert len(pids) >= 5
        launcher.kill()
    assert leftovers.gone(pids, within_s=15)
    end = time.monotonic() + 5
    while any(temporary.glob("reshard_lab-*")) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(temporary.glob("reshard_lab-*"))


def test_the_longest_run_can_be_waited_for(plan, on_cpus, tmp_path, monkeypatch):
    follow, limits = torchrun._follow, []

    def instead(command, errors, limit_s, say):
        limits.append(limit_s)
        return follow([sys.executable, "-c", "print(3)"], errors, limit_s, say)

    monkeypatch.setattr(torchrun, "_follow", instead)
    said = []
    for repeats in (2, 10**9):
        with pytest.raises(rl.ReshardError, match="torchrun ended with exit code 0"):
            torchrun.run_torchrun(plan, repeats, 0, 1e6, 0, say=said.append)
    assert limits == [torchrun.START_S + 2e6, 1e9] and said == ["3", "3"]


def test_more_devices_than_gpus_are_refused(plan, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(rl.ReshardError, match="4 devices, and this machine has 1 GPU; plan for as"):
        rl.run(plan, where="torchrun")


def test_without_torchrun_the_worker_says_how_to_start_it(plan, tmp_path, monkeypatch, capsys):
    plan.to_json(tmp_path / "plan.json")
    monkeypatch.delenv("RANK", raising=False)
    assert torchrun.main(["--plan", str(tmp_path / "plan.json")]) == 1
    assert "start this with torchrun: torchrun --nproc-per-node 4 -m" in capsys.readouterr().err


def test_measurements_survive_json(plan):
    from reshard_lab.runtime.measure import measurement

    record = measurement(plan, [1.0, 2.0], True, {"link": "a wire"})
    assert torchrun.restored(json.loads(json.dumps(record.to_dict()))) == record


def test_a_temporary_folder_is_removed_after_a_refusal(plan, on_cpus, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torchrun, "_AGENT", "raise SystemExit(3)")
    with pytest.raises(rl.ReshardError, match="torchrun ended with exit code 3"):
        rl.run(plan, where="torchrun")
    assert list(tmp_path.iterdir()) == []
