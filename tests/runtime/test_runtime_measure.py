"""Measurements as records and tables, and how launcher and processes talk; no processes."""

import dataclasses
import os
import platform

import pytest

import reshard_lab as rl
from reshard_lab.runtime.measure import environment, measurement, to_frame
from reshard_lab.runtime.process import LineReader, Position, Progress, write_line


@pytest.fixture
def plan():
    cluster = rl.Cluster(hosts=2, devices_per_host=1)
    layouts = rl.Layout(cluster.mesh(1), "RR"), rl.Layout(cluster.mesh(1, 1), "RR")
    tasks = [rl.ReshardingTask((n, 2), "int16", *layouts, cluster) for n in (3, 2**19)]
    return rl.plan(tasks, "send_recv", "naive", chunks=7)


@pytest.fixture
def measured(plan):
    stamp = environment("local", "gloo", "loopback (unshaped)", "2.13.0")
    return measurement(plan, [0.25, 0.125, 0.5, 0.25], True, stamp)


def test_figures(plan, measured):
    assert measured.nbytes == 12 + 2**21 and measured.shapes == ((3, 2), (2**19, 2))
    assert (measured.median_s, measured.min_s, measured.spread) == (0.25, 0.125, 1.5)
    assert measured.bandwidth_Bps == (12 + 2**21) / 0.25
    assert measured.predicted_s == plan.makespan_s > measured.lower_bound_s > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        measured.chunks = 1


def test_the_stamp_names_backend_link_and_machine(measured):
    stamp = measured.environment
    cores = len(os.sched_getaffinity(0))
    assert stamp["link"] == f"gloo, loopback (unshaped), {cores} core{'s' * (cores > 1)}"
    assert (stamp["where"], stamp["backend"], stamp["torch"]) == ("local", "gloo", "2.13.0")
    assert stamp["python"] == platform.python_version() and stamp["cpu"]
    assert stamp["reshard_lab"]


def test_one_line_that_is_the_same_every_time(measured):
    link = measured.environment["link"]
    assert repr(measured) == (
        "Measurement(send_recv, naive: 2 MiB in 250 ms, min 125 ms, spread 150% of 4, "
        f"67.11 Mbit/s, verified; {link})"
    )
    other = dataclasses.replace(measured, verified=False)
    assert ", not verified; " in repr(other)


def test_as_dict_and_as_table(measured):
    row = measured.to_dict()
    assert row["times_s"] == (0.25, 0.125, 0.5, 0.25) and row["median_s"] == 0.25
    assert row["environment"]["where"] == "local"
    pytest.importorskip("pandas")
    frame = to_frame([measured, dataclasses.replace(measured, verified=False)])
    assert list(frame["verified"]) == [True, False]
    assert list(frame["where"]) == ["local"] * 2 and "environment" not in frame
    assert frame["bandwidth_Bps"][0] == measured.bandwidth_Bps


def test_lines_may_come_in_any_pieces():
    reader, writer = os.pipe()
    try:
        lines = LineReader(reader)
        write_line(writer, {"a": 1})
        os.write(writer, b'{"b": 2}\n{"c')
        assert lines.read() == [{"a": 1}, {"b": 2}]
        os.write(writer, b'": "\\u00e9"')
        assert lines.read() == []
        os.write(writer, b"}\n")
        assert lines.read() == [{"c": "é"}]
        os.close(writer)
        assert lines.read() is None
    finally:
        os.close(reader)


def test_progress_is_seen_from_elsewhere(tmp_path):
    mine, theirs = (Progress(tmp_path / "page", 3) for _ in range(2))
    assert theirs.read(1) == Position(0, {})
    mine.begin(1, 4)
    mine.note(1, "send", 0, 0)
    mine.note(1, "recv", 7, 30)
    assert theirs.read(1) == Position(4, {"send": (0, 0), "recv": (7, 30)})
    assert theirs.read(0) == theirs.read(2) == Position(0, {})
    mine.begin(1, 5)
    assert theirs.read(1) == Position(5, {})
    mine.close()
    theirs.close()
