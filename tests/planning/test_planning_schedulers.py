"""Plans under every scheduler: right, as fast as they say, and explained."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from oracles.host_bytes import arrivals, distinct_bytes_needed
from reshard_lab.planning import build
from reshard_lab.planning.builder import Builder
from reshard_lab.planning.parts import Parts, _cut_points
from reshard_lab.scheduling import Assignment, Problem, Schedule
from reshard_lab.scheduling.problem import task_parts
from reshard_lab.strategies.phases import MOST_CHUNKS, Chain, Payload, chunk_count
from reshard_lab.strategies.timing import phases_s
from support.property_tasks import reshardings
from support.reference_cases import pieces_of, read, tasks_of

relaxed = settings(max_examples=40)
SCHEDULERS = ("auto", "exact", "split", "concurrent")


def small(case: dict, most: int = 24) -> list[rl.ReshardingTask]:
    """The tensors of a handed instance, every dimension cut down to at most ``most``."""
    tensors = [
        dict(t, shape=[min(n, most + i) for i, n in enumerate(t["shape"])]) for t in case["tensors"]
    ]
    return tasks_of(dict(case, tensors=tensors))


@pytest.fixture
def small_batches(monkeypatch):
    """Relays work in many batches, however little data there is."""
    monkeypatch.setattr(build, "_BATCH_BYTES", 1)


def arrays_of(tasks: list[rl.ReshardingTask]) -> list[np.ndarray]:
    """Arrays with no two elements alike, as far as the dtype can tell."""
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, t.shape).astype("uint8").view("int8") for t in tasks]


def check_result(plan: rl.Plan, tasks: list[rl.ReshardingTask]) -> None:
    arrays = arrays_of(tasks)
    out = rl.execute(plan, [pieces_of(t.src, a) for t, a in zip(tasks, arrays, strict=True)])
    for task, array, pieces in zip(tasks, arrays, out, strict=True):
        for device, piece in pieces_of(task.dst, array).items():
            assert np.array_equal(pieces[device], piece)


CASES = {case["name"]: case for case in read("schedules")}
SUITE = ["2x4:S1RR->2x4:S0RR", "2x4:RS01R->2x4:S01RR", "2x4:S0RR->3x4:S0RR"]
"""Whole tasks are best."""
CUT = ["3x8:RRR->5x8:S0RR", "4x8:RRS1->8x8:RRS0"]
"""Shares of several senders."""
RELAYED = ["2x8:S1S0R->3x8(2, 12):S1RR", "2x8:S0RR->3x8:RS0R + 2x8:RS0R->3x8:RS1R"]
"""Receiver sets overlap."""


@pytest.mark.parametrize("scheduler", ["split", "concurrent"])
@pytest.mark.parametrize("name", SUITE + CUT + RELAYED)
def test_handed_instances_are_carried_out_right(name, scheduler, small_batches):
    tasks = small(CASES[name])
    plan = rl.plan(tasks, scheduler=scheduler)
    assert plan.verify().delivers
    check_result(plan, tasks)


def distinct(task: rl.ReshardingTask) -> np.ndarray:
    """An array whose elements are all different bytes in memory, of the task's dtype."""
    count = math.prod(task.shape)
    return (np.arange(count) % 251).astype(task.dtype).reshape(task.shape)


@relaxed
@given(task=reshardings(most_elements=4000), scheduler=st.sampled_from(SCHEDULERS))
def test_random_reshardings_are_carried_out_right(task, scheduler):
    """Meshes that overlap, several NICs a host, uneven and empty pieces."""
    plan = rl.plan(task, scheduler=scheduler, chunks=5)
    plan.verify()
    array = distinct(task)
    out = rl.execute(plan, pieces_of(task.src, array))
    for device, piece in pieces_of(task.dst, array).items():
        assert np.array_equal(out[device], piece)


@relaxed
@given(task=reshardings(most_elements=4000), scheduler=st.sampled_from(SCHEDULERS))
def test_hosts_take_in_each_byte_once(task, scheduler):
    assert arrivals(rl.plan(task, scheduler=scheduler)) == distinct_bytes_needed(task)


