"""Measuring from a notebook, also where it cannot be done; recorded results."""

import importlib.util
from contextlib import contextmanager
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper, teaching
from reshard_lab.paper import measuring, notebook
from reshard_lab.paper.measuring import MeasuringTarget
from reshard_lab.runtime.launch import SlowError
from support.paths import ROOT

FOUND = importlib.util.spec_from_file_location("run_notebooks", ROOT / "tools" / "notebooks.py")
tool = importlib.util.module_from_spec(FOUND)
FOUND.loader.exec_module(tool)


class Fake:
    """Stands for a place to measure: what was asked of it, and a measurement of half the bound."""

    def __init__(self, slow=()):
        self.slow, self.asked = slow, []

    @contextmanager
    def open_target(self, name, why, nbytes, repeats, warmup):
        self.asked.append((name, why))
        if name in self.slow:
            raise SlowError("the NICs carry too little; use a slower nic, or fewer hosts")
        done = []

        def measure(plan):
            environment = {"link": f"fake {name}", "cpu": "a processor", "cpu_share": 0.5}
            environment |= {"where": name, "torch": "2", "commit": "abc"}
            done.append(
                rl.runtime.measure.measurement(plan, [plan.makespan_s * 2], True, environment)
            )
            return done[-1]

        def make(hosts, devices):
            return teaching.model_cluster(hosts, devices)

        yield MeasuringTarget(name, measure, make, "nothing", why, {}), done


def cases(make):
    return paper.figure5_cases(make, 4096, paper.FIGURE5[:2], 4096)


def test_plans_are_measured_where_the_machine_allows_it(monkeypatch):
    fake = Fake()
    monkeypatch.setattr(notebook, "open_target", fake.open_target)
    monkeypatch.setattr(notebook, "choose_target", lambda where: ("emulated", ""))
    measured = paper.measure_here(cases)
    assert fake.asked == [("emulated", "")]
    assert measured.place == "emulated"
    assert len(measured.frame) == 16
    assert list(measured.frame["measured_over_predicted"]) == pytest.approx([2.0] * 16)
    assert "fake emulated, a processor, cores busy 50% at most" in measured.label
    assert set(measured.frame["label"]) == {measured.label}
    assert repr(measured).startswith("Results(16 rows; Measured: fake emulated")
    assert measured.label in measured._repr_html_()


def test_a_machine_too_busy_to_emulate_measures_over_loopback_and_says_so(monkeypatch):
    fake = Fake(slow=("emulated",))
    monkeypatch.setattr(notebook, "open_target", fake.open_target)
    monkeypatch.setattr(notebook, "choose_target", lambda where: (where or "emulated", ""))
    measured = paper.measure_here(cases)
    assert measured.place == "local"
    assert measured.label.endswith("Not on an emulated cluster: the NICs carry too little.")
    with pytest.raises(SlowError):
        paper.measure_here(cases, where="emulated")


def test_what_starts_processes_of_its_own_finds_its_place(monkeypatch, capsys):
    monkeypatch.setattr(notebook, "choose_target", lambda where: ("emulated", ""))
    assert paper.on_this_machine(str.upper) == "EMULATED"

    def busy(where):
        if where == "emulated":
            raise SlowError("too busy; use a slower nic")
        return where

    def broken(where):
        raise rl.ReshardError("a mistake")

    assert capsys.readouterr().out == ""
    assert paper.on_this_machine(busy) == "local"
    assert capsys.readouterr().out == "Not on an emulated cluster: too busy.\n"
    monkeypatch.setattr(notebook, "choose_target", lambda where: ("local", "It is refused."))
    assert paper.on_this_machine(busy) == "local"
    assert capsys.readouterr().out == "It is refused.\n"
    monkeypatch.setattr(notebook, "choose_target", lambda where: ("emulated", ""))
    with pytest.raises(rl.ReshardError, match="a mistake"):
        paper.on_this_machine(broken)


