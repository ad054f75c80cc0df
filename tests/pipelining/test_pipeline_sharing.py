"""Transfers given as reshardings: their time, their reverse, and the NICs they share."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from reshard_lab import pipeline
from reshard_lab.max_min import max_min, port_table
from reshard_lab.pipelining.graph import Graph, carry_out
from reshard_lab.pipelining.loads import Load

SECOND = 10**6  # bytes that a NIC of the clusters below moves in a second


def cluster_of(hosts: int, devices_per_host: int = 1, nics_per_host: int = 1) -> rl.Cluster:
    return rl.Cluster(
        hosts=hosts,
        devices_per_host=devices_per_host,
        nics_per_host=nics_per_host,
        nic=SECOND,
        nic_latency=0,
        intra="inf",
        intra_latency=0,
    )


def one_to_one(cluster: rl.Cluster, source: int, target: int, seconds: float):
    """A tensor from one device to another, ``seconds`` through idle NICs."""
    return rl.ReshardingTask(
        (int(seconds * SECOND),),
        "int8",
        rl.Layout(rl.Mesh([source]), "R"),
        rl.Layout(rl.Mesh([target]), "R"),
        cluster,
    )


def bars(timeline, row: str) -> list[tuple[float, float]]:
    return [(round(e.start_s, 9), round(e.end_s, 9)) for e in timeline.events if e.row == row]


def test_time_of_a_tensor_is_its_plans():
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=2)
    a, b = cluster.mesh((2, 2)), cluster.mesh((2, 2), first_host=1)
    task = rl.ReshardingTask((64, 96), "float16", rl.Layout(a, "S0R"), rl.Layout(b, "RS1"), cluster)
    back = rl.ReshardingTask((64, 96), "float16", task.dst, task.src, cluster)
    schedule = pipeline.schedule("gpipe", 2, 1)
    for strategy in ("broadcast", "send_recv", "signal"):
        there_s = rl.plan(task, strategy).makespan_s
        back_s = rl.plan(back, strategy).makespan_s
        expected = 2 * 1 + 2 * 2 + there_s + back_s
        timeline = pipeline.simulate(schedule, 1, 2, [task], strategy=strategy)
        assert timeline.makespan_s == pytest.approx(expected, rel=1e-12)
        for same in ([task], task, [rl.plan(task, strategy)], [[task]]):
            again = pipeline.simulate(schedule, 1, 2, same, strategy=strategy)
            assert again.makespan_s == timeline.makespan_s
        both = pipeline.simulate(schedule, 1, 2, [task], [0.25], strategy=strategy)
        assert both.makespan_s == pytest.approx(2 * 1 + 2 * 2 + there_s + 0.25, rel=1e-12)
    plans = [rl.plan(task, "send_recv", chunks=7), rl.plan(back, "send_recv", chunks=7)]
    assert pipeline.simulate(schedule, 1, 2, plans[:1]).makespan_s == pytest.approx(
        6 + sum(p.makespan_s for p in plans)
    )


def test_gradients_go_the_other_way():
    """One device to four hosts one after another; back, the four parts come from one each."""
    cluster = cluster_of(5)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1, 2, 3, 4]), "R")
    task = rl.ReshardingTask((SECOND,), "int8", src, dst, cluster)
    timeline = pipeline.simulate(
        pipeline.schedule("gpipe", 2, 1), 1, 1, [task], strategy="send_recv"
    )
    assert bars(timeline, "link 0>1") == [(1, 5)]
    assert bars(timeline, "link 1>0") == [(7, 8)]


def test_several_tensors_of_a_link_are_planned_together():
    cluster = cluster_of(2)
    tasks = [one_to_one(cluster, 0, 1, s) for s in (2, 3)]
    timeline = pipeline.simulate(pipeline.schedule("gpipe", 2, 1), 1, 1, [tasks])
    assert timeline.makespan_s == pytest.approx(4 + 2 * rl.plan(tasks).makespan_s)
    assert rl.plan(tasks).makespan_s == pytest.approx(5)


def test_two_transfers_out_of_one_nic_halve_each_other():
    """Stage 0 sends 2 s of data to stage 1 and 1 s to stage 2, both from second 1 on.

    Half speed each: the skip ends at 3; then the other has 1 s left at full speed.
    """
    cluster = cluster_of(3)
    links = [one_to_one(cluster, 0, 1, 2), one_to_one(cluster, 1, 2, 0.5)]
    skip = pipeline.BoundaryTensor(0, 2, one_to_one(cluster, 0, 2, 1))
    timeline = pipeline.simulate(pipeline.schedule("inference", 3, 1), 1, None, links, skips=[skip])
    assert bars(timeline, "link 0>2") == [(1, 3)]
    assert bars(timeline, "link 0>1") == [(1, 4)]
    assert bars(timeline, "link 1>2") == [(5, 5.5)]
    assert timeline.makespan_s == pytest.approx(6.5)


def test_two_transfers_into_one_nic_halve_each_other():
    """Stage 2 takes in the skip and its neighbour's activation through one NIC."""
    cluster = cluster_of(3)
    links = [0, one_to_one(cluster, 1, 2, 2)]
    skip = pipeline.BoundaryTensor(0, 2, one_to_one(cluster, 0, 2, 3))
    timeline = pipeline.simulate(pipeline.schedule("inference", 3, 1), 1, None, links, skips=[skip])
    # The skip has 1 s alone (1-2), then both at half speed (2-6); both end at 6.
    assert bars(timeline, "link 0>2") == [(1, 6)]
    assert bars(timeline, "link 1>2") == [(2, 6)]


