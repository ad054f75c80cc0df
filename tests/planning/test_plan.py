"""Plans: schedules, text, files and mistakes."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.scheduling import Problem, solve
from support.reference_cases import one_sender, pieces_of, read, tasks_of

STRATEGIES = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa", "signal")


def test_staging_is_counted_where_a_payload_is_not_one_run():
    """Columns of a row-major piece are packed; rows, and boxes with leading ones, are not."""
    cluster = rl.Cluster(hosts=2, devices_per_host=2)

    def peak(src: str, dst: str, shape=(4, 6)) -> dict[int, int]:
        a = rl.Layout(cluster.mesh(2), src)
        b = rl.Layout(cluster.mesh(2, first_host=1), dst)
        return rl.plan(rl.ReshardingTask(shape, "int8", a, b, cluster), "send_recv").peak_bytes

    assert peak("S0R", "S0R") == {0: 12, 1: 12, 2: 12, 3: 12}
    assert peak("S0R", "RS0") == {0: 18, 1: 18, 2: 12, 3: 12}  # 2x3 boxes out of 2x6 pieces
    assert peak("RS0", "S0R") == {0: 12, 1: 12, 2: 18, 3: 18}
    assert peak("S0R", "RS0", (2, 6)) == {0: 6, 1: 6, 2: 6, 3: 6}  # one row each
    assert peak("RS0", "S0R", (4, 12)) == {0: 24, 1: 24, 2: 36, 3: 36}


def test_long_payloads_are_staged_a_few_messages_at_a_time():
    from reshard_lab.transfer import IN_FLIGHT, MESSAGE_BYTES

    cluster = rl.Cluster(hosts=2, devices_per_host=2)
    n = 2**14
    a, b = rl.Layout(cluster.mesh(2), "RS0"), rl.Layout(cluster.mesh(2, first_host=1), "S0R")
    plan = rl.plan(rl.ReshardingTask((n, n), "float32", a, b, cluster), "send_recv")
    assert plan.peak_bytes == {
        0: 2 * n * n,
        1: 2 * n * n,
        2: 2 * n * n + IN_FLIGHT * MESSAGE_BYTES,
        3: 2 * n * n + IN_FLIGHT * MESSAGE_BYTES,
    }


@pytest.mark.parametrize("case", read("schedules"), ids=lambda c: c["name"])
@pytest.mark.parametrize(("method", "key"), [("naive", "naive"), ("load_balance", "lpt")])
def test_baselines_reproduce_the_handed_makespans(case, method, key):
    expected = case["baselines_bytes"][key]
    tasks = tasks_of(case)
    schedule = solve(Problem.from_tasks(tasks), method)
    assert schedule.makespan == pytest.approx(expected, rel=1e-12)
    assert schedule.makespan >= schedule.lower_bound * (1 - 1e-12)


@pytest.mark.parametrize("case", read("schedules")[:12], ids=lambda c: c["name"])
def test_plan_keeps_the_schedule(case):
    """One chunk, free links in a host, one destination host a task: T_i is bytes / bandwidth."""
    tasks = tasks_of(case)
    plan = rl.plan(tasks, scheduler="naive", chunks=10**6)
    schedule = solve(Problem.from_tasks(tasks), "naive")
    hosts = max(len(r) for r in Problem.from_tasks(tasks).receivers)
    fill = (hosts - 1) * len(plan.units) * max(u.nbytes for u in plan.unit_tasks) / 10**6
    assert schedule.makespan * (1 - 1e-9) <= plan.makespan_s
    assert plan.makespan_s <= (schedule.makespan + fill) * (1 + 1e-9)
    for planned, nic in zip(plan.units, schedule.sender, strict=True):
        assert tasks[0].cluster.host_of(planned.sender) == nic


def test_no_nic_carries_two_tasks_at_once():
    case = next(c for c in read("schedules") if c["name"] == "2x4:RS01R->2x4:S01RR")
    plan = rl.plan(tasks_of(case), scheduler="load_balance")
    busy: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for planned, unit in zip(plan.units, plan.unit_tasks, strict=True):
        span = (planned.start_s, planned.start_s + planned.duration_s)
        busy.setdefault(("tx", planned.sender // 4), []).append(span)
        for host in {d // 4 for d in unit.receivers}:
            busy.setdefault(("rx", host), []).append(span)
    for spans in busy.values():
        spans.sort()
        assert all(a[1] <= b[0] * (1 + 1e-9) for a, b in pairwise(spans))


def test_auto_strategy_takes_the_shortest_and_says_so():
    cluster = rl.Cluster(hosts=3, devices_per_host=4)
    small, large = one_sender(2, 4, 64, cluster), one_sender(2, 4, 2**26, cluster)
    assert rl.plan(large, strategy="auto").strategy == "broadcast"
    plan = rl.plan(small, strategy="auto")
    assert plan.strategy != "broadcast"  # 100 messages of latency for 64 bytes
    others = [rl.plan(small, strategy=s).makespan_s for s in STRATEGIES[:4]]
    assert plan.makespan_s == min(others)
    assert "strategy auto: " in plan.explain()


def test_same_seed_same_plan_and_value_equality():
    tasks = tasks_of(read("schedules")[3])
    assert rl.plan(tasks, seed=5) == rl.plan(tasks, seed=5)
    assert rl.plan(tasks, strategy="send_recv") != rl.plan(tasks)


def test_joint_plan_of_several_tensors():
    """Two tensors of different dtype: one schedule, two results."""
    cluster = rl.Cluster(hosts=4, devices_per_host=2)
    src, dst = cluster.mesh((2, 2)), cluster.mesh((2, 2), first_host=2)
    tasks = [
        rl.ReshardingTask((6, 4), "float32", rl.Layout(src, "S0R"), rl.Layout(dst, "RS1"), cluster),
        rl.ReshardingTask((5,), "int16", rl.Layout(dst, "S01"), rl.Layout(src, "R"), cluster),
    ]
    plan = rl.plan(tasks)
    arrays = [np.arange(24, dtype="float32").reshape(6, 4), np.arange(5, dtype="int16")]
    out = rl.execute(plan, [pieces_of(t.src, a) for t, a in zip(tasks, arrays, strict=True)])
    assert isinstance(out, list)
    for task, array, pieces in zip(tasks, arrays, out, strict=True):
        for device, piece in pieces_of(task.dst, array).items():
            assert np.array_equal(pieces[device], piece)
    assert plan.lower_bound_s >= max(t.lower_bound_s for t in tasks)


@pytest.mark.parametrize("specs", [("S0S1R", "S1S0R"), ("RS01R", "RS0S1"), ("S0S1S2", "S0S2S1")])
def test_no_device_holds_more_than_its_pieces(specs):
    """Nested and swapped axes: never a gathered tensor, where others gather and cut again."""
    cluster = rl.Cluster(hosts=4, devices_per_host=4)
    axes = (2, 2) if "2" not in specs[0] else (2, 2, 2)
    src = rl.Layout(cluster.mesh(axes), specs[0])
    dst = rl.Layout(cluster.mesh(axes, first_host=2), specs[1])
    task = rl.ReshardingTask((8, 8, 8), "float32", src, dst, cluster)
    piece = task.nbytes // int(np.prod(axes))
    assert max(rl.plan(task).peak_bytes.values()) <= 2 * piece < task.nbytes


def test_many_replicas_share_the_sending():
    """All replicas on 4 hosts, one destination host each: not all from rank 0."""
    cluster = rl.Cluster(hosts=8, devices_per_host=1)
    src = rl.Layout(cluster.mesh(4), "RR")
    dst = rl.Layout(cluster.mesh(4, first_host=4), "S0R")
    plan = rl.plan(rl.ReshardingTask((8, 8), "int8", src, dst, cluster))
    assert sorted(u.sender for u in plan.units) == [0, 1, 2, 3]


def test_two_meshes_of_one_shape_share_nothing():
    cluster = rl.Cluster(hosts=4, devices_per_host=2)
    src = rl.Layout(cluster.mesh(2), "S0")
    first, second = (rl.Layout(cluster.mesh(2, first_host=h), "R") for h in (1, 2))
    plans = [rl.plan(rl.ReshardingTask((4,), "int8", src, d, cluster)) for d in (first, second)]
    assert set(rl.execute(plans[0], pieces_of(src, np.arange(4, dtype="int8")))) == {2, 3}
    assert set(rl.execute(plans[1], pieces_of(src, np.arange(4, dtype="int8")))) == {4, 5}


FIGURE_2 = """\
tensor 0: shape (4, 4) float32, 64 B: Layout(Mesh([[0, 1], [2, 3]]), 'S01R') -> \
Layout(Mesh([[4, 5], [6, 7]]), 'S0R')
cluster: 4 hosts x 2 devices, one NIC of 10 Gbit/s a host
a message takes 20 us to another host, 5 us inside one, and then its bytes over the NIC's speed, \
or 150GB/s inside
strategy send_recv; scheduler load_balance, seed 0

