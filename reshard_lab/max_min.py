"""Max-min fair sharing of ports among flows."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

_SAME = 1 + 1e-12
"""Levels within this factor are one level."""
_DENSE = 512
"""Open flows from which closing single ports can pay."""


def max_min(
    ports: np.ndarray,
    capacity: np.ndarray,
    cap: np.ndarray,
    leader: np.ndarray | None = None,
    gain: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """The rate of every flow: none can have more unless a flow that has no more gets less.

    ports:
        (flows, p) port numbers; a flow on fewer than p ports fills up with a port of infinite
        capacity.
    capacity:
        (ports,) in the unit of the rates; may be infinite.
    cap:
        (flows,) the most a flow takes however much is free; finite.
    leader, gain:
        (flows,) flow f gets at most ``gain[f]`` times the rate of flow ``leader[f]``, which comes
        before it; -1 = no leader. While its leader's rate is open, a flow is filled at
        ``min(1, gain)`` times its leader's pace.
    weight:
        (flows, p) what a flow takes of each of its ports at rate 1; 1 unless given.

    >>> max_min(np.array([[0, 2], [0, 1], [1, 2]]), np.array([1.0, 1.25, np.inf]), np.full(3, 9.0))
    array([0.5 , 0.5 , 0.75])
    """
    fill = _Filling(ports, capacity, cap, leader, gain, weight)
    flows = np.arange(len(cap))
    while len(flows):
        closed = fill.round(flows)
        flows = flows[~closed]
        if len(flows) > _DENSE and 16 * closed.sum() < len(flows):
            fill.port_by_port(flows)
            break
    return fill.rate


class PortTable(NamedTuple):
    """Which flow uses which ports of capacity 1, as ``max_min`` takes it."""

    ports: np.ndarray
    """(flows, p) port numbers; rows of fewer ports are filled up with one of infinite capacity."""
    weight: np.ndarray
    """(flows, p) part of each port that the flow takes at rate 1."""
    capacity: np.ndarray


def port_table(flows: Sequence[Sequence[tuple[Hashable, float]]]) -> PortTable:
    """The table of flows given as (port, part of it that the flow takes at rate 1)."""
    number: dict[Hashable, int] = {}
    for uses in flows:
        for port, _ in uses:
            number.setdefault(port, len(number))
    shape = len(flows), max([1, *map(len, flows)])
    ports, weight = np.full(shape, len(number)), np.zeros(shape)
    for row, uses in enumerate(flows):
        for column, (port, part) in enumerate(uses):
            ports[row, column], weight[row, column] = number[port], part
    return PortTable(ports, weight, np.append(np.ones(len(number)), np.inf))


def headroom(ports: np.ndarray, capacity: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """The rate each flow could have on its ports if it were not held back elsewhere.

    On a port with capacity to spare that is all of it; on a full one as much as the largest flow.
    """
    each = np.broadcast_to(rate[:, None], ports.shape)
    used = np.bincount(ports.ravel(), weights=each.ravel(), minlength=len(capacity))
    largest = np.zeros(len(capacity))
    np.maximum.at(largest, ports.ravel(), each.ravel())
    spare = np.where(used < capacity * (1 - 1e-9), capacity - used, 0.0)
    return np.maximum(largest[ports], each + spare[ports]).min(axis=1)


class _Filling:
    """Progressive filling: all open flows rise alike until a port or a cap stops some of them."""

    def __init__(
        self,
        ports: np.ndarray,
        capacity: np.ndarray,
        cap: np.ndarray,
        leader: np.ndarray | None,
        gain: np.ndarray | None,
        weight: np.ndarray | None,
    ) -> None:
        self.ports, self.weight = ports, weight
        self.left = capacity.astype(float)
        self.cap = cap.astype(float)
        self.rate = np.zeros(len(cap))
        self.open = np.ones(len(cap), dtype=bool)
        self.pace = np.ones(len(cap))
        self.led = np.zeros(0, dtype=np.int64)
        if leader is not None and gain is not None:
            self.leader, self.gain = leader, gain
            self.led = np.flatnonzero(leader >= 0)
            self._hand_down(self.pace, gain)

    def round(self, flows: np.ndarray) -> np.ndarray:
        """Close every port none of whose open flows is held to a lower level elsewhere.

        Returns which of the open ``flows`` got their rate.
        """
        at, pace = self.ports[flows], self.pace[flows]
        load = self._totals(at, self._taken(flows, pace))
        level = np.full(len(self.left), np.inf)
        np.divide(self.left, load, out=level, where=load > 0)
        own, limit = level[at], self.cap[flows] / pace
        reach = np.minimum(limit, own.min(axis=1))
        if len(self.led):
            everywhere = np.full(len(self.cap), np.inf)
            everywhere[flows] = reach
            self._hand_down(everywhere, np.ones(len(self.cap)))
            reach = everywhere[flows]
        held = own > (reach * _SAME)[:, None]
        stays = self._totals(at, held) > 0
        closing = (limit <= reach * _SAME) | ~(held | stays[at]).all(axis=1)
        if not closing.any():  # only by rounding: the lowest level is always due
            closing = reach <= reach.min() * (1 + 1e-9)
        closed, rate = flows[closing], (reach * pace)[closing]
        self._close(closed, rate, self._totals(at[closing], self._taken(closed, rate)))
        return closing

    def port_by_port(self, flows: np.ndarray) -> None:
        """The same one level at a time: cheaper where most ports share flows with most others."""
        at = self.ports[flows]
        order = np.argsort(at, axis=None, kind="stable")
        user = flows[order // at.shape[1]]
        first = np.searchsorted(at.ravel()[order], np.arange(len(self.left) + 1))
        load = self._totals(at, self._taken(flows, self.pace[flows]))
        count = np.bincount(at.ravel(), minlength=len(self.left))
        level = np.full(len(self.left), np.inf)
        limit = np.full(len(self.cap), np.inf)
        limit[flows] = self.cap[flows] / self.pace[flows]
        lowest = limit.min()
        height = 0.0
        remaining = len(flows)
        while remaining:
            np.divide(self.left, load, out=level, where=count > 0)
            port = level.argmin()
            height = max(height, min(level[port], lowest))
            if level[port] <= height:
                group = user[first[port] : first[port + 1]]
                group = group[self.open[group]]
            else:
                group = np.flatnonzero(limit <= height * _SAME)
            at, pace = self.ports[group], self.pace[group]
            taken = self._totals(at, self._taken(group, pace))
            followers = self._close(group, height * pace, height * taken)
            load -= taken
            count -= np.bincount(at.ravel(), minlength=len(count))
            level[count == 0] = np.inf
            limit[group] = np.inf
            limit[followers] = self.cap[followers] / self.pace[followers]
            lowest = limit.min()
            remaining -= len(group)

    def _close(self, flows: np.ndarray, rate: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Fix the rates of ``flows``; returns the open flows that their leaders now cap."""
        self.rate[flows] = rate
        self.left = np.maximum(self.left - used, 0.0)
        self.open[flows] = False
        if not len(self.led):
            return self.led
        self.led = self.led[self.open[self.led]]
        follows = ~self.open[self.leader[self.led]]
        capped, self.led = self.led[follows], self.led[~follows]
        cap = self.gain[capped] * self.rate[self.leader[capped]]
        self.cap[capped] = np.minimum(self.cap[capped], cap)
        return capped

    def _hand_down(self, values: np.ndarray, factor: np.ndarray) -> None:
        """Lower every led flow's value to ``factor`` times its leader's, down whole chains."""
        led = self.led
        while True:
            new = np.minimum(values[led], factor[led] * values[self.leader[led]])
            if np.array_equal(new, values[led]):
                return
            values[led] = new

    def _taken(self, flows: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """What ``flows`` take of their ports at ``rate``."""
        return rate if self.weight is None else rate[:, None] * self.weight[flows]

    def _totals(self, ports: np.ndarray, amount: np.ndarray) -> np.ndarray:
        """Sum of ``amount`` (a flow's, or one for each of its ports) by port."""
        each = amount if amount.ndim == 2 else np.broadcast_to(amount[:, None], ports.shape)
        return np.bincount(ports.ravel(), weights=each.ravel(), minlength=len(self.left))
