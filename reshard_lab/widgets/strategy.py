"""The strategy explorer: the chunk pipeline of figure 3(d), and the other three ways, moving."""

from __future__ import annotations

from functools import lru_cache

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.plots.strategy import NAMES, draw_strategy
from reshard_lab.simulation.delivery import one_sender
from reshard_lab.simulation.timeline import Timeline
from reshard_lab.strategies import PAPER, closed_form_s
from reshard_lab.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
)
from reshard_lab.widgets.controls import menu, slider, text
from reshard_lab.widgets.panel import Explorer, View, explorer

MOST_HOSTS, MOST_DEVICES, MOST_CHUNKS = 6, 4, 100
_MOST_BYTES, _MOST_BPS = 2**50, 1.25e14
STEPS = 48
"""Positions of the moment's slider: parts of the whole time."""


def strategy_explorer(
    strategy: str = "broadcast",
    hosts: int = 2,
    devices: int = 2,
    chunks: int = 8,
    size: str = "64MiB",
    nic: str = "10Gbps",
    nic_latency_us: int = 20,
) -> Explorer:
    """One sender to A hosts of B devices: where every chunk is at a moment that can be played.

    Beside the picture: time by closed form and by simulation, for the chosen strategy in its
    facts and for all four in its table.
    """
    groups = {
        "Delivery": {
            "strategy": menu("strategy", [(v, k) for k, v in NAMES.items()], strategy, "24em"),
            "hosts": slider("A: receiving hosts", hosts, 1, MOST_HOSTS, width="30em"),
            "devices": slider("B: devices on each", devices, 1, MOST_DEVICES, width="30em"),
            "chunks": slider("K: chunks of a broadcast", chunks, 1, MOST_CHUNKS, width="30em"),
        },
        "Network": {
            "size": text("size", size),
            "nic": text("rate of a NIC", nic),
            "nic_latency_us": slider("NIC latency (µs)", nic_latency_us, 0, 2000, 20),
        },
        "Time": {"moment": slider(f"moment (of {STEPS})", STEPS // 2, 0, STEPS)},
    }
    made = explorer("strategy explorer", groups, _view, play="moment")
    made.player.interval = 250  # milliseconds a step: 12 s for all
    return made


def _view(
    strategy: str,
    hosts: int,
    devices: int,
    chunks: int,
    size: str,
    nic: str,
    nic_latency_us: int,
    moment: int,
) -> View:
    nbytes = parse_bytes(size, "size")
    rate = parse_bandwidth(nic, "rate of a NIC")
    if not 1 <= nbytes <= _MOST_BYTES or not 1 <= rate <= _MOST_BPS:
        raise ReshardError(
            f"{size} at {nic} cannot be played; size is from 1B to {format_bytes(_MOST_BYTES)}, "
            f"rate of a NIC from 8bit/s to {format_rate(_MOST_BPS)}"
        )
    k = min(chunks, nbytes)  # as the broadcast does: no chunk is smaller than a byte
    setting = nbytes, hosts, devices, k, rate, nic_latency_us / 1e6
    timeline = _simulated(strategy, *setting)
    took, t = timeline.duration_s, nbytes / rate
    rows = _compared(*setting)
    predicted = next(row[3] for row in rows[1:] if row[0] == NAMES[strategy])
    facts = {
        "simulated": format_seconds(took),
        "closed form": predicted,
        "one copy through a NIC (t)": format_seconds(t),
        "simulated / t": f"{took / t:.3f}",
    }
    note = (
        f"The paper writes {PAPER[strategy].words}, latency and links inside hosts free; here "
        f"A = {hosts}, B = {devices}"
    )
    if strategy == "broadcast":
        note += f", K = {k} chunks of {format_bytes(nbytes / k)}"
    return View(draw_strategy(timeline, took * moment / STEPS), rows, facts, [f"{note}."])


@lru_cache(maxsize=64)
def _simulated(
    strategy: str,
    nbytes: int,
    hosts: int,
    devices: int,
    chunks: int,
    nic_Bps: float,
    nic_latency_s: float,
) -> Timeline:
    cluster = _cluster(hosts, devices, nic_Bps, nic_latency_s)
    return one_sender(strategy, nbytes, hosts, devices, cluster, chunks)


def _cluster(hosts: int, devices: int, nic_Bps: float, nic_latency_s: float) -> Cluster:
    return Cluster(hosts + 1, devices, nic=nic_Bps, nic_latency=nic_latency_s)


def _compared(
    nbytes: int, hosts: int, devices: int, chunks: int, nic_Bps: float, nic_latency_s: float
) -> list[tuple[str, ...]]:
    """Every strategy's time by the paper's formula, by closed form and by simulation."""
    cluster = _cluster(hosts, devices, nic_Bps, nic_latency_s)
    head = ("strategy", "formula in the paper", "by it", "closed form", "simulated", "difference")
    rows: list[tuple[str, ...]] = [head]
    t = nbytes / nic_Bps
    for name, words in NAMES.items():
        formula, by_paper = PAPER[name]
        exact = closed_form_s(name, nbytes, hosts, devices, cluster, chunks)
        setting = nbytes, hosts, devices, chunks, nic_Bps, nic_latency_s
        found = _simulated(name, *setting).duration_s
        times = map(format_seconds, (by_paper(t, hosts, devices, chunks), exact, found))
        apart = round(found / exact - 1, 4) + 0.0  # no minus before a zero
        rows.append((words, formula, *times, f"{apart:+.2%}"))
    return rows