4 unit tasks, 8 transfers
task  box         size  sender  receivers  start  end
0     [0:1, 0:4]  16 B  0 of 0  4,5        0 s    40.03 us
2     [2:3, 0:4]  16 B  2 of 2  6,7        0 s    40.03 us
... and 2 more

bytes that must enter a host through its NICs: 64 B in all
predicted time 80.05 us, 3,127 x the bound
lower bound 25.6 ns (NIC traffic alone, no latency)
schedule of the unit tasks: not proven optimal"""


def figure_2() -> rl.ReshardingTask:
    cluster = rl.Cluster(hosts=4, devices_per_host=2)
    src = rl.Layout(cluster.mesh((2, 2)), "S01R")
    dst = rl.Layout(cluster.mesh((2, 2), first_host=2), "S0R")
    return rl.ReshardingTask((4, 4), "float32", src, dst, cluster)


def test_explain_reads_as_people_would_want():
    plan = rl.plan(figure_2(), strategy="send_recv", scheduler="load_balance")
    assert plan.explain(limit=2) == FIGURE_2
    signal = rl.plan(figure_2(), strategy="signal").explain()
    assert "delivers no data" in signal
    assert repr(plan) == (
        "Plan(send_recv, load_balance: 4 unit tasks, 8 transfers, 80.05 us "
        "(bound 25.6 ns, optimality not proven))"
    )


def test_signal_moves_a_byte_a_transfer():
    plan = rl.plan(figure_2(), strategy="signal")
    assert {t.nbytes for t in plan.transfers} == {1}
    assert len(plan.transfers) == 8


# Files


def at_once(data: dict) -> None:
    """All of a plan in no time."""
    for unit in data["units"]:
        unit[3:] = 0.0, 0.0
    data["makespan_s"] = 0.0


def damaged(tmp_path, change) -> str:
    data = json.loads(rl.plan(figure_2()).to_json())
    change(data)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=3), "has version 3, this release reads up to 2; update"),
        (lambda d: d.update(version="one"), "has version 'one'"),
        (lambda d: d.update(schema="other"), "does not hold a plan"),
        (lambda d: d.pop("transfers"), "is damaged: no 'transfers'"),
        (lambda d: d["transfers"][0].pop(), "is damaged: not enough values"),
        (lambda d: d["transfers"][0].__setitem__(5, "64"), "is damaged: '64' where int"),
        (lambda d: d["transfers"][0].__setitem__(5, 16.0), "is damaged: 16.0 where int"),
        (lambda d: d["units"].pop(), "its units do not match the 4 unit tasks"),
        (lambda d: d["tasks"][0].update(dtype="float7"), "unknown dtype 'float7'"),
        (lambda d: d["tasks"][0]["src"].update(spec="S7R"), "spec 'S7R' uses mesh axis 7"),
        (lambda d: d["cluster"].update(nics=2), "is damaged: .*nics"),
        (lambda d: d.update(strategy="foo"), "unknown strategy 'foo'"),
        (lambda d: d.update(scheduler="foo"), "unknown scheduler 'foo'"),
        (lambda d: d.update(chunks=0), "chunks must be at least 1"),
        (lambda d: d["units"][1].__setitem__(2, 3), "unit task 1 is sent by device 3, no holder"),
        (lambda d: d["units"][1].__setitem__(3, float("nan")), "unit task 1 starts at nan s"),
        (lambda d: d["tasks"][0].update(shape=[10**30, 4]), "more than 2.63 - 1 bytes"),
        (lambda d: d.update(optimal="bogus"), "unknown value of 'optimal' 'bogus'"),
        (lambda d: d.update(makespan_s=1e-9), r"its makespan is 1e-09 s, but its last unit ends"),
        (lambda d: d.update(makespan_s=float("nan")), "its makespan is nan s"),
        (lambda d: d["deliveries"][0].__setitem__(0, 99), r"\[99, 0, .* is no delivery of its 4"),
        (lambda d: d["deliveries"][0].__setitem__(1, 10**30), "is no delivery of its 4 unit tasks"),
        (lambda d: d["deliveries"][0].__setitem__(2, [-1]), "is no delivery of its 4 unit tasks"),
        (lambda d: d["deliveries"][0].__setitem__(5, -1.0), "is no delivery of its 4 unit tasks"),
        (at_once, "its makespan is 0 s, below its lower bound of 2.56e-08 s"),
    ],
)
def test_plan_files_that_cannot_be_read(tmp_path, change, words):
    with pytest.raises(rl.ReshardError, match=words) as caught:
        rl.Plan.from_json(damaged(tmp_path, change))
    assert "plan.json" in str(caught.value)


def test_programs_are_written_for_other_readers_and_derived_by_this_one(tmp_path):
    plan = rl.plan(figure_2())
    assert "programs" not in json.loads(plan.to_json())
    data = json.loads(plan.to_json(tmp_path / "plan.json", programs=True))
    assert data["programs"]["4"][0] == ["recv", 0, 0, 16, "float32"]
    assert {int(device): len(steps) for device, steps in data["programs"].items()} == {
        device: len(steps) for device, steps in plan.programs.items()
    }
    assert rl.Plan.from_json(tmp_path / "plan.json") == plan


def test_a_file_of_version_1_is_read_without_its_programs(tmp_path):
    def old(data: dict) -> None:
        data["stretches"] = [row[:-1] for row in data.pop("deliveries")]
        data.update(version=1, programs={"0": "whatever"})

    plan, read = rl.plan(figure_2()), rl.Plan.from_json(damaged(tmp_path, old))
    assert read.transfers == plan.transfers and read.programs == plan.programs
    assert [d[:-1] for d in read.deliveries] == [d[:-1] for d in plan.deliveries]
    assert {d.why for d in read.deliveries} == {
        "a plan file of version 1 does not say what it waits for"
    }


def test_files_that_are_no_plan(tmp_path):
    with pytest.raises(rl.ReshardError, match=r"cannot read plan file .*No such file"):
        rl.Plan.from_json(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(rl.ReshardError, match="is not JSON"):
        rl.Plan.from_json(tmp_path / "text.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(rl.ReshardError, match="does not hold a plan"):
        rl.Plan.from_json(tmp_path / "list.json")
    with pytest.raises(rl.ReshardError, match="cannot write plan file"):
        rl.plan(figure_2()).to_json(tmp_path / "no" / "plan.json")


def test_a_damaged_but_readable_plan_is_refused_before_it_runs(tmp_path):
    path = damaged(tmp_path, lambda d: d["transfers"][0].__setitem__(4, [0, 4]))
    plan = rl.Plan.from_json(path)
    with pytest.raises(rl.ReshardError, match=r"no transfer writes .* of device 5"):
        rl.execute(plan, {})


def test_files_nested_too_deep_and_paths_that_are_none(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(rl.ReshardError, match=r"deep\.json' does not hold a plan"):
        rl.Plan.from_json(tmp_path / "deep.json")
    plan = rl.plan(figure_2())
    for path in (1.5, b"x", "", "a\0b", "\ud800.json"):
        with pytest.raises(rl.ReshardError, match="plan file to read must be the name of a file"):
            rl.Plan.from_json(path)
        with pytest.raises(rl.ReshardError, match="plan file to write must be the name of a file"):
            plan.to_json(path)
    with pytest.raises(rl.ReshardError, match=r"to read must be the name .*, not None"):
        rl.Plan.from_json(None)


# Mistakes


def test_pieces_of_two_kinds():
    torch = pytest.importorskip("torch")
    plan = rl.plan(figure_2())
    good = pieces_of(plan.tasks[0].src, np.zeros((4, 4), "float32"))
    with pytest.raises(rl.ReshardError, match="arrays of one kind; device 3 has a torch Tensor"):
        rl.execute(plan, good | {3: torch.zeros(1, 4)})


def test_torch_arrays_of_every_dtype():
    torch = pytest.importorskip("torch")
    cluster = rl.Cluster(hosts=4, devices_per_host=1)
    src = rl.Layout(cluster.mesh(2), "S0R")
    dst = rl.Layout(cluster.mesh(2, first_host=2), "RS0")
    for name in ("bfloat16", "float8_e5m2", "uint16", "bool"):
        array = (torch.arange(24, dtype=torch.int32) % 2).to(getattr(torch, name)).reshape(6, 4)
        plan = rl.plan(rl.ReshardingTask((6, 4), name, src, dst, cluster))
        out = rl.execute(plan, {0: array[:3], 1: array[3:]})
        assert out[2].dtype == array.dtype
        assert torch.equal(out[2].view(torch.uint8), array[:, :2].contiguous().view(torch.uint8))
        assert torch.equal(out[3].view(torch.uint8), array[:, 2:].contiguous().view(torch.uint8))
