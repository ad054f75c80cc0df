"""Explorers of simulations: one delivery moving (figure 3), and pipelines over time."""

from functools import lru_cache

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.pipelining import SCHEDULES, schedule, simulate
from reshard_lab.plots.activation_memory import draw_memory
from reshard_lab.plots.pipeline import draw_pipeline
from reshard_lab.plots.strategy import NAMES, draw_strategy
from reshard_lab.plots.svg import stacked
from reshard_lab.simulation import one_sender
from reshard_lab.strategies import PAPER, closed_form_s
from reshard_lab.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_seconds,
)
from reshard_lab.widgets.controls import checkbox, fine_slider, menu, slider, text
from reshard_lab.widgets.panel import Explorer, View

MOST_HOSTS, MOST_DEVICES, MOST_CHUNKS = 6, 4, 100
_MOST_BYTES, _MOST_BPS = 2**50, 1.25e14
STEPS = 48
"""Positions of the moment's slider: parts of the whole time."""
_NONE = "nothing"
_CHUNKS = {"interleaved_1f1b": 2}
"""Chunks of the model a stage holds, where it is more than one."""

_simulated = lru_cache(maxsize=64)(one_sender)


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
    shown = Explorer("strategy explorer", groups, _strategy_view, play="moment")
    shown.player.interval = 250  # milliseconds a step: 12 s for all
    return shown


def _strategy_view(
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
    cluster = Cluster(hosts + 1, devices, nic=rate, nic_latency=nic_latency_us / 1e6)
    timeline = _simulated(strategy, nbytes, hosts, devices, cluster, k)
    duration_s, t = timeline.duration_s, nbytes / rate
    rows = _compared(nbytes, hosts, devices, k, cluster, t)
    facts = {
        "simulated": format_seconds(duration_s),
        "closed form": next(row[3] for row in rows if row[0] == NAMES[strategy]),
        "one copy through a NIC (t)": format_seconds(t),
        "simulated / t": f"{duration_s / t:.3f}",
    }
    note = (
        f"The paper writes {PAPER[strategy].words}, latency and links inside hosts free; here "
        f"A = {hosts}, B = {devices}"
    )
    if strategy == "broadcast":
        note += f", K = {k} chunks of {format_bytes(nbytes / k)}"
    return View(draw_strategy(timeline, duration_s * moment / STEPS), rows, facts, [f"{note}."])


def _compared(
    nbytes: int, hosts: int, devices: int, chunks: int, cluster: Cluster, t: float
) -> list[tuple[str, ...]]:
    """Every strategy's time by the paper's formula, by closed form and by simulation."""
    head = ("strategy", "formula in the paper", "by it", "closed form", "simulated", "difference")
    rows: list[tuple[str, ...]] = [head]
    for name, words in NAMES.items():
        formula, by_paper = PAPER[name]
        exact = closed_form_s(name, nbytes, hosts, devices, cluster, chunks)
        simulated = _simulated(name, nbytes, hosts, devices, cluster, chunks).duration_s
        times = map(format_seconds, (by_paper(t, hosts, devices, chunks), exact, simulated))
        apart = round(simulated / exact - 1, 4) + 0.0  # no minus before a zero
        rows.append((words, formula, *times, f"{apart:+.2%}"))
    return rows


def pipeline_explorer(
    name: str = "eager_1f1b",
    other: str = "1f1b",
    stages: int = 4,
    microbatches: int = 8,
    forward: str = "1ms",
    backward: str = "2ms",
    transfer_ms: float = 0.5,
    overlap: bool = True,
    delay_weights: bool = False,
) -> Explorer:
    """Stages, links and memory of a pipeline over time, with another schedule on the same axis.

    ``forward`` and ``backward`` are the times of one microbatch on one stage (t_F, t_B),
    ``transfer_ms`` that of a transfer to a neighbouring stage, each way (c).
    """
    groups = {
        "Schedules": {
            "name": menu("schedule", SCHEDULES, name),
            "other": menu("compare with", (_NONE, *SCHEDULES), other),
            "overlap": checkbox("overlap transfers", overlap),
            "delay_weights": checkbox("delay weight gradients", delay_weights),
        },
        "Size": {
            "stages": slider("stages", stages, 1, 8),
            "microbatches": slider("microbatches", microbatches, 1, 32),
        },
        "Times": {
            "forward": text("t_F: a forward", forward),
            "backward": text("t_B: a backward", backward),
            "transfer_ms": fine_slider("c: a transfer (ms)", transfer_ms, 10.0),
        },
    }
    return Explorer("pipeline explorer", groups, _pipeline_view)


def _pipeline_view(
    name: str,
    other: str,
    stages: int,
    microbatches: int,
    forward: str,
    backward: str,
    transfer_ms: float,
    overlap: bool,
    delay_weights: bool,
) -> View:
    forward_s, backward_s = parse_seconds(forward, "t_F"), parse_seconds(backward, "t_B")
    timelines = {}
    for one in dict.fromkeys((name, other)):
        if one != _NONE:
            lists = schedule(one, stages, microbatches, delay_weights=delay_weights)
            chunks = _CHUNKS.get(one, 1)  # which do the work of t_F and t_B together
            durations = forward_s / chunks, backward_s / chunks, transfer_ms / 1e3
            timelines[one] = simulate(lists, *durations, overlap=overlap)
    notes = [
        f"In {one} a stage holds {chunks} pieces of the model, which take t_F/{chunks} and "
        f"t_B/{chunks} each; live microbatches are counted a piece."
        for one, chunks in _CHUNKS.items()
        if one in timelines
    ]
    facts = {
        name: f"{format_seconds(one.makespan_s)}, bubble {one.bubble_share:.1%}, exposed "
        f"communication {one.exposed_communication_share:.1%}, at most {max(one.peak_live)} live"
        for name, one in timelines.items()
    }
    if len(timelines) == 2 and timelines[other].makespan_s:
        ratio = timelines[name].makespan_s / timelines[other].makespan_s
        facts["time over that of " + other] = f"{ratio:.3f}"
    rows: list[tuple[object, ...]] = [("schedule", "row", "op", "what", "start", "end")]
    rows += [
        (name, e.row, e.op, e.what, format_seconds(e.start_s), format_seconds(e.end_s))
        for name, one in timelines.items()
        for e in one.events
    ]
    figure = stacked(draw_pipeline(timelines), draw_memory(timelines))
    return View(figure, rows, facts, notes)
