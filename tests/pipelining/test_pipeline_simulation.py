"""Simulated pipelines against the handed cases, a slow simulator and closed forms."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import pipeline_slow as slow
from reshard_lab import pipeline
from support.reference_cases import read

relaxed = settings(max_examples=300)


@pytest.mark.parametrize("case", read("pipelines"), ids=lambda c: c["schedule"])
def test_handed_cases(case):
    schedule = pipeline.schedule(case["schedule"], case["stages"], case["microbatches"])
    names = ("forward_s", "backward_s", "forward_transfer_s", "backward_transfer_s")
    times = {name: case[name] for name in names}
    expected = case["expected"]
    overlapped = pipeline.simulate(schedule, **times)
    blocking = pipeline.simulate(schedule, **times, overlap=False)
    assert overlapped.makespan_s == pytest.approx(expected["overlapped_makespan_s"], abs=1e-9)
    assert blocking.makespan_s == pytest.approx(expected["blocking_makespan_s"], abs=1e-9)
    assert overlapped.peak_live == expected["peak_live_microbatches"]
    assert blocking.peak_live == expected["peak_live_microbatches"]


@st.composite
def own_lists(draw) -> list[list[str]]:
    """Lists that can run: a random order of ops, each taken when its input is there."""
    stages, chunks = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    microbatches = draw(st.integers(1, 4))
    model_chunks = stages * chunks
    ready = [("F", m, 0) for m in range(microbatches)]
    lists: list[list[str]] = [[] for _ in range(stages)]
    while ready:
        kind, m, model_chunk = ready.pop(draw(st.integers(0, len(ready) - 1)))
        chunk = f".{model_chunk // stages}" if chunks > 1 else ""
        lists[model_chunk % stages].append(f"{kind}{m}{chunk}")
        if kind == "F":
            ready.append(
                ("F", m, model_chunk + 1)
                if model_chunk + 1 < model_chunks
                else ("back", m, model_chunk)
            )
        elif kind in "BI" and model_chunk > 0:
            ready.append(("back", m, model_chunk - 1))
        if kind == "I":
            ready.append(("W", m, model_chunk))
        ready = [
            (draw(st.sampled_from("BI")), m, p) if kind == "back" else (kind, m, p)
            for kind, m, p in ready
        ]
    return lists


@st.composite
def named_lists(draw) -> list[list[str]]:
    name = draw(st.sampled_from(pipeline.SCHEDULES))
    chunks = draw(st.integers(1, 3)) if name == "interleaved_1f1b" else None
    return pipeline.schedule(
        name, draw(st.integers(1, 5)), draw(st.integers(1, 7)), chunks, draw(st.booleans())
    )


@st.composite
def pipelines(draw):
    """A schedule with whole-number times: for the library, and for the slow simulator."""
    schedule = draw(st.one_of(named_lists(), own_lists()))
    model_chunks = len(schedule) * (1 + max(slow.parse(op)[2] for ops in schedule for op in ops))
    ticks = st.integers(0, 4)
    a_list = lambda n: draw(st.lists(ticks, min_size=n, max_size=n))  # noqa: E731
    forward, inputs, weights = a_list(model_chunks), a_list(model_chunks), a_list(model_chunks)
    there, back = a_list(model_chunks - 1), a_list(model_chunks - 1)
    tensors = slow.neighbours(model_chunks, there, back)
    skips = []
    for _ in range(draw(st.integers(0, 2)) if model_chunks > 1 else 0):
        source = draw(st.integers(0, model_chunks - 2))
        target = draw(st.integers(source + 1, model_chunks - 1))
        tensor = slow.Tensor(source, target, draw(ticks), draw(ticks))
        tensors.append(tensor)
        skips.append(pipeline.BoundaryTensor(*tensor))
    times = {
        "forward_s": forward,
        "backward_s": [i + w for i, w in zip(inputs, weights, strict=True)],
        "weight_s": weights,
        "forward_transfer_s": there,
        "backward_transfer_s": back,
        "skips": skips,
    }
    table = {"F": forward, "B": times["backward_s"], "I": inputs, "W": weights}
    return schedule, times, lambda kind, model_chunk: table[kind][model_chunk], tensors


@relaxed
@given(pipelines())
def test_overlapped_is_the_slow_simulators(drawn):
    schedule, times, duration_of, tensors = drawn
    timeline = pipeline.simulate(schedule, **times)
    expected = slow.overlapped(schedule, duration_of, tensors)
    actual = {
        (int(e.row.split()[1]), e.op): (e.start_s, e.end_s)
        for e in timeline.events
        if e.row.startswith("stage")
    }
    assert actual == expected
    assert timeline.peak_live == slow.live(schedule)


@relaxed
@given(pipelines())
def test_blocking_is_the_slow_simulators(drawn):
    schedule, times, duration_of, tensors = drawn
    timeline = pipeline.simulate(schedule, **times, overlap=False)
    assert timeline.makespan_s == slow.blocking(schedule, duration_of, tensors)


@relaxed
@given(pipelines(), st.booleans())
def test_what_a_timeline_says_of_itself(drawn, overlap):
    schedule, times, _, _ = drawn
    timeline = pipeline.simulate(schedule, **times, overlap=overlap)
    for share in timeline.shares:
        assert share.compute + share.communication + share.bubble == pytest.approx(1)
        assert min(share[1:]) >= 0
    path = timeline.critical_path
    assert path[0].start_s == 0
    assert path[-1].end_s == timeline.makespan_s
    assert all(a.end_s == b.start_s for a, b in itertools.pairwise(path))
    for row in timeline.rows:
        bars = [e for e in timeline.events if e.row == row]
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(bars))


@pytest.mark.parametrize("transfer_s", [0, 0.25, 0.75, 1, 1.5])
def test_steady_state(transfer_s):
    """Section 4: t_F + t_B + 2c(1 - 1/S) a microbatch under 1F1B, t_F + t_B under eager-1F1B."""

    def a_microbatch(name: str) -> float:
        ends = [
            pipeline.simulate(pipeline.schedule(name, 4, m), 1, 2, transfer_s).makespan_s
            for m in (64, 128)
        ]
        return (ends[1] - ends[0]) / 64

    assert a_microbatch("1f1b") == pytest.approx(3 + 1.5 * transfer_s, abs=1e-12)
    assert a_microbatch("eager_1f1b") == pytest.approx(3, abs=1e-12)


def test_eager_no_longer_hides_transfers_longer_than_a_slot():
    ends = [
        pipeline.simulate(pipeline.schedule("eager_1f1b", 4, m), 1, 2, 2).makespan_s
        for m in (64, 128)
    ]
    assert (ends[1] - ends[0]) / 64 > 3.1


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 4])
class TestBubblesWithoutTransfers:
    """Idle time of every stage, in closed form; M is a multiple of S."""

    def test_gpipe_and_1f1b(self, stages, rounds):
        m = stages * rounds
        for name in ("gpipe", "1f1b", "eager_1f1b"):
            timeline = pipeline.simulate(pipeline.schedule(name, stages, m), 1, 2)
            assert timeline.makespan_s == (m + stages - 1) * 3

    @pytest.mark.parametrize("chunks", [1, 2, 4])
    def test_interleaved(self, stages, rounds, chunks):
        """(S-1)/v forward-backward slots (Narayanan et al. 2021, section 2.2)."""
        m = stages * rounds
        schedule = pipeline.schedule("interleaved_1f1b", stages, m, chunks)
        timeline = pipeline.simulate(schedule, 1 / chunks, 2 / chunks)
        assert timeline.makespan_s == m * 3 + (stages - 1) / chunks * 3
        busy = m * 3 / timeline.makespan_s
        assert timeline.bubble_share == pytest.approx(1 - busy)

    @pytest.mark.parametrize("seconds", [(1, 1, 1), (1, 1.5, 0.75), (2, 2, 1)])
    def test_zero_bubble(self, stages, rounds, seconds):
        """(S-1)(t_F + t_I - t_W) (Qi et al. 2023, table 2); a third of 1F1B's at equal times."""
        f, i, w = seconds
        m = stages * rounds
        schedule = pipeline.schedule("zero_bubble", stages, m)
        timeline = pipeline.simulate(schedule, f, i + w, weight_s=w)
        bubble = timeline.makespan_s - m * (f + i + w)
        assert bubble == pytest.approx((stages - 1) * (f + i - w))
        plain = pipeline.simulate(pipeline.schedule("1f1b", stages, m), f, i + w).makespan_s
        if f == i == w:
            assert bubble == pytest.approx((plain - m * (f + i + w)) / 3)


