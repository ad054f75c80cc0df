"""Experiments: their facts against the paper, the handed cases and counting by hand."""

import json
from types import SimpleNamespace

import pytest

import reshard_lab as rl
from reshard_lab import paper
from reshard_lab.paper import figures, measuring
from reshard_lab.paper.measuring import LinkFit
from reshard_lab.paper_cases import FULL, SUITE, case_devices_per_host
from support.reference_cases import read


def handed_suite() -> dict[int, dict]:
    """The suite's cases as handed: {number: entry of schedules.json}."""
    entries = [e for e in read("schedules") if e["family"].startswith("suite:case")]
    return {int(e["family"].removeprefix("suite:case")): e for e in entries}


@pytest.mark.parametrize("number", sorted(handed_suite()))
def test_suite_cases_are_the_handed_ones(number):
    entry = handed_suite()[number]
    (tensor,) = entry["tensors"]
    task = paper.suite_task(number)
    assert list(task.shape) == tensor["shape"]
    for layout, given_end in ((task.src, tensor["src"]), (task.dst, tensor["dst"])):
        assert layout.mesh.array().tolist() == given_end["mesh"]
        assert str(layout.spec) == given_end["spec"]
    assert len(task.unit_tasks) == entry["expected"]["unit_tasks"]
    # Handed bounds are bytes of an int8 tensor; these elements have 4 bytes.
    bound = task.lower_bound_s * task.cluster.nic_Bps
    assert bound == pytest.approx(4 * entry["expected"]["fluid_bound_bytes"])


def test_the_whole_suite_is_there_with_the_papers_unit_tasks():
    table = paper.table2()
    assert table["case"].tolist() == list(range(1, 10))
    assert table["unit_tasks"].tolist() == table["unit_tasks_paper"].tolist()
    assert table["unit_tasks"].tolist() == [2, 2, 4, 64, 4, 4, 4, 4, 4]
    assert set(table["nbytes"]) == {2 * 2**30, 3072 * 1024 * 170 * 4}
    assert SUITE[6]._replace(number=8) == SUITE[7]
    assert "7 and 8 are the same" in table["note"][6]