def test_other_directions_and_other_nics_do_not_slow_each_other():
    def time(cluster, source, target):
        skip = pipeline.BoundaryTensor(0, 2, one_to_one(cluster, source, target, 2))
        links = [one_to_one(cluster, 0, cluster.size // 2, 2), 0]
        timeline = pipeline.simulate(
            pipeline.schedule("inference", 3, 1), 1, None, links, skips=[skip]
        )
        return bars(timeline, "link 0>1"), bars(timeline, "link 0>2")

    alone = ([(1, 3)], [(1, 3)])
    shared = ([(1, 5)], [(1, 5)])
    assert time(cluster_of(4), 0, 3) == shared
    assert time(cluster_of(4), 1, 3) == alone  # another host's NIC
    assert time(cluster_of(4), 2, 0) == alone  # the other direction of the same NICs
    two_nics = cluster_of(4, devices_per_host=2, nics_per_host=2)
    assert time(two_nics, 0, 6) == shared
    assert time(two_nics, 1, 6) == alone  # the other NIC of host 0
    one_nic = cluster_of(4, devices_per_host=2)
    assert time(one_nic, 1, 6) == shared


def test_slow_ports_leave_the_others_to_the_rest():
    """A host with a NIC at half speed: what goes there takes half of a fast sender's NIC."""
    cluster = rl.Cluster(
        hosts=3, devices_per_host=1, nic=[SECOND, SECOND / 2, SECOND], nic_latency=0
    )
    links = [one_to_one(cluster, 0, 1, 1), 0]  # 2 s at half speed, half of host 0's tx
    skip = pipeline.BoundaryTensor(0, 2, one_to_one(cluster, 0, 2, 1))
    timeline = pipeline.simulate(pipeline.schedule("inference", 3, 1), 1, None, links, skips=[skip])
    # Shares 0.5 and 1 of the NIC, equal fractions v: 1.5 v = 1. The skip ends at 1 + 1.5; the
    # other has done 1 of its 2 s by then and ends 1 s later.
    assert bars(timeline, "link 0>2") == [(1, 2.5)]
    assert bars(timeline, "link 0>1") == [(1, 3.5)]


def test_steady_state_with_shared_nics():
    """Activations out of a middle stage share its tx with the gradients it sends back.

    1 s each way on NICs that are busy 2 of 3 s: eager-1F1B still hides them, 1F1B pays more than
    on links of their own, and never more than as if each took twice as long.
    """
    cluster = cluster_of(4)
    tasks = [one_to_one(cluster, k, k + 1, 1) for k in range(3)]

    def a_microbatch(name: str, transfers: object) -> float:
        ends = [
            pipeline.simulate(pipeline.schedule(name, 4, m), 1, 2, transfers).makespan_s
            for m in (32, 64)
        ]
        return (ends[1] - ends[0]) / 32

    assert a_microbatch("eager_1f1b", tasks) == pytest.approx(3, rel=1e-9)
    assert a_microbatch("1f1b", 1) <= a_microbatch("1f1b", tasks) <= a_microbatch("1f1b", 2)


loads = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from(["tx", "rx"]), st.integers(0, 2)),
        st.sampled_from([0.05, 0.25, 0.5, 0.9, 1.0]),
        max_size=4,
    ).map(lambda ports: Load(1.0, tuple(sorted(ports.items())))),
    min_size=1,
    max_size=6,
)


def fair_speeds(loads: list[Load]) -> list[float]:
    """Of transfers side by side, each as a fraction of its speed alone."""
    table = port_table([load.ports for load in loads])
    return max_min(table.ports, table.capacity, np.ones(len(loads)), weight=table.weight).tolist()


