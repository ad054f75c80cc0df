"""No order at all: every task at once, NICs shared max-min fairly.

The baseline that any order has to beat. The completion is a prediction under ideal sharing (what
well-behaved flows tend to), and it may be below the best schedule of whole tasks one by one.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.max_min import PortTable, max_min, port_table
from reshard_lab.scheduling.problem import Budget, Problem, ports
from reshard_lab.scheduling.schedule import (
    Assignment,
    Schedule,
    Sharing,
    certified,
    with_idle,
)
from reshard_lab.scheduling.senders import one_sender_each
from reshard_lab.strategies.phases import Chain

_PACE = 1e7
"""Uses of a port by flows looked at a second, well below what a slow machine does."""
_WORK_S = 2.0
"""Work put into the ends of chains, as a time limit."""
Key = TypeVar("Key", bound=Hashable)


def concurrent(problem: Problem, budget: Budget) -> Schedule:
    """All tasks start at 0, from balanced senders; ends as predicted under max-min sharing."""
    dealt = one_sender_each(problem.groups)
    alike: dict[tuple[tuple[str, int], ...], list[tuple[float, int]]] = {}
    load: dict[tuple[str, int], float] = {}
    for g in dealt:
        nics = tuple(ports(g.senders[0], g.receivers))
        alike.setdefault(nics, []).extend((g.duration, i) for i in g.tasks)
        for nic in nics:
            load[nic] = load.get(nic, 0.0) + g.duration * len(g.tasks)
    flows = [EqualFlows(tuple((nic, 1.0) for nic in nics), tuple(f)) for nics, f in alike.items()]
    shared = share_ports(flows, budget)
    moving = [Assignment(i, g.senders[0], 0.0, shared.ends[i], 1.0) for g in dealt for i in g.tasks]
    largest = max(load.values(), default=0.0)
    notes = [f"predicted under ideal max-min sharing; the largest load of a NIC is {largest:.6g}"]
    if shared.every > 1:
        notes.append(
            f"to keep to {budget.limit_s:g} s, rates were worked out anew after every "
            f"{shared.every} ends of tasks only; what is freed in between lies idle"
        )
    assignments, bound = with_idle(problem, moving), problem.fluid_bound
    return certified("concurrent", problem, assignments, bound, None, notes, shared.sharing)


class EqualFlows(NamedTuple):
    """Flows that use the same ports alike and start together."""

    uses: tuple[tuple[Hashable, float], ...]
    """Ports, and the part of each that a flow at full speed takes."""
    flows: tuple[tuple[float, int], ...]
    """(seconds at full speed, number) of each."""


class Shared(NamedTuple):
    """What becomes of flows that share ports."""

    sharing: Sharing
    ends: dict[int, float]
    """By number of the flow."""
    every: int
    """Rates were worked out anew at every so many ends."""


def share_ports(given: Sequence[EqualFlows], budget: Budget) -> Shared:
    """Max-min fair rates over time and the end of every flow, all starting at 0.

    Equal flows run at one rate, so they end from short to long. Rates are worked out anew
    whenever flows end; less often where that would not fit the time limit: in between the
    unfinished flows keep their rates, which stay possible.
    """
    unfinished = [sorted(equal.flows, reverse=True) for equal in given]
    numbers = tuple(tuple(i for _, i in flows) for flows in unfinished)
    table = port_table([equal.uses for equal in given])
    uses = np.array([len(equal.uses) for equal in given])
    left = np.array([len(flows) for flows in unfinished], dtype=np.int64)
    goal = np.array([flows[-1][0] for flows in unfinished])
    done = np.zeros(len(given))  # what each unfinished flow has got so far
    rate = done
    now, times, rates = 0.0, [], []
    ends: dict[int, float] = {}
    ahead = sum(len({seconds for seconds, _ in flows}) for flows in unfinished)
    work = budget.steps(_PACE)
    every, since = 1, 1
    while left.any():
        if since >= every:
            rate = _rates(table, left)
            # The work of filling up port by port: a look at every use a level, until it is full.
            level = np.unique(rate[left > 0].round(12), return_inverse=True)[1]
            effort = int(uses[left > 0] @ (level + 2))
            times.append(now)
            rates.append(tuple(rate.tolist()))
            work -= effort
            every = max(every, math.ceil(ahead * effort / max(work, effort)))
            since = 0
        wait = np.full(len(given), np.inf)
        np.divide(goal - done, rate, out=wait, where=left > 0)
        step = float(wait.min())
        now += step
        done += rate * step
        for f in np.flatnonzero(wait <= step * (1 + 1e-12)).tolist():
            flows = unfinished[f]
            while flows and flows[-1][0] <= goal[f]:
                ends[flows.pop()[1]] = now
            left[f] = len(flows)
            goal[f] = flows[-1][0] if flows else np.inf
            ahead -= 1
            since += 1
    return Shared(Sharing(numbers, (*times, now), tuple(rates)), ends, every)


def shared_ends(chains: Mapping[Key, Chain], cluster: Cluster) -> dict[Key, float]:
    """Seconds at which each of ``chains`` ends, all starting at 0 and sharing their ports.

    Max-min fair. A chain at full speed moves one chunk after another over its slowest hop, and
    keeps the ports of its other hops busy for part of that time. The last chunk's way down the
    rest of the chain is slowed down as the whole chain is.
    """
    flows: list[EqualFlows] = []
    fill: list[float] = []
    for number, chain in enumerate(chains.values()):
        part = chain.payload.nbytes / chain.chunks
        hops = [(a, b, cluster.hop_s(a, b, part)) for a, b in pairwise(chain.path)]
        slowest = max(time for _, _, time in hops)
        fill.append(0.0)
        if not slowest:  # links of no latency and infinite speed
            continue
        uses = tuple(
            (port, busy / slowest)
            for a, b, _ in hops
            for port, busy in _hop_ports(a, b, part, cluster)
        )
        work = chain.chunks * slowest
        flows.append(EqualFlows(uses, ((work, number),)))
        fill[number] = (sum(time for _, _, time in hops) - slowest) / work
    ends = share_ports(flows, Budget(_WORK_S)).ends
    return {key: ends.get(i, 0.0) * (1 + fill[i]) for i, key in enumerate(chains)}


def _hop_ports(
    source: int, destination: int, nbytes: float, cluster: Cluster
) -> tuple[tuple[tuple[str, int], float], ...]:
    """The ports a hop goes through, and how long a message of ``nbytes`` needs each alone.

    Two NICs between hosts, each at its own speed; two device ports inside one, or none where
    links have no limit.
    """
    a, b = cluster.host_of(source), cluster.host_of(destination)
    if a == b and math.isinf(cluster.intra_Bps):
        return ()  # a port that nothing keeps busy is shared by any number
    if a == b:
        busy = cluster.hop_s(source, destination, nbytes)
        return (("device tx", source), busy), (("device rx", destination), busy)
    sends, takes = (cluster.nic_latency_s + nbytes / cluster.host_nic_Bps[h] for h in (a, b))
    return (("tx", cluster.nic_of(source)), sends), (("rx", cluster.nic_of(destination)), takes)


def _rates(table: PortTable, count: np.ndarray) -> np.ndarray:
    """The max-min fair rate of each of ``count`` equal flows a row, as parts of full speed."""
    rate = np.zeros(len(count))
    runs = count > 0
    weight = table.weight[runs] * count[runs, None]
    rate[runs] = max_min(table.ports[runs], table.capacity, np.ones(runs.sum()), weight=weight)
    return rate