@relaxed
@given(task=reshardings(most_elements=4000), scheduler=st.sampled_from(SCHEDULERS))
def test_saved_plans_are_the_same_plans(task, scheduler, tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan = rl.plan(task, scheduler=scheduler, chunks=3)
    plan.to_json(path)
    again = rl.Plan.from_json(path)
    assert again == plan
    assert (again.ordered, again.deliveries) == (plan.ordered, plan.deliveries)
    assert again.gantt() == plan.gantt()


@relaxed
@given(task=reshardings(most_elements=4000), scheduler=st.sampled_from(SCHEDULERS))
def test_predictions_are_above_the_bound_and_simulated_alike(task, scheduler):
    """With an order the simulator is never slower; without, both share ports max-min fairly.

    Without, where all is latency, a transfer may end a message or two later than foreseen.
    """
    plan = rl.plan(task, scheduler=scheduler, chunks=8)
    assert plan.makespan_s >= plan.lower_bound_s * (1 - 1e-9)
    simulated = rl.simulate(plan, "fluid").duration_s
    if plan.ordered:
        assert simulated <= plan.makespan_s * (1 + 1e-9)
    else:
        assert simulated <= plan.makespan_s * 1.05 + 2 * task.cluster.nic_latency_s


@pytest.mark.parametrize("name", CUT + RELAYED)
def test_handed_predictions_agree_with_the_simulator(name, small_batches):
    tasks = small(CASES[name], 60)
    for scheduler in ("split", "concurrent"):
        plan = rl.plan(tasks, scheduler=scheduler)
        simulated = rl.simulate(plan, "fluid").duration_s
        assert simulated == pytest.approx(plan.makespan_s, rel=0.05)
        assert plan.ordered == (scheduler == "split")


def replicas(hosts: int, nbytes: int, **cluster) -> rl.ReshardingTask:
    """R on some hosts to S0 on one more."""
    on = rl.Cluster(hosts=2 * hosts + 1, devices_per_host=1, **cluster)
    src = rl.Layout(on.mesh(hosts), "R")
    dst = rl.Layout(on.mesh(hosts + 1, first_host=hosts), "S0", "balanced")
    return rl.ReshardingTask((nbytes,), "int8", src, dst, on)


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_split_beats_whole_tasks_where_replicas_are_one_too_few(hosts):
    task = replicas(hosts, 2**20 * (hosts + 1), nic_latency=0)
    whole, split = (rl.plan(task, scheduler=s).makespan_s for s in ("exact", "split"))
    assert whole / split == pytest.approx(2 * hosts / (hosts + 1), rel=1e-4)
    assert rl.plan(task, scheduler="split").optimal == "fluid"


def test_small_tensors_stay_whole():
    """Cutting 64 bytes would cost more latency than it saves."""
    plan = rl.plan(replicas(2, 64, nic_latency="1ms"), scheduler="split", chunks=1)
    assert plan.scheduler == "split"
    assert all(t.span is None for t in plan.transfers)
    assert plan.notes[0].startswith("scheduler split: tasks stay whole")
    large = rl.plan(replicas(2, 2**26, nic_latency="1ms"), scheduler="split", chunks=1)
    assert any(t.span is not None for t in large.transfers)


def test_relays_work_in_batches_worth_it():
    """4 MiB through a NIC a batch: 2 batches of little data, 32 of much."""
    cluster = rl.Cluster(hosts=5, devices_per_host=1)
    src = rl.Layout(cluster.mesh(2), "S0")
    meshes = [rl.Mesh(ids) for ids in ([2, 3], [3, 4], [2, 4])]
    counts = {}
    for size in (2**20, 2**26):
        tasks = [
            rl.ReshardingTask((size,), "int8", src, rl.Layout(m, "R"), cluster) for m in meshes
        ]
        cut = rl.plan(tasks, scheduler="split", chunks=1)
        counts[size] = sum(t.path[0] >= 2 for t in cut.transfers)
    assert counts[2**26] >= 8 * counts[2**20]


def test_cuts_that_differ_by_rounding_fall_on_the_same_element():
    half = 0.5 + 1e-12  # of 5 elements: on either side of the middle of one
    ends = {0.0, 0.5, half, 1.0}
    points = _cut_points(ends, 5, 1)
    assert points[0.5] == points[half]
    assert (points[0.0], points[1.0]) == (0, 5)
    assert _cut_points(ends, 40, 16)[0.5] == 16  # whole rows of 16


def test_parts_have_chunks_as_long_as_those_of_the_whole():
    plan = rl.plan(replicas(2, 3 * 2**20, nic_latency=0), scheduler="split", chunks=64)
    whole = 2**20 // 64
    assert {t.nbytes for t in plan.transfers} > {2**20}
    for t in plan.transfers:
        assert t.nbytes / t.chunks <= whole < t.nbytes / max(t.chunks - 1, 1) + 1


def test_auto_picks_by_predicted_time_and_says_why():
    for name in ("2x4:S1RR->2x4:S0RR", "3x8:RRR->5x8:S0RR", RELAYED[1]):
        tasks = small(CASES[name], 60)
        times = {
            s: rl.plan(tasks, scheduler=s).makespan_s for s in ("exact", "split", "concurrent")
        }
        auto = rl.plan(tasks)
        assert auto.makespan_s <= 1.01 * min(times.values())
        if auto.scheduler != "auto":
            assert auto.notes[0].startswith("scheduler auto: ")
            assert auto.notes[0] in auto.explain()
            assert "whole tasks" in auto.notes[0]


def test_auto_weighs_latencies_too():
    """Shares are best by bandwidth alone; their messages cost more than they gain here."""
    case = CASES[RELAYED[0]]
    size = case["cluster"]
    cluster = rl.Cluster(size["hosts"], size["devices_per_host"], nic_latency="100us")
    tasks = [
        rl.ReshardingTask(
            (256, 256, 512),
            "int8",
            rl.Layout(rl.Mesh(t["src"]["mesh"]), t["src"]["spec"]),
            rl.Layout(rl.Mesh(t["dst"]["mesh"]), t["dst"]["spec"]),
            cluster,
        )
        for t in case["tensors"]
    ]
    auto = rl.plan(tasks, chunks=20)
    assert auto.scheduler == "concurrent"
    assert "shared out" in auto.notes[0]  # it was looked at
    split = rl.plan(tasks, scheduler="split", chunks=20)
    assert auto.makespan_s < split.makespan_s


def test_auto_keeps_whole_tasks_that_are_close_to_the_bound():
    plan = rl.plan(tasks_of(CASES["2x4:S1RR->2x4:S0RR"]))
    assert (plan.scheduler, plan.ordered, plan.optimal) == ("auto", True, "fluid")


def test_concurrent_imposes_no_order():
    plan = rl.plan(small(CASES["2x4:RS0R->2x4:S0RR"]), scheduler="concurrent")
    assert not plan.ordered
    assert {t.after for t in plan.transfers} == {()}
    assert {s.start_s for s in plan.deliveries} == {0.0}
    assert {bar.why for bar in plan.gantt().deliveries} == {"does not wait: tasks share the NICs"}


@pytest.mark.parametrize("scheduler", ["split", "concurrent"])
def test_only_broadcasts_are_cut_or_left_unordered(scheduler):
    plan = rl.plan(replicas(2, 64), strategy="auto", scheduler=scheduler)
    assert plan.strategy == "broadcast"


def rails(nics: int, devices: int = 4, spec: str = "S0R") -> rl.ReshardingTask:
    """Replicas on two hosts to two other hosts."""
    cluster = rl.Cluster(
        hosts=4, devices_per_host=devices, nics_per_host=nics, nic_latency=0, intra_latency=0
    )
    src = rl.Layout(cluster.mesh((2, devices)), "RR")
    dst = rl.Layout(cluster.mesh((2, devices), first_host=2), spec)
    return rl.ReshardingTask((1024, 1024), "int8", src, dst, cluster)


@pytest.mark.parametrize("nics", [1, 2, 4])
@pytest.mark.parametrize("spec", ["S0R", "RR"])
def test_several_nics_a_host_are_used_together(nics, spec):
    task = rails(nics, spec=spec)
    plan = rl.plan(task)
    plan.verify()
    assert plan.makespan_s == pytest.approx(
        rl.plan(rails(1, spec=spec)).makespan_s / nics, rel=0.03
    )
    assert plan.makespan_s <= 1.04 * task.lower_bound_s
    used = {hop for t in plan.transfers for hop in itertools.pairwise(t.path)}
    cluster = task.cluster
    for direction in (0, 1):
        nics_used = {cluster.nic_of(h[direction]) for h in used if h[0] // 4 != h[1] // 4}
        assert len(nics_used) >= 2 * nics


def test_parts_of_a_unit_task_over_nics():
    task = rails(4)
    parts = task_parts([task])
    assert [(p.unit, p.first, p.stop) for p in parts[:4]] == [
        (0, 0, 2**17),
        (0, 2**17, 2**18),
        (0, 2**18, 3 * 2**17),
        (0, 3 * 2**17, 2**19),
    ]
    assert [p.receivers for p in parts] == [(8,), (9,), (10,), (11,), (12,), (13,), (14,), (15,)]
    assert {p.senders for p in parts} == {tuple(range(8))}
    assert [p.receivers for p in task_parts([task], cut_up=False)] == [
        (8, 9, 10, 11),
        (12, 13, 14, 15),
    ]
    one = task_parts([rails(1)])
    assert [(p.senders, p.receivers) for p in one] == [((0, 1), (2,)), ((0, 1), (3,))]


def test_one_sending_nic_needs_no_cut():
    """Eight devices, each with a piece of its own and a NIC of its own: whole pieces, spread."""
    cluster = rl.Cluster(
        hosts=2, devices_per_host=8, nics_per_host=8, nic_latency=0, intra_latency=0
    )
    src = rl.Layout(cluster.mesh(8), "S0")
    dst = rl.Layout(cluster.mesh(8, first_host=1), "R")
    task = rl.ReshardingTask((8 * 2**16,), "int8", src, dst, cluster)
    parts = task_parts([task])
    assert [p.receivers for p in parts] == [(8 + i,) for i in range(8)]
    assert rl.plan(task).makespan_s < 2 * task.lower_bound_s


@relaxed
@given(
    nbytes=st.integers(1, 10**7),
    hosts=st.integers(1, 6),
    devices=st.integers(1, 3),
    latency=st.sampled_from([0.0, 1e-6, 2e-5, 1e-3]),
    intra=st.sampled_from([1e8, 5e9, math.inf]),
)
def test_auto_chunks_make_the_chain_shortest(nbytes, hosts, devices, latency, intra):
    """By trying every number of chunks."""
    cluster = rl.Cluster(
        hosts=hosts + 1, devices_per_host=devices, nic_latency=latency, intra=intra, intra_latency=0
    )
    path = (0, *range(devices, (hosts + 1) * devices))

    def seconds(k: int) -> float:
        chain = Chain(path, Payload(((0, nbytes),), None, nbytes), k)
        return phases_s(0, [chain], cluster)

    best = chunk_count(path, nbytes, cluster, "auto")
    assert 1 <= best <= min(nbytes, MOST_CHUNKS)
    tried = min(seconds(k) for k in range(1, min(nbytes, MOST_CHUNKS) + 1))
    assert seconds(best) <= tried * (1 + 1e-9)


def test_auto_chunks_follow_the_formula():
    """K* = sqrt((A - 1)·t/a) to A hosts of one device."""
    cluster = rl.Cluster(hosts=5, devices_per_host=1, nic=1e9, nic_latency=1e-4)
    nbytes = 10**8
    expected = math.sqrt(3 * (nbytes / 1e9) / 1e-4)
    assert chunk_count((0, 1, 2, 3, 4), nbytes, cluster, "auto") == pytest.approx(expected, abs=1)
    assert chunk_count((0, 1), nbytes, cluster, "auto") == 1
    assert chunk_count((0, 1, 2), 7, cluster, 100) == 7


def test_a_plan_with_auto_chunks_is_no_longer_than_others():
    task = rails(1, spec="RR")
    slow = rl.Cluster(hosts=4, devices_per_host=4, nic_latency="50us")
    task = rl.ReshardingTask(task.shape, "int8", task.src, task.dst, slow)
    auto = rl.plan(task, scheduler="exact", chunks="auto")
    auto.verify()
    for chunks in (1, 5, 20, 100, 1000):
        assert auto.makespan_s <= rl.plan(task, scheduler="exact", chunks=chunks).makespan_s
    assert auto.chunks == max(t.chunks for t in auto.transfers) > 1


def relayed_plan() -> tuple[rl.Plan, int]:
    """A plan with relays, and the number of a transfer that is one."""
    plan = rl.plan(small(CASES[RELAYED[1]], 40), scheduler="split")
    holds = [task.src.boxes(task.shape) for task in plan.tasks]
    for t in plan.transfers:
        if t.path[0] not in holds[plan.units[t.unit].task] and len(set(t.path)) == 2 and t.span:
            return plan, t.id
    raise AssertionError("no relay")


def test_a_relay_waits_for_its_data():
    """Host 1 sends on to host 2 what it got from host 0; all NICs that takes are free by then."""
    cluster = rl.Cluster(hosts=3, devices_per_host=1)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1, 2]), "R")
    task = rl.ReshardingTask((8,), "int8", src, dst, cluster)
    parts = task_parts([task])
    there = Assignment(0, 0, 0.0, 1.0, 1.0, receivers=(1,))
    on = Assignment(0, 1, 1.0, 2.0, 1.0, receivers=(2,))
    schedule = Schedule("split", Problem.from_parts(parts, cluster), (there, on), 2.0, None)
    builder = Builder([task], "broadcast", 1, overlap=True)
    Parts(builder, parts, schedule, gateways=True).lower()
    assert [d.why for d in builder.deliveries] == [
        "starts at once",
        "waits: its data reaches device 1",
    ]
    assert [t.after for t in builder.transfers] == [(), (0,)]


