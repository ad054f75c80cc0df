"""Explorers of plans: who sends what when on one time axis, and the traffic between hosts."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from reshard_lab.errors import ReshardError, check_choice, check_int, check_type, short
from reshard_lab.paper_cases import suite_task
from reshard_lab.planning import plan
from reshard_lab.planning.nics import Gantt, Traffic, traffic
from reshard_lab.plots.plans import draw_traffic, gantts
from reshard_lab.resharding import ReshardingTask
from reshard_lab.scheduling import METHODS
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_bytes, format_seconds
from reshard_lab.widgets.controls import menu, slider
from reshard_lab.widgets.layouts import task_controls, task_of
from reshard_lab.widgets.panel import Explorer, View

MOST_TASKS = 1024
"""Unit tasks of a plan: more do not follow a slider."""
_SIDE = ("first", "second", "third")
_NONE, _NOTHING = "none", "nothing"
_MOST_NOTES = 4  # deliveries of one plan listed at one moment
Tasks: TypeAlias = ReshardingTask | Mapping[str, ReshardingTask] | None
SCHEDULERS = (
    *((name, name) for name in ("load_balance", "naive", "greedy")),
    *((f"{name} (broadcast only)", name) for name in ("split", "concurrent")),
)
"""``(label, name)`` of those that never take long."""


def plan_explorer(
    task: ReshardingTask | None = None,
    methods: Sequence[tuple[str, str]] = (("broadcast", "naive"), ("broadcast", "auto")),
    chunks: int = 100,
) -> Explorer:
    """Up to three plans of one task on one time axis, to step through delivery by delivery.

    task:
        what is planned first (default: suite case 9 of table 2).
    methods:
        ``(strategy, scheduler)`` of each plan.
    chunks:
        most chunks of a broadcast.

    The picture is ``plots.gantts``. Controls: those of ``layout_explorer`` for the task,
    ``strategy1``, ``scheduler1`` and so on to 3, ``chunks``, and ``step``, which goes through the
    moments at which a delivery of any plan begins; what begins there, and what it has waited
    for, stands under the picture.
    """
    check_type("methods", methods, Sequence, "give pairs of a strategy and a scheduler")
    if not 1 <= len(methods) <= len(_SIDE):
        raise ReshardError(f"give one to {len(_SIDE)} methods to compare, not {len(methods)}")
    for pair in methods:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ReshardError(f"a method is (strategy, scheduler), not {short(pair)}")
        strategy, scheduler = pair
        check_choice("strategy", strategy, (*STRATEGIES, "auto"))
        check_choice("scheduler", scheduler, METHODS)
    start = suite_task(9) if task is None else check_type("task", task, ReshardingTask)
    groups = task_controls(start)
    for i, name in enumerate(_SIDE):
        strategy, scheduler = methods[i] if i < len(methods) else (_NONE, "auto")
        offered = [*STRATEGIES, "auto"] if i == 0 else [_NONE, *STRATEGIES, "auto"]
        groups[f"{name.capitalize()} plan"] = {
            f"strategy{i + 1}": menu("strategy", offered, strategy),
            f"scheduler{i + 1}": menu("scheduler", METHODS, scheduler),
        }
    groups["All plans"] = {
        "chunks": slider("chunks", check_int("chunks", chunks, 1), 1, max(200, chunks)),
        "step": slider("step", 0, 0, 1),
    }

    def draw(step: int, chunks: int, **chosen: str) -> View:
        named = [(chosen.pop(f"strategy{i}"), chosen.pop(f"scheduler{i}")) for i in (1, 2, 3)]
        chosen_task = task_of(start.cluster, **chosen)
        wanted = [pair for pair in dict.fromkeys(named) if pair[0] != _NONE]
        charts = {", ".join(pair): _chart(chosen_task, *pair, chunks) for pair in wanted}
        times = moments(charts)
        last = len(times) - 1
        number = min(step, last)
        facts = {name: _figures(chart) for name, chart in charts.items()}
        facts["moment"] = f"{format_seconds(times[number])}, step {number} of {last}"
        notes = [line for item in charts.items() for line in _beginnings(*item, times[number])]
        settings = {"step": {"max": last}}
        return View(gantts(charts, times[number]), _table(charts), facts, notes, settings)

    shown = Explorer("plan explorer", groups, draw, play="step")
    shown.set(step=shown.controls["step"].max)  # all of it, before anybody steps through it
    return shown


@lru_cache(maxsize=64)
def _chart(task: ReshardingTask, strategy: str, scheduler: str, chunks: int) -> Gantt:
    """A plan's record, kept: steps and further plans do not plan it again."""
    if len(task.unit_tasks) > MOST_TASKS:
        raise ReshardError(
            f"the plan explorer takes up to {MOST_TASKS} unit tasks, but here are "
            f"{len(task.unit_tasks)}; cut less, or use plan and plots.gantt"
        )
    return plan(task, strategy=strategy, scheduler=scheduler, chunks=chunks).gantt()


