"""Traffic between hosts: bytes counted from the boxes, and the matrix that shows them."""

import math

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab import paper, plots
from reshard_lab.planning.nics import traffic
from reshard_lab.plots import svg
from reshard_lab.plots.plans import shade
from support.svg_pages import assert_readable, contrast

SMALL = paper.Scale(16, 20)
CASES = range(1, 10)


def task_of(number: int) -> rl.ReshardingTask:
    return paper.suite_task(number, None, SMALL)


def needed(task: rl.ReshardingTask, host: int) -> int:
    """Bytes that some device of ``host`` needs, each once, by marking elements."""
    mask = np.zeros(task.shape, dtype=bool)
    for device, box in task.dst.boxes(task.shape).items():
        if task.cluster.host_of(device) == host:
            mask[tuple(slice(lo, hi) for lo, hi in box)] = True
    return int(mask.sum()) * task.itemsize


@pytest.mark.parametrize("number", CASES)
def test_a_broadcast_brings_every_host_what_it_needs_once(number):
    task = task_of(number)
    matrix = traffic(rl.plan(task, "broadcast", "load_balance"))
    receiving = {task.cluster.host_of(d) for d in task.dst.mesh.devices}
    for host in matrix.hosts:
        assert matrix.received(host) == (needed(task, host) if host in receiving else 0)
    assert matrix.crossing == sum(needed(task, host) for host in receiving)


@pytest.mark.parametrize("number", CASES)
def test_send_recv_brings_every_device_all_it_needs(number):
    """No device of these cases holds anything before, so every piece comes over the network."""
    task = task_of(number)
    matrix = traffic(rl.plan(task, "send_recv", "load_balance"))
    pieces = task.dst.boxes(task.shape).values()
    assert matrix.crossing == sum(
        math.prod(hi - lo for lo, hi in box) * task.itemsize for box in pieces
    )
    assert all(a != b for a, b in matrix.nbytes)


@pytest.mark.parametrize("strategy", ["send_recv", "local_allgather", "alpa", "broadcast"])
@pytest.mark.parametrize("number", CASES)
def test_sums_agree_and_no_plan_beats_its_busiest_nic(number, strategy):
    plan = rl.plan(task_of(number), strategy, "greedy")
    matrix = traffic(plan)
    frame = matrix.to_frame()
    across = frame[frame.source != frame.destination]
    assert across.nbytes.sum() == matrix.crossing
    for host in matrix.hosts:
        assert across[across.source == host].nbytes.sum() == matrix.sent(host)
        assert across[across.destination == host].nbytes.sum() == matrix.received(host)
    sides = {(load.host, load.side): load.nbytes for load in matrix.loads}  # one NIC a host
    assert {h: n for (h, side), n in sides.items() if side == "tx"} == {
        h: matrix.sent(h) for h in matrix.hosts if matrix.sent(h)
    }
    assert all(b.seconds <= plan.makespan_s * (1 + 1e-9) for b in matrix.bottlenecks)
    for use in rl.simulate(plan).nic_use():
        assert sides[use.host, use.direction] == use.nbytes


def test_bottlenecks_know_slow_nics():
    cluster = rl.Cluster(3, 1, nic=["10Gbps", "1Gbps", "10Gbps"])
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1, 2]), "R")
    matrix = traffic(rl.plan(rl.ReshardingTask((125,), "int8", src, dst, cluster), "send_recv"))
    (slow,) = matrix.bottlenecks
    assert (slow.host, slow.side, slow.nbytes) == (1, "rx", 125)
    assert slow.seconds == pytest.approx(1e-6)


def figure2_plans() -> dict[str, rl.Plan]:
    task = paper.figure2(1)
    return {name: rl.plan(task, name, "naive") for name in ("send_recv", "broadcast")}


def test_the_matrix_shows_bytes_sums_and_the_busiest():
    """Figure 2, task 1: each row of 16 bytes goes to both devices of one host."""
    words = assert_readable(plots.draw_traffic(figure2_plans()["broadcast"]).svg).words()
    assert words.count("32 B") == 6  # two cells; two sums of senders, two of receivers
    assert words.count("(32 B)") == 2
    assert words.count("0 B") == 4
    assert [w for w in words if w.startswith("host")] == [
        f"host {h}" for h in range(4) for _ in "ab"
    ]
    assert "hosts 0,1 sends" in " ".join(words) and "hosts 2,3 takes in" in " ".join(words)


def test_only_the_busiest_sides_are_outlined():
    """Send/recv of 64 bytes to two hosts: 128 leave host 0, 64 enter each of the others."""
    cluster = rl.Cluster(3, 1)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1, 2]), "R")
    plan = rl.plan(rl.ReshardingTask((64,), "int8", src, dst, cluster), "send_recv")
    page = assert_readable(plots.draw_traffic(plan).svg)
    (outlined,) = [r for r in page.rects if r.style.get("stroke-width") == "2.5"]
    assert [words for words, box in page.texts if box.inside(outlined)] == ["128 B"]
    said = " ".join(page.words())
    assert "Busiest: what a NIC of host 0 sends, 128 B: " in said and "host 1 takes in" not in said


def test_two_plans_share_one_scale_of_colours():
    figure = plots.draw_traffic(figure2_plans())
    page = assert_readable(figure.svg)
    fills = [r.style["fill"] for r in page.rects if r.style["fill"] not in ("none", "#ffffff")]
    assert sorted(set(fills)) == ["#0072b2", "#80b8d8"]  # 64 of 64 bytes, 32 of 64
    assert fills.count("#0072b2") == fills.count("#80b8d8") == 2
    outlined = [r for r in page.rects if r.style.get("stroke-width") == "2.5"]
    assert len(outlined) == 8
    assert "send_recv: bytes from host to host: host 0 to host 2: 64 B; " in figure.alt
    assert figure.svg == plots.draw_traffic(figure2_plans()).svg


def test_what_stays_within_hosts_does_not_make_the_rest_pale():
    cluster = rl.Cluster(2, 4)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([4, 5, 6, 7]), "R")
    plan = rl.plan(rl.ReshardingTask((64,), "int8", src, dst, cluster), "broadcast")
    page = assert_readable(plots.draw_traffic(plan).svg)
    assert {"(192 B)", "64 B"} <= set(page.words())
    assert [r.style["fill"] for r in page.rects if r.style["fill"] == "#0072b2"] == ["#0072b2"]


@pytest.mark.parametrize("share", range(0, 101, 4))
def test_text_stands_out_on_every_shade(share):
    ground = shade(share, 100)
    assert contrast(ground, svg.ink_on(ground)) >= 4.5


def test_what_stays_within_hosts_crosses_nothing():
    cluster = rl.Cluster(hosts=1, devices_per_host=2)
    layouts = rl.Layout(cluster.mesh(2), "S0"), rl.Layout(cluster.mesh(2), "R")
    figure = plots.draw_traffic(rl.plan(rl.ReshardingTask((4,), "int8", *layouts, cluster)))
    assert "Nothing crosses the network." in assert_readable(figure.svg).words()
    assert "none" in figure.alt
