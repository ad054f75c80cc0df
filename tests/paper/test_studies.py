"""The studies: what their tables say, on sizes small enough to work out by hand."""

from __future__ import annotations

import pytest

import reshard_lab as rl
from reshard_lab.paper import figure3, full_duplex, scaling, slow_host, strategy_map

pd = pytest.importorskip("pandas")

FREE = rl.Cluster(1, 1, nic=1e9, nic_latency=0, intra="inf", intra_latency=0)


def test_figure_3_closed_form_simulated_and_the_papers():
    table = figure3(10**9, counts=(1, 3), chunks=(10, 100), cluster=FREE)
    assert len(table) == 6 * 4
    assert table["simulated_s"].to_numpy() == pytest.approx(
        table["closed_form_s"].to_numpy(), rel=1e-6
    )
    exact = table[table["strategy"].isin(["send_recv", "local_allgather"])]
    assert exact["simulated_s"].to_numpy() == pytest.approx(exact["paper_s"].to_numpy(), rel=1e-6)
    found = table.set_index(["varies", "A", "B", "K", "strategy"])["simulated_s"]
    assert found["A", 3, 2, 100, "broadcast"] == pytest.approx(1 + 2 / 100, rel=1e-6)
    assert found["A", 3, 2, 100, "global_allgather"] == pytest.approx(1 + 5 / 6, rel=1e-6)
    assert found["B", 2, 3, 100, "send_recv"] == pytest.approx(6, rel=1e-6)
    assert found["K", 2, 2, 10, "broadcast"] == pytest.approx(1.1, rel=1e-6)
    paper = table.set_index(["varies", "A", "B", "K", "strategy"])["paper_s"]
    assert paper["A", 3, 2, 100, "broadcast"] == pytest.approx(1 + 3 / 100)
    assert paper["K", 2, 2, 10, "broadcast"] == pytest.approx(1 + 2 / 10)
    assert paper["A", 3, 2, 100, "global_allgather"] == 2
    real = figure3(10**6, counts=(2,), chunks=(10,))  # p3.8xlarge: latencies come on top
    sent = real[real["strategy"] != "global_allgather"]
    assert (sent["simulated_s"] > sent["paper_s"]).all()


def test_the_map_names_one_winner_a_point(tmp_path):
    """Broadcast where bytes count, but not where every message costs more than its bytes."""
    table = strategy_map(["1KiB", "64MiB"], [0, "10ms"], cache=tmp_path, jobs=1, progress=False)
    assert len(table) == 2 * 2 * 4
    assert (table.groupby(["nbytes", "nic_latency_s"])["wins"].sum() >= 1).all()
    assert (table["over_best"] >= 1).all()
    assert ((table["over_best"] == 1) == table["wins"]).all()
    winners = table[table["wins"]].set_index(["nbytes", "nic_latency_s"])["strategy"]
    assert winners[2**26, 0.0] == "broadcast"
    assert winners[2**26, 0.01] != "broadcast"
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=3)
    one = table[(table["nbytes"] == 2**10) & (table["nic_latency_s"] == 0.01)]
    sent = one.set_index("strategy")["simulated_s"]["send_recv"]
    assert sent == pytest.approx(4 * (0.01 + 2**10 / cluster.nic_Bps), rel=1e-6)


def test_scaling_counts_devices_and_never_beats_the_bound(tmp_path):
    table = scaling(
        (16, 64), ("load_balance", "concurrent"), "1MiB", cache=tmp_path, jobs=1, progress=False
    )
    assert table["gpus"].tolist() == [16, 16, 64, 64]
    assert table["scheduler"].tolist() == ["load_balance", "concurrent"] * 2
    assert table["unit_tasks"].tolist() == [1, 1, 16, 16]
    assert (table["simulated_s"] >= table["lower_bound_s"]).all()
    with pytest.raises(rl.ReshardError, match="24 devices are not two halves"):
        scaling((24,), cache=False)


def test_what_a_slow_host_costs():
    """One NIC sends and one receives for each piece: without latency, a host k times slower takes
    k times as long for its part, and the bound grows with it."""
    table = slow_host((1, 4), 2, 1, 10**8, (("broadcast", "load_balance"),), FREE)
    found = table.set_index(["slow_host", "slowdown"])
    assert found.loc[("none", 1.0), "times_none"] == 1
    assert found.loc[("sender", 1.0), "times_none"] == pytest.approx(1)
    for where in ("sender", "receiver"):
        assert found.loc[(where, 4.0), "lower_bound_s"] == pytest.approx(
            4 * found.loc[("none", 1.0), "lower_bound_s"]
        )
        assert 2 < found.loc[(where, 4.0), "times_none"] <= 4


def test_forward_and_backward_share_no_direction_of_a_nic():
    table = full_duplex(10**8, 2, 2, cluster=FREE).set_index("traffic")
    forward, together = table.loc["forward"], table.loc["together"]
    assert together["simulated_s"] == pytest.approx(forward["simulated_s"], rel=0.05)
    one_by_one = table.loc["one after the other", "simulated_s"]
    assert one_by_one == pytest.approx(2 * forward["simulated_s"], rel=1e-9)
    assert together["nbytes"] == 2 * forward["nbytes"]
    assert (table["busiest_nic"] <= 1).all()
    assert together["lower_bound_s"] == pytest.approx(forward["lower_bound_s"])


def test_studies_want_equal_hosts():
    with pytest.raises(rl.ReshardError, match="give a cluster of equal hosts"):
        full_duplex(cluster=rl.Cluster(2, 1, nic=[1e9, 2e9]))