def _table(charts: Mapping[str, Gantt]) -> list[tuple[object, ...]]:
    head = ("plan", "start (s)", "end (s)", "unit task", "bytes", "route", "waits for")
    return [head] + [
        (name, f"{d.start_s:.6g}", f"{d.end_s:.6g}", d.task, d.nbytes, chart.route_text(d), d.why)
        for name, chart in charts.items()
        for d in chart.deliveries
    ]


def moments(charts: Mapping[str, Gantt]) -> list[float]:
    """The times at which a delivery of any plan begins, and the end of the last one."""
    starts = {d.start_s for chart in charts.values() for d in chart.deliveries}
    end = max(chart.makespan_s for chart in charts.values())
    kept: list[float] = []
    for time_s in sorted(starts | {0.0, end}):
        if not kept or time_s > kept[-1] + 1e-9 * end:
            kept.append(time_s)
    return kept


def _beginnings(name: str, chart: Gantt, moment_s: float) -> list[str]:
    """What begins in one plan at a moment, a sentence each, and why not sooner."""
    slack = 1e-9 * chart.makespan_s
    begin = [d for d in chart.deliveries if abs(d.start_s - moment_s) <= slack]
    lines = [
        f"{name}: task {d.task}, {format_bytes(d.nbytes)}, {chart.route_text(d)}; {d.why}."
        for d in begin[:_MOST_NOTES]
    ]
    if len(begin) > _MOST_NOTES:
        lines.append(f"{name}: and {len(begin) - _MOST_NOTES} more begin now.")
    if not lines:
        over = chart.makespan_s <= moment_s + slack
        lines.append(f"{name}: {'has ended' if over else 'nothing begins now'}.")
    return lines


def _figures(chart: Gantt) -> str:
    words = format_seconds(chart.makespan_s)
    if chart.lower_bound_s > 0:
        words += f" ({chart.makespan_s / chart.lower_bound_s:.4g} × the bound)"
    shares = [i.share for i in chart.idle]
    return f"{words}, NICs {sum(shares) / len(shares):.0%} idle" if shares else words


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
            "other": menu("compare with", (*STRATEGIES, _NOTHING), other, "20em"),
        },
    }

    def draw(task: str, strategy: str, other: str, scheduler: str) -> View:
        chosen = [name for name in dict.fromkeys((strategy, other)) if name != _NOTHING]
        matrices = {name: _traffic(named[task], name, scheduler) for name in chosen}
        rows: list[tuple[object, ...]] = [("strategy", "from", "to", "bytes", "size")]
        facts = {}
        for name, one in matrices.items():
            for (a, b), nbytes in one.nbytes.items():
                rows.append((name, f"host {a}", f"host {b}", nbytes, format_bytes(nbytes)))
            crossing, time = format_bytes(one.crossing), format_seconds(one.makespan_s)
            facts[name] = f"{crossing} over the network, predicted {time}"
        return View(draw_traffic(matrices), rows, facts)

    return Explorer("traffic explorer", groups, draw)


@lru_cache(maxsize=64)
def _traffic(task: ReshardingTask, strategy: str, scheduler: str) -> Traffic:
    return traffic(plan(task, strategy, scheduler))


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
