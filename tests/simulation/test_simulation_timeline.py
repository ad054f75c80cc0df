"""What is read off a simulation: rows, NICs, the critical path, staging memory, the trace."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import sys
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from support.random_tasks import STRATEGIES, timed_task, unordered

relaxed = settings(max_examples=40)


def broadcast(chunks: int = 2, **speeds) -> rl.Plan:
    """Device 0 to devices 2 and 3 of host 1 and device 4 of host 2: one chain of three hops."""
    cluster = rl.Cluster(
        3, 2, **{"nic": 1e3, "nic_latency": 0, "intra": 1e4, "intra_latency": 0} | speeds
    )
    task = rl.ReshardingTask(
        (1000,), "int8", rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([2, 3, 4]), "R"), cluster
    )
    return rl.plan(task, chunks=chunks)


def some_plan(seed: int) -> rl.Plan:
    rng = random.Random(seed)
    task = timed_task(rng, overlap=rng.random() < 0.3, nics=(1, 2), uniform=False)
    strategy, chunks = rng.choice(STRATEGIES), rng.choice([1, 4, 32])
    plan = rl.plan(task, strategy, "load_balance", chunks=chunks)
    shareable = plan.strategy in ("send_recv", "broadcast")
    return unordered(plan) if shareable and rng.random() < 0.5 else plan


def test_rows_by_hand():
    """1000 bytes in two chunks: 0.5 s over a NIC, 0.05 s inside host 1, 0.5 s over a NIC."""
    timeline = rl.simulate(broadcast())
    assert [
        (r.operation, r.hop, r.first_chunk, r.stop_chunk, r.source, r.destination, r.nbytes)
        for r in timeline
    ] == [
        ("network", 0, 0, 1, 0, 2, 500),
        ("network", 0, 1, 2, 0, 2, 500),
        ("inside", 1, 0, 1, 2, 3, 500),
        ("inside", 1, 1, 2, 2, 3, 500),
        ("network", 2, 0, 1, 3, 4, 500),
        ("network", 2, 1, 2, 3, 4, 500),
    ]
    times = [(round(r.start_s, 9), round(r.end_s, 9)) for r in timeline]
    assert times == [(0, 0.5), (0.5, 1), (0.5, 0.55), (1, 1.05), (0.55, 1.05), (1.05, 1.55)]
    assert [(r.tx_nic, r.rx_nic) for r in timeline][::2] == [(0, 1), (-1, -1), (1, 2)]
    assert repr(timeline) == "Timeline(6 transmissions in 1.55 s, chunks)"
    fluid = rl.simulate(broadcast(), "fluid")
    assert [(r.first_chunk, r.stop_chunk, r.nbytes) for r in fluid] == [(0, 2, 1000)] * 3
    assert [(r.start_s, r.end_s) for r in fluid] == [(0, 1), (0.5, 1.05), (0.55, 1.55)]


def test_to_frame():
    pytest.importorskip("pandas")
    frame = rl.simulate(broadcast()).to_frame()
    assert frame.shape == (6, 14)
    assert list(frame.columns[:5]) == ["operation", "task", "unit", "transfer", "hop"]
    assert frame.groupby("hop").nbytes.sum().tolist() == [1000] * 3


def test_a_table_without_pandas_says_what_to_install(monkeypatch):
    timeline = rl.simulate(broadcast())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rl.ReshardError, match=r"pip install 'reshard-lab\[notebooks\]'"):
        timeline.to_frame()


def test_nic_use_by_hand():
    timeline = rl.simulate(broadcast())
    use = {(u.nic, u.direction): u for u in timeline.nic_use()}
    assert sorted(use) == [(0, "tx"), (1, "rx"), (1, "tx"), (2, "rx")]
    out, back = use[0, "tx"], use[1, "tx"]
    assert (out.host, out.nbytes, out.busy_s) == (0, 1000, pytest.approx(1.0))
    assert out.idle_s == pytest.approx(0.55)
    assert out.utilisation == pytest.approx(1000 / (1.55 * 1e3))
    assert (back.host, back.busy_s) == (1, pytest.approx(1.0))


def test_overlapping_transmissions_count_once_as_busy():
    cluster = rl.Cluster(3, 2, nic=1e3, nic_latency=0)
    tasks = [
        rl.ReshardingTask(
            (1000,), "int8", rl.Layout(rl.Mesh([a]), "R"), rl.Layout(rl.Mesh([b]), "R"), cluster
        )
        for a, b in ((0, 2), (1, 4))
    ]
    timeline = rl.simulate(unordered(rl.plan(tasks, "send_recv")), verify=False)
    (sent,) = [u for u in timeline.nic_use() if u.direction == "tx"]
    assert (sent.busy_s, sent.idle_s) == (pytest.approx(2.0), pytest.approx(0.0))
    assert sent.utilisation == pytest.approx(1.0)


def test_critical_path_by_hand():
    for resolution in ("chunks", "fluid"):
        path = rl.simulate(broadcast(), resolution).critical_path()
        assert [(s.hop, round(s.start_s, 9), round(s.end_s, 9), s.waits) for s in path] == [
            (0, 0, 0.5, "starts at once"),
            (1, 0.5, 0.55, "its data comes in from device 0"),
            (2, 0.55, 1.55, "its data comes in from device 2"),
        ]


def test_critical_path_names_what_was_waited_for():
    """Two tensors from device 0: the second waits for the first; a third also for its receiver."""
    cluster = rl.Cluster(3, 1, nic=1e3, nic_latency=0)
    ends = ((0, 1), (0, 2), (1, 2))
    tasks = [
        rl.ReshardingTask(
            (1000,), "int8", rl.Layout(rl.Mesh([a]), "R"), rl.Layout(rl.Mesh([b]), "R"), cluster
        )
        for a, b in ends
    ]
    plan = rl.plan(tasks, "send_recv", "naive")
    waits = [s.waits for s in rl.simulate(plan).critical_path()]
    assert waits == [
        "starts at once",
        "transfer 0 has to be complete",
        "transfer 1 has to be complete",
    ]
    free = [t._replace(after=()) for t in plan.transfers]
    lanes = [s.waits for s in rl.simulate(_with(plan, free)).critical_path()]
    assert lanes == [
        "starts at once",
        "device 0 is sending transfer 0",
        "device 2 is taking in transfer 1",
    ]


def _with(plan: rl.Plan, transfers) -> rl.Plan:
    return dataclasses.replace(plan, transfers=tuple(transfers))


@pytest.mark.parametrize("resolution", ["chunks", "fluid"])
@relaxed
@given(seed=st.integers(0, 2**32 - 1))
def test_critical_path_has_no_gap_and_is_the_duration(resolution, seed):
    timeline = rl.simulate(some_plan(seed), resolution, verify=False)
    path = timeline.critical_path()
    if not len(timeline):
        return
    assert path[0].start_s == 0
    assert path[-1].end_s == timeline.duration_s
    for before, after in itertools.pairwise(path):
        assert before.end_s == after.start_s
        assert before.end_s >= before.start_s
    spans = defaultdict(lambda: [np.inf, 0.0])
    for row in timeline:
        span = spans[row.transfer, row.hop]
        span[:] = min(span[0], row.start_s), max(span[1], row.end_s)
    for step in path:
        start, end = spans[step.transfer, step.hop]
        assert start <= step.start_s <= step.end_s <= end


@relaxed
@given(seed=st.integers(0, 2**32 - 1))
def test_staging_stays_within_what_the_plan_reserves(seed):
    """In order, a device stages one transfer a direction at a time, as ``peak_bytes`` counts;
    without, all of them at once."""
    rng = random.Random(seed)
    task = timed_task(rng, overlap=rng.random() < 0.5)
    plan = rl.plan(task, rng.choice(STRATEGIES), "load_balance", chunks=8)
    if plan.strategy in ("send_recv", "broadcast") and rng.random() < 0.5:
        plan = unordered(plan)
    shards: dict[int, int] = {}
    for layout in (task.src, task.dst):
        for device, box in layout.boxes(task.shape).items():
            size = int(np.prod([hi - lo for lo, hi in box])) * task.itemsize
            shards[device] = shards.get(device, 0) + size
    staging = rl.simulate(plan, verify=False).staging()
    for device, reserved in plan.peak_bytes.items():
        staged = staging.get(device)
        peak = staged.peak_nbytes if staged else 0
        assert peak <= reserved - shards[device]
        assert (peak > 0) == (reserved > shards[device])
        if staged:
            assert staged.nbytes[-1] == 0
            assert list(staged.times_s) == sorted(set(staged.times_s))


def test_staging_by_hand():
    """Five columns of five rows lie scattered where they arrive, in one run where they leave."""
    cluster = rl.Cluster(2, 2, nic=1e3, nic_latency=0)
    task = rl.ReshardingTask(
        (10, 10),
        "int8",
        rl.Layout(cluster.mesh(2), "RS0"),
        rl.Layout(cluster.mesh(2, first_host=1), "S0R"),
        cluster,
    )
    plan = rl.plan(task, "send_recv")
    timeline = rl.simulate(plan)
    assert {d: s.peak_nbytes for d, s in timeline.staging().items()} == {2: 25, 3: 25}
    assert timeline.staging()[2].times_s[0] == 0
    assert rl.simulate(rl.plan(task, "signal")).staging() == {}


def trace_of(timeline: rl.Timeline) -> list[dict]:
    content = json.loads(timeline.to_chrome_trace())
    assert content["displayTimeUnit"] in ("ns", "ms")
    return content["traceEvents"]


@relaxed
@given(seed=st.integers(0, 2**32 - 1))
def test_trace_keeps_the_rules_of_the_format(seed):
    """Slices of a thread do not overlap, arrows start and end inside slices, threads have names."""
    timeline = rl.simulate(some_plan(seed), verify=False)
    events = trace_of(timeline)
    slices, threads, processes, arrows = defaultdict(list), {}, {}, defaultdict(dict)
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        place = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            assert place not in threads
            threads[place] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            slices[place].append((event["ts"], event["dur"]))
        elif event["ph"] in "sf":
            assert event["ph"] not in arrows[event["id"]]
            arrows[event["id"]][event["ph"]] = event
            assert event.get("bp") == ("e" if event["ph"] == "f" else None)
        else:
            assert event["ph"] == "M"
    assert slices.keys() == threads.keys()
    assert {f"host {host}" for host in processes} == set(processes.values())
    assert {host for host, _ in threads} == set(processes)
    assert len(set(threads.values())) == len(threads)
    for thread in slices.values():
        thread.sort()
        for (start, dur), (then, _) in itertools.pairwise(thread):
            assert dur >= 0
            assert round((start + dur) * 1000) <= round(then * 1000)
    for ends in arrows.values():
        assert ends.keys() == {"s", "f"}
        assert ends["f"]["ts"] >= ends["s"]["ts"]
        for event in ends.values():
            around = slices[event["pid"], event["tid"]]
            assert any(start <= event["ts"] < start + dur for start, dur in around)
    moving = [r for r in timeline if round(r.end_s * 1e9) > round(r.start_s * 1e9)]
    assert len(arrows) == len(moving)


def test_trace_by_hand(tmp_path):
    timeline = rl.simulate(broadcast(chunks=1))
    text = timeline.to_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == text
    events = json.loads(text)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    drawn = [
        (e["pid"], names[e["pid"], e["tid"]], e["ts"], e["dur"]) for e in events if e["ph"] == "X"
    ]
    assert drawn == [
        (0, "NIC 0 sends", 0, 1e6),
        (0, "device 0 sends", 0, 1e6),
        (1, "NIC 1 sends", 1.1e6, 1e6),
        (1, "NIC 1 receives", 0, 1e6),
        (1, "device 2 sends", 1e6, 1e5),
        (1, "device 2 receives", 0, 1e6),
        (1, "device 3 sends", 1.1e6, 1e6),
        (1, "device 3 receives", 1e6, 1e5),
        (2, "NIC 2 receives", 1.1e6, 1e6),
        (2, "device 4 receives", 1.1e6, 1e6),
    ]
    first = next(e for e in events if e["ph"] == "X")
    assert first["args"]["nbytes"] == 1000
    assert first["args"]["box"] == "[0:1000]"


def test_flows_that_share_a_port_get_threads_of_their_own():
    cluster = rl.Cluster(3, 2, nic=1e3, nic_latency=0)
    tasks = [
        rl.ReshardingTask(
            (1000,), "int8", rl.Layout(rl.Mesh([a]), "R"), rl.Layout(rl.Mesh([b]), "R"), cluster
        )
        for a, b in ((0, 2), (1, 4))
    ]
    events = trace_of(rl.simulate(unordered(rl.plan(tasks, "send_recv")), verify=False))
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert names == ["NIC 0 sends", "NIC 0 sends (2)", "device 0 sends", "device 1 sends"]
