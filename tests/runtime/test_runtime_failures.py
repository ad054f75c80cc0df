"""Runs that go wrong: the error names device and operation, and nothing stays behind."""

import contextlib
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial

import pytest

import reshard_lab as rl
from reshard_lab.runtime.process import Position, explain_stop, last_operation
from support.leftovers import alive, gone
from support.paths import PROGRAMS

pytest.importorskip("torch")


class FaultyPool(rl.runtime.Pool):
    """A pool whose processes have a fault, as told in a file (see programs/faulty_worker.py)."""

    def __init__(self, devices, file):
        super().__init__(devices)
        self.file = file
        self.fail()

    def _command(self):
        return [sys.executable, str(PROGRAMS / "faulty_worker.py"), str(self.file)]

    def fail(self, **fault):
        """From now on."""
        self.file.write_text(json.dumps(fault))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only place for temporary files; empty again at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """One pool that survives all its failures."""
    with FaultyPool(4, tmp_path_factory.mktemp("fault") / "fault") as pool:
        yield pool


@pytest.fixture(scope="module")
def plan():
    """A chain 0 -> 2 -> 3 and a chain 1 -> 2 -> 3 after it, four chunks each."""
    cluster = rl.Cluster(hosts=2, devices_per_host=2)
    layouts = rl.Layout(cluster.mesh(2), "S0"), rl.Layout(cluster.mesh(2, 1), "R")
    return rl.plan(rl.ReshardingTask((24,), "int16", *layouts, cluster), chunks=4)


def failing_run(pool, plan, timeout_s=60.0, **fault):
    """The text of the error, and the processes that ran."""
    pool.fail()
    assert pool.run(plan, repeats=1, warmup=0).verified  # so that it has processes
    pids = list(pool.pids.values())
    pool.fail(**fault)
    with pytest.raises(rl.ReshardError) as caught:
        pool.run(plan, repeats=3, warmup=1, timeout_s=timeout_s)
    pool.fail()
    return str(caught.value), pids


FAULTS = [
    ("kill", r"device 2 died \(killed by SIGKILL\); last operation, in repeat 2 .*: "),
    ("exit", r"device 2 died \(exit code 7\); last operation, in repeat 2 .*: "),
    ("raise", r"device 2 failed: KeyError\('a mishap'\); last operation, in repeat 2 .*: "),
    ("hang", r"device 2 hangs: no sign of it within 4 s; last operation, in repeat 2 .*: "),
    ("stop", r"device 2 hangs: no sign of it within 4 s; last operation, in repeat 2 .*: "),
]


@pytest.mark.distributed
@pytest.mark.parametrize(("do", "text"), FAULTS)
def test_a_worker_that_fails_is_named(faulty, plan, do, text):
    timeout_s = 4.0 if "hangs" in text else 60.0
    error, pids = failing_run(faulty, plan, timeout_s, device=2, repeat=2, do=do)
    assert re.search(text, error), error
    assert re.search(r"ing transfer \d (from|to) device \d \(step \d of 4, \d of 4", error)
    assert "stderr of device 2:" in error and "the fault strikes" in error
    assert len(pids) == 4 and not alive(pids)
    again = faulty.run(plan, repeats=2, warmup=0)  # fresh processes
    assert again.verified and not set(faulty.pids.values()) & set(pids)


@pytest.mark.distributed
def test_a_death_stops_the_run_at_once(faulty, plan):
    assert faulty.run(plan, repeats=1, warmup=0).verified
    threading.Timer(0.3, os.kill, (faulty.pids[1], signal.SIGKILL)).start()
    start = time.monotonic()
    with pytest.raises(rl.ReshardError, match=r"device 1 died \(killed by SIGKILL\)"):
        faulty.run(plan, repeats=10**6, timeout_s=60)
    assert time.monotonic() - start < 10  # not the 60 s that the others would wait


@pytest.mark.distributed
@pytest.mark.parametrize(("byte", "element"), [(0, r"\(0,\)"), (25, r"\(12,\)"), (47, r"\(23,\)")])
def test_wrong_bytes_are_found(faulty, plan, byte, element):
    error, _ = failing_run(faulty, plan, device=3, repeat=3, do="wrong", byte=byte)
    assert re.search(
        r"device 3 failed: device 3 holds wrong bytes in its destination piece \[0:24\] of tensor "
        rf"0 \(int16, shape \(24,\)\): element {element} is 0x([0-9a-f]{{4}}), expected "
        r"0x(?!\1)[0-9a-f]{4}; last operation, in repeat 3",
        error,
    ), error


@pytest.mark.distributed
def test_the_bytes_of_an_earlier_repeat_do_not_count(faulty, plan):
    error, _ = failing_run(faulty, plan, device=3, repeat=3, do="astray")
    assert re.search(r"device 3 holds wrong bytes .* element \(0,\) is 0xffff, expected", error)


@pytest.mark.distributed
def test_a_rank_that_takes_no_part_is_not_waited_for_long(faulty, plan):
    error, pids = failing_run(faulty, plan, 4.0, device=2, repeat=2, do="skip")
    assert "not done within 4 s" in error or "holds wrong bytes" in error
    assert not alive(pids)