def test_a_relay_that_does_not_wait_for_its_data_is_refused(small_batches):
    plan, number = relayed_plan()
    early = list(plan.transfers)
    early[number] = early[number]._replace(after=())
    with pytest.raises(rl.ReshardError, match=f"transfer {number} .* does not hold it by then"):
        dataclasses.replace(plan, transfers=tuple(early)).verify()


def test_without_an_order_lanes_do_not_count():
    """A transfer after one that comes later in its lane: a cycle only if lanes are kept."""
    cluster = rl.Cluster(hosts=4, devices_per_host=1)
    mesh = [rl.Mesh([d]) for d in range(4)]
    pairs = [(0, 2), (1, 3), (0, 3), (1, 2)]
    tasks = [
        rl.ReshardingTask((4,), "int8", rl.Layout(mesh[a], "R"), rl.Layout(mesh[b], "R"), cluster)
        for a, b in pairs
    ]
    plan = rl.plan(tasks, scheduler="concurrent")
    assert [t.path for t in plan.transfers] == pairs
    first, *others = plan.transfers
    crossed = dataclasses.replace(plan, transfers=(first._replace(after=(2,)), *others))
    crossed.verify()
    with pytest.raises(rl.ReshardError, match=r"waits for itself: transfers (0 -> 2|2 -> 0)"):
        dataclasses.replace(crossed, ordered=True).verify()


