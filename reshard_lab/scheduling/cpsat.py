"""Constraint programming with OR-tools' CP-SAT (the extra ``solve``)."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reshard_lab.bounds import common_unit
from reshard_lab.errors import need
from reshard_lab.scheduling.problem import Budget, Group
from reshard_lab.scheduling.schedule import Assignment, span

_RESOLUTION = 2**36
"""Ticks of the longest task where the durations share no unit."""
INTERVALS_A_SECOND = 2000
"""Models larger than this for every second of the limit take too much of it to build."""
_MODULE = "ortools.sat.python.cp_model"
_LOADING_S = 0.8
_RUNS = ((0.02, False), (0.02, True))
"""Two runs: CP-SAT's own measure of work for every second of the limit, and whether it takes its
strategies in turn (better at finding schedules) or keeps to one (better at proofs). The work is
less than what a slow machine does in that time, so that work and not the clock ends the search."""


def available() -> bool:
    """Whether OR-tools is installed."""
    return importlib.util.find_spec("ortools") is not None


def loads_within(seconds: float) -> bool:
    """Whether OR-tools is loaded, or ``seconds`` are enough to load it and search a little."""
    return _MODULE in sys.modules or seconds >= _LOADING_S


def intervals(groups: Sequence[Group]) -> int:
    """Intervals that a model of ``groups`` would have: the size of the search."""
    return sum(len(g.tasks) * (len(g.senders) + len(g.receivers)) for g in groups)


def search(
    groups: Sequence[Group], given: Sequence[Assignment], bound: float, budget: Budget, seed: int
) -> tuple[list[tuple[int, int]] | None, float]:
    """(task, sender) by start of a schedule shorter than ``given``, or None, and a proven bound.

    Durations become whole ticks: of their common unit if they share one, else rounded down, so
    that the bound stays true. Equal tasks start in order of their index.
    """
    cp = need(_MODULE, "solve", "the CP-SAT stage")
    unit = common_unit(g.duration for g in groups)
    tick = unit or max(g.duration for g in groups) / _RESOLUTION
    model = _CpModel(cp, groups, tick, exact=unit is not None)
    model.minimise(bound, given)
    order, proven = None, 0.0
    for work, in_turn in _RUNS:
        solver = cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.interleave_search = in_turn
        solver.parameters.linearization_level = 0
        solver.parameters.random_seed = seed % 2**31
        solver.parameters.max_time_in_seconds = budget.left_s
        solver.parameters.max_deterministic_time = budget.steps(work)
        status = solver.Solve(model.model)
        if status == cp.INFEASIBLE:  # nothing is shorter than what is known
            return order, model.known * tick
        proven = max(proven, solver.BestObjectiveBound() * tick * (1 - 1e-12))
        if status in (cp.OPTIMAL, cp.FEASIBLE):
            order = model.order(solver)
            model.improve(solver)
        if status == cp.OPTIMAL or budget.over:
            break
    return order, proven


class _CpModel:
    def __init__(self, cp: Any, groups: Sequence[Group], tick: float, exact: bool) -> None:
        self.model = cp.CpModel()
        self.tick, self.exact = tick, exact
        self.starts: dict[int, Any] = {}
        self.chosen: dict[int, list[tuple[int, Any]]] = {}
        self.ends: list[Any] = []
        self.ticks: dict[int, int] = {}
        horizon = sum(self._ticks(g.duration) * len(g.tasks) for g in groups)
        busy: dict[tuple[str, int], list[Any]] = {}
        for g in groups:
            ticks = self._ticks(g.duration)
            before = None
            for task in g.tasks:
                start = self.model.NewIntVar(0, horizon, "")
                self.starts[task], self.ticks[task] = start, ticks
                if before is not None:
                    self.model.Add(before <= start)
                before = start
                interval = self.model.NewFixedSizeIntervalVar(start, ticks, "")
                for r in g.receivers:
                    busy.setdefault(("rx", r), []).append(interval)
                self.chosen[task] = []
                for sender in g.senders:
                    here = None
                    if len(g.senders) > 1:
                        here = self.model.NewBoolVar("")
                        interval = self.model.NewOptionalFixedSizeIntervalVar(
                            start, ticks, here, ""
                        )
                    busy.setdefault(("tx", sender), []).append(interval)
                    self.chosen[task].append((sender, here))
                if len(g.senders) > 1:
                    self.model.AddExactlyOne(here for _, here in self.chosen[task])
                self.ends.append(start + ticks)
        for intervals in busy.values():
            self.model.AddNoOverlap(intervals)

    def _ticks(self, duration: float) -> int:
        ratio = duration / self.tick
        return round(ratio) if self.exact else int(ratio)

    def minimise(self, bound: float, given: Sequence[Assignment]) -> None:
        """The makespan, between ``bound`` and less than ``given``, which is the hint."""
        self.known = round(span(given) / self.tick) if self.exact else int(span(given) / self.tick)
        least = round(bound / self.tick) if self.exact else 0
        most = self.known - self.exact
        self.makespan = self.model.NewIntVar(min(least, most), max(most, 0), "")
        for end in self.ends:
            self.model.Add(end <= self.makespan)
        self.model.Minimize(self.makespan)
        starts = {a.task: int(a.start / self.tick + 0.5) for a in given}
        self._hint(starts, {a.task: a.sender for a in given})

    def improve(self, solver: Any) -> None:
        """From now on only what is shorter than the solution found counts; it is the hint."""
        self.known = solver.Value(self.makespan)
        self.model.Add(self.makespan < self.known)
        self.model.ClearHints()
        starts = {task: solver.Value(start) for task, start in self.starts.items()}
        self._hint(starts, dict(self.order(solver)))

    def _hint(self, starts: Mapping[int, int], sender: Mapping[int, int]) -> None:
        for task, start in starts.items():
            self.model.AddHint(self.starts[task], start)
            for s, here in self.chosen[task]:
                if here is not None:
                    self.model.AddHint(here, int(s == sender[task]))

    def order(self, solver: Any) -> list[tuple[int, int]]:
        """(task, sender) by start in the solution; shorter tasks first where starts are equal."""
        at = {task: solver.Value(start) for task, start in self.starts.items()}
        return [
            (task, next(s for s, here in self.chosen[task] if here is None or solver.Value(here)))
            for task in sorted(at, key=lambda t: (at[t], self.ticks[t], t))
        ]
