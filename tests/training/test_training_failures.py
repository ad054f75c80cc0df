"""What fails in training on the way is named; what is not equal is not passed."""

import json
import os
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.runtime.calls import Deadline, LateError, PeerError
from reshard_lab.runtime.process import Position
from reshard_lab.training import Paced, train
from reshard_lab.training.collectives import ProcessGroups, peer_errors
from reshard_lab.training.executor import (
    OVER,
    RUNS,
    WAITS,
    StepExecutor,
    TransferNotes,
)
from reshard_lab.training.models import MODELS
from reshard_lab.training.resolve import resolve_model
from reshard_lab.training.results import GradientPair, compare
from reshard_lab.training.train import last_item
from support.leftovers import alive, gone, processes
from support.paths import PROGRAMS
from support.training_jobs import two_by_two

pytest.importorskip("torch")
CLUSTER = rl.Cluster(hosts=4, devices_per_host=2)


def test_what_is_not_equal_is_not_passed():
    good = np.array([1.0, -2.0], np.float32)
    assert compare([GradientPair(0, "w", good, good, 2.0)], (1.5,), np.array([1.5])) == 0
    for wrong in (good + np.float32([0, 3e-5]), good * np.nan, good[:1]):
        with pytest.raises(rl.ReshardError, match=r"the gradient of w on device 7 is off by"):
            compare(
                [GradientPair(0, "w", good, good, 2.0), GradientPair(7, "w", wrong, good, 2.0)],
                (),
                np.array([]),
            )
    lost = GradientPair(0, "v", good * np.nan, good, 2.0)
    for others in (
        [GradientPair(7, "w", good, good, 2.0)],
        [GradientPair(7, "w", -good, good, 2.0)],
    ):
        with pytest.raises(rl.ReshardError, match=r"the gradient of v on device 0 is off by nan"):
            compare([lost, *others], (1.0,), np.array([1.0]))  # no later error hides it
    with pytest.raises(rl.ReshardError, match=r"the loss of step 0 is nan, alone 1.0, which is"):
        compare([GradientPair(0, "w", good, good, 2.0)], (float("nan"),), np.array([1.0]))
    for losses in ((1.0, 2.1), (1.0001, 2.0), (float("nan"), 2.0)):
        with pytest.raises(rl.ReshardError, match=r"the loss of step [01] is .*, alone [12].0, wh"):
            compare([], losses, np.array([1.0, 2.0]))
    assert compare([], (1.0, 2.0002), np.array([1.0, 2.0])) == 0  # rounding that has grown


@pytest.fixture(scope="module")
def pool():
    with rl.runtime.Pool(4) as pool:
        yield pool
        pids = processes(pool)
    assert gone(pids)


def run(pool, **options):
    return train(where=pool, cluster=CLUSTER, **{"timeout_s": 20, **options})


def works_again(pool, pids):
    """After a failure: no process is left of the old ones, and fresh ones do the same run."""
    assert not set(pids) & set(pool.pids.values())
    assert not alive(pids)
    again = run(pool)
    assert again.verified
    folder = pool._process.folder
    assert not list(folder.glob("train*"))  # results have been read


def strike(pool, device, number):
    """Send a signal to a device that has run an op of the second step."""

    def wait():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            at = pool._process.progress.read(pool.devices.index(device))
            if at.repeat >= 2 and "copy" in at.lanes:
                os.kill(pool.pids[device], number)
                return
            time.sleep(0.02)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.distributed