def test_overlap_is_measured_or_skipped(monkeypatch):
    monkeypatch.setattr(
        notebook, "choose_target", lambda where: ("local", "Not on an emulated cluster.")
    )
    assert repr(paper.overlap_here()) == "skipped: Not on an emulated cluster."
    monkeypatch.setattr(notebook, "choose_target", lambda where: ("emulated", ""))

    def slow(**how):
        raise SlowError("too busy; use a slower nic")

    monkeypatch.setattr(notebook, "overlap_levels", slow)
    assert repr(paper.overlap_here()) == "skipped: too busy"
    names = ["level", "about", "simulated_s", "measured_s", "fastest_s", "slowest_s", "ratio"]
    row = dict(zip(names[1:], ["x", 1.0, 1.0, 1.0, 1.0, 1.0], strict=True))
    rows = [
        row | {"level": str(i), "label": f"a machine, {said}", "verified": said == "sure"}
        for i, said in enumerate(["sure", "sure", "not sure"])
    ]
    monkeypatch.setattr(notebook, "overlap_levels", lambda **how: pd.DataFrame(rows))
    measured = paper.overlap_here(repeats=2)
    assert measured.frame.columns.tolist() == names[1:]
    assert measured.label == "a machine, sure (2: no data, so not verified)"
    monkeypatch.setattr(notebook, "overlap_levels", lambda **how: pd.DataFrame(rows[:2]))
    assert paper.overlap_here().label == "a machine, sure"


def rows(*triples):
    return pd.DataFrame(triples, columns=["case", "method", "predicted_s", "measured_s"])


def test_ranking_says_whether_methods_came_in_as_predicted():
    table = rows(
        (1, "a", 1.0, 1.1),
        (1, "b", 2.0, 1.9),
        (2, "a", 1.0, 2.1),  # predictions are a fifth apart: they may change places
        (2, "b", 1.2, 2.0),
        (3, "a", 1.0, 2.1),  # three tenths apart: they may not
        (3, "b", 1.3, 2.0),
    )
    ranking = paper.ranking(table, "case")
    assert ranking["1"].tolist() == ["a", "b", "b"]
    assert ranking["2"].tolist() == ["b", "a", "a"]
    assert ranking["as_predicted"].tolist() == [True, True, False]
    assert ranking.index.name == "case"
    assert paper.ranking(table, ["case"]).index.tolist() == [1, 2, 3]
    assert paper.ranking(table, "case", apart=0.5)["as_predicted"].all()


@pytest.mark.parametrize(("figure", "count"), [("figure5", 64), ("figure6", 54), ("figure8", 54)])
def test_recorded_results_are_whole_and_say_where_they_come_from(figure, count):
    recorded = paper.recorded(figure)
    assert len(recorded.frame) == count
    assert recorded.frame["verified"].all()
    assert (recorded.frame["fastest_s"] <= recorded.frame["measured_s"]).all()
    assert (recorded.frame["measured_s"] <= recorded.frame["slowest_s"]).all()
    assert recorded.place == "emulated"
    assert recorded.label.startswith("Measured: gloo, emulated ")
    by = "case" if "case" in recorded.frame else ["sweep", "hosts", "devices"]
    assert paper.ranking(recorded.frame, by)["as_predicted"].all()


def test_gpus_are_used_where_there_are_enough(monkeypatch):
    plan = rl.plan(paper.suite_task(7))  # 12 devices
    asked = []
    monkeypatch.setattr(notebook, "run", lambda *arguments: asked.append(arguments) or "measured")
    for count, words in ((0, "no GPU"), (1, "one GPU"), (11, "11 GPUs")):
        monkeypatch.setattr(notebook, "gpus", lambda count=count: ("H100",) * count)
        skipped = repr(paper.on_gpus(plan))
        assert skipped == f"skipped: the plan has 12 devices, and this machine has {words}"
    assert not asked
    monkeypatch.setattr(notebook, "gpus", lambda: ("H100",) * 12)
    assert paper.on_gpus(plan, repeats=5) == "measured"
    assert asked == [(plan, "torchrun", 5, 3)]


def test_recorded_gpu_results_are_shown_when_there_are_any(monkeypatch, tmp_path):
    monkeypatch.setattr(notebook, "_RESULTS", (tmp_path / "none", tmp_path))
    assert repr(paper.recorded_on_gpus()) == (
        "skipped: nothing measured on a GPU has been recorded"
    )
    pd.DataFrame([{"method": "broadcast", "label": "nccl", "where": "torchrun"}]).to_csv(
        tmp_path / "gpu.csv", index=False
    )
    assert paper.recorded_on_gpus()["label"].tolist() == ["nccl"]


class FakeCluster:
    """Stands for an EmulatedCluster of which the machine carries 200 Mbit/s; notes what happens."""

    carried = "200Mbit"

    def __init__(self, hosts, devices_per_host, nic):
        self.nic, self.is_open = nic, False

    def __enter__(self):
        noted.append(f"enter {self.nic}")
        if self.nic != self.carried:
            raise SlowError(f"the NICs carry less than {self.nic}")
        self.is_open = True
        return self

    def __exit__(self, *error):
        noted.append(f"exit {self.nic}")
        self.is_open = False


