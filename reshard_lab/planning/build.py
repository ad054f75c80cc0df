"""A plan as users hold it, and how it is built: senders and order, transfers, times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from reshard_lab.errors import ReshardError, check_choice, check_int, must_be
from reshard_lab.planning.builder import Builder
from reshard_lab.planning.explain import explain
from reshard_lab.planning.json_file import dump, load
from reshard_lab.planning.nics import Gantt, gantt
from reshard_lab.planning.parts import Parts
from reshard_lab.planning.record import PlanRecord
from reshard_lab.planning.verify import Verified, verify
from reshard_lab.resharding import ReshardingTask, lower_bound_s, need_cluster, tasks_of
from reshard_lab.scheduling import METHODS, SHARED_OUT, Problem, Schedule, meets, solve
from reshard_lab.scheduling.problem import Budget, one_nic_a_host, task_parts
from reshard_lab.scheduling.split import PERIODS, split
from reshard_lab.strategies import STRATEGIES
from reshard_lab.units import format_seconds

_NAMES = {"auto": "whole tasks", "split": "shared out", "concurrent": "no order"}
_SPLIT_S = 2.0
"""Search for a schedule of shares."""
_AUTO = ("broadcast", "global_allgather", "local_allgather", "send_recv")
_CLOSE = 1.02
"""Whole tasks within this factor of the lower bound are not compared with anything else."""
_WORTH = 0.99
"""Cutting tasks, or giving up their order, has to promise at least this factor in time."""
_BATCH_BYTES = 2**22
"""Least that relays let through a NIC in one batch. Handing over from one batch to the next has
costs of its own, in software, that the latencies of a cluster need not show."""
_LIMITS_S = (0.1, 1.0)
"""Search for a schedule where the caller did not choose how: longer only if it is not close."""


class Plan(PlanRecord):
    """Ordered transfers that carry one or several tensors to their destination layouts.

    Built by ``reshard_lab.plan``; immutable. ``makespan_s`` is the strategy's time for each task
    (latency and pipeline fill included) under the schedule.
    """

    def verify(self) -> Verified:
        """Prove the plan right, or raise naming the transfer at fault (see ``planning.verify``)."""
        return verify(self)

    def explain(self, limit: int = 20) -> str:
        """The plan in words: unit tasks, who sends what when, time, bound and what is proven."""
        return explain(self, limit)

    def gantt(self) -> Gantt:
        """The plan as a table: when which NICs carry what, and what each waits for."""
        return gantt(self)

    def to_json(self, path: str | Path | None = None, programs: bool = False) -> str:
        """The plan as JSON text, also written to ``path`` if given (see docs/plan_file.md).

        ``programs`` adds what every device does in order, which ``from_json`` has no need of: for
        readers without this library.
        """
        return dump(self, path, programs)

    @classmethod
    def from_json(cls, path: str | Path) -> Plan:
        """Read a plan that ``to_json`` wrote. It is verified when it is executed."""
        return cls(**load(path))


def plan(
    tasks: ReshardingTask | Iterable[ReshardingTask],
    strategy: str = "broadcast",
    scheduler: str = "auto",
    chunks: int | str = 100,
    seed: int = 0,
) -> Plan:
    """Plan one resharding, or several as one joint plan.

    strategy:
        ``send_recv``, ``local_allgather``, ``global_allgather``, ``broadcast`` (section 3.1),
        ``alpa``, ``signal`` (section 5) or ``auto`` (the shortest of the first four).
    scheduler:
        a method of ``scheduling.solve`` (section 3.2). ``split`` and ``concurrent`` go with
        ``broadcast``. ``auto`` keeps tasks whole, unless a broadcast is predicted to take less
        time with tasks shared out or without an order; ``notes`` say why. ``split`` keeps them
        whole where cutting them does not pay.
    chunks:
        K, the chunks of a broadcast, never more than the payload's bytes; ``"auto"`` takes the
        best number for every chain. Every chunk costs the latencies of its hops, so 100, which is
        for large tensors, makes small ones slow.

    >>> from reshard_lab import Cluster, Layout, ReshardingTask
    >>> cluster = Cluster(hosts=4, devices_per_host=2)
    >>> src = Layout(cluster.mesh((2, 2)), "S0R")
    >>> dst = Layout(cluster.mesh((2, 2), first_host=2), "S0R")
    >>> plan(ReshardingTask((4, 4), "float32", src, dst, cluster)).transfers[0].path
    (0, 4, 5)
    """
    listed = tasks_of(tasks)
    need_cluster(listed)
    check_choice("strategy", strategy, (*STRATEGIES, "auto"))
    check_choice("scheduler", scheduler, METHODS)
    if not isinstance(chunks, str):
        check_int("chunks", chunks, 1)
    elif chunks != "auto":
        raise must_be("chunks", "a whole number of at least 1 or 'auto'", chunks)
    check_int("seed", seed)
    if scheduler in SHARED_OUT and strategy not in ("broadcast", "auto"):
        raise ReshardError(
            f"scheduler {scheduler!r} goes with strategy 'broadcast', not {strategy!r}; "
            "use that strategy, or a scheduler of whole tasks such as 'auto'"
        )
    if strategy != "auto" or scheduler in SHARED_OUT:
        strategy = "broadcast" if strategy == "auto" else strategy
        return _Planner(listed, strategy, chunks, seed).plan(scheduler)
    plans = [_Planner(listed, s, chunks, seed).plan(scheduler) for s in _AUTO]
    best = min(plans, key=lambda p: p.makespan_s)
    times = ", ".join(f"{p.strategy} {format_seconds(p.makespan_s)}" for p in plans)
    ties = sum(meets(p.makespan_s, best.makespan_s) for p in plans)
    why = "has the shortest predicted time" if ties == 1 else "is the first of those that tie"
    note = f"strategy auto: {best.strategy} {why} ({times})"
    return replace(best, notes=(note, *best.notes))


class _Planner:
    """Plans of one set of tasks under one strategy."""

    def __init__(
        self, tasks: tuple[ReshardingTask, ...], strategy: str, chunks: int | str, seed: int
    ) -> None:
        self.tasks, self.strategy, self.chunks, self.seed = tasks, strategy, chunks, seed
        self.cluster = need_cluster(tasks)
        self.parts = task_parts(tasks, cut_up=strategy == "broadcast")
        self.problem = Problem.from_parts(self.parts, self.cluster)
        sources, targets = (
            {self.cluster.host_of(d) for mesh in meshes for d in mesh.devices}
            for meshes in ([task.src.mesh for task in tasks], [task.dst.mesh for task in tasks])
        )
        self.overlap = not sources.isdisjoint(targets)

    def plan(self, scheduler: str) -> Plan:
        """The plan under ``scheduler``; ``auto`` and ``split`` compare before they choose."""
        if scheduler == "auto" and self.strategy == "broadcast":
            return self._best()
        if scheduler == "split":
            return self._split_if_shorter()
        if scheduler == "auto":
            return self._build(self._whole_tasks())
        return self._build(solve(self.problem, scheduler, seed=self.seed))

    def _whole_tasks(self) -> Schedule:
        for limit in _LIMITS_S:
            schedule = solve(self.problem, "auto", time_limit_s=limit, seed=self.seed)
            if schedule.gap <= _CLOSE - 1:
                break
        return schedule

    def _split(self) -> Schedule:
        """Tasks shared out, in no more batches than the data is worth."""
        bound = self.problem.fluid_bound
        through = bound * self.cluster.nic_Bps if bound else 0.0
        batches = int(max(2, min(PERIODS, through / _BATCH_BYTES)))
        return split(self.problem, Budget(_SPLIT_S), self.seed, batches)

    def _best(self) -> Plan:
        """Whole tasks in order, no order, or tasks shared out: by predicted time.

        What bandwidth alone shows to be no better is not looked at; where hosts differ, schedules
        say little about that, since they keep fast NICs for as long as the slow ones they talk to.
        """
        plan = best = self._build(self._whole_tasks())
        if plan.makespan_s <= _CLOSE * plan.lower_bound_s:
            return plan
        plans = [plan]
        for method in ("concurrent", "split"):
            if lower_bound_s(self.tasks) >= best.makespan_s * _WORTH:
                break
            shared = method == "split"
            schedule = self._split() if shared else solve(self.problem, method, seed=self.seed)
            if schedule.makespan < best.makespan_s * _WORTH or not self.cluster.uniform:
                plans.append(self._build(schedule))
                best = min(best, plans[-1], key=lambda p: p.makespan_s)
        if len(plans) == 1:
            return plan
        if best.makespan_s > plan.makespan_s * _WORTH:
            best = plan
        times = ", ".join(f"{_NAMES[p.scheduler]} {format_seconds(p.makespan_s)}" for p in plans)
        note = f"scheduler auto: {_NAMES[best.scheduler]}, by predicted time ({times})"
        return replace(best, notes=(note, *best.notes))

    def _split_if_shorter(self) -> Plan:
        """Tasks shared out, or whole ones where latencies eat up what that gains."""
        schedule = self._split()
        plan = self._build(schedule)
        if all(a.share == 1.0 for a in schedule.assignments):
            return plan
        whole_tasks = self._build(self._whole_tasks())
        if plan.makespan_s < whole_tasks.makespan_s * _WORTH:
            return plan
        note = (
            f"scheduler split: tasks stay whole, which is predicted to take "
            f"{format_seconds(whole_tasks.makespan_s)}, cut up {format_seconds(plan.makespan_s)}"
        )
        return replace(whole_tasks, scheduler="split", notes=(note, *whole_tasks.notes))

    def _build(self, schedule: Schedule) -> Plan:
        ordered = schedule.method != "concurrent"
        relays = any(a.sender not in self.parts[a.task].senders for a in schedule.assignments)
        gateways = relays or not one_nic_a_host(self.cluster)
        overlap = self.overlap or gateways
        builder = Builder(self.tasks, self.strategy, self.chunks, overlap, ordered)
        if self.strategy == "broadcast" and (gateways or schedule.method in SHARED_OUT):
            units = Parts(builder, self.parts, schedule, gateways).lower()
        else:
            units = builder.planned(
                {a.task: builder.unit(a.task, a.sender) for a in schedule.assignments}
            )
        makespan_s = max((u.start_s + u.duration_s for u in units), default=0.0)
        return Plan(
            tasks=self.tasks,
            strategy=self.strategy,
            scheduler=schedule.method,
            chunks=max([t.chunks for t in builder.transfers], default=1)
            if isinstance(self.chunks, str)
            else self.chunks,
            seed=self.seed,
            units=units,
            transfers=tuple(builder.transfers),
            makespan_s=makespan_s,
            optimal=self._proven(schedule, makespan_s),
            notes=tuple(n for n in schedule.notes if schedule.optimal is None),
            ordered=ordered,
            deliveries=tuple(builder.deliveries),
        )

    def _proven(self, schedule: Schedule, makespan_s: float) -> str | None:
        """What is proven of the schedule in the bandwidth model, for the tasks themselves.

        A plan in order that takes no longer than the bound is optimal whatever it is. Else nothing
        without an order (times hold under ideal sharing only), under other strategies where a
        task has several receivers (it does not last bytes over bandwidth), and where the model of
        equations 1 to 4 leaves something out that matters: hosts that differ, links in a host
        slower than a NIC, hosts that receive and send (what a chain passes on competes with what
        the host sends itself).
        """
        if self.strategy == "signal" or schedule.method == "concurrent":
            return None
        bound = lower_bound_s(self.tasks)
        if meets(makespan_s, bound):
            return "fluid"
        modelled = self.cluster.uniform and self.cluster.intra_Bps >= self.cluster.nic_Bps
        if not modelled or self.overlap:
            return None
        single = one_nic_a_host(self.cluster)
        units = (unit for task in self.tasks for unit in task.unit_tasks)
        if self.strategy != "broadcast" and not (
            single and all(len({*unit.receivers} - {*unit.senders}) <= 1 for unit in units)
        ):
            return None
        if meets(schedule.makespan, bound):
            return "fluid"
        return schedule.optimal if single else None
