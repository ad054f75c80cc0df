"""Speeds recovered from simulated runs of a known cluster, with and without noise."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import reshard_lab as rl

TRUE = rl.Cluster(3, 2, nic=5e7, nic_latency=2e-4, intra=8e8, intra_latency=5e-5)
GUESS = rl.Cluster(3, 2)
OVERHEAD_S = 1e-3


def fan_out(strategy: str, nbytes: int, chunks: int = 100, cluster: rl.Cluster = GUESS) -> rl.Plan:
    """From device 0 to both devices of the two other hosts."""
    src = rl.Layout(rl.Mesh([0]), "R")
    dst = rl.Layout(cluster.mesh((2, 2), first_host=1), "R")
    return rl.plan(rl.ReshardingTask((nbytes,), "int8", src, dst, cluster), strategy, chunks=chunks)


def inside(nbytes: int) -> rl.Plan:
    ends = (rl.Layout(rl.Mesh([d]), "R") for d in (0, 1))
    return rl.plan(rl.ReshardingTask((nbytes,), "int8", *ends, GUESS), "send_recv")


PLANS = [
    *(fan_out(s, n) for s in ("send_recv", "local_allgather") for n in (10**4, 10**7)),
    *(fan_out("broadcast", n, k) for n in (10**5, 10**7) for k in (10, 100)),
    inside(10**4),
    inside(10**7),
]


def took(plan: rl.Plan, cluster: rl.Cluster = TRUE) -> float:
    return OVERHEAD_S + rl.simulate(plan, cluster=cluster).duration_s


def test_exact_times_give_the_cluster_back():
    fit = rl.calibrate([(plan, took(plan)) for plan in PLANS])
    cluster = fit.cluster
    assert cluster.nic_Bps == pytest.approx(TRUE.nic_Bps, rel=1e-6)
    assert cluster.nic_latency_s == pytest.approx(TRUE.nic_latency_s, rel=1e-6)
    assert cluster.intra_Bps == pytest.approx(TRUE.intra_Bps, rel=1e-6)
    assert cluster.intra_latency_s == pytest.approx(TRUE.intra_latency_s, rel=1e-4)
    assert fit.overhead_s == pytest.approx(OVERHEAD_S, rel=1e-6)
    assert fit.rms_error < 1e-9
    assert all(p.fitted for p in fit.parameters)
    later = fan_out("global_allgather", 3 * 10**6)
    assert fit.predict_s(later) == pytest.approx(took(later), rel=1e-6)
    again = fit.compare(later, [1.1 * took(later)] * 3)
    assert again.error == pytest.approx(1 / 1.1 - 1, rel=1e-5)
    assert (again.strategy, again.nbytes) == ("global_allgather", 3 * 10**6)


def test_noise_of_one_percent_gives_it_back_within_its_standard_errors():
    rng = np.random.default_rng(4)
    runs = [(plan, took(plan) * (1 + 0.01 * rng.standard_normal())) for plan in PLANS * 2]
    fit = rl.calibrate(runs)
    assert fit.cluster.nic_Bps == pytest.approx(TRUE.nic_Bps, rel=0.02)
    assert fit.cluster.intra_Bps == pytest.approx(TRUE.intra_Bps, rel=0.05)
    assert 0.004 < fit.rms_error < 0.015
    true = {
        "nic": TRUE.nic_Bps,
        "overhead": OVERHEAD_S,
        "nic_latency": TRUE.nic_latency_s,
        "intra": TRUE.intra_Bps,
        "intra_latency": TRUE.intra_latency_s,
    }
    for p in fit.parameters:
        assert abs(p.value - true[p.name]) <= 4 * p.stderr, p
    later = fan_out("global_allgather", 3 * 10**6)
    assert fit.predict_s(later) == pytest.approx(took(later), rel=0.02)


def test_what_the_runs_do_not_tell_keeps_its_value():
    """One run tells one thing; two sizes also a time that comes on top of every run."""
    fit = rl.calibrate([(fan_out("send_recv", 10**7), 0.8)])
    fitted = {p.name: p.fitted for p in fit.parameters}
    assert fitted.pop("nic")
    assert not any(fitted.values())
    assert fit.cluster.nic_latency_s == GUESS.nic_latency_s
    assert fit.cluster.intra_Bps == GUESS.intra_Bps
    assert fit.predict_s(fan_out("send_recv", 10**7)) == pytest.approx(0.8)
    assert all(math.isnan(p.stderr) for p in fit.parameters)
    two = rl.calibrate(
        [(fan_out("send_recv", n), took(fan_out("send_recv", n))) for n in (10, 10**7)]
    )
    assert [p.name for p in two.parameters if p.fitted] == ["nic", "overhead"]
    assert "intra 1.2 Tbit/s (given)" in repr(two)
    odd = rl.calibrate([(fan_out("send_recv", 10), 1.0), (fan_out("signal", 10), 2.0)])
    assert [p.name for p in odd.parameters if p.fitted] == ["overhead"]
    assert odd.cluster == GUESS  # though at first the NIC's speed shows, until it is infinite


def test_a_latency_of_nothing_is_fitted_as_zero():
    true = rl.Cluster(3, 2, nic=5e7, nic_latency=0, intra=8e8, intra_latency=5e-5)
    fit = rl.calibrate([(plan, took(plan, true)) for plan in PLANS])
    assert fit.cluster.nic_latency_s == 0
    assert fit.cluster.nic_Bps == pytest.approx(true.nic_Bps, rel=1e-6)


def test_hosts_that_differ_keep_their_ratio():
    uneven = rl.Cluster(3, 2, nic=[1e9, 1e9, 5e8])
    slow = rl.Cluster(3, 2, nic=[1e8, 1e8, 5e7])
    plans = [fan_out(s, 10**7, cluster=uneven) for s in ("send_recv", "broadcast")]
    fit = rl.calibrate([(plan, rl.simulate(plan, cluster=slow).duration_s) for plan in plans])
    assert fit.cluster.host_nic_Bps == pytest.approx((1e8, 1e8, 5e7), rel=1e-6)


def test_a_measurement_counts_by_its_median():
    class Measured:
        median_s = 0.8

    plan = fan_out("send_recv", 10**7)
    one, many, record = (rl.calibrate([(plan, m)]) for m in (0.8, (0.7, 0.8, 5.0), Measured()))
    assert one.cluster == many.cluster == record.cluster


def test_table_of_runs():
    pytest.importorskip("pandas")
    table = rl.calibrate([(plan, took(plan)) for plan in PLANS[:3]]).to_frame()
    assert list(table.columns) == ["strategy", "nbytes", "measured_s", "predicted_s", "error"]
    assert len(table) == 3


def test_a_table_without_pandas_says_what_to_install(monkeypatch):
    fit = rl.calibrate([(PLANS[0], took(PLANS[0]))])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rl.ReshardError, match=r"pip install 'reshard-lab\[notebooks\]'"):
        fit.to_frame()
