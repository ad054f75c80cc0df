"""The hops of a plan as one table, and what each of them waits for.

Everything that goes through a plan hop by hop reads this table: verification, programs, traffic,
the simulator, the runtime's rounds.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.transfer import Step, Transfer


class Wait(IntEnum):
    """Why one hop waits for another."""

    CHAIN = 0
    """It passes on what the hop before it in its transfer brings, chunk by chunk."""
    AFTER = 1
    """The first hop of a transfer, for the last hop of one that it comes ``after``."""
    SEND_LANE = 2
    """A device sends one thing after another."""
    RECEIVE_LANE = 3
    """A device takes in one thing after another."""


@dataclass(frozen=True, eq=False)
class Waits:
    """A directed graph on the rows of a table: the edges ``earlier -> later``, by earlier row.

    Edge ``e`` says that row ``earlier[e]`` is complete before row ``later[e]`` is (before it
    starts, unless the edge is a ``Wait.CHAIN``). The edges of row ``i`` are those from
    ``offsets[i]`` up to ``offsets[i + 1]``, in the order of ``kind``, then of the later transfer.
    """

    earlier: np.ndarray
    """(edges,)"""
    later: np.ndarray
    """(edges,)"""
    kind: np.ndarray
    """(edges,) values of ``Wait``"""
    offsets: np.ndarray
    """(rows + 1,)"""

    @classmethod
    def of(cls, rows: int, earlier: np.ndarray, later: np.ndarray, kind: np.ndarray) -> Waits:
        """The graph of edges given in any order; those of one row keep it."""
        order = np.argsort(earlier, kind="stable")
        offsets = np.searchsorted(earlier[order], np.arange(rows + 1))
        return cls(earlier[order], later[order], kind[order], offsets)

    def order(self) -> list[int]:
        """Rows so that each comes after all it waits for, breadth first (Kahn's algorithm).

        Rows on a cycle, and those that wait for one, are left out.
        """
        offsets, later = self.offsets.tolist(), self.later.tolist()
        left = np.bincount(self.later, minlength=len(offsets) - 1).tolist()
        order = [row for row, count in enumerate(left) if not count]
        for row in order:
            for then in later[offsets[row] : offsets[row + 1]]:
                left[then] -= 1
                if not left[then]:
                    order.append(then)
        return order

    def cycle(self) -> list[int]:
        """Rows of one cycle, each waiting for the next; there must be one."""
        stuck = np.ones(len(self.offsets) - 1, dtype=bool)
        stuck[self.order()] = False
        blocked = stuck[self.earlier]
        blocker = dict(
            zip(self.later[blocked].tolist(), self.earlier[blocked].tolist(), strict=True)
        )
        row = int(np.argmax(stuck))
        seen: dict[int, int] = {}
        while row not in seen:
            seen[row] = len(seen)
            row = blocker[row]
        return list(seen)[seen[row] :]


@dataclass(frozen=True, eq=False)
class HopTable:
    """One row a hop, by transfer and then along its path; a local copy is one row.

    All columns are int64 of shape (rows,) unless said otherwise. Devices are those of the
    cluster; the table knows nothing of hosts and speeds.
    """

    transfers: tuple[Transfer, ...]
    ordered: bool
    """Whether devices send, and take in, one thing after another (``Plan.ordered``)."""
    transfer: np.ndarray
    """Index in ``transfers``."""
    hop: np.ndarray
    """Position in the transfer: from ``path[hop]`` to ``path[hop + 1]``; 0 for a copy."""
    source: np.ndarray
    destination: np.ndarray
    """The source itself for a local copy."""
    stage: np.ndarray
    """``Transfer.stage``: the lanes of a device go by stage, then hop, then transfer."""
    nbytes: np.ndarray
    """Bytes of the payload."""
    first: np.ndarray
    """(transfers + 1,) the rows of transfer ``t`` are ``first[t]`` to ``first[t + 1] - 1``."""

    def __len__(self) -> int:
        return len(self.transfer)

    @property
    def copies(self) -> np.ndarray:
        """(rows,) bool: whether the row is a local copy."""
        return self.source == self.destination

    @property
    def devices(self) -> np.ndarray:
        """Every device that takes part, ascending."""
        return np.union1d(self.source, self.destination)

    @cached_property
    def waits(self) -> Waits:
        """Which row waits for which.

        Along a chain, for ``after``, and in a plan with an order along the lanes of devices. A
        lane of sends and a lane of receives go by the same key, so both ends of a pair of devices
        keep one order. Without an order there are no lanes: what two devices exchange goes level
        by level of ``after``, and so waits for nothing that waits for it.
        """
        onward = np.flatnonzero(self.hop)
        pairs = [(other, t.id) for t in self.transfers for other in t.after]
        others, thens = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        edges = [
            (Wait.CHAIN, onward - 1, onward),
            (Wait.AFTER, self.first[others + 1] - 1, self.first[thens]),
        ]
        if self.ordered:
            for kind, device in (
                (Wait.SEND_LANE, self.source),
                (Wait.RECEIVE_LANE, self.destination),
            ):
                moves = np.flatnonzero(~self.copies)
                lane = moves[np.lexsort((self.hop[moves], self.stage[moves], device[moves]))]
                next_to = device[lane[1:]] == device[lane[:-1]]
                edges.append((kind, lane[:-1][next_to], lane[1:][next_to]))
        return Waits.of(
            len(self),
            np.concatenate([earlier for _, earlier, _ in edges]),
            np.concatenate([later for _, _, later in edges]),
            np.concatenate([np.full(len(later), kind, dtype=np.int8) for kind, _, later in edges]),
        )

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All rows so that each could be finished after those it waits for.

        This proves that the plan cannot deadlock. Raises ReshardError naming the transfers of a
        cycle.
        """
        order = self.waits.order()
        if len(order) < len(self):
            chain = list(dict.fromkeys(self.transfer[self.waits.cycle()].tolist()))
            raise ReshardError(
                f"{self.transfers[chain[0]].text} waits for itself: transfers "
                f"{' -> '.join(map(str, [*chain, chain[0]]))} each wait for the next to be done"
            )
        return tuple(order)

    @cached_property
    def levels(self) -> list[int]:
        """For every transfer, how many others it comes ``after``, one behind the other at most.

        In a plan without an order the transfers between two devices go level by level, those of
        one level side by side. Raises as ``order`` does.
        """
        levels = [0] * len(self.transfers)
        for number in self.transfer[list(self.order)].tolist():
            after = self.transfers[number].after
            levels[number] = max((levels[other] + 1 for other in after), default=0)
        return levels


def hops_of(transfers: Sequence[Transfer], ordered: bool) -> HopTable:
    """The table of ``transfers``, whose ids are their positions and whose paths are not empty."""
    paths = [t.path if len(t.path) > 1 else t.path * 2 for t in transfers]
    count = np.array([len(path) - 1 for path in paths], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(count)))
    transfer = np.repeat(np.arange(len(paths)), count)
    source = itertools.chain.from_iterable(path[:-1] for path in paths)
    destination = itertools.chain.from_iterable(path[1:] for path in paths)
    return HopTable(
        transfers=tuple(transfers),
        ordered=ordered,
        transfer=transfer,
        hop=np.arange(len(transfer)) - first[transfer],
        source=np.fromiter(source, dtype=np.int64, count=len(transfer)),
        destination=np.fromiter(destination, dtype=np.int64, count=len(transfer)),
        stage=np.array([t.stage for t in transfers], dtype=np.int64)[transfer],
        nbytes=np.array([t.nbytes for t in transfers], dtype=np.int64)[transfer],
        first=first,
    )


