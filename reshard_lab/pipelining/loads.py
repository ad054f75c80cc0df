"""Tensors that cross between stages, how long ops and transfers take, and the NICs they share."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, check_each
from reshard_lab.planning import Plan, plan
from reshard_lab.planning.nics import traffic
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
    return [parse_seconds(value, name) for name, value in _named(what, given, count, unit)]


def transfer_loads(what: str, given: Moves, links: Sequence[str], strategy: str) -> list[Load]:
    """The load of every link's transfer; ``links`` names them, as ``"0>1"``."""
    if len(links) > 1 and isinstance(given, (ReshardingTask, Plan)):
        raise ReshardError(
            f"{what} is one {type(given).__name__}, but the schedule has {len(links)} links "
            f"({', '.join(links)}); give one a link"
        )
    named = _named(what, given, len(links), "link")
    return [transfer_load(name, move, strategy) for name, move in named]


def transfer_load(what: str, move: Move, strategy: str) -> Load:
    """The load of one transfer; a tensor is planned on its cluster under ``strategy``."""
    tasks = move if isinstance(move, (list, tuple)) else (move,)
    if tasks and all(isinstance(task, ReshardingTask) for task in tasks):
        move = plan(tasks, strategy=strategy)
    if isinstance(move, (list, tuple)):
        raise ReshardError(
            f"{what} must be seconds, a ReshardingTask, a list of them or a Plan, not {move!r}"
        )
    if not isinstance(move, Plan):
        return Load(parse_seconds(move, what))
    # Of each NIC: the bytes through it over what it could move during the plan
    duration = move.makespan_s
    shares = {
        (nic.side, nic.nic): nic.nbytes / (move.cluster.host_nic_Bps[nic.host] * duration)
        for nic in traffic(move).loads
        if duration > 0
    }
    return Load(duration, tuple((port, min(1.0, s)) for port, s in sorted(shares.items()) if s))


def tasks_in(moves: Moves | None) -> list[ReshardingTask]:
    """Every tensor that is moved in ``moves``."""
    if isinstance(moves, Plan):
        return list(moves.tasks)
    if isinstance(moves, (list, tuple)):
        return [task for move in moves for task in tasks_in(move)]
    return [moves] if isinstance(moves, ReshardingTask) else []


def reverse(moves: Any) -> Any:
    """What brings the gradients back: reshardings from destination to source, seconds as given."""
    if isinstance(moves, ReshardingTask):
        return ReshardingTask(moves.shape, moves.dtype, moves.dst, moves.src, moves.cluster)
    if isinstance(moves, Plan):
        tasks = [reverse(task) for task in moves.tasks]
        return plan(tasks, moves.strategy, moves.scheduler, moves.chunks, moves.seed)
    if isinstance(moves, (list, tuple)):
        return [reverse(move) for move in moves]
    return moves


def _named(what: str, given: Any, count: int, unit: str) -> list[tuple[str, Any]]:
    """``count`` entries with their names in messages: of a list, or of one value for all."""
    if hasattr(given, "tolist"):  # a numpy array
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        return [(what, given)] * count
    values = check_each(what, given, count, unit, "the schedule")
    return [(f"{what}[{i}]", value) for i, value in enumerate(values)]
