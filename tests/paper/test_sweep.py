"""Sweeps: the grid, what is kept on disk, interruptions, and where the work is done."""

from __future__ import annotations

import json
import sys
import threading

import pytest

import reshard_lab as rl
from reshard_lab.paper import evaluate, sweep, sweeps
from reshard_lab.paper.sweeps import Cache, code_version, key_of

pd = pytest.importorskip("pandas")
joblib = pytest.importorskip("joblib")
pytest.importorskip("tqdm")

CALLS: list[int] = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def double(point: dict) -> dict:
    """A cheap stand-in for a simulation that notes that it was asked."""
    CALLS.append(point["n"])
    if point.get("stop"):
        raise KeyboardInterrupt
    return {"n": point["n"], "double": 2 * point["n"]}


def points(*numbers: int, **more) -> list[dict]:
    return [{"n": n, **more} for n in numbers]


def test_rows_are_the_grid_in_order(tmp_path):
    table = sweep(
        nbytes=["1MiB", 2 * 2**20],
        chunks=(10, 100),
        hosts=2,
        devices=(1, 2),
        strategies=("send_recv", "broadcast"),
        schedulers="naive",
        cluster=rl.Cluster(1, 1, nic="1Gbps"),
        jobs=1,
        cache=tmp_path,
        progress=False,
    )
    assert len(table) == 16
    keys = ["nbytes", "chunks", "devices", "strategy"]
    assert table[keys].to_records(index=False).tolist() == [
        (n, k, d, s)
        for n in (2**20, 2**21)
        for k in (10, 100)
        for d in (1, 2)
        for s in ("send_recv", "broadcast")
    ]
    assert (table["simulated_s"] >= table["lower_bound_s"]).all()
    assert table["planned_s"].to_numpy() == pytest.approx(table["simulated_s"].to_numpy(), rel=1e-3)
    row = table.iloc[3]  # 1 MiB, K = 10, B = 2, broadcast
    cluster = rl.Cluster(3, 2, nic="1Gbps")
    ends = rl.Layout(rl.Mesh([[0]]), "R"), rl.Layout(cluster.mesh((2, 2), first_host=1), "R")
    plan = rl.plan(rl.ReshardingTask((2**20,), "int8", *ends, cluster), chunks=10)
    assert row["simulated_s"] == rl.simulate(plan).duration_s
    assert row["unit_tasks"] == 1


def test_many_to_many_and_chunks_chosen():
    """Rows on 2 hosts to columns on 2 others: 4 pieces of a tensor of about the size asked."""
    table = sweep(
        10_000, "auto", 2, 2, src="S0R", dst="RS0", senders="same", cache=False, progress=False,
        jobs=1,
    )  # fmt: skip
    (row,) = table.to_dict("records")
    assert row["unit_tasks"] == 4
    assert row["nbytes"] == 10_000


def test_what_is_there_is_not_computed_again(tmp_path):
    first = evaluate(double, points(1, 2), jobs=1, cache=tmp_path, progress=False)
    again = evaluate(double, points(3, 2, 1), jobs=1, cache=tmp_path, progress=False)
    assert CALLS == [1, 2, 3]
    assert again["double"].tolist() == [6, 4, 2]
    assert first["double"].tolist() == [2, 4]
    assert evaluate(double, points(1, 2, 3), jobs=1, cache=tmp_path, progress=False).shape == (3, 2)
    assert CALLS == [1, 2, 3]
    evaluate(double, points(1), jobs=1, cache=False, progress=False)
    assert CALLS == [1, 2, 3, 1]


def test_other_inputs_or_other_code_are_computed(tmp_path, monkeypatch):
    evaluate(double, points(1), jobs=1, cache=tmp_path, progress=False)
    evaluate(double, points(1, speed=2), jobs=1, cache=tmp_path, progress=False)
    assert CALLS == [1, 1]
    monkeypatch.setattr(sweeps, "code_version", lambda: "another")
    evaluate(double, points(1), jobs=1, cache=tmp_path, progress=False)
    assert CALLS == [1, 1, 1]


def solver(installed):
    """Stands for ``importlib.metadata.version``: a version of ortools, or that it is missing."""

    def version(name: str) -> str:
        if name == "ortools" and installed is None:
            raise sweeps.PackageNotFoundError(name)
        return installed if name == "ortools" else "1"

    return version