_OPS = ("copy", "send", "recv")


def programs_of(hops: HopTable, dtype_of_unit: Sequence[str]) -> Mapping[int, tuple[Step, ...]]:
    """``{device: steps}``: by stage, within a stage by hop, receive before forward."""
    copies = hops.copies
    copied, moved = np.flatnonzero(copies), np.flatnonzero(~copies)
    row = np.concatenate((copied, moved, moved))
    device = np.concatenate((hops.source[copied], hops.source[moved], hops.destination[moved]))
    peer = np.concatenate((hops.source[copied], hops.destination[moved], hops.source[moved]))
    op = np.repeat(np.arange(3), (len(copied), len(moved), len(moved)))
    order = np.lexsort((row, hops.hop[row], hops.stage[row], device))
    row = row[order]
    dtypes = [dtype_of_unit[t.unit] for t in hops.transfers]
    columns = (hops.transfer[row], peer[order], hops.nbytes[row])
    rows = zip(op[order].tolist(), *(column.tolist() for column in columns), strict=True)
    collecting = gc.isenabled()
    gc.disable()  # it would go through millions of new records again and again
    try:
        steps = [Step(_OPS[op], t, peer, nbytes, dtypes[t]) for op, t, peer, nbytes in rows]
    finally:
        if collecting:
            gc.enable()
    ends = np.searchsorted(device[order], hops.devices, side="right").tolist()
    return {
        number: tuple(steps[start:end])
        for number, start, end in zip(hops.devices.tolist(), [0, *ends], ends, strict=False)
    }
