"""pipeline.train on real processes: losses and every gradient equal a plain torch run."""

import itertools
from functools import cache

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.training import Paced, Transformer, UNet, results, train
from reshard_lab.training.results import compare
from support.paths import ROOT

pytest.importorskip("torch")
from oracles.training_models import plain_run

pytestmark = pytest.mark.distributed
RTOL = 1e-5
SMALL = Transformer(blocks=4, hidden=16, heads=4, sequence=6, vocabulary=11)
IMAGES = UNet(levels=2, channels=8, groups=4, size=8)
DATA, OPERATOR = ((2, 1), "S0RR"), ((1, 2), "RRR")


@pytest.fixture(scope="module")
def pool():
    with rl.runtime.Pool(8) as pool:
        yield pool


@cache
def truth(sizes, batch, steps=1):
    return plain_run(sizes, batch, steps=steps)


def check(run, batch, steps=1):
    """Whether ``run`` equals plain torch, with every gradient there."""
    losses, gradients = truth(run.model, batch, steps)
    np.testing.assert_allclose(run.losses, losses, rtol=RTOL)
    assert list(run.gradients) == list(gradients)
    for name, expected in gradients.items():
        scale = np.abs(expected).max()
        assert scale > 0
        np.testing.assert_allclose(
            run.gradients[name] / scale, expected / scale, rtol=RTOL, atol=RTOL, err_msg=name
        )
    assert run.verified and run.max_error < RTOL and run.label.endswith(", verified")
    assert "real" in run.label and "gloo" in run.label


def trained(pool, model=SMALL, schedule="1f1b", stages=(DATA, OPERATOR), **options):
    """A run on a host a stage, on the first devices of the pool."""
    if isinstance(model, UNet):
        stages = [(shape, spec + "R") for shape, spec in stages]
    width = max(int(np.prod(shape)) for shape, _ in stages)
    cluster = rl.Cluster(len(stages), width)
    return train(model, schedule, stages=stages, where=pool, cluster=cluster, **options)


SCHEDULES = [name for name in rl.pipeline.SCHEDULES if name != "inference"]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("model", [SMALL, IMAGES], ids=["transformer", "unet"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule(pool, schedule, model, overlap):
    check(trained(pool, model, schedule, overlap=overlap), batch=8)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "eager_1f1b", "interleaved_1f1b"])
def test_backwards_in_halves(pool, schedule, overlap):
    run = trained(pool, IMAGES, schedule, overlap=overlap, delay_weights=True)
    assert {"input gradient", "weight gradient"} <= {e.what for e in run.timeline.events}
    check(run, batch=8)


