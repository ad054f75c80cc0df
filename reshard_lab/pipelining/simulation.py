"""Simulate a pipeline schedule: how long it takes when transfers overlap with compute, or block."""

from __future__ import annotations

from collections.abc import Sequence

from reshard_lab.errors import ReshardError, check_bool, check_int, check_type, short
from reshard_lab.pipelining.checking import check
from reshard_lab.pipelining.engine import carry_out
from reshard_lab.pipelining.graph import build
from reshard_lab.pipelining.loads import (
    BoundaryTensor,
    Load,
    Moves,
    Times,
    load,
    move_loads,
    reverse,
    tasks_in,
    times,
)
from reshard_lab.pipelining.ops import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Lists
from reshard_lab.pipelining.timeline import PipelineTimeline
from reshard_lab.resharding import need_cluster
from reshard_lab.units import parse_bytes

_SKIP = "BoundaryTensor(from_stage, to_stage, forward_transfer_s)"
_MOST_S = 1e300
"""Longer pipelines are refused: sums, and microseconds, of their times would not be finite."""


def simulate(
    schedule: Sequence[Sequence[str]],
    forward_s: Times,
    backward_s: Times | None = None,
    forward_transfer_s: Moves = 0.0,
    backward_transfer_s: Moves | None = None,
    overlap: bool = True,
    *,
    weight_s: Times | None = None,
    skips: Sequence[BoundaryTensor] = (),
    strategy: str = "broadcast",
    activation_bytes: Sequence[int | str] | None = None,
) -> PipelineTimeline:
    """Carry out ``schedule`` in the pipeline model of section 4; returns its timeline.

    Overlapped, ops of a stage run in list order as soon as their input is there, and each pair of
    meshes that talks has a FIFO link in each direction. Not overlapped, a transfer occupies both
    meshes and all take part in one global order (``pipeline.graph``).

    schedule:
        lists of ops a stage (``pipeline.schedule`` or one's own; ``pipeline.check`` is run first).
    forward_s, backward_s:
        seconds of F and of B (= I + W), one number or one a piece of the model, in model order:
        one a stage, where a stage has one piece. ``backward_s`` is not needed for inference.
    forward_transfer_s, backward_transfer_s:
        between neighbouring pieces, one for all or one a link; entry k of the first goes from
        piece k to k + 1, entry k of the second brings its gradient from k + 1 to k. Each is a
        number of seconds; a ReshardingTask, a list of them (moved together) or a Plan, which
        take their plan's makespan under ``strategy`` and slow each other where they share NICs.
        ``backward_transfer_s=None``: as forwards, reshardings reversed. Between two pieces on one
        stage nothing is moved.
    weight_s:
        the part of ``backward_s`` that W takes; half of it unless given.
    skips:
        further tensors between pieces; on one link they follow those of neighbours.
    activation_bytes:
        bytes of one microbatch that a piece keeps for its backward, one a piece, for
        ``peak_bytes``.

    >>> from reshard_lab.pipelining import schedule
    >>> times = {"forward_s": 1, "backward_s": 2, "forward_transfer_s": 0.5}
    >>> simulate(schedule("1f1b", 2, 8), **times).makespan_s
    31.0
    >>> simulate(schedule("eager_1f1b", 2, 8), **times).makespan_s
    28.0
    >>> simulate(schedule("eager_1f1b", 2, 8), **times).peak_live
    [3, 1]
    """
    check_bool("overlap", overlap)
    checked = check(schedule)
    lists = checked.lists
    compute = compute_loads(lists, forward_s, backward_s, weight_s)
    check_type("skips", skips, Sequence, f"give a list of {_SKIP}")
    further = [_skip(i, s, lists) for i, s in enumerate(skips)]
    moves = [forward_transfer_s, backward_transfer_s]
    moves += [m for s in further for m in (s.forward_transfer_s, s.backward_transfer_s)]
    tasks = [task for move in moves for task in tasks_in(move)]
    if tasks:
        need_cluster(tasks)  # of several clusters, nobody could say which NICs are shared
    tensors = [BoundaryTensor(k, k + 1, name=f"{k}>{k + 1}") for k in range(lists.pieces - 1)]
    transfers = _neighbour_loads(lists, forward_transfer_s, backward_transfer_s, strategy)
    tensors += further
    transfers += [_skip_loads(i, s, lists.trains, strategy) for i, s in enumerate(further)]
    graph = build(checked, compute, tensors, transfers, overlap)
    starts, ends = carry_out(graph)
    if not max(ends) < _MOST_S:
        raise ReshardError(f"the times add up to more than {_MOST_S:g} s; use shorter ones")
    return PipelineTimeline(
        lists,
        bool(overlap),
        graph,
        tuple(starts),
        tuple(ends),
        tuple(tensor.name for tensor in tensors),
        _sizes(lists, activation_bytes),
    )


