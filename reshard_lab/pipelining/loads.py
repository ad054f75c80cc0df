"""How long ops and transfers take, and what share of which NICs a transfer takes meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.units import parse_seconds

Times = float | str | Sequence[float | str]
"""Seconds (a string such as ``"20ms"`` too): one number for all, or one each."""

Move = float | str | ReshardingTask | Plan | Sequence[ReshardingTask]
"""One transfer: its seconds, the tensor it moves, several tensors moved together, or their plan."""

Moves = Move | Sequence[Move]
"""One transfer for all links, or one each."""

Port = tuple[str, int]
"""``("tx", nic)`` or ``("rx", nic)``, NICs numbered over all hosts of the cluster."""


class BoundaryTensor(NamedTuple):
    """A tensor that one stage makes and a later one uses; its gradient comes back.

    ``from_stage`` and ``to_stage`` number model chunks where stages hold several of them, as
    interleaved schedules do.
    """

    from_stage: int
    to_stage: int
    forward_transfer_s: Move = 0.0
    """What moves it, as ``pipeline.simulate`` takes it."""
    backward_transfer_s: Move | None = None
    """None: as forwards; of a resharding, the reverse one."""
    name: str = ""
    shape: tuple[int, ...] = ()
    """Of one microbatch."""
    layer: int | None = None
    """Of a skip, the layer that makes it; None: what one stage hands to the next."""

    @property
    def spec(self) -> str:
        """On a (data, operator) mesh: samples split over the data axis, replicated over the other.

        >>> BoundaryTensor(0, 1, shape=(16, 1024, 2048)).spec
        'S0RR'
        """
        return "S0" + "R" * (len(self.shape) - 1)


class Load(NamedTuple):
    """What an op or a transfer takes when nothing else runs."""

    duration_s: float
    ports: tuple[tuple[Port, float], ...] = ()
    """Ports it keeps busy, and the mean share of each one's bandwidth that it takes."""


def times(what: str, given: Times, count: int, unit: str) -> list[float]:
    """``given`` as ``count`` numbers of seconds, one a ``unit``; raises on any other length.

    >>> times("forward_s", 1, 2, "stage"), times("forward_s", ["1ms", 2], 2, "stage")
    ([1.0, 1.0], [0.001, 2.0])
    """
    return [parse_seconds(value, name) for name, value in _each(what, given, count, unit)]


def move_loads(
    what: str, given: Moves, links: Sequence[str], strategy: str, backwards: bool = False
) -> list[Load]:
    """The load of every link's transfer; ``links`` names them, as ``"0>1"``.

    ``backwards``: ``given`` is what goes forwards over the links; the loads are those of the
    gradients that come back: the same number of seconds, the reverse resharding.
    """
    if not links:
        _each(what, given, 0, "link")
        return []
    if len(links) > 1 and isinstance(given, (ReshardingTask, Plan)):
        raise ReshardError(
            f"{what} is one {type(given).__name__}, but the schedule has {len(links)} links "
            f"({', '.join(links)}); give one a link"
        )
    turn: Callable[[Move], Move] = reverse if backwards else lambda move: move
    return [
        load(name, turn(move), strategy) for name, move in _each(what, given, len(links), "link")
    ]


def load(what: str, move: Move, strategy: str) -> Load:
    """The load of one transfer; a tensor is planned on its cluster under ``strategy``."""
    tasks = move if isinstance(move, (list, tuple)) else (move,)
    if isinstance(move, Plan):
        return _plan_load(move)
    if tasks and all(isinstance(task, ReshardingTask) for task in tasks):
        return _plan_load(plan(tasks, strategy=strategy))
    if isinstance(move, (list, tuple)):
        raise ReshardError(
            f"{what} must be seconds, a ReshardingTask, a list of them or a Plan, not {move!r}"
        )
    return Load(parse_seconds(move, what))


def tasks_in(moves: Moves | None) -> list[ReshardingTask]:
    """Every tensor that is moved in ``moves``."""
    if isinstance(moves, ReshardingTask):
        return [moves]
    if isinstance(moves, Plan):
        return list(moves.tasks)
    if isinstance(moves, (list, tuple)):
        return [task for move in moves for task in tasks_in(move)]
    return []


def reverse(move: Move) -> Move:
    """What brings the gradient back: the resharding from destination to source."""
    if isinstance(move, Plan):
        tasks = [_reverse_task(task) for task in move.tasks]
        return plan(tasks, move.strategy, move.scheduler, move.chunks, move.seed)
    if isinstance(move, ReshardingTask):
        return _reverse_task(move)
    if isinstance(move, (list, tuple)):
        return [_reverse_task(t) if isinstance(t, ReshardingTask) else t for t in move]
    return move


def _reverse_task(task: ReshardingTask) -> ReshardingTask:
    return ReshardingTask(task.shape, task.dtype, task.dst, task.src, task.cluster)


def _plan_load(made: Plan) -> Load:
    """Makespan of a plan, and the bytes through each NIC over what it could move meanwhile."""
    cluster, duration = made.cluster, made.makespan_s
    nbytes: dict[Port, int] = {}
    for transfer in made.transfers:
        for a, b in itertools.pairwise(transfer.path):
            for port in cluster.nic_ports(a, b):
                nbytes[port] = nbytes.get(port, 0) + transfer.nbytes
    shares = {
        port: n / (cluster.host_nic_Bps[cluster.host_of_nic(port[1])] * duration)
        for port, n in nbytes.items()
        if duration > 0
    }
    return Load(duration, tuple((port, min(1.0, s)) for port, s in sorted(shares.items()) if s))


def _each(what: str, given: Any, count: int, unit: str) -> list[tuple[str, Any]]:
    """``(name, value)`` of ``count`` entries: the entries of a list, or one value for all."""
    if hasattr(given, "tolist"):  # a numpy array
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        return [(what, given)] * count
    if len(given) != count:
        raise ReshardError(
            f"{what} has {len(given)} entries, but the schedule has {count} {unit}s; "
            f"give one a {unit}, or one value for all"
        )
    return [(f"{what}[{i}]", value) for i, value in enumerate(given)]