@pytest.mark.distributed
def test_workers_that_do_not_start(folder, tmp_path_factory):
    cluster = rl.Cluster(hosts=1, devices_per_host=3)
    layout = rl.Layout(cluster.mesh(3), "S0")
    plan = rl.plan(rl.ReshardingTask((3,), "int8", layout, layout, cluster))
    with FaultyPool(3, tmp_path_factory.mktemp("start") / "fault") as pool:
        pool.fail(device=1, repeat=0, do="start")
        with pytest.raises(
            rl.ReshardError, match=r"(?s)did not start: .* device 1 .*no start today"
        ):
            pool.run(plan)
        pool.fail()
        assert pool.run(plan, repeats=1, warmup=0).verified


@pytest.mark.distributed
def test_the_pools_own_process_is_killed(folder, plan):
    with rl.runtime.Pool(4) as pool:
        pool.run(plan, repeats=1, warmup=0)
        pids = [pool._process.pid, *pool.pids.values()]
        os.kill(pids[3], signal.SIGSTOP)  # this one cannot notice anything by itself
        threading.Timer(0.2, os.kill, (pids[0], signal.SIGKILL)).start()
        with pytest.raises(rl.ReshardError, match="the process of the pool ended unexpectedly"):
            pool.run(plan, repeats=10**6)
        assert gone(pids, within_s=10)
        assert pool.run(plan, repeats=1, warmup=0).verified


@pytest.mark.distributed
def test_a_pool_that_is_forgotten_ends(folder, plan):
    pool = rl.runtime.Pool(4)
    pool.run(plan, repeats=1, warmup=0)
    pids = [pool._process.pid, *pool.pids.values()]
    del pool
    gc.collect()
    assert not alive(pids)


@contextlib.contextmanager
def started_launcher(folder):
    """A launcher in a process group of its own; killed after a minute."""
    command = [sys.executable, str(PROGRAMS / "launcher_to_kill.py"), str(folder)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    guard = threading.Timer(60, launcher.kill)
    guard.start()
    try:
        with launcher:
            yield launcher
    finally:
        guard.cancel()


@pytest.mark.distributed
def test_killing_the_launcher_leaves_nothing(tmp_path):
    with started_launcher(tmp_path) as launcher:
        pids = json.loads(launcher.stdout.readline())
        assert len(alive(pids)) == 5 and list(tmp_path.iterdir())
        time.sleep(0.2)
        launcher.kill()
    assert gone(pids, within_s=10)
    end = time.monotonic() + 5
    while list(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.distributed
def test_interrupting_the_launcher_stops_the_run(tmp_path):
    """Ctrl-C in a terminal reaches the whole process group."""
    with started_launcher(tmp_path) as launcher:
        first = json.loads(launcher.stdout.readline())
        time.sleep(0.2)
        os.killpg(launcher.pid, signal.SIGINT)
        verified, second = json.loads(launcher.stdout.readline())
        assert launcher.wait(20) == 0
    assert verified and not set(first) & set(second)
    assert gone(first + second, within_s=10) and list(tmp_path.iterdir()) == []


def explained(plan, **changed):
    """The message of the error that stopped a plan."""
    known = {
        "waiting": (0, 1, 2, 3),
        "reports": (),
        "timeout_s": 5.0,
        "positions": {d: Position(0, {}) for d in range(4)},
        "stderr": {},
    }
    return explain_stop("the plan", partial(last_operation, plan), **(known | changed))


def test_who_is_blamed(plan):
    def error(device, kind):
        return {"event": "error", "device": device, "kind": kind, "text": f"{kind} {device}"}

    died = {"event": "exit", "device": 3, "code": -11}
    late, lost, own = error(0, "late"), error(1, "peer"), error(2, "own")
    for reports, blamed in [
        ((lost, own, died), "device 3 died (killed by SIGSEGV)"),
        ((lost, late, own), "device 2 failed: own 2"),
        ((lost,), "device 1 failed: peer 1"),
        ((lost, late, error(2, "late")), "device 3 hangs: no sign of it within 5 s"),
    ]:
        text = explained(plan, reports=reports)
        assert text.splitlines()[1].startswith(blamed) and "device" not in text.splitlines()[0]
        assert len(text.splitlines()) == 2
    everyone = explained(plan)
    assert all(f"device {d} hangs" in everyone for d in range(4))
    ended = explained(plan, waiting=(1,), stderr={1: "x" * 5000 + "end\n"})
    assert "device 1 hangs" in ended and ended.endswith("end") and len(ended) < 2500


def test_last_operations(plan):
    assert last_operation(plan, 2, None) == "it had not begun"
    assert last_operation(plan, 2, Position(4, {})).endswith(
        "in repeat 4 (warm-ups counted): none yet"
    )
    position = Position(4, {"send": (1, 2), "recv": (2, 0)})
    assert last_operation(plan, 2, position).endswith(
        ": sending transfer 0 to device 3 (step 2 of 4, 2 of 4 messages done) and "
        "receiving transfer 1 from device 1 (step 3 of 4, 0 of 4 messages done)"
    )
