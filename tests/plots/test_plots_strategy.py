"""One sender to A hosts of B devices: its pieces, who holds what when, and both pictures of it."""

import itertools
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from reshard_lab import plots
from reshard_lab.plots.snapshot import LEFT, WIDE
from reshard_lab.plots.strategy import MOST_BARS
from reshard_lab.simulation import one_sender
from reshard_lab.simulation.timeline import MovingPart, moving_parts, snapshot
from reshard_lab.strategies import closed_form_s
from support.svg_pages import assert_readable
from support.svg_pages import read as page_of

FOUR = ("send_recv", "local_allgather", "global_allgather", "broadcast")
SVG = "{http://www.w3.org/2000/svg}"


def ideal(hosts: int = 9, devices: int = 8) -> rl.Cluster:
    """A megabyte takes a second through a NIC; all else is free."""
    return rl.Cluster(hosts, devices, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)


def real(hosts: int = 9, devices: int = 8) -> rl.Cluster:
    return rl.Cluster(hosts, devices, nic="10Gbps", nic_latency="20us")


def times(parts: list[MovingPart], device: int) -> list[tuple[int, float, float]]:
    rows = [(p.number, p.start_s, p.end_s) for p in parts if p.destination == device]
    return [(n, round(a, 9), round(b, 9)) for n, a, b in rows]


def test_a_broadcast_is_the_chunk_pipeline_of_figure_3d():
    """K = 4, t = 1: a chunk takes 1/4 to the first host, and comes 1/4 later to the second."""
    parts = moving_parts(one_sender("broadcast", 1_000_000, 2, 2, ideal(3, 2), 4))
    quarters = [(i, i / 4, (i + 1) / 4) for i in range(4)]
    assert times(parts, 2) == quarters
    assert times(parts, 3) == [(i, end, end) for i, _, end in quarters]
    assert times(parts, 4) == [(i, end, end + 0.25) for i, _, end in quarters]
    assert max(p.end_s for p in parts) == 1.25  # t + (A - 1)·t/K


def test_all_gathers_go_in_parts():
    """A = B = 2. Local: both halves to a host, then the other half. Global: quarters, then on."""
    local = moving_parts(one_sender("local_allgather", 1_000_000, 2, 2, ideal(3, 2)))
    assert times(local, 2) == [(0, 0.0, 0.5), (1, 1.0, 1.0)]
    assert times(local, 5) == [(1, 1.5, 2.0), (0, 2.0, 2.0)]
    ring = moving_parts(one_sender("global_allgather", 1_000_000, 2, 2, ideal(3, 2)))
    assert times(ring, 2)[:1] == [(0, 0.0, 0.25)]
    assert [n for n, _, _ in times(ring, 2)] == [0, 3, 2, 1]  # from the last device of the ring
    assert max(p.end_s for p in ring) == 1.75  # t + (n - 1)/n·t


def test_send_recv_moves_the_whole_to_one_device_after_the_other():
    parts = moving_parts(one_sender("send_recv", 1_000_000, 2, 2, ideal(3, 2)))
    assert [(p.destination, p.start_s, p.end_s) for p in parts] == [
        *[(2, 0.0, 1.0), (3, 1.0, 2.0)],
        *[(4, 2.0, 3.0), (5, 3.0, 4.0)],
    ]
    assert {(p.number, p.first, p.stop) for p in parts} == {(0, 0, 1_000_000)}


@given(st.sampled_from(FOUR), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.data())
@settings(max_examples=60)
def test_what_is_held_is_what_has_arrived(strategy, hosts, devices, chunks, data):
    """Byte by byte, at any time; and nobody passes on what it does not hold."""
    nbytes = data.draw(st.integers(1, 60))
    timeline = one_sender(strategy, nbytes, hosts, devices, real(), chunks)
    rounding_s = (hosts * devices + chunks) / real().nic_Bps  # chunks differ by a byte
    assert timeline.duration_s == pytest.approx(
        closed_form_s(strategy, nbytes, hosts, devices, real(), chunks), abs=rounding_s
    )
    timeline.plan.verify()
    parts = moving_parts(timeline)
    at = data.draw(st.floats(0, 1.2)) * timeline.duration_s
    now = snapshot(parts, at)
    arrived = {d: np.zeros(nbytes, dtype=bool) for d in {p.destination for p in parts}}
    arrived[0] = np.ones(nbytes, dtype=bool)
    for row in timeline:
        t = timeline.plan.transfers[row.transfer]
        start, count = (t.span or (0, nbytes))[0], row.stop_chunk - row.first_chunk
        assert count == 1
        here = slice(*(start + t.nbytes * c // t.chunks for c in (row.first_chunk, row.stop_chunk)))
        if row.end_s <= at:
            arrived[row.destination][here] = True
    for device, ranges in now.held.items():
        mask = np.zeros(nbytes, dtype=bool)
        for first, stop in ranges:
            assert not mask[first:stop].any()
            mask[first:stop] = True
        assert (mask == arrived[device]).all()
        assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))
    for p in now.moving:
        assert arrived[p.source][p.first : p.stop].all()
        assert not arrived[p.destination][p.first : p.stop].any()
    everything = snapshot(parts, timeline.duration_s)
    assert set(everything.held.values()) == {((0, nbytes),)} and not everything.moving