def test_inference_is_a_straight_pipe():
    timeline = pipeline.simulate(pipeline.schedule("inference", 3, 5), [1, 3, 2], None, [1, 2])
    assert timeline.makespan_s == 1 + 1 + 5 * 3 + 2 + 2  # the middle stage is the slowest
    assert timeline.peak_live == [1, 1, 1]


def test_delayed_weights_let_the_gradient_leave_early():
    """Section 4: one microbatch on two stages; the second stage's W runs beside the transfer."""
    times = {"forward_s": 1, "backward_s": 2, "forward_transfer_s": 0.5, "weight_s": 0.75}
    whole = pipeline.simulate(pipeline.schedule("1f1b", 2, 1), **times)
    halves = pipeline.simulate(pipeline.schedule("1f1b", 2, 1, delay_weights=True), **times)
    assert whole.makespan_s == 1 + 0.5 + 1 + 2 + 0.5 + 2
    assert halves.makespan_s == whole.makespan_s - 0.75
    del times["weight_s"]  # half of the backward unless given
    halves = pipeline.simulate(pipeline.schedule("1f1b", 2, 1, delay_weights=True), **times)
    assert halves.makespan_s == whole.makespan_s - 1


def test_a_skip_holds_back_its_target():
    """Three stages of 1 s, neighbours 0 s, a skip of 5 s: the last stage waits for it."""
    schedule = pipeline.schedule("gpipe", 3, 1)
    timeline = pipeline.simulate(schedule, 1, 1, skips=[pipeline.BoundaryTensor(0, 2, 5, 4)])
    # F0 at 0, skip 1-6, F2 6-7, B2 7-8, its gradient 8-12, B0 12-13
    assert timeline.makespan_s == 13
    exposed = [share.communication * 13 for share in timeline.shares]
    assert exposed == pytest.approx([4, 0, 5])
    assert {"link 0>2", "link 2>0"} < set(timeline.rows)
    slow_path = [(e.row, e.op) for e in timeline.critical_path]
    assert slow_path == [
        ("stage 0", "F0"),
        ("link 0>2", "F0"),
        ("stage 2", "F0"),
        ("stage 2", "B0"),
        ("link 2>0", "B0"),
        ("stage 0", "B0"),
    ]


