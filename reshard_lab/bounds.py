"""Lower bounds of a set of unit tasks, on plain numbers, and the rows of linear programs.

Two bounds are kept apart everywhere. The *fluid* bound holds for any schedule, tasks cut and
shared out at will; the *unsplit* bound holds for schedules of whole tasks only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_FINEST = 1e-6
"""Smallest common unit that counts as one, as part of the longest duration."""


class Rows:
    """Rows of a linear program by key, put together entry by entry."""

    def __init__(self, keys: Iterable[Hashable] = ()) -> None:
        self.number: dict[Hashable, int] = {key: i for i, key in enumerate(keys)}
        self._entries: list[tuple[int, int, float]] = []

    def add(self, key: Hashable, column: int, value: float = 1.0) -> None:
        """Set one coefficient; a key not met before gets the next row."""
        row = self.number.setdefault(key, len(self.number))
        self._entries.append((row, column, value))

    def matrix(self, columns: int) -> csr_array:
        """The sparse matrix of all rows."""
        from scipy.sparse import csr_array

        row, column, value = zip(*self._entries, strict=True)
        return csr_array((value, (row, column)), shape=(len(self.number), columns))


def fluid_bound(
    durations: Sequence[float],
    senders: Sequence[tuple[Hashable, ...]],
    receivers: Sequence[tuple[Hashable, ...]],
    speed: Mapping[Hashable, float] | None = None,
) -> float:
    """Seconds (or bytes, as ``durations``) no schedule can beat.

    The larger of the most that any receiver must take in, and the least possible largest load
    of a sender when every task may be shared out among its senders in any fractions (the linear
    relaxation of equation 4). A task without receivers moves nothing. ``speed`` (all 1 unless
    given) is what each sender and receiver gets done in a unit of time; it may be infinite.
    """
    speed = speed or defaultdict(lambda: 1.0)
    incoming: dict[Hashable, float] = {}
    loads: dict[tuple[Hashable, ...], float] = {}
    for duration, allowed, targets in zip(durations, senders, receivers, strict=True):
        if not targets or not duration:
            continue
        if not any(math.isinf(speed[s]) for s in allowed):
            key = tuple(sorted(set(allowed)))  # type: ignore[type-var]
            loads[key] = loads.get(key, 0.0) + duration
        for target in targets:
            incoming[target] = incoming.get(target, 0.0) + duration
    largest = max((total / speed[target] for target, total in incoming.items()), default=0.0)
    return max(largest, fractional_sender_load(loads, speed))


def unsplit_bound(durations: Iterable[float], fluid: float) -> float:
    """What whole tasks add to the ``fluid`` bound, ``durations`` being those of moving tasks.

    No schedule is shorter than its longest task. And where all durations are multiples of one
    unit, so is every start in a schedule that leaves no needless gap, and so is the makespan.
    """
    distinct = set(durations)
    return round_up(max(fluid, max(distinct, default=0.0)), common_unit(distinct))


def common_unit(values: Iterable[float]) -> float | None:
    """The largest number all ``values`` (above 0) are multiples of, None where they share none.

    Euclid's algorithm on floats; a unit below a millionth of the largest value does not count.

    >>> common_unit([6.0, 4.5]), common_unit([1.0, 2**0.5])
    (1.5, None)
    """
    distinct = sorted(set(values))
    if not distinct:
        return None
    largest = distinct[-1]
    unit = distinct[0]
    for value in distinct:
        a, b = value, unit
        while b > largest * _FINEST * 1e-3:
            a, b = b, abs(a - b * round(a / b))
        unit = a
        if unit < largest * _FINEST:
            return None
    unit = largest / round(largest / unit)
    exact = all(abs(v - unit * round(v / unit)) <= 1e-9 * largest for v in distinct)
    return unit if exact else None


def round_up(bound: float, unit: float | None) -> float:
    """``bound`` raised to the next multiple of ``unit`` (less a billionth for rounding)."""
    if unit is None:
        return bound
    steps = bound / unit
    return max(bound, math.ceil(steps - max(1e-6, 1e-9 * steps)) * unit)


def fractional_sender_load(
    loads: Mapping[tuple[Hashable, ...], float], speed: Mapping[Hashable, float] | None = None
) -> float:
    """Least possible largest sender load, ``loads`` being the total by set of allowed senders."""
    speed = speed or defaultdict(lambda: 1.0)
    groups = [(frozenset(key), total) for key, total in loads.items()]
    if not groups:
        return 0.0
    senders = [s for key, _ in groups for s in key]
    if len(senders) == len(set(senders)):  # the sets are disjoint: each shares out on its own
        return max(total / math.fsum(speed[s] for s in key) for key, total in groups)
    return _by_linear_program(groups, speed)


def _by_linear_program(
    groups: list[tuple[frozenset[Hashable], float]], speed: Mapping[Hashable, float]
) -> float:
    """The linear program's value, recomputed from its dual so that rounding cannot overstate it.

    For any set U of senders, the tasks that only U may send take U at least their total over its
    speed. The level sets of an optimal dual solution contain the best such U.
    """
    from scipy.optimize import linprog

    hosts = sorted({h for key, _ in groups for h in key})  # type: ignore[type-var]
    scale = max(total for _, total in groups)
    fastest = max(speed[h] for h in hosts)
    # Columns: the share of each (group, sender), then the largest load.
    pairs = [(g, h) for g, (key, _) in enumerate(groups) for h in sorted(key)]  # type: ignore[type-var]
    largest = len(pairs)
    shares, loads = Rows(range(len(groups))), Rows(hosts)
    for column, (g, h) in enumerate(pairs):
        shares.add(g, column)
        loads.add(h, column)
    for h in hosts:
        loads.add(h, largest, -speed[h] / fastest)
    result = linprog(
        np.eye(1, largest + 1, largest)[0],
        A_ub=loads.matrix(largest + 1),
        b_ub=np.zeros(len(hosts)),
        A_eq=shares.matrix(largest + 1),
        b_eq=np.array([total / scale for _, total in groups]),
        method="highs",
    )
    weight = -np.asarray(result.ineqlin.marginals)
    best = 0.0
    for level in set(weight[weight > 0].tolist()):
        chosen = {h for h, w in zip(hosts, weight, strict=True) if w >= level}
        inside = math.fsum(total for key, total in groups if key <= chosen)
        best = max(best, inside / math.fsum(speed[h] for h in chosen))
    return best
