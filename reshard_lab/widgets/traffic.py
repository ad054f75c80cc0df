"""The traffic explorer: bytes from host to host under two ways of planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from reshard_lab.errors import ReshardError, check_type, short
from reshard_lab.paper_cases import suite_task
from reshard_lab.planning import Plan, plan
from reshard_lab.planning.traffic import traffic
from reshard_lab.plots.traffic import draw_traffic
from reshard_lab.resharding import ReshardingTask
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_bytes, format_seconds
from reshard_lab.widgets.controls import menu
from reshard_lab.widgets.panel import Explorer, View, explorer

Tasks: TypeAlias = ReshardingTask | Mapping[str, ReshardingTask] | None
SCHEDULERS = (
    *((name, name) for name in ("load_balance", "naive", "greedy")),
    *((f"{name} (broadcast only)", name) for name in ("split", "concurrent")),
)
"""``(label, name)`` of those that never take long."""
_NONE = "nothing"


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
    made: dict[tuple[str, str, str], Plan] = {}

    def draw(task: str, strategy: str, other: str, scheduler: str) -> View:
        plans = {}
        for name in dict.fromkeys((strategy, other)):
            key = task, name, scheduler
            if name != _NONE and key not in made:
                made[key] = plan(named[task], name, scheduler)
            if name != _NONE:
                plans[name] = made[key]
        return _view(plans)

    return explorer("traffic explorer", groups, draw)


def _named(
    tasks: Tasks,
) -> dict[str, ReshardingTask]:
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


def _view(plans: Mapping[str, Plan]) -> View:
    found = {name: traffic(made) for name, made in plans.items()}
    rows: list[tuple[object, ...]] = [("strategy", "from", "to", "bytes", "size")]
    for name, one in found.items():
        rows += [
            (name, f"host {a}", f"host {b}", n, format_bytes(n)) for (a, b), n in one.nbytes.items()
        ]
    facts = {
        name: f"{format_bytes(one.crossing)} over the network, predicted "
        f"{format_seconds(one.makespan_s)}"
        for name, one in found.items()
    }
    return View(draw_traffic(found), rows, facts)
