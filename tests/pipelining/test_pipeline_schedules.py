"""Pipeline orders: what each schedule promises, and what the checker says of bad ones."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from oracles import pipeline_slow as slow
from reshard_lab import pipeline

SIZES = list(itertools.product(range(1, 7), (1, 2, 3, 5, 6, 7, 12, 13)))


def before_first_backward(ops: list[str]) -> int:
    return next(i for i, op in enumerate(ops) if op[0] != "F")


def test_small_orders_by_hand():
    assert pipeline.schedule("gpipe", 2, 2) == [["F0", "F1", "B0", "B1"]] * 2
    assert pipeline.schedule("1f1b", 2, 3) == [
        ["F0", "F1", "B0", "F2", "B1", "B2"],
        ["F0", "B0", "F1", "B1", "F2", "B2"],
    ]
    assert pipeline.schedule("eager_1f1b", 2, 4) == [
        ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"],
        ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"],
    ]
    assert pipeline.schedule("interleaved_1f1b", 2, 2)[0] == (
        ["F0.0", "F1.0", "F0.1", "F1.1", "B0.1", "B1.1", "B0.0", "B1.0"]
    )
    assert pipeline.schedule("interleaved_1f1b", 2, 2)[1] == (
        ["F0.0", "F1.0", "F0.1", "B0.1", "F1.1", "B1.1", "B0.0", "B1.0"]
    )
    assert pipeline.schedule("zero_bubble", 2, 3) == [
        ["F0", "F1", "I0", "W0", "F2", "I1", "W1", "I2", "W2"],
        ["F0", "I0", "F1", "I1", "W0", "F2", "I2", "W1", "W2"],
    ]
    assert pipeline.schedule("inference", 3, 2) == [["F0", "F1"]] * 3


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
def test_warm_up(stages, microbatches):
    """Section 4: forwards before the first backward of stage s."""
    for s in range(stages):
        for name, forwards in (
            ("gpipe", microbatches),
            ("1f1b", min(microbatches, stages - s)),
            ("eager_1f1b", min(microbatches, 2 * (stages - s) - 1)),
            ("zero_bubble", min(microbatches, stages - s)),
        ):
            ops = pipeline.schedule(name, stages, microbatches)[s]
            assert before_first_backward(ops) == forwards
        for chunks in (1, 2, 3):
            ops = pipeline.schedule("interleaved_1f1b", stages, microbatches, chunks)[s]
            if microbatches % stages == 0:
                warm_up = 2 * (stages - s - 1) + (chunks - 1) * stages
                expected = min(warm_up + 1, chunks * microbatches)
                assert before_first_backward(ops) == expected


@pytest.mark.parametrize("name", pipeline.SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
def test_complete_and_free_of_deadlock(name, stages, microbatches):
    """By counting, and by running them in the slow simulator; the checker agrees."""
    for chunks, delay in itertools.product(
        (1, 2, 3) if name == "interleaved_1f1b" else (None,), (False, True)
    ):
        schedule = pipeline.schedule(name, stages, microbatches, chunks, delay)
        halves = delay or name == "zero_bubble"
        kinds = "F" if name == "inference" else "FIW" if halves else "FB"
        ends = [""] if not chunks or chunks == 1 else [f".{c}" for c in range(chunks)]
        every = sorted(f"{k}{m}{e}" for k in kinds for m in range(microbatches) for e in ends)
        assert [sorted(ops) for ops in schedule] == [every] * stages
        model_chunks = stages * (chunks or 1)
        tensors = slow.neighbours(model_chunks, [0] * model_chunks, [0] * model_chunks)
        assert (
            len(slow.overlapped(schedule, lambda kind, model_chunk: 1, tensors))
            == len(every) * stages
        )
        checked = pipeline.check(schedule)
        assert len(checked.order) == len(set(checked.order)) == len(every) * stages


@pytest.mark.parametrize("name", sorted(set(pipeline.SCHEDULES) - {"inference", "zero_bubble"}))
def test_delayed_weights_only_cut_backwards_in_two(name):
    for stages, microbatches in SIZES:
        whole = pipeline.schedule(name, stages, microbatches)
        halves = pipeline.schedule(name, stages, microbatches, delay_weights=True)
        for a, b in zip(whole, halves, strict=True):
            cut = [
                half
                for op in a
                for half in ((op,) if op[0] == "F" else ("I" + op[1:], "W" + op[1:]))
            ]
            assert b == cut


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
def test_peak_live_as_published(stages, microbatches):
    def peaks(name: str, chunks: int | None = None) -> list[int]:
        schedule = pipeline.schedule(name, stages, microbatches, chunks)
        return pipeline.simulate(schedule, 1, 2).peak_live

    m, behind = microbatches, [stages - s for s in range(stages)]
    assert peaks("gpipe") == [m] * stages
    assert peaks("1f1b") == [min(m, n) for n in behind]
    assert peaks("eager_1f1b") == [min(m, 2 * n - 1) for n in behind]
    # Qi et al. 2023, table 2: no more than 1F1B's first stage
    assert peaks("zero_bubble") == [min(m, stages)] * stages
    assert peaks("inference") == [1] * stages
    if m % stages == 0 and m >= 2 * stages:
        # Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.3: S(1 + (S-1)/(S v)) of a stage
        for v in (1, 2, 3):
            assert peaks("interleaved_1f1b", v)[0] == pytest.approx(
                v * stages * (1 + (stages - 1) / (stages * v))
            )


def test_a_deadlock_names_its_circle():
    with pytest.raises(rl.ReshardError) as caught:
        pipeline.check([["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]])
    assert str(caught.value) == (
        "the schedule deadlocks: stage 0 is at B0, which waits for B0 of stage 1, which is behind "
        "F1 there; stage 1 is at F1, which waits for F1 of stage 0, which is behind B0 there. "
        "Run one of the awaited ops earlier"
    )


def test_a_deadlock_leaves_out_stages_that_only_wait_for_the_circle():
    first = ["F0", "F1", "B0", "B1"]
    with pytest.raises(rl.ReshardError) as caught:
        pipeline.check([first, ["F0", "I0", "W0", "F1", "B1"], ["F0", "F1", "I0", "W0", "B1"]])
    assert "stage 0" not in str(caught.value)
    assert "stage 1 is at I0, which waits for I0 of stage 2, which is behind F1 there" in str(
        caught.value
    )


@settings(max_examples=300)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_verdict_is_the_slow_simulators(stages, chunks, microbatches, rng: random.Random):
    """Random orders with F before B: the checker refuses those that get stuck, and no others."""
    lists = []
    for _ in range(stages):
        ops = [f"{k}{m}.{c}" for k in "FB" for m in range(microbatches) for c in range(chunks)]
        rng.shuffle(ops)
        ops.sort(key=lambda op: op[0] == "B" and rng.random() < 0.8)  # mostly forwards first
        for op in [o for o in ops if o[0] == "F"]:
            b = "B" + op[1:]
            i, j = ops.index(op), ops.index(b)
            if j < i:
                ops[i], ops[j] = b, op
        lists.append(ops)
    model_chunks = stages * chunks
    tensors = slow.neighbours(model_chunks, [0] * model_chunks, [0] * model_chunks)
    try:
        slow.overlapped(lists, lambda kind, model_chunk: 1, tensors)
    except slow.Stuck:
        with pytest.raises(rl.ReshardError, match="the schedule deadlocks: stage"):
            pipeline.check(lists)
    else:
        pipeline.check(lists)


def test_large_schedules_are_built():
    lists = pipeline.schedule("interleaved_1f1b", 64, 1024, 2)
    assert sum(map(len, lists)) == 64 * 1024 * 2 * 2
