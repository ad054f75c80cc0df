"""Training that cannot work is refused before it starts; what fails on the way is named."""

import os
import re
import signal
import tempfile
import threading
import time

import numpy as np
import pytest
from leftovers import alive, gone, processes

import reshard_lab as rl
from reshard_lab.pipeline import Paced, Transformer, UNet, train
from reshard_lab.training.record import Piece, compare

pytest.importorskip("torch")
CLUSTER = rl.Cluster(hosts=4, devices_per_host=2)
DATA, OPERATOR = ((2, 1), "S0RR"), ((1, 2), "RRR")

REFUSED = {
    "microbatches that do not divide the batch": (
        {"batch": 10, "microbatches": 4},
        r"microbatches=4 does not divide batch=10; all microbatches have as many samples",
    ),
    "more stages than layers": (
        {"model": Transformer(blocks=1), "stages": [((1,), "RRR")] * 4},
        r"the schedule has 4 pieces of the model, but the model has 3 layers; use fewer stages",
    ),
    "a boundary that does not match the next stage's layout": (
        {"stages": [((2, 1), "S0RR"), ((2, 1), "S0R")]},
        r"spec 'S0R' of stage 1 has 2 tokens, but its boundary tensors have 3 dimensions",
    ),
    "images laid out as sequences": (
        {"model": "unet", "stages": [DATA, OPERATOR]},
        r"spec 'S0RR' of stage 0 has 3 tokens, but its boundary tensors have 4 dimensions",
    ),
    "devices without samples": (
        {"stages": [((4,), "S0RR"), OPERATOR], "batch": 12, "cluster": rl.Cluster(2, 4)},
        r"spec 'S0RR' of stage 0 leaves device 3 no sample of a microbatch of 3",
    ),
    "layers that cannot be shared out": (
        {"stages": [((3,), "RRR"), OPERATOR], "cluster": rl.Cluster(2, 4)},
        r"stage 0 shares its layers out among 3 devices .*, but the model has 4 heads",
    ),
    "a spec of axes that the mesh has not": (
        {"stages": [((2,), "S1RR"), OPERATOR]},
        r"spec 'S1RR' uses mesh axis 1",
    ),
    "stages that share devices": (
        {"stages": [(rl.Mesh([0, 1]), "S0RR"), (rl.Mesh([1, 2]), "S0RR")]},
        r"device 1 is in stages 0 and 1; a device belongs to one stage",
    ),
    "a schedule that gets stuck": (
        {"schedule": [["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]]},
        r"the schedule deadlocks: stage 0 is at B0",
    ),
    "a schedule that lacks an op": (
        {"schedule": [["F0", "B0"], ["F0"]]},
        r"the schedule is not complete: stage 1 runs F0 but never B0",
    ),
    "an unknown schedule": (
        {"schedule": "1f2b"},
        r"unknown pipeline schedule '1f2b'; allowed are .*; did you mean '1f1b'",
    ),
    "a schedule without backward": (
        {"schedule": "inference"},
        r"the schedule has no backward, so nothing is trained",
    ),
    "lists for other stages": (
        {"schedule": [["F0", "B0"]] * 3, "stages": [DATA, OPERATOR]},
        r"the schedule has 3 stages, but 2 were given",
    ),
    "lists of other microbatches": (
        {"schedule": [["F0", "B0"]] * 2, "microbatches": 2},
        r"the schedule has 1 microbatches, but microbatches=2",
    ),
    "lists with options of names": (
        {"schedule": [["F0", "B0"]] * 2, "delay_weights": True},
        r"chunks and delay_weights go with a schedule's name",
    ),
    "signal that should carry data": (
        {"strategy": "signal"},
        r"strategy 'signal' delivers no data, so nothing can be computed with it",
    ),
    "an unknown strategy": ({"strategy": "brodcast"}, r"unknown strategy 'brodcast'"),
    "an unknown model": ({"model": "resnet"}, r"unknown model 'resnet'; allowed are transformer"),
    "no model at all": ({"model": 3}, r"model must be 'transformer', 'unet'"),
    "an unknown place": ({"where": "moon"}, r"unknown place to run \(where\) 'moon'"),
    "neither real nor paced": ({"compute": "fast"}, r"compute must be 'real' or a Paced"),
    "paces of other stages": (
        {"compute": Paced([1.0, 2.0, 3.0], 1.0)},
        r"forward_s has 3 entries, but the schedule has 2 stages",
    ),
    "a stage that is no pair": ({"stages": [(2, 1), OPERATOR]}, r"stages\[0\] must be a mesh"),
    "devices that nobody placed": (
        {"stages": [(rl.Mesh([0]), "RRR"), (rl.Mesh([1]), "RRR")], "cluster": None},
        r"stages name devices, but there is no cluster",
    ),
    "no stages": ({"stages": []}, r"stages must be a list with a mesh .* a stage, not \[\]"),
    "a rate that is no number": ({"learning_rate": "1e-3"}, r"learning_rate must be a number"),
    "no steps": ({"steps": 0}, r"steps must be at least 1"),
    "no time": ({"timeout_s": 0}, r"timeout_s must be a number of seconds above 0"),
}


@pytest.fixture
def untouched(monkeypatch, tmp_path):
    """Nothing is started: no process, no file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *_, **__: pytest.fail("started"))
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_anything_starts(untouched, name):
    options, text = REFUSED[name]
    with pytest.raises(rl.ReshardError, match=text):
        train(**{"cluster": CLUSTER, "stages": None, **options})


def test_a_pool_without_the_devices(untouched):
    pool = rl.runtime.Pool(3)
    with pytest.raises(rl.ReshardError, match=r"the training run uses devices \[3\], which the po"):
        train(where=pool, cluster=CLUSTER)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (lambda: Transformer(hidden=10, heads=4), r"hidden=10 does not divide by heads=4"),
        (lambda: UNet(channels=6, groups=4), r"channels=6 does not divide by groups=4"),
        (
            lambda: UNet(size=6),
            r"size=6 cannot be halved levels=2 times to 2 or more .* a multiple of 4",
        ),
        (lambda: UNet(size=4), r"size=4 cannot be halved levels=2 times to 2 or more"),
        (lambda: Transformer(sequence=1), r"sequence must be at least 2"),
        (lambda: Transformer(blocks=0), r"blocks must be at least 1"),
    ],
)
def test_sizes_that_do_not_fit(sizes, text):
    with pytest.raises(rl.ReshardError, match=text):
        sizes()


def test_what_is_not_equal_is_not_passed():
    good = np.array([1.0, -2.0], np.float32)
    assert compare([Piece(0, "w", good, good, 2.0)], (1.5,), np.array([1.5])) == 0
    for wrong in (good + np.float32([0, 3e-5]), good * np.nan, good[:1]):
        with pytest.raises(rl.ReshardError, match=r"the gradient of w on device 7 is off by"):
            compare(
                [Piece(0, "w", good, good, 2.0), Piece(7, "w", wrong, good, 2.0)], (), np.array([])
            )
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
            at = pool._progress.read(pool.devices.index(device))
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
        r"in step [2-9] \(warm-ups counted\): (running|had run) [FBIW]\d of stage 1", text
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


@pytest.mark.distributed
def test_plans_and_training_on_one_pool(pool):
    """One pool carries out both, in any order."""
    layouts = rl.Layout(CLUSTER.mesh(2), "S0"), rl.Layout(CLUSTER.mesh(2, 1), "R")
    plan = rl.plan(rl.ReshardingTask((24,), "int16", *layouts, CLUSTER))
    assert pool.run(plan, repeats=1, warmup=0).verified
    assert run(pool, model="unet").verified
    assert pool.run(plan, repeats=1, warmup=0).verified