def test_neighbours_and_skips_of_one_pair_share_a_link():
    """Stage 0 sends two tensors of 2 s to stage 1: one after the other."""
    skip = pipeline.BoundaryTensor(0, 1, 2)
    timeline = pipeline.simulate(pipeline.schedule("inference", 2, 1), 1, None, 2, skips=[skip])
    assert timeline.makespan_s == 1 + 2 + 2 + 1
    bars = [(e.tensor, e.start_s) for e in timeline.events if e.row == "link 0>1"]
    assert bars == [("0>1", 1), ("skip 0>1", 3)]


def test_interleaved_wraps_around():
    """Model chunk 1 is on stage 1, chunk 2 on stage 0 again: activations flow on both links."""
    timeline = pipeline.simulate(pipeline.schedule("interleaved_1f1b", 2, 2), 1, 2, [1, 2, 3])
    links = {(e.row, e.tensor) for e in timeline.events if e.what == "activation"}
    assert links == {("link 0>1", "0>1"), ("link 1>0", "1>2"), ("link 0>1", "2>3")}


def test_chunks_on_one_stage_need_no_transfer():
    timeline = pipeline.simulate(pipeline.schedule("interleaved_1f1b", 1, 3), 1, 2, 7)
    assert timeline.makespan_s == 3 * 2 * 3
    assert timeline.rows == ("stage 0",)


def test_memory_over_time():
    schedule = pipeline.schedule("1f1b", 2, 2)
    timeline = pipeline.simulate(schedule, 1, 2, activation_bytes=["1KiB", 100])
    # stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7
    steps = [tuple(m) for m in timeline.memory[0]]
    assert steps == [(0, 0, 0), (0, 1, 1024), (1, 2, 2048), (6, 1, 1024), (9, 0, 0)]
    steps = [tuple(m) for m in timeline.memory[1]]
    assert steps == [(0, 0, 0), (1, 1, 100), (4, 0, 0), (4, 1, 100), (7, 0, 0)]
    assert timeline.peak_bytes == [2048, 100]
    assert pipeline.simulate(schedule, 1, 2).peak_bytes is None


def test_shares_name_the_exposed_communication():
    """One microbatch, two stages of 1 + 2 s, transfers of 2 and 1 s: 9 s in all."""
    schedule = pipeline.schedule("1f1b", 2, 1)
    for overlap in (True, False):
        timeline = pipeline.simulate(schedule, 1, 2, 2, 1, overlap)
        assert timeline.makespan_s == 9
        first, second = timeline.shares
        assert first.compute == second.compute == pytest.approx(3 / 9)
        # Overlapped, stage 1 has ended before the gradient travels: it waits for nothing.
        assert second.communication == pytest.approx((2 if overlap else 3) / 9)
        # Overlapped, what stage 0 waits for before its backward is the gradient alone.
        assert first.communication == pytest.approx((1 if overlap else 3) / 9)
        shares = (first.communication + second.communication) / 2
        assert timeline.exposed_communication_share == pytest.approx(shares)


def test_frame_and_trace(tmp_path):
    timeline = pipeline.simulate(pipeline.schedule("1f1b", 2, 3), 1, 2, 0.5)
    frame = timeline.to_frame()
    assert list(frame.columns) == [
        "row",
        "op",
        "what",
        "tensor",
        "microbatch",
        "chunk",
        "start_s",
        "end_s",
    ]
    assert len(frame) == 2 * 6 + 2 * 3
    assert frame[frame.what == "gradient"].row.unique().tolist() == ["link 1>0"]
    text = timeline.to_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == text
    events = json.loads(text)["traceEvents"]
    bars = [e for e in events if e["ph"] == "X"]
    assert len(bars) == len(frame)
    assert max(e["ts"] + e["dur"] for e in bars) == pytest.approx(timeline.makespan_s * 1e6)
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == set(timeline.rows)
    assert repr(timeline) == (
        "PipelineTimeline(2 stages, 3 microbatches, overlapped: 14 s, bubble 28.6%, "
        "exposed communication 7.1%)"
    )