@pytest.mark.parametrize(("schedule", "overlap"), [("1f1b", True), ("zero_bubble", False)])
def test_a_crashed_stage_is_named_at_once(pool, schedule, overlap):
    assert run(pool).verified
    pids = list(pool.pids.values())
    strike(pool, 2, signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(rl.ReshardError) as caught:
        run(pool, schedule=schedule, overlap=overlap, compute=Paced(0.1, 0.2), steps=50)
    assert time.monotonic() - start < 15  # not the 20 s that the others would wait
    text = str(caught.value)
    assert "the training run was stopped\ndevice 2 died (killed by SIGKILL); stage 1, last" in text
    assert re.search(
        r"in step [2-9] \(warm-ups counted\): (waiting for the input of|running|had run) [FBIW]\d "
        "of stage 1",
        text,
    )
    works_again(pool, pids)


@pytest.mark.distributed
def test_a_stage_that_hangs_is_named(pool):
    assert run(pool).verified
    pids = list(pool.pids.values())
    strike(pool, 1, signal.SIGSTOP)
    text = r"device 1 hangs: no sign of it within 4 s; stage 0, last operation in step [2-9] "
    with pytest.raises(rl.ReshardError, match=text):
        run(pool, compute=Paced(0.1, 0.1), steps=50, timeout_s=4)
    works_again(pool, pids)


@pytest.mark.distributed
@pytest.mark.parametrize("model", ["transformer", "unet"])
def test_what_is_not_a_number_is_named_where_it_first_shows(pool, model):
    assert run(pool).verified
    pids = list(pool.pids.values())
    with pytest.raises(rl.ReshardError) as caught:
        run(pool, model=model, learning_rate=1e30, steps=3)
    text = str(caught.value)
    assert re.search(
        r"device \d failed: stage \d, [FB]\d: \d+ of \d+ elements of (activation 0>1|gradient 0>1"
        r"|activation skip 0>1|the loss) \(shape .*\) are NaN or infinite; try a smaller lea",
        text,
    ), text
    works_again(pool, pids)


@pytest.mark.distributed
def test_a_step_that_takes_too_long(pool):
    assert run(pool).verified
    with pytest.raises(rl.ReshardError, match=r"(no sign of it|did not come) within 1 s.*; stage"):
        run(pool, compute=Paced(0.5, 0.5), timeout_s=1)
    assert run(pool).verified


@pytest.fixture(scope="module")
def plan():
    """A plan of fewer steps than a training run has ops."""
    layouts = rl.Layout(CLUSTER.mesh(2), "S0"), rl.Layout(CLUSTER.mesh(2, 1), "R")
    return rl.plan(rl.ReshardingTask((24,), "int16", *layouts, CLUSTER))


@pytest.mark.distributed
def test_plans_and_training_on_one_pool(pool, plan):
    """One pool carries out both, in any order."""
    assert pool.run(plan, repeats=1, warmup=0).verified
    assert run(pool, model="unet").verified
    assert pool.run(plan, repeats=1, warmup=0).verified


@pytest.mark.distributed
def test_where_a_device_was_in_an_earlier_job_does_not_count(pool, plan):
    """It dies before it has begun with this one, which has other steps."""
    died = r"device 2 died \(killed by SIGKILL\); "
    assert run(pool).verified
    os.kill(pool.pids[2], signal.SIGKILL)
    with pytest.raises(rl.ReshardError, match=died + "it had not begun$"):
        pool.run(plan)
    assert pool.run(plan, repeats=1, warmup=0).verified
    os.kill(pool.pids[2], signal.SIGKILL)
    with pytest.raises(rl.ReshardError, match=died + "it was setting up stage 1$"):
        run(pool)


@pytest.mark.distributed
def test_a_device_that_is_silent_from_the_start_is_named_alone(pool, plan):
    """The processes have no groups of stages yet: they are made with all devices at once."""
    pool.close()
    assert pool.run(plan, repeats=1, warmup=0).verified
    os.kill(pool.pids[1], signal.SIGSTOP)
    with pytest.raises(rl.ReshardError) as caught:
        run(pool, timeout_s=3)
    assert str(caught.value) == (
        "the training run was stopped\ndevice 1 hangs: no sign of it within 3 s; "
        "it was setting up stage 0"
    )


class FaultyPool(rl.runtime.Pool):
    """A pool whose processes have a fault in training (see programs/faulty_training.py)."""

    def __init__(self, devices, file):
        super().__init__(devices)
        self.file = file

    def _command(self):
        return [sys.executable, str(PROGRAMS / "faulty_training.py"), str(self.file)]

    def run(self, fault, **options):
        """A run with a fault from the start."""
        self.file.write_text(json.dumps(fault))
        return run(self, **options)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    with FaultyPool(4, tmp_path_factory.mktemp("fault") / "fault") as pool:
        yield pool


@pytest.mark.distributed
def test_the_peers_of_a_device_that_hangs_are_not_blamed(faulty):
    """Devices 2 and 3 share layers out. What 2 waits for within an op is late when the step is,
    however late it began to wait.
    """
    assert faulty.run({}).verified
    with pytest.raises(rl.ReshardError) as caught:
        faulty.run({"device": 3, "do": "stop", "seconds": 2.5}, timeout_s=4)
    blamed = re.findall(r"device \d (?:hangs|failed|died).*", str(caught.value))
    text = (
        "device 3 hangs: no sign of it within 4 s; stage 1, last operation in step 1 (warm-ups "
        "counted): running F0 of stage 1, receiving or awaiting activation 0>1 of microbatch 2"
    )
    assert blamed == [text]


@pytest.mark.distributed
def test_a_replica_whose_gradient_is_off_is_named(faulty):
    """Devices 0 and 1 hold the same: only one of them is wrong."""
    assert faulty.run({}).verified
    for device in (0, 1):
        text = rf"does not equal .*: the gradient of embed.table on device {device} is off by"
        with pytest.raises(rl.ReshardError, match=text):
            faulty.run({"device": device, "do": "gradient"})


@pytest.mark.distributed
def test_a_tensor_put_one_element_further_is_found(faulty):
    assert faulty.run({}, compute=Paced(0.001, 0.001)).verified
    text = r"device 3 failed: stage 1, F0: tensor 0>1 did not come whole: element 0 of its box is "
    with pytest.raises(rl.ReshardError, match=text):
        faulty.run({"device": 3, "do": "astray"}, compute=Paced(0.001, 0.001))


@pytest.mark.distributed
def test_a_comparison_may_take_longer_than_a_step(faulty):
    """Each step alone is a sign of life; one that takes too long says what it was."""
    slow = {"device": 0, "do": "slow", "seconds": 0.7}
    assert faulty.run(slow, steps=8, timeout_s=4).verified
    text = r"device 0 hangs: no sign of it within 4 s; all steps had been taken, and it was repeat"
    with pytest.raises(rl.ReshardError, match=text + "ing step 1 of 2 alone, for comparison; chec"):
        faulty.run(slow | {"seconds": 9}, steps=2, timeout_s=4)


def test_a_model_entered_in_the_list_is_found(monkeypatch):
    @dataclass(frozen=True)
    class Mine:
        width: int = 3

    monkeypatch.setitem(MODELS, "mine", Mine)
    assert resolve_model("mine") == Mine() and resolve_model(Mine(5)) == Mine(5)
    text = r"'unet', 'mine' or a record of sizes \(Transformer, UNet, Mine\), not 3"
    with pytest.raises(rl.ReshardError, match=text):
        resolve_model(3)


def test_an_op_is_said_to_run_when_its_input_has_come():
    notes = []

    def run(op, tensors, ready):
        notes.append("awaits")
        ready()
        return {}

    executor = SimpleNamespace(
        config=two_by_two(), compute=SimpleNamespace(run=run), note=lambda *note: notes.append(note)
    )
    StepExecutor._op(executor, 0, None, np.zeros((2, 1)))
    assert notes == [("copy", 0, WAITS), "awaits", ("copy", 0, RUNS), ("copy", 0, OVER)]


def test_last_operations():
    """What a device waits for is not said to run."""
    config = two_by_two()
    texts = [config.item_text(item) for item in range(len(config.graph.ops))]
    op, move = map(texts.index, ("F1 of stage 1", "activation 0>1 of microbatch 1"))
    texts = [
        last_item(config, 2, Position(1, {"copy": (op, how), "recv": (move, of)}))
        for how, of in ((WAITS, RUNS), (RUNS, OVER), (OVER, OVER))
    ]
    start = "stage 1, last operation in step 1 (warm-ups counted): "
    assert [text.removeprefix(start) for text in texts] == [
        f"{of_op} F1 of stage 1, {of_move} activation 0>1 of microbatch 1"
        for of_op, of_move in (
            ("waiting for the input of", "receiving or awaiting"),
            ("running", "had received"),
            ("had run", "had received"),
        )
    ]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Wait timeout", LateError),
        ("Operation timed out!", LateError),
        ("[unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation", LateError),
        ("[pair.cc:553] Connection closed by peer [127.0.0.1]:4760", PeerError),
    ],
)
def test_who_is_late_is_told_from_who_is_gone(said, kind):
    """In all the words that gloo has for it: the blame depends on it."""
    with pytest.raises(PeerError, match="a sum failed: ") as caught, peer_errors("a sum"):
        raise RuntimeError(said)
    assert type(caught.value) is kind


def test_groups_are_made_once():
    """Whatever the timeout of the run that makes them."""
    groups, created = ProcessGroups({0: 0, 1: 1}), []
    groups.dist = SimpleNamespace(
        new_group=lambda ranks, **_: created.append(ranks) or len(created)
    )
    handles = [groups.get("up", (0, 1), Deadline(s)) for s in (5, 9)]
    assert handles == [1, 1] and created == [[0, 1]]
    assert groups.get("down", (0, 1), Deadline(5)) == 2


def test_of_several_transfers_the_longest_is_noted():
    """One that ends does not hide another that is stuck."""
    notes = []
    notes_of = TransferNotes(lambda *note: notes.append(note))
    for step in ("begin 4", "begin 7", "end 7", "end 4"):
        verb, _, item = step.partition(" ")
        getattr(notes_of, verb)("recv", int(item))
    assert notes == [("recv", 4, RUNS), ("recv", 4, RUNS), ("recv", 4, RUNS), ("recv", 4, OVER)]