def test_speeds_of_three_transfers():
    """The second shares a port with each of the others: it has half of the first, 0.4 fits."""
    tx, rx = ("tx", 0), ("rx", 1)
    loads = [Load(1.0, ((tx, 1.0),)), Load(1.0, ((tx, 1.0), (rx, 1.0))), Load(1.0, ((rx, 0.4),))]
    assert fair_speeds(loads) == [0.5, 0.5, 1.0]


def assert_max_min_fair(loads: list[Load]) -> None:
    """By the definition: nobody over capacity; whoever is not at full speed has a full port on
    which nobody is faster.
    """
    ports = frozenset(port for load in loads for port, _ in load.ports)
    speeds = fair_speeds(loads)
    used = dict.fromkeys(ports, 0.0)
    fastest = dict.fromkeys(ports, 0.0)
    for load, speed in zip(loads, speeds, strict=True):
        for port, share in load.ports:
            used[port] += share * speed
            fastest[port] = max(fastest[port], speed)
    assert all(u <= 1 + 1e-9 for u in used.values())
    for load, speed in zip(loads, speeds, strict=True):
        assert 0 < speed <= 1
        assert speed == 1 or any(
            used[p] >= 1 - 1e-9 and speed >= fastest[p] * (1 - 1e-9) for p, _ in load.ports
        )


@settings(max_examples=150)
@given(loads)
def test_speeds_are_max_min_fair(loads):
    assert_max_min_fair(loads)


def test_speeds_of_many_transfers_are_max_min_fair():
    """Enough of them, each sharing ports with most others, for the sharing to go port by port."""
    rng = random.Random(0)
    loads = []
    for _ in range(700):
        ports = rng.sample(range(200), 6)
        loads.append(Load(1.0, tuple((("tx", p), rng.uniform(0.01, 1)) for p in sorted(ports))))
    assert_max_min_fair(loads)


def slow_sharing(graph) -> list[float]:
    """Ends of all items; whenever one ends, the speeds of all that run are set anew."""
    todo = [load.duration_s for load in graph.loads]
    ends: dict[int, float] = {}
    now = 0.0
    while len(ends) < len(todo):
        running = [
            i for i in range(len(todo)) if i not in ends and all(j in ends for j in graph.before(i))
        ]
        speeds = fair_speeds([graph.loads[i] for i in running])
        step, first = min((todo[i] / v, i) for i, v in zip(running, speeds, strict=True))
        now += step
        for i, speed in zip(running, speeds, strict=True):
            todo[i] = max(0.0, todo[i] - step * speed)
        ends[first] = now
    return [ends[i] for i in range(len(todo))]


@st.composite
def graphs(draw) -> Graph:
    """Items on few stages and links, with any loads, each waiting for some of those before it."""
    a_load = st.builds(
        Load,
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        st.dictionaries(
            st.tuples(st.just("tx"), st.integers(0, 4)),
            st.sampled_from([0.1, 0.5, 0.75, 1.0]),
            max_size=2,
        ).map(lambda ports: tuple(sorted(ports.items()))),
    )
    count = draw(st.integers(1, 14))
    loads = draw(st.lists(a_load, min_size=count, max_size=count))
    first, after = [0], []
    last: dict[tuple[int, int], int] = {}
    stages, targets = [], []
    for item in range(count):
        link = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
        after += [last[link]] if link in last else []
        after += draw(st.lists(st.integers(0, item - 1), max_size=1)) if item else []
        last[link] = item
        stages.append(link[0])
        targets.append(link[1])
        first.append(len(after))
    return Graph([], stages, targets, [], loads, first, after)


@settings(max_examples=200)
@given(graphs())
def test_any_traffic_is_the_slow_simulators(graph):
    starts, ends = carry_out(graph)
    assert ends == pytest.approx(slow_sharing(graph), rel=1e-9)
    for item, start in enumerate(starts):
        assert start == max((ends[i] for i in graph.before(item)), default=0.0)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sampled_from(["1f1b", "eager_1f1b", "gpipe"]),
    st.booleans(),
)
def test_sharing_is_the_slow_simulators(compute, sizes, name, overlap):
    """Three stages, a skip, all transfers through the NICs of three hosts."""
    cluster = cluster_of(3)
    links = [one_to_one(cluster, 0, 1, sizes[0]), one_to_one(cluster, 1, 2, sizes[1])]
    skip = pipeline.BoundaryTensor(0, 2, one_to_one(cluster, 0, 2, sizes[2]))
    schedule = pipeline.schedule(name, 3, 2)
    timeline = pipeline.simulate(schedule, compute, sizes[3], links, overlap=overlap, skips=[skip])
    assert timeline.ends_s == pytest.approx(slow_sharing(timeline.graph), rel=1e-9)
