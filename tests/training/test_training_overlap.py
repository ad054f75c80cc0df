"""The four overlap levels, measured on an emulated cluster beside their simulation."""

import itertools

import pytest

import reshard_lab as rl
from reshard_lab.paper.overlap import LEVELS, overlap_levels
from reshard_lab.paper.pipelines import FIGURE9
from reshard_lab.runtime import network
from reshard_lab.training import train

pytest.importorskip("torch")
pytest.importorskip("pandas")
FORWARD_S, BACKWARD_S = 0.04, 0.08
STAGES, MICROBATCHES = 3, 4


@pytest.fixture(scope="module")
def emulated():
    """Slow NICs, which need not reach their speed: the machine may be busy."""
    reason = network.refused()
    if reason is not None:
        pytest.skip(f"no network namespaces here: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reshard_lab.runtime.launch.LEAST_SHARE", 0)
        with rl.EmulatedCluster(STAGES, 2, "100Mbit") as cluster:
            yield cluster


@pytest.fixture(scope="module")
def measured(emulated):
    """The table, and the runs behind it."""
    runs = []

    def kept(*sizes, **how):
        runs.append(train(*sizes, **how))
        return runs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reshard_lab.paper.overlap.train", kept)
        table = overlap_levels(
            0.5,
            stages=STAGES,
            microbatches=MICROBATCHES,
            forward_s="40ms",
            repeats=2,
            warmup=0,
            on=emulated,
        )
    return table, runs


@pytest.mark.distributed
def test_levels_beside_their_simulation(measured):
    table, runs = measured
    assert list(table.level) == [level.name for level in LEVELS]
    assert list(table.schedule) == ["1f1b", "1f1b", "eager_1f1b", "eager_1f1b"]
    assert list(table.overlap) == [False, True, True, True]
    assert table.simulated_s.is_monotonic_decreasing and table.simulated_s.is_unique
    assert table.transfer.nunique() == 1 and 0.45 < table.transfer[0] < 0.6
    for row, run in zip(table.itertuples(), runs, strict=True):
        assert row.fastest_s <= row.measured_s <= row.slowest_s and row.runs == 2
        assert row.ratio == row.measured_s / row.simulated_s
        assert row.measured_s > MICROBATCHES * (FORWARD_S + BACKWARD_S)  # what a stage sleeps
        assert row.label == run.label and "emulated 100 Mbit/s NICs" in row.label
        assert "gloo" in row.label and "paced" in row.label


@pytest.mark.distributed
def test_simulated_as_the_simulator_does_on_its_own(measured):
    """Transfers of the same tensors, planned on the emulated cluster."""
    table, runs = measured
    cluster = rl.Cluster(STAGES, 2, "100Mbit", nic_latency=0, intra="inf", intra_latency=0)
    shape = (2, runs[0].model.sequence, 512)
    layouts = [
        rl.Layout(cluster.mesh((1, 2) if s % 2 else (2, 1), s), "RRR" if s % 2 else "S0RR")
        for s in range(STAGES)
    ]
    for row, level in zip(table.itertuples(), LEVELS, strict=True):
        tasks = [
            rl.ReshardingTask(shape, "float32", a, b, cluster)
            for a, b in itertools.pairwise(layouts)
        ]
        moved = [rl.plan(t, level.strategy, chunks=t.nbytes // 2**16) for t in tasks]
        lists = rl.pipeline.schedule(level.schedule, STAGES, MICROBATCHES)
        alone = rl.pipeline.simulate(lists, FORWARD_S, BACKWARD_S, moved, overlap=level.overlap)
        assert row.simulated_s == pytest.approx(alone.makespan_s, rel=1e-9)


@pytest.mark.distributed
def test_every_tensor_came_whole_except_under_signal(measured):
    table, runs = measured
    assert list(table.verified) == [True, True, True, False]
    assert [run.verified for run in runs] == list(table.verified)
    assert table.label[3].endswith("not verified")


@pytest.mark.distributed
def test_training_on_an_emulated_cluster(emulated, monkeypatch):
    """One that is open, and one that is started for the run."""
    opened = rl.pipeline.train("unet", "eager_1f1b", where=emulated)
    monkeypatch.setattr("reshard_lab.runtime.launch.LEAST_SHARE", 0)  # the machine may be busy
    started = rl.pipeline.train(where="emulated", cluster=rl.Cluster(2, 2, "10Gbps"))
    for run, nic in (
        (opened, "100 Mbit/s"),
        (started, "400 Mbit/s"),
    ):  # slowed down, and it says so
        assert run.verified and f"emulated {nic} NICs" in run.label and "real" in run.label
    assert started.environment["nic_share"] > 0
    with pytest.raises(rl.ReshardError, match="is not that of the EmulatedCluster; leave cluster"):
        rl.pipeline.train(where=emulated, cluster=rl.Cluster(2, 2))


def test_levels_are_the_first_three_of_figure_9_and_their_bound():
    for level, bar in zip(LEVELS[:3], FIGURE9, strict=False):
        assert level[1:5] == bar[1:5] and level.about
    assert LEVELS[3] == LEVELS[2]._replace(
        name="3 signal", strategy="signal", about=LEVELS[3].about
    )


def test_levels_that_delay_weights_do(monkeypatch):
    """Every setting of a level reaches ``train``."""
    late, seen = LEVELS[1]._replace(delay_weights=True), []

    def train(model, schedule, **options):
        seen.append(options["delay_weights"])
        raise KeyError

    monkeypatch.setattr("reshard_lab.paper.overlap.LEVELS", (late,))
    monkeypatch.setattr("reshard_lab.paper.overlap.train", train)
    with pytest.raises(KeyError):
        overlap_levels(0.5, on=rl.EmulatedCluster(4, 2))
    assert seen == [True]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"microbatches": 0}, "microbatches must be at least 1"),
        ({"on": "emulated"}, "on must be an open EmulatedCluster, not 'emulated'"),
    ],
)
def test_levels_that_cannot_be_measured_start_no_cluster(monkeypatch, options, text):
    monkeypatch.setattr("reshard_lab.paper.overlap.fastest_emulation", None)
    with pytest.raises(rl.ReshardError, match=text):
        overlap_levels(**options)