def test_gantt_of_a_naive_plan():
    """Suite case 3: by hand, the NICs and what each task waits for."""
    chart = rl.plan(tasks_of(CASES["2x4:RS0R->2x4:S0RR"]), scheduler="naive").gantt()
    t = 2**27
    assert [
        (b.start_s / t, b.end_s / t, b.task, b.sender_nic, b.receiver_nics, b.why)
        for b in chart.deliveries
    ] == [
        (0, 1, 0, 0, (2,), "starts at once"),
        (1, 2, 1, 1, (2,), "waits: NIC of host 2 busy with task 0"),
        (1, 2, 2, 0, (3,), "waits: NIC of host 0 busy with task 0"),
        (2, 3, 3, 1, (3,), "waits: NIC of host 1 busy with task 1"),
    ]
    assert [(i.nic, i.side) for i in chart.idle] == [(0, "tx"), (1, "tx"), (2, "rx"), (3, "rx")]
    assert [i.share for i in chart.idle] == pytest.approx([1 / 3] * 4)
    assert chart.steps(2)[-1] == "... and 2 more"
    assert (
        "task 1 [0:512, 512:1024, 0:512], 128 MiB, NIC of host 1 -> NIC of host 2"
        in (chart.steps()[1])
    )
    frame = chart.to_frame()
    assert list(frame["task"]) == [0, 1, 2, 3]
    assert chart.lower_bound_s == 2 * t


