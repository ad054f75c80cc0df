"""Bipartite open shops: senders on one side, receivers on the other, one task at a time each.

Unit tasks: edge colouring (Koenig: as many colours as the largest degree). Preemptive: a
decomposition into phases in the way of Birkhoff (as long as the largest load). Both reach the
trivial lower bound, so both are optimal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

Node = tuple[int, Any]
"""(side, node) of an edge; of a cell (0, a row or column) or (1, the idle partner of one)."""
Left = TypeVar("Left", bound=Hashable)
Right = TypeVar("Right", bound=Hashable)


def colour_edges(edges: Sequence[tuple[Hashable, Hashable]]) -> list[int]:
    """A colour for every edge of a bipartite multigraph, as few as its largest degree.

    Edges that meet get different colours. An edge whose ends have no free colour in common gets
    one by swapping two colours along the path that starts at its second end.

    >>> colour_edges([("a", 0), ("a", 1), ("b", 0), ("b", 1)])
    [0, 1, 1, 0]
    """
    degree = Counter(node for edge in edges for node in enumerate(edge))
    free = dict.fromkeys(degree, (1 << max(degree.values(), default=0)) - 1)
    held: dict[Node, dict[int, int]] = {node: {} for node in degree}
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


def decompose(
    cells: Mapping[tuple[Left, Right], int],
) -> Iterator[tuple[int, list[tuple[Left, Right]]]]:
    """Phases (ticks, cells served side by side) that serve every cell for its ticks.

    The phases take the least total time; in each every row and column has at most one partner.

    The total is the largest row or column sum. Rows and columns are filled up to that sum with
    idle cells, so that a perfect matching of what is left always exists; each phase takes one
    whose smallest cell is within a factor of two of the largest possible, and keeps to the one
    before where it can.

    >>> for ticks, pairs in decompose({("a", 0): 2, ("b", 0): 1, ("b", 1): 2}):
    ...     print(ticks, sorted(pairs))
    2 [('a', 0), ('b', 1)]
    1 [('b', 0)]
    """
    rows: Counter[Left] = Counter()
    columns: Counter[Right] = Counter()
    edges: list[tuple[Node, Node, int]] = []
    for (a, b), ticks in cells.items():
        rows[a] += ticks
        columns[b] += ticks
        edges += [((0, a), (0, b), ticks), ((1, b), (1, a), ticks)]
    length = max([*rows.values(), *columns.values()], default=0)
    edges += [((0, a), (1, a), length - total) for a, total in rows.items()]
    edges += [((1, b), (0, b), length - total) for b, total in columns.items()]
    left: dict[Node, dict[Node, int]] = {}
    for u, v, ticks in edges:
        if ticks:
            left.setdefault(u, {})[v] = ticks
    least = max((ticks for _, _, ticks in edges), default=1)
    right_of: dict[Node, Node] = {}
    left_of: dict[Node, Node] = {}
    done = 0
    while done < length:
        while not all(u in right_of or _augment(u, left, least, right_of, left_of) for u in left):
            least = max(1, least // 2)
        phase = min(left[u][v] for u, v in right_of.items())
        yield phase, [(u[1], v[1]) for u, v in right_of.items() if u[0] == v[0] == 0]
        done += phase
        for u, v in list(right_of.items()):
            left[u][v] -= phase
            if left[u][v] < least:
                del right_of[u], left_of[v]
            if not left[u][v]:
                del left[u][v]


def _augment(
    start: Node,
    left: dict[Node, dict[Node, int]],
    least: int,
    right_of: dict[Node, Node],
    left_of: dict[Node, Node],
) -> bool:
    """Match ``start`` along an alternating path (breadth first) of at least ``least`` ticks."""
    came: dict[Node, Node] = {}
    queue = [start]
    for u in queue:
        for v, ticks in left[u].items():
            if ticks < least or v in came:
                continue
            came[v] = u
            if v not in left_of:
                end: Node | None = v
                while end is not None:
                    u = came[end]
                    before = right_of.get(u)
                    right_of[u], left_of[end] = end, u
                    end = before
                return True
            queue.append(left_of[v])
    return False
