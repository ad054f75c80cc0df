"""Explorers of strategies: one delivery moving (figure 3), and the traffic between hosts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_type, short
from reshard_lab.paper_cases import suite_task
from reshard_lab.planning import Plan, plan
from reshard_lab.planning.nics import traffic
from reshard_lab.plots.plans import draw_traffic
from reshard_lab.plots.strategy import NAMES, draw_strategy
from reshard_lab.resharding import ReshardingTask
from reshard_lab.simulation.delivery import one_sender
from reshard_lab.strategies import PAPER, STRATEGIES, closed_form_s
from reshard_lab.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
)
from reshard_lab.widgets.controls import menu, slider, text
from reshard_lab.widgets.panel import Explorer, View

MOST_HOSTS, MOST_DEVICES, MOST_CHUNKS = 6, 4, 100
_MOST_BYTES, _MOST_BPS = 2**50, 1.25e14
STEPS = 48
"""Positions of the moment's slider: parts of the whole time."""
Tasks: TypeAlias = ReshardingTask | Mapping[str, ReshardingTask] | None
SCHEDULERS = (
    *((name, name) for name in ("load_balance", "naive", "greedy")),
    *((f"{name} (broadcast only)", name) for name in ("split", "concurrent")),
)
"""``(label, name)`` of those that never take long."""
_NONE = "nothing"


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


def traffic_explorer(
    tasks: Tasks = None,
    strategy: str = "send_recv",
    other: str = "broadcast",
    scheduler: str = "load_balance",
) -> Explorer:
    """Host-to-host bytes of a task under a strategy, beside those of another one.

    tasks:
        one resharding, or several by name to choose from; an example unless given.
    """
    named = _named(tasks)
    first = next(iter(named))
    groups = {
        "Resharding": {
            "task": menu("task", list(named), first, "28em"),
            "scheduler": menu("scheduler", SCHEDULERS, scheduler),
        },
        "Strategies": {
            "strategy": menu("strategy", STRATEGIES, strategy),
            "other": menu("compare with", (*STRATEGIES, _NONE), other, "20em"),
        },
    }
    planned: dict[tuple[str, str, str], Plan] = {}

    def draw(task: str, strategy: str, other: str, scheduler: str) -> View:
        plans = {}
        for name in dict.fromkeys((strategy, other)):
            key = task, name, scheduler
            if name != _NONE and key not in planned:
                planned[key] = plan(named[task], name, scheduler)
            if name != _NONE:
                plans[name] = planned[key]
        return _traffic_view(plans)

    return Explorer("traffic explorer", groups, draw)


def _named(tasks: Tasks) -> dict[str, ReshardingTask]:
    if tasks is None:
        return {"RS0R on (2,4) to S0RR on (2,4)": suite_task(3)}  # case 3
    if isinstance(tasks, ReshardingTask):
        shape = "×".join(map(str, tasks.shape))
        return {f"{tasks.src.spec} to {tasks.dst.spec}, {shape} {tasks.dtype}": tasks}
    if not tasks:
        raise ReshardError("traffic_explorer got no tasks; give one, several by name, or none")
    check_type("tasks", tasks, Mapping, "give one task, or several as {name: task}")
    return {
        str(name): check_type(f"task {short(name)}", task, ReshardingTask)
        for name, task in tasks.items()
    }


def _traffic_view(plans: Mapping[str, Plan]) -> View:
    matrices = {name: traffic(one) for name, one in plans.items()}
    rows: list[tuple[object, ...]] = [("strategy", "from", "to", "bytes", "size")]
    for name, one in matrices.items():
        rows += [
            (name, f"host {a}", f"host {b}", n, format_bytes(n)) for (a, b), n in one.nbytes.items()
        ]
    facts = {
        name: f"{format_bytes(one.crossing)} over the network, predicted "
        f"{format_seconds(one.makespan_s)}"
        for name, one in matrices.items()
    }
    return View(draw_traffic(matrices), rows, facts)