def test_gantt_names_what_used_a_nic_last():
    """One sender: each task waits for the one before it."""
    cluster = rl.Cluster(hosts=4, devices_per_host=1)
    src, dst = rl.Layout(cluster.mesh(1), "R"), rl.Layout(cluster.mesh(3, first_host=1), "S0")
    chart = rl.plan(rl.ReshardingTask((9,), "int8", src, dst, cluster), scheduler="naive").gantt()
    assert [bar.why for bar in chart.deliveries] == [
        "starts at once",
        "waits: NIC of host 0 busy with task 0",
        "waits: NIC of host 0 busy with task 1",
    ]


def test_gantt_names_the_device_that_is_busy_inside_a_host():
    cluster = rl.Cluster(hosts=2, devices_per_host=3)
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1, 2]), "S0")
    plan = rl.plan(rl.ReshardingTask((8,), "int8", src, dst, cluster), scheduler="naive")
    first, second = plan.gantt().deliveries
    assert (first.why, second.why) == ("starts at once", "waits: device 0 busy with task 0")
    assert (first.sender_nic, first.receiver_nics, first.receivers) == (None, (), (1,))


def test_idle_time_of_a_shared_nic_counts_overlaps_once():
    chart = rl.plan(replicas(1, 8), scheduler="concurrent").gantt()
    bars = [bar._replace(start_s=0.0, end_s=0.25) for bar in chart.deliveries]
    assert len(bars) == 2
    shared = dataclasses.replace(chart, deliveries=tuple(bars), makespan_s=1.0)
    assert {i.share for i in shared.idle if i.side == "tx"} == {0.75}