def _unit(lists: Lists) -> str:
    return "stage" if lists.chunks == 1 else "piece"


def compute_loads(
    lists: Lists, forward_s: Times, backward_s: Times | None, weight_s: Times | None
) -> dict[tuple[str, int], Load]:
    """The load of every kind of op, by kind and piece."""
    n, unit = lists.pieces, _unit(lists)
    forward = times("forward_s", forward_s, n, unit)
    loads = {(FORWARD, p): Load(t) for p, t in enumerate(forward)}
    if not lists.trains:
        return loads
    if backward_s is None:
        raise ReshardError(
            "backward_s is missing, but the schedule has backward ops; give their seconds, or use "
            "schedule('inference', ...)"
        )
    backward = times("backward_s", backward_s, n, unit)
    weight = [t / 2 for t in backward] if weight_s is None else times("weight_s", weight_s, n, unit)
    for p, (b, w) in enumerate(zip(backward, weight, strict=True)):
        if w > b:
            raise ReshardError(
                f"weight_s is {w} for {unit} {p}, more than its backward_s of {b}; it is the part "
                "of the backward that computes weight gradients"
            )
        loads[BACKWARD, p] = Load(b)
        loads[INPUT_GRADIENT, p] = Load(b - w)
        loads[WEIGHT_GRADIENT, p] = Load(w)
    return loads


def _neighbour_loads(
    lists: Lists, forward: Moves, backward: Moves | None, strategy: str
) -> list[tuple[Load, Load]]:
    """The loads of what goes between neighbouring pieces of the model, and of its gradients."""
    links = [f"{k}>{k + 1}" for k in range(lists.pieces - 1)]
    there = move_loads("forward_transfer_s", forward, links, strategy)
    if not lists.trains:
        back = [Load(0.0)] * len(links)
    elif backward is None:
        back = move_loads("forward_transfer_s", forward, links, strategy, backwards=True)
    else:
        back = move_loads("backward_transfer_s", backward, links, strategy)
    return list(zip(there, back, strict=True))


def _skip(number: int, skip: BoundaryTensor, lists: Lists) -> BoundaryTensor:
    """``skip``, named as timelines call it, if it goes from a piece of the model to a later one."""
    name, unit, last = f"skips[{number}]", _unit(lists), lists.pieces - 1
    try:
        tensor = BoundaryTensor(*skip)
    except TypeError:
        raise ReshardError(f"{name} must be {_SKIP}, not {short(skip)}") from None
    first = check_int(f"from_stage of {name}", tensor.from_stage)
    second = check_int(f"to_stage of {name}", tensor.to_stage)
    if not first < second <= last:
        raise ReshardError(
            f"{name} goes from {unit} {first} to {unit} {second}; a skip goes to a later {unit}, "
            f"{last} at most"
        )
    return tensor._replace(name=f"skip {first}>{second}")


def _skip_loads(
    number: int, skip: BoundaryTensor, trains: bool, strategy: str
) -> tuple[Load, Load]:
    forward, backward = skip.forward_transfer_s, skip.backward_transfer_s
    there = load(f"forward_transfer_s of skips[{number}]", forward, strategy)
    if not trains:
        return there, Load(0.0)
    back = reverse(forward) if backward is None else backward
    return there, load(f"backward_transfer_s of skips[{number}]", back, strategy)


def _sizes(lists: Lists, given: Sequence[int | str] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != lists.pieces:
        raise ReshardError(
            f"activation_bytes must be one number a {_unit(lists)}, {lists.pieces} of them, "
            f"not {short(given)}"
        )
    return tuple(parse_bytes(v, f"activation_bytes[{i}]") for i, v in enumerate(given))