def test_the_version_is_that_of_every_module_and_of_the_solvers(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("__init__.py", "sub/a.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(sweeps, "PACKAGE", tmp_path)
    versions = set()
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):
        (tmp_path / "sub" / "a.py").write_text(text)
        code_version.cache_clear()
        versions.add(code_version())
    code_version.cache_clear()
    for installed in ("9.9", "9.10", None):
        monkeypatch.setattr(sweeps, "version", solver(installed))
        code_version.cache_clear()
        versions.add(code_version())
    code_version.cache_clear()
    assert len(versions) == 2 + 3
    assert key_of("f", {"a": 1, "b": 2}, "v") == key_of("f", {"b": 2, "a": 1}, "v")
    assert len({key_of("f", {"a": 1}, "v"), key_of("g", {"a": 1}, "v"), key_of("f", {}, "v")}) == 3


def test_an_interruption_keeps_what_was_done(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluate(
            double,
            [*points(1, 2), *points(3, stop=True), *points(4)],
            jobs=1,
            cache=tmp_path,
            progress=False,
        )
    assert CALLS == [1, 2, 3]
    assert not list(tmp_path.rglob("*.new"))
    evaluate(double, points(1, 2, 4), jobs=1, cache=tmp_path, progress=False)
    assert CALLS == [1, 2, 3, 4]


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    kept = Cache(tmp_path)
    kept.store("abcd", {"x": 1.5})
    assert kept.load("abcd") == {"x": 1.5}
    (tmp_path / "ab" / "cd.json").write_text('{"x": 1.')
    assert kept.load("abcd") is None
    (tmp_path / "ab" / "cd.json").write_text("3")
    assert kept.load("abcd") is None

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps.json, "dump", stop)
    with pytest.raises(KeyboardInterrupt):
        kept.store("abcd", {"x": 2.5})
    assert [f.name for f in (tmp_path / "ab").iterdir()] == ["cd.json"]


def test_numbers_come_back_as_they_were(tmp_path):
    kept = Cache(tmp_path)
    row = {"x": 0.1 + 0.2, "big": 2**60, "none": None, "inf": float("inf")}
    kept.store("key", row)
    assert kept.load("key") == row
    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text())["big"] == 2**60


def test_where_results_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("RESHARD_LAB_CACHE", raising=False)
    assert Cache().folder == tmp_path / "xdg" / "reshard_lab"
    monkeypatch.setenv("RESHARD_LAB_CACHE", str(tmp_path / "mine"))
    evaluate(double, points(1), jobs=1, progress=False)
    assert len(list((tmp_path / "mine").rglob("*.json"))) == 1
    monkeypatch.setenv("RESHARD_LAB_CACHE", "/dev/null/x")
    with pytest.raises(rl.ReshardError, match="cannot keep results in '/dev/null/x'"):
        evaluate(double, points(1), jobs=1, progress=False)


def test_a_folder_that_takes_no_files(tmp_path):
    kept = Cache(tmp_path)
    tmp_path.joinpath("ab").write_text("a file where a folder should be")
    text = rf"cannot keep results in '{tmp_path}': .*or none \(cache=False\)"
    with pytest.raises(rl.ReshardError, match=text):
        kept.store("abcd", {"x": 1})


def test_processes(tmp_path):
    """Two processes give what one gives."""
    grid = {"nbytes": "1MiB", "hosts": (1, 2, 3), "strategies": ("send_recv", "broadcast")}
    two = sweep(**grid, jobs=2, cache=tmp_path, progress=False)
    one = sweep(**grid, jobs=1, cache=False, progress=False)
    assert len(list(tmp_path.rglob("*.json"))) == 6
    pd.testing.assert_frame_equal(two.drop(columns="took_s"), one.drop(columns="took_s"))


def test_a_configured_backend_does_the_work(tmp_path):
    """Any backend that joblib knows, as dask's: here one that notes the threads it is used from."""
    from joblib._parallel_backends import ThreadingBackend

    used: list[int] = []

    class Noting(ThreadingBackend):
        def submit(self, func, callback=None):
            used.append(threading.get_ident())
            return super().submit(func, callback)

    joblib.register_parallel_backend("noting", Noting)
    with joblib.parallel_config(backend="noting", n_jobs=2):
        table = evaluate(double, points(*range(20)), cache=tmp_path, progress=False)
    assert used
    assert table["double"].tolist() == [2 * n for n in range(20)]


def test_progress_is_shown_on_standard_error(tmp_path, capsys):
    evaluate(double, points(1, 2), jobs=1, cache=tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err
    evaluate(double, points(1, 2), jobs=1, cache=tmp_path, progress=False)
    assert capsys.readouterr().err == ""


def test_missing_libraries_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(rl.ReshardError, match=r"needs joblib.*'reshard-lab\[run\]'"):
        evaluate(double, points(1), cache=tmp_path, progress=False)
