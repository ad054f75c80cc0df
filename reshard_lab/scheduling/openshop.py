"""Bipartite open shops: senders on one side, receivers on the other, one task at a time each.

Unit tasks: edge colouring (Koenig: as many colours as the largest degree). Preemptive: a
decomposition into phases in the way of Birkhoff (as long as the largest load). Both reach the
trivial lower bound, so both are optimal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar


def colour_edges(edges: Sequence[tuple[Hashable, Hashable]]) -> list[int]:
    """A colour for every edge of a bipartite multigraph, as few as its largest degree.

    Edges that meet get different colours. An edge whose ends have no free colour in common gets
    one by swapping two colours along the path that starts at its second end.

    >>> colour_edges([("a", 0), ("a", 1), ("b", 0), ("b", 1)])
    [0, 1, 1, 0]
    """
    degree: dict[tuple[int, Hashable], int] = {}
    for edge in edges:
        for node in enumerate(edge):
            degree[node] = degree.get(node, 0) + 1
    everything = (1 << max(degree.values(), default=0)) - 1
    free = dict.fromkeys(degree, everything)
    held: dict[tuple[int, Hashable], dict[int, int]] = {node: {} for node in degree}
    colour = [0] * len(edges)
    for i, edge in enumerate(edges):
        u, v = (0, edge[0]), (1, edge[1])
        common = free[u] & free[v]
        if not common:
            a, b = _lowest(free[u]), _lowest(free[v])
            _swap(edges, v, a, b, free, held, colour)
            common = 1 << a
        chosen = _lowest(common)
        colour[i] = chosen
        for node in (u, v):
            held[node][chosen] = i
            free[node] &= ~(1 << chosen)
    return colour


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _swap(
    edges: Sequence[tuple[Hashable, Hashable]],
    start: tuple[int, Hashable],
    a: int,
    b: int,
    free: dict[tuple[int, Hashable], int],
    held: dict[tuple[int, Hashable], dict[int, int]],
    colour: list[int],
) -> None:
    """Swap colours ``a`` and ``b`` on the path from ``start``, which has ``b`` free, not ``a``."""
    nodes, wanted = [start], a
    while wanted in held[nodes[-1]]:
        i = held[nodes[-1]][wanted]
        wanted = colour[i] = b if wanted == a else a
        side = 1 - nodes[-1][0]
        nodes.append((side, edges[i][side]))
    for node in nodes:
        before = ((b, held[node].pop(a, None)), (a, held[node].pop(b, None)))
        held[node].update({c: i for c, i in before if i is not None})
    for node in (start, nodes[-1]):
        free[node] ^= 1 << a | 1 << b


Node = tuple[int, Any]
"""(0, a row or column) or (1, the idle partner of one)."""
Left = TypeVar("Left", bound=Hashable)
Right = TypeVar("Right", bound=Hashable)


class Matched(NamedTuple, Generic[Left, Right]):
    """Pairs served side by side for some ticks: every node has at most one partner."""

    ticks: int
    pairs: tuple[tuple[Left, Right], ...]


def decompose(cells: Mapping[tuple[Left, Right], int]) -> Iterator[Matched[Left, Right]]:
    """Phases that serve every cell (left, right) for its ticks, in the least total time.

    The total is the largest row or column sum. Rows and columns are filled up to that sum with
    idle cells, so that a perfect matching of what is left always exists; each phase takes one
    whose smallest cell is within a factor of two of the largest possible.

    >>> for phase in decompose({("a", 0): 2, ("b", 0): 1, ("b", 1): 2}):
    ...     print(phase.ticks, sorted(phase.pairs))
    2 [('a', 0), ('b', 1)]
    1 [('b', 0)]
    """
    rows: dict[Left, int] = {}
    columns: dict[Right, int] = {}
    for (a, b), ticks in cells.items():
        rows[a] = rows.get(a, 0) + ticks
        columns[b] = columns.get(b, 0) + ticks
    length = max([*rows.values(), *columns.values()], default=0)
    weight: dict[Node, dict[Node, int]] = {}

    def add(left: Node, right: Node, ticks: int) -> None:
        if ticks:
            weight.setdefault(left, {})[right] = ticks

    for (a, b), ticks in cells.items():
        add((0, a), (0, b), ticks)
        add((1, b), (1, a), ticks)
    for a, total in rows.items():
        add((0, a), (1, a), length - total)
    for b, total in columns.items():
        add((1, b), (0, b), length - total)
    matching = _Matching(weight)
    done = 0
    while done < length:
        matching.complete()
        ticks = min(weight[left][right] for left, right in matching.right_of.items())
        pairs = tuple(
            (left[1], right[1])
            for left, right in matching.right_of.items()
            if left[0] == 0 and right[0] == 0
        )
        yield Matched(ticks, pairs)
        done += ticks
        matching.take(ticks)


class _Matching:
    """A perfect matching on the cells of at least ``least`` ticks, kept from phase to phase."""

    def __init__(self, weight: dict[Node, dict[Node, int]]) -> None:
        self.weight = weight
        self.right_of: dict[Node, Node] = {}
        self.left_of: dict[Node, Node] = {}
        self.least = max((t for row in weight.values() for t in row.values()), default=1)

    def complete(self) -> None:
        """Match every node, lowering the threshold by halves where there is no other way."""
        while True:
            for left in self.weight:
                if left not in self.right_of and not self._augment(left):
                    break
            else:
                return
            self.least = max(1, self.least // 2)

    def take(self, ticks: int) -> None:
        """Take ``ticks`` off every matched cell; pairs that fall under the threshold part."""
        for left, right in list(self.right_of.items()):
            row = self.weight[left]
            row[right] -= ticks
            if row[right] < self.least:
                del self.right_of[left], self.left_of[right]
            if not row[right]:
                del row[right]

    def _augment(self, start: Node) -> bool:
        """Match ``start`` along an alternating path (breadth first)."""
        came: dict[Node, Node] = {}
        queue = [start]
        for left in queue:
            for right, ticks in self.weight[left].items():
                if ticks < self.least or right in came:
                    continue
                came[right] = left
                if right not in self.left_of:
                    end: Node | None = right
                    while end is not None:
                        before = self.right_of.get(came[end])
                        self.right_of[came[end]], self.left_of[end] = end, came[end]
                        end = before
                    return True
                queue.append(self.left_of[right])
        return False