def test_pieces_are_numbered_by_their_bytes_and_cover_them():
    for strategy, count in zip(FOUR, (1, 3, 6, 5), strict=True):
        parts = moving_parts(one_sender(strategy, 100, 2, 3, real(), 5))
        spans = sorted({(p.number, p.first, p.stop) for p in parts})
        assert [n for n, _, _ in spans] == list(range(count))
        assert [a for _, a, _ in spans] == [0, *[b for _, _, b in spans[:-1]]]
        assert spans[-1][2] == 100


def bars(drawn: str) -> dict[float, list[tuple[float, float]]]:
    """Left edge and width of the outlined bars right of the names, by row."""
    rows: dict[float, list[tuple[float, float]]] = {}
    for r in ET.fromstring(drawn).iter(f"{SVG}rect"):
        if r.get("height") == "16" and r.get("stroke"):
            x, wide = (
                (float(r.get(key)) - shift) / WIDE for key, shift in (("x", LEFT), ("width", 0))
            )
            rows.setdefault(float(r.get("y")), []).append((round(x, 3), round(wide, 3)))
    return rows


def test_bars_lie_where_the_simulation_says():
    """Two hosts of one device, K = 4, t = 1: 5/4 in all, so a chunk is a fifth of the width."""
    drawn = plots.draw_strategy(one_sender("broadcast", 1_000_000, 2, 1, ideal(3, 1), 4)).svg
    fifths = [(i / 5, 0.2) for i in range(5)]
    assert list(bars(drawn).values()) == [fifths[:4], fifths[:4], fifths[1:]]
    words = page_of(drawn).words()
    assert words.count("0") == 3 and words.count("3") == 3
    assert {"end 1.25 s", "one copy 1 s", "host 2, device 2 takes in"} <= set(words)
    later = plots.draw_strategy(
        one_sender("broadcast", 1_000_000, 2, 1, ideal(3, 1), 4), until_s=2.5
    )
    assert next(iter(bars(later.svg).values())) == [(i / 10, 0.1) for i in range(4)]


THIN = "A thin line: what arrives over a link inside the host, "


def test_thin_lines_are_explained_where_all_are_of_one_kind():
    """Inside a host pieces take no time, or little: half a megabyte at 400 MB/s takes 1.25 ms."""
    free = plots.draw_strategy(one_sender("broadcast", 1_000_000, 2, 2, ideal(3, 2), 4))
    assert free.caption.endswith(THIN + "in no time.")
    assert THIN in " ".join(page_of(free.svg).words())
    fast = rl.Cluster(3, 2, nic=1e6, nic_latency=0, intra=4e8, intra_latency=0)
    halves = plots.draw_strategy(one_sender("local_allgather", 1_000_000, 2, 2, fast))
    assert halves.caption.endswith(THIN + "within 1.25 ms.")
    none = [
        one_sender("send_recv", 1_000_000, 2, 2, ideal(3, 2)),
        one_sender("broadcast", 1_000_000, 2, 1, ideal(3, 1), 4),
        one_sender("broadcast", 1_000_000, 2, 2, rl.Cluster(3, 2, nic=1e6, intra=2e6), 4),
    ]
    assert not any("thin line" in plots.draw_strategy(t).caption for t in none)
    # On so long an axis pieces through NICs are thin too.
    assert "thin line" not in plots.draw_strategy(none[0], until_s=1e4).caption
    both = one_sender("broadcast", 1_000_000, 2, 2, ideal(3, 2), 4)
    assert "thin line" not in plots.draw_strategy(both, until_s=1e4).caption


def test_pieces_that_arrive_at_the_very_end_have_their_number():
    """Chunk 3 of 4: sent, taken in by four devices, by the last of them in no time."""
    drawn = plots.draw_strategy(one_sender("broadcast", 1_000_000, 2, 2, ideal(3, 2), 4)).svg
    assert_readable(drawn)
    assert [page_of(drawn).words().count(str(n)) for n in range(4)] == [5] * 4


