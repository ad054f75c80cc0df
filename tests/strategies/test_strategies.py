"""Strategies: their closed forms, rings and chains by hand, and how alpa cuts."""

from __future__ import annotations

from math import inf

import pytest

import reshard_lab as rl
from reshard_lab.strategies import alpa_cuts, closed_form_s
from support.reference_cases import one_sender


def ideal(hosts: int, devices: int, **speeds) -> rl.Cluster:
    """The clusters of section 3.1: one byte a second per NIC, links inside a host free."""
    settings = {"nic": 1.0, "nic_latency": 0, "intra": inf, "intra_latency": 0} | speeds
    return rl.Cluster(hosts=hosts, devices_per_host=devices, **settings)


@pytest.mark.parametrize("a", range(1, 9))
@pytest.mark.parametrize("b", range(1, 9))
def test_closed_forms_of_section_3_1(a, b):
    """A·B·t, A·t, t + (n-1)/n·t (t when A = 1), t + (A-1)·t/K."""
    chunks, n = 100, a * b
    cluster = ideal(a + 1, b)
    t = 6_720_000
    expected = {
        "send_recv": a * b * t,
        "local_allgather": a * t,
        "global_allgather": t + (n - 1) / n * t if a > 1 else t,
        "broadcast": t + (a - 1) * t / chunks,
    }
    task = one_sender(a, b, t, cluster)
    for strategy, seconds in expected.items():
        assert closed_form_s(strategy, t, a, b, cluster, chunks) == pytest.approx(seconds, rel=1e-6)
        plan = rl.plan(task, strategy=strategy, chunks=chunks)
        assert plan.makespan_s == pytest.approx(seconds, rel=1e-6)


def test_latency_and_links_inside_hosts_by_hand():
    cluster = ideal(3, 2, nic=10.0, nic_latency=3, intra=100.0, intra_latency=0.5)
    t = 1000
    per_nic, per_link = 3 + t / 10, 0.5 + t / 100
    assert closed_form_s("send_recv", t, 2, 2, cluster) == pytest.approx(4 * per_nic)
    # Two parts a host over the NIC, then one exchange inside the second host.
    local = 4 * (3 + 500 / 10) + (0.5 + 500 / 100)
    assert closed_form_s("local_allgather", t, 2, 2, cluster) == pytest.approx(local)
    # Chain 0 -> nic -> link -> nic -> link with 4 chunks; the NIC hop is the slowest.
    nic, link = 3 + 250 / 10, 0.5 + 250 / 100
    chain = 2 * nic + 2 * link + 3 * nic
    assert closed_form_s("broadcast", t, 2, 2, cluster, chunks=4) == pytest.approx(chain)
    # Parts of 250; each NIC link of the ring carries 3 of them back to back.
    scatter = 4 * (3 + 250 / 10)
    assert closed_form_s("global_allgather", t, 2, 2, cluster) == pytest.approx(scatter + 3 * nic)
    assert per_link < per_nic


def ring_by_hand(sizes: list[float], links: list[tuple[float, float]]) -> float:
    """Work through a ring hop by hop: (device, part) arrives, then the link carries it."""
    n = len(sizes)
    held = {(i, i): 0.0 for i in range(n) if sizes[i]}
    free = [0.0] * n
    for step in range(n - 1):
        for device in range(n):
            part = (device - step) % n
            if sizes[part]:
                latency, rate = links[device]
                free[device] = max(free[device], held[device, part]) + latency + sizes[part] / rate
                held[(device + 1) % n, part] = free[device]
    return max(free)


def test_ring_with_slow_and_fast_links():
    """Links inside hosts half as fast as the NIC: parts arrive late and the NIC waits for them."""
    for hosts, devices, intra in ((3, 2, 5.0), (2, 4, 20.0), (4, 3, 7.0)):
        cluster = ideal(hosts + 1, devices, nic=10.0, nic_latency=1, intra=intra, intra_latency=2)
        n, nbytes = hosts * devices, 240 * hosts * devices
        nic, link = (1, 10.0), (2, intra)
        links = [nic if (i + 1) % devices == 0 else link for i in range(n)]
        scatter = n * (1 + 240 / 10)
        expected = scatter + ring_by_hand([240.0] * n, links)
        seconds = closed_form_s("global_allgather", nbytes, hosts, devices, cluster)
        assert seconds == pytest.approx(expected, rel=1e-12)


def test_ring_starts_after_a_barrier():
    """No part of a ring leaves before the last part of the scatter has arrived (section 3.1)."""
    cluster = ideal(3, 2)
    plan = rl.plan(one_sender(2, 2, 400, cluster), strategy="global_allgather")
    sends = [t.id for t in plan.transfers if t.path[0] == 0]
    ring = [t for t in plan.transfers if t.path[0] != 0]
    assert len(sends) == len(ring) == 4
    assert all(sends[-1] in t.after for t in ring)


def test_receivers_on_the_senders_host_come_first():
    """A chain visits a host once: the sender's own first, so that it crosses each NIC once."""
    cluster = rl.Cluster(hosts=3, devices_per_host=2)
    src, dst = rl.Layout(rl.Mesh([3]), "R"), rl.Layout(rl.Mesh([0, 1, 2, 4, 5]), "R")
    plan = rl.plan(rl.ReshardingTask((8,), "int8", src, dst, cluster), scheduler="exact")
    assert [t.path for t in plan.transfers] == [(3, 2, 0, 1, 4, 5)]


def test_alpa_gathers_inside_hosts_only_where_its_rule_applies():
    cluster = ideal(4, 2)
    src = rl.Layout(cluster.mesh((2, 2)), "S0R")

    def makespan(spec: str, strategy: str) -> float:
        dst = rl.Layout(cluster.mesh((2, 2), first_host=2), spec)
        return rl.plan(rl.ReshardingTask((8, 8), "int8", src, dst, cluster), strategy).makespan_s

    assert makespan("S0R", "alpa") == makespan("S0R", "local_allgather")
    assert makespan("S0R", "send_recv") == 2 * makespan("S0R", "alpa")
    for plain in ("RR", "S1R", "S01R"):  # not cut over hosts, replicated over hosts, no replicas
        assert makespan(plain, "alpa") == makespan(plain, "send_recv")


def test_alpa_cuts_by_common_factors():
    assert alpa_cuts(((0, 6), (0, 10)), 4) == [
        ((0, 3), (0, 5)),
        ((0, 3), (5, 10)),
        ((3, 6), (0, 5)),
        ((3, 6), (5, 10)),
    ]
    assert len(alpa_cuts(((0, 3), (0, 5)), 4)) == 1  # no common factor: one copy, then forwarded


def test_the_closed_form_needs_a_host_for_the_sender_too():
    cluster = rl.Cluster(2, 4)
    assert closed_form_s("broadcast", 4000, 1, 4, cluster) > 0