noted = []


@pytest.fixture
def clusters(monkeypatch):
    noted.clear()
    monkeypatch.setattr(measuring, "EmulatedCluster", FakeCluster)
    monkeypatch.setattr(measuring, "need_namespaces", lambda: None)


def test_the_fastest_cluster_that_is_carried_is_entered_and_left(clusters, monkeypatch):
    with measuring.fastest_emulation(2, 1) as cluster:
        assert cluster.nic == "200Mbit" and cluster.is_open
    assert not cluster.is_open
    assert noted == ["enter 400Mbit", "enter 200Mbit", "exit 200Mbit"]
    with pytest.raises(SlowError, match="mine"), measuring.fastest_emulation(2, 1) as cluster:
        raise SlowError("mine")  # is not taken for one of the cluster's
    assert not cluster.is_open and noted[3:] == noted[:3]
    monkeypatch.setattr(FakeCluster, "carried", "none")
    text = "no speed of 400Mbit, 200Mbit can be emulated here: the NICs carry less than 200Mbit; or"
    with pytest.raises(SlowError, match=text), measuring.fastest_emulation(2, 1):
        raise AssertionError("not reached")


def test_patience_is_for_what_is_measured_on_entry(clusters, monkeypatch):
    """Each entry waits for idle cores, and is made again if others were at work meanwhile."""
    busy = iter([0.9, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0])

    def share(_):
        noted.append(next(busy))
        return noted[-1]

    monkeypatch.setattr(measuring, "_LOOK_S", 0.0)
    monkeypatch.setattr(measuring, "cpu_ticks", lambda: (1, 1))
    monkeypatch.setattr(measuring, "cpu_share", share)
    with measuring.fastest_emulation(2, 1, patient=True) as cluster:
        assert cluster.is_open
    assert noted == [
        *(0.9, 0.0, 0.0, "enter 400Mbit", 0.9),  # too slow, but others were at work
        *(0.0, 0.0, "enter 400Mbit", 0.0),
        *(0.0, 0.0, "enter 200Mbit", 0.9),
        *(0.0, 0.0, "exit 200Mbit", "enter 200Mbit", 0.0, "exit 200Mbit"),
    ]


SOURCES = (
    "print('one')\nprint('two')",
    "from reshard_lab import widgets\nwidgets.strategy_explorer(chunks=2)",
    "1 + 1",
)


@pytest.mark.slow
def test_running_a_notebook_twice_stores_the_same(tmp_path):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(s, id=f"c{i:02}") for i, s in enumerate(SOURCES, 1)]
    path = tmp_path / "made.ipynb"
    nbformat.write(notebook, path)
    tool.run(path)
    first = path.read_bytes()
    tool.run(path)
    assert path.read_bytes() == first
    stored = nbformat.read(path, as_version=4)
    assert stored.metadata.language_info == {"name": "python"}
    assert [c.execution_count for c in stored.cells] == [1, 2, 3]
    assert set(stored.cells[1].outputs[0].data) == {"text/plain", "text/html"}
    assert stored.cells[2].outputs[0].data["text/plain"] == "2"


def test_a_notebook_with_a_warning_is_not_stored():
    notebook = nbformat.v4.new_notebook()
    warning = nbformat.v4.new_output("stream", name="stderr", text="FutureWarning")
    notebook.cells = [nbformat.v4.new_code_cell("1", id="c01", outputs=[warning])]
    with pytest.raises(ValueError, match=r"made.ipynb, cell c01 wrote a warning: FutureWarning"):
        tool.tidy(notebook, "made.ipynb")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([0.2, 0.5], ", cores busy 50% at most; every"),
        ([0.2, 0.97], ", cores busy 97% at most (there they may have made the times); every"),
        ([0.2, None], ", how busy the cores were is not known; every"),
    ],
)
def test_a_label_says_how_busy_the_cores_were(shares, words):
    stamp = {"link": "a link", "cpu": "a processor"}
    place = MeasuringTarget("local", None, None, "a guess", "", {})
    done = [SimpleNamespace(environment=stamp | {"cpu_share": share}) for share in shares]
    environment, label = measuring.label_of(place, done)
    assert words in label
    assert environment["cpu_share"] == (None if None in shares else max(shares))
