"""The best schedule of whole tasks, and the proof that it is (beyond section 3.2).

From cheap to dear, each stage only if the makespan does not meet the bound yet:

1. equal durations, receiver sets equal or disjoint: a bipartite open shop with unit tasks, solved
   in polynomial time (balanced senders by augmenting paths, then edge colouring);
2. list scheduling by most remaining load, a few passes; where receiver sets overlap also with
   insertion;
3. tasks with a choice of senders: an integer program for the least largest sender load;
4. overlapping receiver sets: the configuration program as a bound, and for equal durations a
   schedule made of its configurations;
5. more passes of list scheduling;
6. CP-SAT.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from reshard_lab.bounds import common_unit, round_up
from reshard_lab.scheduling import cpsat
from reshard_lab.scheduling.baselines import load_balance
from reshard_lab.scheduling.configurations import GROUPS_A_SECOND, generate, slot_schedule
from reshard_lab.scheduling.list_scheduling import (
    GroupTable,
    best_of_restarts,
    dispatch,
    insert_widest,
    list_schedule,
    tables_of,
)
from reshard_lab.scheduling.problem import Budget, Group, Problem
from reshard_lab.scheduling.schedule import Assignment, meets, span
from reshard_lab.scheduling.senders import CHOICES_A_SECOND, balanced_equal, least_largest_load


class Solved(NamedTuple):
    """A schedule of the moving tasks with the best bound known."""

    assignments: list[Assignment]
    bound: float
    notes: tuple[str, ...]


def exact(problem: Problem, budget: Budget, seed: int) -> Solved:
    """The shortest schedule of whole tasks that the time allows, with a lower bound."""
    if not problem.groups:
        return Solved([], 0.0, ("no task moves anything",))
    if not problem.receivers_overlap and len({g.duration for g in problem.groups}) == 1:
        best = unit_open_shop(problem.groups)
        note = "equal sizes, receiver sets equal or disjoint: solved by edge colouring"
        return Solved(best, span(best), (note,))
    search = _Search(problem, budget, seed)
    for stage in (
        search.few_passes,
        search.insertion,
        search.sender_loads,
        search.configurations,
        search.more_passes,
        search.constraint_programming,
    ):
        stage()
        if meets(span(search.best), search.bound):
            break
        if budget.over:
            search.notes.append(f"the time limit of {budget.limit_s:g} s ended the search")
            break
    return Solved(search.best, search.bound, tuple(search.notes))


def unit_open_shop(groups: Sequence[Group]) -> list[Assignment]:
    """The optimum for tasks of one duration whose receiver sets are equal or disjoint.

    With balanced senders the makespan is the larger of the most tasks into one receiver set and
    the most out of one sender, in units of the duration: no schedule can beat either.
    """
    tasks = [(g, task) for g in balanced_equal(groups) for task in g.tasks]
    colours = colour_edges([(g.senders[0], g.receivers) for g, _ in tasks])
    return [
        Assignment(task, g.senders[0], c * g.duration, (c + 1) * g.duration, 1.0)
        for (g, task), c in zip(tasks, colours, strict=True)
    ]


def colour_edges(edges: Sequence[tuple[Hashable, Hashable]]) -> list[int]:
    """A colour for every edge of a bipartite multigraph, as few as its largest degree (Koenig).

    Edges that meet get different colours. An edge whose ends have no free colour in common gets
    one by swapping two colours along the path that starts at its second end.

    >>> colour_edges([("a", 0), ("a", 1), ("b", 0), ("b", 1)])
    [0, 1, 1, 0]
    """
    degree = Counter(node for edge in edges for node in enumerate(edge))
    free = dict.fromkeys(degree, (1 << max(degree.values(), default=0)) - 1)
    held: dict[tuple[int, Hashable], dict[int, int]] = {node: {} for node in degree}
    colour = [0] * len(edges)
    for i, edge in enumerate(edges):
        u, v = enumerate(edge)
        common = free[u] & free[v]
        if not common:
            a, b = _lowest(free[u]), _lowest(free[v])
            path, wanted = [v], a
            while wanted in held[path[-1]]:
                j = held[path[-1]][wanted]
                wanted = colour[j] = b if wanted == a else a
                side = 1 - path[-1][0]
                path.append((side, edges[j][side]))
            for node in path:
                before = ((b, held[node].pop(a, None)), (a, held[node].pop(b, None)))
                held[node].update({c: j for c, j in before if j is not None})
            for node in (v, path[-1]):
                free[node] ^= 1 << a | 1 << b
            common = 1 << a
        colour[i] = _lowest(common)
        for node in (u, v):
            held[node][colour[i]] = i
            free[node] &= ~(1 << colour[i])
    return colour


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


class _Search:
    """The best schedule and bound so far, and the stages that improve them."""

    def __init__(self, problem: Problem, budget: Budget, seed: int) -> None:
        self.problem, self.budget, self.seed = problem, budget, seed
        self.groups = problem.groups
        self.unit = common_unit(g.duration for g in self.groups)
        self.bound = problem.unsplit_bound
        self.best: list[Assignment] = []
        self.notes: list[str] = []
        self.tables = tables_of(self.groups)

    def few_passes(self) -> None:
        """List scheduling, a handful of passes."""
        self.best = best_of_restarts(self.tables, self.bound, self.budget.part(0.1), self.seed)
        self.notes.append("list scheduling by most remaining load")
        if not meets(span(self.best), self.bound):
            self._keep(list_schedule(self.problem, *load_balance(self.problem)), "longest first")

    def insertion(self) -> None:
        """List scheduling with insertion, where tasks hold several receivers that others need."""
        if self.problem.receivers_overlap:
            widest = insert_widest(self.groups, self.bound, self.budget.part(0.1), self.seed)
            self._keep(widest, "insertion, widest first")

    def sender_loads(self) -> None:
        """Raise the bound to the least largest load of whole tasks on a sender."""
        choices = sum(len(g.senders) for g in self.groups)
        if choices == len(self.groups):
            return
        if self._too_many(choices, CHOICES_A_SECOND, "the program of sender loads", "choices"):
            return
        bound, dealt = least_largest_load(self.groups, self.budget.slot(0.2).left_s)
        self._raise(bound, "sender loads of whole tasks")
        if dealt is not None:
            self.tables.insert(0, GroupTable(dealt))
            self._keep(dispatch(self.tables[0]), "balanced senders of whole tasks")

    def configurations(self) -> None:
        """Raise the bound by the configuration program; for equal durations also use it."""
        if not self.problem.receivers_overlap:
            return
        groups = len(self.groups)
        if self._too_many(groups, GROUPS_A_SECOND, "the configuration program", "groups"):
            return
        bound, columns = generate(self.groups, self.best, self.budget.slot(0.7))
        self._raise(bound, "the configuration program")
        equal = len({g.duration for g in self.groups}) == 1
        if equal and not meets(span(self.best), self.bound):
            slots = slot_schedule(self.groups, columns, self.budget.slot(0.4).left_s)
            if slots is not None:
                self._keep(slots, "slots from the configuration program")

    def more_passes(self) -> None:
        """List scheduling with many restarts."""
        again = best_of_restarts(self.tables, self.bound, self.budget.part(0.15), self.seed + 1)
        self._keep(again, "restarts of list scheduling")

    def constraint_programming(self) -> None:
        """CP-SAT, if it is installed and the model is of a size it can search."""
        if not cpsat.available():
            self.notes.append(
                "the CP-SAT stage was left out: ortools is not installed "
                "(pip install 'reshard-lab[solve]')"
            )
            return
        if not cpsat.loads_within(self.budget.left_s):
            self.notes.append(
                "the CP-SAT stage was left out: too little time is left to load ortools, "
                f"raise time_limit_s (given: {self.budget.limit_s:g}) or load it before"
            )
            return
        size = cpsat.intervals(self.groups)
        if self._too_many(size, cpsat.INTERVALS_A_SECOND, "the CP-SAT stage", "intervals"):
            return
        order, bound = cpsat.search(self.groups, self.best, self.bound, self.budget, self.seed)
        self._raise(bound, "CP-SAT")
        if order is not None:
            senders = [options[0] for options in self.problem.senders]
            for task, sender in order:
                senders[task] = sender
            self._keep(list_schedule(self.problem, [task for task, _ in order], senders), "CP-SAT")

    def _too_many(self, size: int, a_second: float, stage: str, what: str) -> bool:
        if size <= self.budget.steps(a_second):
            return False
        self.notes.append(
            f"{stage} was left out: {size} {what} are too many for {self.budget.limit_s:g} s"
        )
        return True

    def _keep(self, assignments: list[Assignment], by: str) -> None:
        if span(assignments) < span(self.best) * (1 - 1e-12):
            self.best = assignments
            self.notes.append(f"improved by {by}")

    def _raise(self, bound: float, by: str) -> None:
        bound = min(round_up(bound, self.unit), span(self.best))
        if bound > self.bound * (1 + 1e-9):
            self.bound = bound
            self.notes.append(f"bound raised by {by}")