@relaxed
@given(task=reshardings(most_elements=4000), scheduler=st.sampled_from(("naive", *SCHEDULERS)))
def test_gantt_bars_of_an_ordered_plan_never_overlap(task, scheduler):
    plan = rl.plan(task, scheduler=scheduler, chunks=4)
    chart = plan.gantt()
    assert len(chart.deliveries) == len(plan.deliveries)
    assert max((b.end_s for b in chart.deliveries), default=0.0) == plan.makespan_s
    busy: dict = {}
    for bar in chart.deliveries:
        for nic, side in [(bar.sender_nic, "tx"), *((n, "rx") for n in bar.receiver_nics)]:
            if nic is not None:
                busy.setdefault((nic, side), []).append((bar.start_s, bar.end_s))
    for spans in busy.values() if plan.ordered else ():
        for first, second in itertools.pairwise(sorted(spans)):
            assert first[1] <= second[0] + 1e-9 * plan.makespan_s
    assert all(0 <= i.share <= 1 for i in chart.idle)


def test_several_nics_and_gathers_are_named():
    steps = rl.plan(rails(4)).gantt().steps()
    assert "NIC 3 of host 0 -> NIC 3 of host 2; starts at once" in steps[3]
    assert "128 KiB of it" in steps[3]
    assert steps[-1].endswith("waits: the last of its parts reaches the host")


def test_a_proof_is_claimed_only_where_the_plan_takes_the_proven_time():
    """With free links in a host and many chunks, a plan lasts what its schedule does."""
    rng = np.random.default_rng(11)
    claimed = 0
    for _ in range(60):
        cluster = rl.Cluster(4, 2, nic=1.0, nic_latency=0, intra=np.inf, intra_latency=0)
        first = cluster.mesh((2, 2), first_host=0)
        second = cluster.mesh((2, 2), first_host=int(rng.integers(0, 3)))
        specs = ["RR", "S0R", "RS1", "S01R", "S0S1", "S1S0"]
        tasks = []
        for _ in range(int(rng.integers(1, 3))):
            meshes = (first, second) if rng.random() < 0.7 else (second, first)
            src, dst = (rl.Layout(m, str(rng.choice(specs))) for m in meshes)
            tasks.append(rl.ReshardingTask((48, 48), "int8", src, dst, cluster))
        plan = rl.plan(tasks, scheduler=str(rng.choice(["load_balance", "exact", "auto", "split"])))
        if plan.optimal == "fluid":
            claimed += 1
            fill = 1.0 + 1 / 4  # at most one more host in a chain, 48 to 100 chunks, whole elements
            assert plan.makespan_s <= plan.lower_bound_s * fill
    assert claimed > 5


def test_nothing_is_proven_of_hosts_that_receive_and_send():
    """A chain passes data on through the NIC that its host sends from: no part of the model."""
    cluster = rl.Cluster(2, 2, nic_latency=0)
    a, b = cluster.mesh(2), cluster.mesh(2, first_host=1)
    tasks = [
        rl.ReshardingTask((2**20,), "int8", rl.Layout(x, "S0"), rl.Layout(y, "R"), cluster)
        for x, y in ((a, b), (b, a))
    ]
    plan = rl.plan(tasks, scheduler="load_balance")
    assert plan.makespan_s > 1.5 * plan.lower_bound_s
    assert plan.optimal is None


def test_without_an_order_a_fast_sender_feeds_two_slow_receivers_at_once():
    """Ordered, the fast NIC waits for one slow one after another: twice as long."""
    cluster = rl.Cluster(3, 1, nic=["10Gbps", "1Gbps", "1Gbps"], nic_latency=0)
    src, dst = rl.Layout(rl.Mesh([0]), "RR"), rl.Layout(rl.Mesh([1, 2]), "S0R")
    task = rl.ReshardingTask((16, 10**6), "int8", src, dst, cluster)
    plan = rl.plan(task)
    assert plan.scheduler == "concurrent"
    assert plan.makespan_s == pytest.approx(task.lower_bound_s, rel=1e-3)
    assert rl.simulate(plan).duration_s == pytest.approx(plan.makespan_s, rel=1e-3)
    assert rl.plan(task, scheduler="exact").makespan_s > 1.9 * plan.makespan_s
