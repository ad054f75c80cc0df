"""The studies: what their tables say, on sizes small enough to work out by hand."""

from __future__ import annotations

import pytest

import reshard_lab as rl
from reshard_lab.paper import figure3, strategy_map

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
    simulated = table.set_index(["varies", "A", "B", "K", "strategy"])["simulated_s"]
    assert simulated["A", 3, 2, 100, "broadcast"] == pytest.approx(1 + 2 / 100, rel=1e-6)
    assert simulated["A", 3, 2, 100, "global_allgather"] == pytest.approx(1 + 5 / 6, rel=1e-6)
    assert simulated["B", 2, 3, 100, "send_recv"] == pytest.approx(6, rel=1e-6)
    assert simulated["K", 2, 2, 10, "broadcast"] == pytest.approx(1.1, rel=1e-6)
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