def test_a_scaled_suite_fits_and_keeps_its_form():
    scale = paper.Scale(shrink=4, most_devices=16)
    for case in SUITE:
        task = paper.suite_task(case.number, None, scale)
        devices = {*task.src.mesh.devices, *task.dst.mesh.devices}
        hosts = {task.cluster.host_of(d) for d in devices}
        assert len(devices) <= 16
        assert len(hosts) == case.src_hosts + case.dst_hosts
        assert task.shape == tuple(n // 4 for n in case.shape)
    (six,) = (t for t in [paper.suite_task(6, None, scale)])
    assert [u.box[0] for u in six.unit_tasks] == [(0, 256), (256, 384), (384, 512), (512, 768)]
    assert case_devices_per_host(SUITE[5], scale) == 2
    assert case_devices_per_host(SUITE[5], FULL) == 4


def ideal(hosts: int, devices_per_host: int) -> rl.Cluster:
    """1 MiB takes 1 s through a NIC and nothing inside a host; no latency."""
    return rl.Cluster(
        hosts, devices_per_host, nic=2.0**20, nic_latency=0, intra="inf", intra_latency=0
    )


def test_figure_5_predicts_the_papers_closed_forms():
    """Section 3.1, exact: ABt, At, t + (n-1)/n t (t for one host), t + (A-1)t/K; Alpa's rule."""
    table = paper.figure5(ideal, nbytes=2**20)
    assert len(table) == 8 * 8
    rows = {(r.sweep, r.hosts, r.devices, r.method): r.predicted_s for r in table.itertuples()}
    points = list(figures.FIGURE5_POINTS)
    assert [(a, b) for _, a, b in points] == [
        *((1, n) for n in (1, 2, 3, 4)),
        *((n, 2) for n in (1, 2, 3, 4)),
    ]
    assert table["simulated_s"].to_numpy() == pytest.approx(table["predicted_s"], rel=2e-3)
    for sweep, hosts, devices in points:
        n = hosts * devices
        expected = {
            "send_recv": n,
            "local_allgather": hosts,
            "global_allgather": 1 if hosts == 1 else 1 + (n - 1) / n,
            "broadcast": 1 + (hosts - 1) / 100,
        }
        for strategy, seconds in expected.items():
            predicted = rows[sweep, hosts, devices, strategy]
            assert predicted == pytest.approx(seconds, rel=2e-5), (hosts, devices, strategy)
    # 2^18 elements share no factor with 3 replicas: all of it goes to one device and round from it.
    one_host = [rows[figures.ONE_HOST, 1, n, "alpa"] for n in (1, 2, 3, 4)]
    assert one_host == pytest.approx([1, 1, 1, 1], rel=2e-5)
    more_hosts = [rows[figures.TWO_DEVICES, n, 2, "alpa"] for n in (2, 3, 4)]
    assert more_hosts == pytest.approx([4, 6, 8])


def test_figure_5_fits_on_16_devices():
    devices = {d for case in figures.figure5_cases() for t in case.plan.transfers for d in t.path}
    assert devices == {0, *range(2, 10)}  # 4 to 7 of one host; 2 to 9 of four hosts of two


def test_figure_6_never_beats_its_bound():
    table = paper.figure6(scale=paper.Scale(shrink=4))
    assert len(table) == 9 * 6
    for seconds in ("predicted_s", "simulated_s"):
        assert (table[seconds] >= table["lower_bound_s"] * (1 - 1e-9)).all()
    ours = table[table["method"] == "broadcast"]
    assert ours["unit_tasks"].tolist() == [2, 2, 4, 64, 4, 4, 4, 4, 4]
    assert set(ours["scheduler"]) == {"ensemble"}


def test_figure_8_is_the_schedules_of_broadcasts_and_ours_are_not_beaten():
    table = paper.figure8(make=ideal, scale=paper.Scale(shrink=4))
    assert set(table["strategy"]) <= {"broadcast", "global_allgather", "local_allgather"}
    by = table.pivot(index="case", columns="method", values="predicted_s")
    best = by[["naive", "load_balance", "ensemble"]].min(axis=1)
    assert (by["auto"] <= best * (1 + 1e-9)).all()
    # Section 5.3.1: the order alone makes naive, and balance without order, slower.
    assert (by["naive"] > 1.4 * by["ensemble"]).sum() >= 5
    assert (by["load_balance"] > 1.2 * by["ensemble"]).sum() >= 4


def test_chunks_are_not_smaller_than_asked_nor_more_than_the_papers():
    def chunks(nbytes, least):
        cases = figures.figure5_cases(ideal, nbytes, figures.FIGURE5[3:4], least)
        return {case.plan.chunks for case in cases}

    assert chunks(2**20, 1) == {100}
    assert chunks(2**20, 2**18) == {4}
    assert chunks(2**20, 2**21) == {1}


def test_a_cluster_larger_than_asked_for_is_used_as_it_is():
    """Devices of a host of four, of which a point needs two, keep to their hosts."""
    large = ideal(5, 4)
    for case in figures.figure5_cases(lambda hosts, devices: large, 2**20):
        receivers = case.plan.tasks[0].dst.mesh.devices
        hosts = [large.host_of(device) for device in receivers]
        expected = range(1, 1 + case.labels["hosts"])
        assert hosts == [host for host in expected for _ in range(case.labels["devices"])]


def measurement(*times: float, verified: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        times_s=times,
        median_s=sorted(times)[len(times) // 2],
        verified=verified,
        environment={"cpu_share": 0.25},
    )


def test_compare_puts_measured_beside_predicted():
    case = figures.figure5_cases(ideal, 2**20, figures.FIGURE5[:1])[1]
    seen = []
    (row,) = paper.compare([case], lambda plan: measurement(2.0, 4.0, 3.0), seen.append).to_dict(
        "records"
    )
    assert seen == [case]
    assert (row["predicted_s"], row["measured_s"]) == (2, 3)
    assert (row["fastest_s"], row["slowest_s"], row["runs"]) == (2, 4, 3)
    assert row["measured_over_predicted"] == row["measured_over_simulated"] == 1.5
    assert (row["simulated_s"], row["cpu_share"], row["method"]) == (2, 0.25, "send_recv")
    bits = 8 * 2**20 / 1e9
    assert (row["low_Gbps"], row["measured_Gbps"], row["high_Gbps"]) == pytest.approx(
        (bits / 4, bits / 3, bits / 2)
    )
    assert row["predicted_Gbps"] == row["simulated_Gbps"] == pytest.approx(bits / 2)
    assert row["bound_Gbps"] == pytest.approx(bits)
    assert row["verified"] is True
    (row,) = paper.compare([case]).to_dict("records")
    assert "measured_s" not in row


def test_the_same_transfers_are_measured_once():
    methods = [m for m in figures.FIGURE5 if m.name in ("broadcast", "split", "send_recv")]
    cases = figures.figure5_cases(ideal, 2**20, methods)[:6]  # one device, then two
    times = iter((1.0, 2.0, 3.0, 4.0))
    table = paper.compare(cases, lambda plan: measurement(next(times)))
    assert table["measured_s"].tolist() == [1, 2, 2, 3, 4, 4]
    assert next(times, None) is None


def test_a_fit_gives_back_the_transfer_it_comes_from():
    plans = []

    def measure(plan):
        plans.append(plan)
        return measurement(0.5, 0.4, 0.6)

    fit = paper.fit_one_transfer(measure, 1000)
    (plan,) = plans
    assert [(t.path, t.nbytes) for t in plan.transfers] == [((0, 1), 1000)]
    assert fit == LinkFit(1000, 0.5)
    cluster = fit.cluster(hosts=2, devices_per_host=2)
    assert cluster.hop_s(0, 2, 1000) == cluster.hop_s(0, 1, 1000) == pytest.approx(0.5)
    assert str(fit) == ("16 kbit/s on every link, no latency: one transfer of 1000 B in 500 ms")


def test_a_fit_from_data_that_did_not_arrive_is_refused():
    with pytest.raises(rl.ReshardError, match="did not arrive right"):
        paper.fit_one_transfer(lambda plan: measurement(1.0, verified=False), 8)


@pytest.mark.distributed
def test_plans_on_different_devices_follow_each_other_on_one_pool():
    from reshard_lab.runtime import Pool

    with Pool(devices=4) as pool:
        for ids in ([0, 1], [2, 3], [0, 1], [1, 2, 3], [0, 1, 2, 3]):
            ends = [rl.Layout(rl.Mesh(d), "R") for d in (ids[:1], ids[1:])]
            task = rl.ReshardingTask((8,), "int32", *ends, rl.Cluster(hosts=4, devices_per_host=1))
            assert pool.run(rl.plan(task), repeats=1, warmup=0, timeout_s=10).verified


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("where", ["local", "emulated"])
def test_reproduce_writes_tables_pictures_and_stamps(tmp_path, capsys, monkeypatch, where):
    import pandas as pd

    from reshard_lab.cli import main
    from reshard_lab.runtime import launch, network

    if where == "emulated" and network.refused() is not None:
        pytest.skip(f"no network namespaces here: {network.refused()}")
    monkeypatch.setattr(launch, "LEAST_SHARE", 0.0)  # other tests run beside it
    words = {
        "local": ("gloo, loopback (unshaped)", "fitted from one measured transfer"),
        "emulated": ("gloo, emulated 400 Mbit/s NICs", "NICs of 400 Mbit/s, all else free"),
    }
    out = tmp_path / "results"
    assert main(["reproduce", "--quick", "--where", where, "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    data = json.loads(printed.out)
    assert "145/145" in printed.err
    names = ["figure5", "figure6", "figure7", "figure8", "figure9"]
    files = [f"{name}.{kind}" for name in names for kind in ("csv", "json", "png", "svg")]
    files += ["figure4.csv", "figure4.json", "figure4.svg", "figure4_memory.svg"]
    files.append("figure7_headlines.csv")
    assert sorted(p.name for p in out.iterdir()) == sorted(files)
    assert sorted(file.rpartition("/")[2] for file in data["files"]) == sorted(files)
    assert list(data["tables"]) == list(data["headlines"])
    assert list(data["tables"]) == sorted({*names, "figure4", "figure7_headlines"})
    for name, better, worse in (("figure6", "broadcast", "alpa"), ("figure8", "ensemble", "naive")):
        by = pd.read_csv(out / f"{name}.csv").pivot(
            index="case", columns="method", values="measured_s"
        )
        gains = by[worse] / by[better]
        said = f"{min(gains):.2f} to {max(gains):.2f} times as fast as {worse}"
        assert said in data["headlines"][name]
    for name, count in (("figure5", 64), ("figure6", 54), ("figure8", 54)):
        table = pd.read_csv(out / f"{name}.csv")
        assert len(table) == count == len(data["tables"][name])
        assert table["verified"].all()
        assert (table["fastest_s"] <= table["measured_s"]).all()
        assert (table["where"] == where).all()
        stamp = json.loads((out / f"{name}.json").read_text())
        assert stamp["environment"] == data["environment"]
        assert stamp["predicted"] == data["predicted"]
        for said in words[where]:
            assert said in stamp["label"] and table["label"].str.contains(said, regex=False).all()
    # One link at its rate is what the prediction for one device on one host says.
    first = pd.read_csv(out / "figure5.csv").iloc[0]
    rate = data["predicted"]["bandwidth_Bps" if where == "local" else "nic_Bps"]
    assert first["predicted_s"] == pytest.approx(first["nbytes"] / rate)


def test_without_namespaces_figures_are_measured_on_loopback_and_say_why(monkeypatch):

    monkeypatch.setattr(measuring, "refused", lambda: None)
    assert measuring.choose_target(None) == ("emulated", "")
    monkeypatch.setattr(measuring, "refused", lambda: "not permitted")
    assert measuring.choose_target(None) == ("local", "Not on an emulated cluster: not permitted.")
    assert measuring.choose_target("emulated") == ("emulated", "")


def test_patience_waits_for_idle_cores_and_measures_again_if_they_were_not(monkeypatch):
    from reshard_lab.paper import measuring

    # How busy others are at each look: before (two calm ones in a row), then after the work.
    looks = iter([0.5, 0.0, 0.5, 0.1, 0.0, 0.9, 0.0, 0.1, 0.2])
    ticks = [0, 0]

    def cpu_ticks():
        cpu_ticks.calls += 1
        if cpu_ticks.calls % 2 == 0:
            ticks[0] += round(100 * next(looks))
            ticks[1] += 100
        return tuple(ticks)

    cpu_ticks.calls = 0
    monkeypatch.setattr(measuring, "cpu_ticks", cpu_ticks)
    monkeypatch.setattr(measuring, "_LOOK_S", 0.0)
    results = iter(["disturbed", "calm"])
    assert measuring.when_idle(lambda plan: (plan, next(results)))("plan") == ("plan", "calm")
    assert next(looks, None) is None
    monkeypatch.setattr(measuring, "_PATIENCE_S", 0.0)
    with pytest.raises(rl.ReshardError, match="other programs keep the cores busy"):
        measuring.when_idle(lambda: None)()
    monkeypatch.setattr(measuring, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(measuring, "cpu_ticks", lambda: None)
    with pytest.raises(rl.ReshardError, match="does not say how busy its cores are"):
        measuring.when_idle(lambda: None)()


def test_a_machine_that_carries_no_speed_is_told_so(monkeypatch):
    from reshard_lab.paper import measuring
    from reshard_lab.runtime import launch

    monkeypatch.setattr(measuring, "refused", lambda: None)
    tried = []

    def refuse(self):
        tried.append(self.cluster.nic_Bps)
        raise launch.SlowError("the NICs were to carry more")

    monkeypatch.setattr(launch.EmulatedCluster, "__enter__", refuse)
    text = "no speed of 400Mbit, 200Mbit can be emulated here: .* carry more; or wait for "
    with pytest.raises(rl.ReshardError, match=text), measuring.open_target("emulated", "", 1, 1, 0):
        raise AssertionError("not reached")
    assert tried == [50e6, 25e6]


def test_what_fails_for_another_reason_is_not_taken_for_a_slow_machine(monkeypatch):
    from reshard_lab.paper import measuring
    from reshard_lab.runtime import launch

    def fail(self):
        raise rl.ReshardError("the process of the pool ended unexpectedly")

    monkeypatch.setattr(measuring, "refused", lambda: None)
    monkeypatch.setattr(launch.EmulatedCluster, "__enter__", fail)
    said = pytest.raises(rl.ReshardError, match=r"^the process of the pool ended")
    with said, measuring.open_target("emulated", "", 1, 1, 0):
        raise AssertionError("not reached")


def test_reproduce_refuses_a_folder_it_cannot_make(tmp_path):
    from reshard_lab.paper.reproduce import reproduce

    (tmp_path / "file").write_text("")
    with pytest.raises(rl.ReshardError, match="cannot make folder"):
        reproduce(tmp_path / "file" / "out")
