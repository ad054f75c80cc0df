"""Whatever the layouts: the result is NumPy's, and no host takes a byte in twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import reshard_lab as rl
from oracles.host_bytes import arrivals, distinct_bytes_needed
from support.property_tasks import reshardings
from support.reference_cases import pieces_of

DELIVERING = ("send_recv", "local_allgather", "global_allgather", "broadcast", "alpa")
relaxed = settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])


def content(task: rl.ReshardingTask) -> np.ndarray:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, size=(*task.shape, task.itemsize), dtype=np.uint8)
    return raw.view(task.dtype)[..., 0]


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("strategy", DELIVERING)
@relaxed
@given(task=reshardings())
def test_in_memory_result_is_numpys(strategy, task):
    array = content(task)
    plan = rl.plan(task, strategy=strategy)
    out = rl.execute(plan, pieces_of(task.src, array))
    expected = pieces_of(task.dst, array)
    assert out.keys() == expected.keys()
    assert all(same_bytes(np.ascontiguousarray(out[d]), expected[d]) for d in expected)


@pytest.mark.parametrize("strategy", ["broadcast", "local_allgather"])
@relaxed
@given(task=reshardings(most_elements=20_000))
def test_every_host_takes_in_just_the_distinct_bytes_it_needs(strategy, task):
    assert arrivals(rl.plan(task, strategy=strategy)) == distinct_bytes_needed(task)


@pytest.mark.parametrize("strategy", DELIVERING)
@relaxed
@given(task=reshardings(most_elements=20_000))
def test_predicted_time_is_never_under_the_bound(strategy, task):
    plan = rl.plan(task, strategy=strategy)
    assert plan.makespan_s >= plan.lower_bound_s * (1 - 1e-9)


@relaxed
@given(task=reshardings(most_elements=2000))
def test_json_round_trip(task, tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan = rl.plan(task, strategy="global_allgather", seed=3)
    text = plan.to_json(path)
    again = rl.Plan.from_json(path)
    assert again == plan
    assert again.programs == plan.programs
    assert again.to_json() == text
    assert again.verify() == plan.verify()


@relaxed
@given(task=reshardings(most_elements=2000))
def test_memory_is_at_least_the_pieces_and_never_the_whole_tensor_more(task):
    plan = rl.plan(task)
    for device, nbytes in plan.peak_bytes.items():
        pieces = 0
        for layout in (task.src, task.dst):
            if device in layout.mesh.devices:
                box = layout.boxes(task.shape)[device]
                pieces += int(np.prod([hi - lo for lo, hi in box])) * task.itemsize
        assert pieces <= nbytes <= 2 * pieces + task.itemsize
