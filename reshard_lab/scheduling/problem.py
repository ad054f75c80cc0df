"""The scheduling problem of section 3.2, on plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshard_lab.bounds import fluid_bound, unsplit_bound
from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.resharding import ReshardingTask, need_cluster, tasks_of
from reshard_lab.scheduling.nics import Piece, duration_s, pieces_of


class Group(NamedTuple):
    """Tasks of equal duration, senders and receivers."""

    duration: float
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    tasks: tuple[int, ...]


@dataclass(frozen=True, init=False)
class Problem:
    """Unit tasks at NIC level (equations 1 to 4).

    Task ``i`` lasts ``durations[i]`` (seconds, or any one unit), is sent by one of
    ``senders[i]`` and must reach all of ``receivers[i]``. A NIC sends one task and receives one
    task at a time. A task without receivers moves nothing and takes no time on any NIC.

    >>> Problem(durations=[1.0, 2.0], senders=[(0, 1), (0,)], receivers=[(2,), (3,)]).fluid_bound
    2.0
    """

    durations: tuple[float, ...]
    senders: tuple[tuple[int, ...], ...]
    receivers: tuple[tuple[int, ...], ...]

    def __init__(
        self,
        durations: Iterable[float],
        senders: Iterable[Iterable[int]],
        receivers: Iterable[Iterable[int]],
    ) -> None:
        lasts = tuple(_duration(i, d) for i, d in enumerate(durations))
        allowed = tuple(_nics(i, "senders", s) for i, s in enumerate(senders))
        targets = tuple(_nics(i, "receivers", r) for i, r in enumerate(receivers))
        if not len(lasts) == len(allowed) == len(targets):
            raise ReshardError(
                f"{len(lasts)} durations, {len(allowed)} senders and {len(targets)} receivers "
                "given; give one of each a task"
            )
        if not math.isfinite(math.fsum(lasts) if max(lasts, default=0.0) < 1e300 else math.inf):
            raise ReshardError("the durations are too long to be added up; use a larger unit")
        for i, options in enumerate(allowed):
            if not options:
                raise ReshardError(f"task {i} has no sender; name at least one NIC that holds it")
        object.__setattr__(self, "durations", lasts)
        object.__setattr__(self, "senders", allowed)
        object.__setattr__(self, "receivers", targets)

    @classmethod
    def from_tasks(cls, tasks: Iterable[ReshardingTask]) -> Problem:
        """The unit tasks of ``tasks``, in order, boxes that stay local included.

        Durations are seconds: bytes over NIC bandwidth (where hosts differ, of the slowest
        receiver, or of the fastest sender if that is slower still). With one NIC a host, NICs are
        hosts, and there is one task for every unit task; with several, one for every part of it
        (see ``scheduling.nics``).
        """
        tasks = tasks_of(tasks)
        return cls.from_pieces(pieces_of(tasks), need_cluster(tasks))

    @classmethod
    def from_pieces(cls, pieces: Sequence[Piece], cluster: Cluster) -> Problem:
        """One task a piece, of its duration on ``cluster``."""
        return cls(
            [duration_s(p, cluster) for p in pieces],
            [p.senders for p in pieces],
            [p.receivers for p in pieces],
        )

    def __len__(self) -> int:
        return len(self.durations)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The tasks that move something; those equal in all respects grouped, never fused."""
        found: dict[tuple[float, tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for i, key in enumerate(zip(self.durations, self.senders, self.receivers, strict=True)):
            if key[0] > 0 and key[2]:
                found.setdefault(key, []).append(i)
        return tuple(Group(*key, tuple(tasks)) for key, tasks in found.items())

    @cached_property
    def idle(self) -> tuple[int, ...]:
        """The tasks that move nothing: of no length or without receivers."""
        return tuple(
            i
            for i, (lasts, to) in enumerate(zip(self.durations, self.receivers, strict=True))
            if not (lasts and to)
        )

    @cached_property
    def fluid_bound(self) -> float:
        """What no schedule can beat, tasks shared out among senders at will."""
        return fluid_bound(self.durations, self.senders, self.receivers)

    @cached_property
    def unsplit_bound(self) -> float:
        """What no schedule of whole tasks can beat: the fluid bound and what granularity adds."""
        return unsplit_bound((g.duration for g in self.groups), self.fluid_bound)

    @cached_property
    def receivers_overlap(self) -> bool:
        """Whether two receiver sets share a NIC without being equal."""
        owner: dict[int, tuple[int, ...]] = {}
        return any(
            owner.setdefault(r, g.receivers) != g.receivers
            for g in self.groups
            for r in g.receivers
        )


def _duration(task: int, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ReshardError(f"duration of task {task} must be a number, not {value!r}") from None
    if not (math.isfinite(number) and number >= 0):
        raise ReshardError(f"duration of task {task} must be finite and at least 0, not {value!r}")
    return number


def _nics(task: int, what: str, values: Iterable[int]) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ReshardError(f"{what} of task {task} must be a list of NIC numbers, not {values!r}")
    nics = []
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
            raise ReshardError(
                f"{what} of task {task} must be NIC numbers of at least 0, not {value!r}"
            )
        nics.append(value.__index__())
    if len(set(nics)) < len(nics):
        raise ReshardError(f"{what} of task {task} repeat a NIC: {nics}")
    return tuple(sorted(nics))
