"""The fluid lower bound of a set of unit tasks, on plain numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np


def fluid_bound(
    durations: Sequence[float],
    senders: Sequence[tuple[Hashable, ...]],
    receivers: Sequence[tuple[Hashable, ...]],
) -> float:
    """Seconds (or bytes, as ``durations``) no schedule can beat.

    The larger of the most that any receiver must take in, and the least possible largest load
    of a sender when every task may be shared out among its senders in any fractions (the linear
    relaxation of equation 4). A task without receivers moves nothing.
    """
    incoming: dict[Hashable, float] = {}
    loads: dict[tuple[Hashable, ...], float] = {}
    for duration, allowed, targets in zip(durations, senders, receivers, strict=True):
        if not targets or not duration:
            continue
        key = tuple(sorted(set(allowed)))  # type: ignore[type-var]
        loads[key] = loads.get(key, 0.0) + duration
        for target in targets:
            incoming[target] = incoming.get(target, 0.0) + duration
    return max(max(incoming.values(), default=0.0), fractional_sender_load(loads))


def fractional_sender_load(loads: Mapping[tuple[Hashable, ...], float]) -> float:
    """Least possible largest sender load, ``loads`` being the total by set of allowed senders."""
    groups = [(frozenset(key), total) for key, total in loads.items()]
    if not groups:
        return 0.0
    members = [s for key, _ in groups for s in key]
    if len(members) == len(set(members)):  # the sets are disjoint: each shares out on its own
        return max(total / len(key) for key, total in groups)
    return _by_linear_program(groups)


def _by_linear_program(groups: list[tuple[frozenset[Hashable], float]]) -> float:
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    hosts = {h: i for i, h in enumerate(sorted({h for key, _ in groups for h in key}))}  # type: ignore[type-var]
    pairs = [(g, hosts[h]) for g, (key, _) in enumerate(groups) for h in sorted(key)]  # type: ignore[type-var]
    scale = max(total for _, total in groups)
    n = len(pairs)
    group, host = np.array(pairs).T
    column = np.arange(n)
    # Variables: the share of each (group, sender), then the largest load.
    shares = csr_array((np.ones(n), (group, column)), shape=(len(groups), n + 1))
    load = csr_array(
        (
            np.concatenate([np.ones(n), -np.ones(len(hosts))]),
            (
                np.concatenate([host, np.arange(len(hosts))]),
                np.concatenate([column, np.full(len(hosts), n)]),
            ),
        ),
        shape=(len(hosts), n + 1),
    )
    cost = np.zeros(n + 1)
    cost[n] = 1
    result = linprog(
        cost,
        A_ub=load,
        b_ub=np.zeros(len(hosts)),
        A_eq=shares,
        b_eq=np.array([total / scale for _, total in groups]),
        method="highs",
    )
    return float(result.x[n]) * scale