@pytest.mark.parametrize("model", [SMALL, IMAGES], ids=["transformer", "unet"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_fewer_microbatches_than_stages(pool, schedule, model):
    """Three stages (six model chunks, interleaved), two microbatches; skips leap over a stage."""
    stages = [DATA, OPERATOR, ((1,), "RRR")]
    check(trained(pool, model, schedule, stages, microbatches=2, batch=4), batch=4)


LAYOUTS = [
    [((2, 2), "S0RR"), ((2, 2), "S1RR")],  # both kinds of axes on both sides, exchanged
    [((2, 2), "S01RR"), ((4,), "RRR")],  # all data, then all operator
    [((2, 2), "S10RR"), ((1,), "RRR")],
    [((2, 2), "RS0R"), ((2, 1), "S0RR")],  # a cut sequence, each part held twice
    [((1, 4), "RS1R"), ((2, 2), "S1S0R")],  # six in four: 2, 2, 2 and nothing
    [((2,), "RRS0"), ((2, 2), "S0RS1")],  # cut channels
]


@pytest.mark.parametrize("layouts", LAYOUTS, ids=lambda s: " to ".join(spec for _, spec in s))
@pytest.mark.parametrize("model", [SMALL, IMAGES], ids=["transformer", "unet"])
def test_layouts_that_differ(pool, model, layouts):
    check(trained(pool, model, "eager_1f1b", layouts, batch=16), batch=16)


def test_shares_of_samples_that_differ(pool):
    """Microbatches of 5 samples: 3 and 2 on one stage, 2, 2 and 1 on the other."""
    stages = [((2, 2), "S0RR"), ((3,), "S0RR")]
    check(trained(pool, SMALL, "1f1b", stages, batch=10, microbatches=2), batch=10)


@pytest.mark.parametrize("strategy", ["send_recv", "local_allgather", "global_allgather", "alpa"])
def test_other_strategies(pool, strategy):
    stages = [((2, 1), "S0RR"), ((2, 2), "S0RR")]
    check(trained(pool, IMAGES, "1f1b", stages, strategy=strategy), batch=8)


def test_numbers_of_numpy(pool):
    numbers = {"steps": np.int64(2), "warmup": np.int8(0), "seed": np.uint32(0)}
    check(trained(pool, SMALL, batch=np.int64(8), **numbers), batch=8, steps=2)


def test_one_stage(pool):
    check(trained(pool, IMAGES, "gpipe", [((2, 2), "S1RR")]), batch=8)


def test_several_model_chunks_on_one_stage(pool):
    """Nothing is sent between them."""
    run = trained(pool, IMAGES, "interleaved_1f1b", [((1, 2), "RRR")], chunks=4)
    assert all(e.row == "stage 0" for e in run.timeline.events)
    check(run, batch=8)


def test_lists_of_ops(pool):
    """A schedule of one's own; stages of four devices of a larger pool."""
    lists = [["F0", "F1", "I1", "B0", "W1"], ["F0", "F1", "B1", "I0", "W0"]]
    run = trained(pool, SMALL, lists, batch=4)
    assert run.schedule == lists
    check(run, batch=4)


def test_steps_learn(pool):
    """Steps follow one another as plain gradient descent; a warm-up changes nothing."""
    run = trained(pool, SMALL, "zero_bubble", steps=4, warmup=1)
    assert len(run.times_s) == len(run.losses) == 4 and run.losses[-1] < run.losses[0]
    assert run.min_s <= run.median_s <= max(run.times_s)
    check(run, batch=8, steps=4)


def test_names_and_defaults(pool, monkeypatch):
    """Two stages of two devices, on each of which every gradient of its stage is compared."""
    compared = []
    monkeypatch.setattr(
        results, "compare", lambda pairs, *rest: compared.extend(pairs) or compare(pairs, *rest)
    )
    run = train(where=pool)
    assert len({(pair.device, pair.name) for pair in compared}) == len(compared)
    assert len(compared) == 2 * len(run.gradients) > 0
    assert run.timeline.stages == 2 and run.compute == "real"
    assert "Transformer, 2 stages, overlapped" in repr(run) and "loopback" in run.label
    check(run, batch=8)


def test_the_example_of_the_page():
    """On processes of its own."""
    page = (ROOT / "docs" / "training.md").read_text()
    names = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    check(names["run"], batch=8, steps=4)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved_1f1b", "zero_bubble"])
def test_measured_events_keep_the_order_of_the_schedule(pool, schedule, overlap):
    """Ops run in list order; nothing starts before what it needs has come."""
    one = ((1,), "RRR")
    pace = Paced(0.004, 0.008)
    options = {"overlap": overlap, "compute": pace, "batch": 9, "microbatches": 3}
    run = trained(pool, IMAGES, schedule, [one] * 3, **options)
    assert run.verified and run.compute == "paced" and "paced" in run.label
    assert run.losses == () and run.gradients == {} and run.max_error is None
    ops = {s: [e for e in run.timeline.events if e.row == f"stage {s}"] for s in range(3)}
    assert {s: [e.op for e in events] for s, events in ops.items()} == dict(enumerate(run.schedule))
    ends = {(e.row, e.op): e.end_s for e in run.timeline.events if not e.tensor}
    for events in ops.values():
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(events))
    moves = [e for e in run.timeline.events if e.tensor]
    model_chunks = 6 if schedule == "interleaved_1f1b" else 3
    assert len({e.tensor for e in moves}) == model_chunks - 1 + 2  # two levels, two skips
    for e in moves:
        a, b = e.row.removeprefix("link ").split(">")
        assert ends[f"stage {a}", e.op] <= e.start_s < e.end_s
        kind = "F" if e.what == "activation" else "BI"
        chunks = [int(n) for n in e.tensor.removeprefix("skip ").split(">")]
        chunk = chunks[e.what == "activation"] // 3
        needs = [o for o in ops[int(b)] if o.op[0] in kind]
        (after,) = [o for o in needs if o.microbatch == e.microbatch and o.chunk == chunk]
        assert e.end_s <= after.start_s
    lanes = {}
    for e in moves:  # a sender is done before all has come, so only the receiver is looked at
        lanes.setdefault(e.row if overlap else f"stage {e.row[-1]}", []).append(e)
    for lane, events in lanes.items():
        events += [] if overlap else ops[int(lane[-1])]
        events.sort(key=lambda e: e.start_s)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(events)), lane


def test_measured_beside_simulated(pool):
    """The same items; ops last as paced."""
    stages = [((1,), "RRR")] * 2
    run = trained(pool, SMALL, "1f1b", stages, compute=Paced(0.01, 0.03), steps=2)
    measured, simulated = run.to_frame(), run.simulated.to_frame()
    key = ["row", "op", "what", "tensor"]
    assert sorted(map(tuple, measured[key].values)) == sorted(map(tuple, simulated[key].values))
    paced = {"forward": 0.01, "backward": 0.03}
    for frame, slack in ((measured, 0.5), (simulated, 1e-9)):
        ops = frame[frame.tensor == ""]
        lasted = (ops.end_s - ops.start_s) - ops.what.map(paced)
        assert lasted.between(-1e-9, slack).all()
    assert run.timeline.rows == run.simulated.rows
    assert 0.02 < run.timeline.makespan_s <= max(run.times_s)


def test_signal_moves_nothing_and_says_so(pool):
    run = trained(pool, SMALL, "1f1b", compute=Paced(0.001, 0.001), strategy="signal")
    assert not run.verified and run.label.endswith(", not verified")
