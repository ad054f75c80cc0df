"""From times that devices noted to the record of a run, on arrays made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.pipelining.graph import Graph
from reshard_lab.pipelining.ops import StageOp
from reshard_lab.training import results
from support.training_jobs import resolved

NO = np.nan  # where a device takes no part
PACE_S = (9.0, 3.0, 1.0, 2.0)
"""Seconds of every op and transfer, by step; the first is a warm-up."""


def small_config():
    """``F0`` on stage 0 (devices 0, 1), what it made to stage 1 (devices 2, 3), ``F0`` there."""
    return SimpleNamespace(
        devices=(0, 1, 2, 3),
        stages=2,
        stage_of=lambda device: device // 2,
        graph=Graph([StageOp("F", 0)] * 3, [0, 0, 1], [-1, 1, -1], [-1, 0, -1], [], [], []),
        warmup=1,
        paced=None,
    )


def noted(began, ended, starts, ends):
    """What a device noted in a warm-up of nonsense and one step."""
    return {
        "began": np.array([-50.0, began]),
        "ended": np.array([70.0, ended]),
        "starts": np.array([[-40.0] * 3, starts]),
        "ends": np.array([[60.0] * 3, ends]),
    }


def times_of(*devices):
    saved = results.DeviceResults(dict(enumerate(noted(*d) for d in devices)), None, [])
    return results.step_times(small_config(), saved)


def test_a_step_lasts_from_the_first_beginning_to_the_last_end():
    """An item starts with the last of those that take part; an op ends with the last, a transfer
    when the last device of its target has all.
    """
    times = times_of(
        (0.9, 4.0, [1.0, 2.2, NO], [2.0, 3.0, NO]),
        (1.0, 4.1, [1.5, 2.4, NO], [2.5, 3.9, NO]),  # done with sending after all has come
        (0.8, 6.0, [NO, 1.0, 3.5], [NO, 3.4, 5.0]),
        (1.1, 5.9, [NO, 1.2, 3.6], [NO, 3.3, 5.5]),
    )
    assert times.began.tolist() == [0.8]
    assert times.durations.tolist() == pytest.approx([5.2])
    assert times.starts.tolist() == [[1.5, 2.4, 3.6]]
    assert times.ends.tolist() == [[2.5, 3.4, 5.5]]


def test_a_transfer_never_ends_before_it_starts():
    """A device that has little to send may turn to it when all has come elsewhere."""
    times = times_of(
        (0.0, 5.0, [1.0, 2.2, NO], [2.0, 3.0, NO]),
        (0.0, 5.0, [1.0, 3.8, NO], [2.0, 3.9, NO]),
        (0.0, 5.0, [NO, 1.0, 3.5], [NO, 3.4, 5.0]),
        (0.0, 5.0, [NO, 1.0, 3.5], [NO, 3.3, 5.0]),
    )
    assert times.starts[0, 1] == times.ends[0, 1] == 3.4


def test_ops_last_the_median_of_what_was_measured():
    """By kind and stage; transfers are not counted."""
    starts = np.zeros((3, 3))
    ends = np.array([[1.0, 80.0, 4.0], [2.0, 90.0, 4.5], [9.0, 70.0, 40.0]])
    times = results.StepTimes(np.zeros(3), np.ones(3), starts, ends)
    assert results.op_durations(small_config(), times) == {("F", 0): 2.0, ("F", 1): 4.5}


def run_of(pace_s):
    """A record of steps in which every op and transfer takes that long, one after the other."""
    config, plans = resolved(steps=len(pace_s) - 1, warmup=1)
    count, pace = len(config.graph.ops), np.array(pace_s)
    began = 1000.0 * np.arange(len(pace))
    starts = began[:, None] + pace[:, None] * np.arange(count)
    stages, targets = np.array(config.graph.stages), np.array(config.graph.targets)
    rows = {}
    for device in config.devices:
        part = (stages == config.stage_of(device)) | (targets == config.stage_of(device))
        rows[device] = {
            "began": began,
            "ended": began + pace * count,
            "starts": np.where(part, starts, NO),
            "ends": np.where(part, starts + pace[:, None], NO),
        }
    return results.gather_run(
        config, plans, "broadcast", results.DeviceResults(rows, None, []), {}
    ), count


def test_the_step_of_median_time_is_shown():
    run, count = run_of(PACE_S)
    assert run.times_s == tuple(count * pace for pace in PACE_S[1:])
    assert run.median_s == run.timeline.makespan_s == 2.0 * count
    assert {e.end_s - e.start_s for e in run.timeline.events} == {2.0}
    assert min(e.start_s for e in run.timeline.events) == 0
    simulated = {e.what: e.end_s - e.start_s for e in run.simulated.events if not e.tensor}
    assert simulated == {"forward": 1.0, "backward": 2.0}
    assert isinstance(run, rl.pipeline.TrainingRun) and run.verified and run.losses == ()


def test_of_an_even_number_of_steps_the_lower_of_the_middle_two():
    run, count = run_of((9.0, 4.0, 1.0, 2.0, 3.0))
    assert run.timeline.makespan_s == 2.0 * count