def test_pieces_that_arrive_together_are_all_named():
    """A host of four gathers: each device has its quarter, and at the end the three others."""
    for until_s in (None, 2.0):  # left of the lines, and right of them
        timeline = one_sender("local_allgather", 1_000_000, 1, 4, ideal(2, 4))
        drawn = plots.draw_strategy(timeline, until_s=until_s).svg
        assert_readable(drawn)
        numbers = [w for w in page_of(drawn).words() if set(w) <= set("0123-,")]
        assert [w for w in numbers if len(w) > 1] == ["1-3", "0,2,3", "0,1,3", "0-2"]


def shares(drawn: str) -> list[str]:
    return [w for w in page_of(drawn).words() if w.endswith("%")]


def test_a_moment_shows_what_every_device_holds():
    timeline = one_sender("broadcast", 1_000_000, 2, 1, ideal(3, 1), 4)
    moments = [
        *[(0.0, "0 s", [0, 0]), (0.3, "300 ms", [25, 0])],
        *[(0.5, "500 ms", [50, 25]), (1.25, "1.25 s", [100, 100])],
    ]
    for at, words, held in moments:
        figure = plots.draw_strategy(timeline, at)
        assert shares(figure.svg) == [*[f"{n}%" for n in held], "100%"]  # the sender last
        assert figure.alt.endswith(f" Marked moment: {words}.")
    half = plots.draw_strategy(timeline, 0.6).svg
    coming = [
        (r.get("width"), r.get("x"))
        for r in ET.fromstring(half).iter(f"{SVG}rect")
        if r.get("stroke-dasharray")
    ]
    assert len(coming) == 2  # chunk 2 to the first host, chunk 1 to the second
    arrows = list(ET.fromstring(half).iter(f"{SVG}polyline"))
    assert len(arrows) == 2
    assert "now 600 ms" in page_of(half).words()


def test_a_device_has_all_only_when_the_last_byte_is_there():
    """250 chunks of 4 bytes at a byte a microsecond: one is missing at 0.9965 of the time."""
    timeline = one_sender("broadcast", 1000, 1, 1, ideal(2, 1), 250)
    shown = [shares(plots.draw_strategy(timeline, at * 1e-6).svg)[0] for at in (3.5, 996.5, 1000)]
    assert shown == ["0%", "99%", "100%"]


@given(st.sampled_from(FOUR), st.integers(1, 8), st.integers(1, 8), st.integers(1, 100), st.data())
@settings(max_examples=30)
def test_no_picture_is_cut_and_few_bars_are_drawn(strategy, hosts, devices, chunks, data):
    timeline = one_sender(strategy, 2**20, hosts, devices, real(), chunks)
    at = data.draw(st.none() | st.floats(0, 1).map(lambda share: share * timeline.duration_s))
    figure = plots.draw_strategy(timeline, at)
    page = assert_readable(figure.svg)
    rows = bars(figure.svg)
    assert len(rows) == 1 + hosts * devices
    assert sum(map(len, rows.values())) <= MOST_BARS + MOST_BARS // 4
    many = any("They are many" in words for words in page.words())
    assert many == (sum(map(len, list(rows.values())[1:])) < len(moving_parts(timeline)))
    assert figure.svg == plots.draw_strategy(timeline, at).svg


def test_bars_of_many_pieces_do_not_span_waits():
    """In a global all-gather a device waits for the barrier after its first part."""
    timeline = one_sender("global_allgather", 320_000, 8, 4, ideal())
    barrier = 0.32 / timeline.duration_s
    rows = list(bars(plots.draw_strategy(timeline).svg).values())[1:]
    for i, (first, *rest) in enumerate(rows[:-4]):
        assert first == pytest.approx((barrier * i / 32, barrier / 32), abs=0.002)
        assert all(x >= barrier - 0.002 for x, _ in rest)


def test_of_many_pieces_a_bar_holds_as_many_as_the_words_say():
    """48 chunks to two hosts of one device, one after the other: three to a bar."""
    drawn = plots.draw_strategy(one_sender("broadcast", 480_000, 2, 1, ideal(3, 1), 48)).svg
    rows = list(bars(drawn).values())
    assert [len(row) for row in rows] == [16] * 3
    for row, waits in zip(rows, (0, 0, 1), strict=True):  # 49 slots of 10 ms in all
        for i, bar in enumerate(row):
            assert bar == pytest.approx(((3 * i + waits) / 49, 3 / 49), abs=0.002)
    words = page_of(drawn).words()
    assert [words.count(f"{i}–{i + 2}") for i in range(0, 48, 3)] == [3] * 16
    assert "of up to 3 of them" in " ".join(words)


def test_a_time_after_the_end_can_be_read():
    timeline = one_sender("broadcast", 100, 1, 1, ideal())
    assert_readable(plots.draw_strategy(timeline, 2 * timeline.duration_s).svg)
