"""Simulate a pipeline schedule: how long it takes when transfers overlap with compute, or block."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from reshard_lab.errors import ReshardError, check_bool, check_int, check_type, must_be
from reshard_lab.pipelining.graph import build, carry_out
from reshard_lab.pipelining.loads import (
    BoundaryTensor,
    Load,
    Moves,
    Times,
    reverse,
    tasks_in,
    times,
    transfer_load,
    transfer_loads,
)
from reshard_lab.pipelining.ops import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    OpLists,
    check,
)
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
    meshes and all take part in one global order (``pipelining.graph``).

    schedule:
        lists of ops a stage (``pipeline.schedule`` or one's own; ``pipeline.check`` is run first).
    forward_s, backward_s:
        seconds of F and of B (= I + W), one number or one a model chunk, in model order: one a
        stage, where a stage has one chunk. ``backward_s`` is not needed for inference.
    forward_transfer_s, backward_transfer_s:
        between neighbouring model chunks, one for all or one a link; entry k of the first goes
        from chunk k to k + 1, entry k of the second brings its gradient from k + 1 to k. Each is a
        number of seconds; a ReshardingTask, a list of them (moved together) or a Plan, which
        take their plan's makespan under ``strategy`` and slow each other where they share NICs.
        ``backward_transfer_s=None``: as forwards, reshardings reversed. Between two
        chunks on one stage nothing is moved.
    weight_s:
        the part of ``backward_s`` that W takes; half of it unless given.
    skips:
        further tensors between model chunks; on one link they follow those of neighbours.
    activation_bytes:
        bytes of one microbatch that a model chunk keeps for its backward, one a chunk, for
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
    overlap = check_bool("overlap", overlap)
    checked = check(schedule)
    lists = checked.lists
    compute = compute_loads(lists, forward_s, backward_s, weight_s)
    check_type("skips", skips, Sequence, f"give a list of {_SKIP}")
    further = [_skip(f"skips[{i}]", skip, lists) for i, skip in enumerate(skips)]
    every = [forward_transfer_s, backward_transfer_s]
    every += [m for s in further for m in (s.forward_transfer_s, s.backward_transfer_s)]
    tasks = [task for moves in every for task in tasks_in(moves)]
    if tasks:
        need_cluster(tasks)  # of several clusters, nobody could say which NICs are shared
    links = [f"{k}>{k + 1}" for k in range(lists.model_chunks - 1)]
    between = partial(transfer_loads, links=links, strategy=strategy)
    moves = forward_transfer_s, backward_transfer_s
    transfers = list(zip(*_both_ways(between, "", *moves, lists.trains), strict=True))
    one = partial(transfer_load, strategy=strategy)
    for i, skip in enumerate(further):
        moves = skip.forward_transfer_s, skip.backward_transfer_s
        transfers.append(_both_ways(one, f" of skips[{i}]", *moves, lists.trains))
    tensors = [BoundaryTensor(k, k + 1, name=name) for k, name in enumerate(links)] + further
    graph = build(checked, compute, tensors, transfers, overlap)
    starts, ends = carry_out(graph)
    if not max(ends) < _MOST_S:
        raise ReshardError(f"the times add up to more than {_MOST_S:g} s; use shorter ones")
    names = tuple(tensor.name for tensor in tensors)
    kept = _activation_bytes(lists, activation_bytes)
    return PipelineTimeline(lists, overlap, graph, tuple(starts), tuple(ends), names, kept)


def compute_loads(
    lists: OpLists, forward_s: Times, backward_s: Times | None, weight_s: Times | None
) -> dict[tuple[str, int], Load]:
    """The load of every kind of op, by kind and model chunk."""
    n, unit = lists.model_chunks, lists.unit
    forward = times("forward_s", forward_s, n, unit)
    loads = {(FORWARD, c): Load(t) for c, t in enumerate(forward)}
    if not lists.trains:
        return loads
    if backward_s is None:
        raise ReshardError(
            "backward_s is missing, but the schedule has backward ops; give their seconds, or use "
            "schedule('inference', ...)"
        )
    backward = times("backward_s", backward_s, n, unit)
    weight = [t / 2 for t in backward] if weight_s is None else times("weight_s", weight_s, n, unit)
    for c, (b, w) in enumerate(zip(backward, weight, strict=True)):
        if w > b:
            raise ReshardError(
                f"weight_s is {w} for {unit} {c}, more than its backward_s of {b}; it is the part "
                "of the backward that computes weight gradients"
            )
        loads[BACKWARD, c] = Load(b)
        loads[INPUT_GRADIENT, c] = Load(b - w)
        loads[WEIGHT_GRADIENT, c] = Load(w)
    return loads


def _skip(name: str, skip: BoundaryTensor, lists: OpLists) -> BoundaryTensor:
    """``skip``, named as timelines call it, if it goes from a model chunk to a later one."""
    unit, last = lists.unit, lists.model_chunks - 1
    try:
        tensor = BoundaryTensor(*skip)
    except TypeError:
        raise must_be(name, _SKIP, skip) from None
    first = check_int(f"from_stage of {name}", tensor.from_stage)
    second = check_int(f"to_stage of {name}", tensor.to_stage)
    if not first < second <= last:
        raise ReshardError(
            f"{name} goes from {unit} {first} to {unit} {second}; a skip goes to a later {unit}, "
            f"{last} at most"
        )
    return tensor._replace(name=f"skip {first}>{second}")


def _both_ways(
    load: Callable[[str, Any], Any], of: str, forward: Moves, backward: Moves | None, trains: bool
) -> tuple[Any, Any]:
    """What ``load`` says of transfers, and of those of their gradients."""
    there = load(f"forward_transfer_s{of}", forward)
    back = (reverse(forward) if backward is None else backward) if trains else 0.0
    return there, load(f"backward_transfer_s{of}", back)


def _activation_bytes(lists: OpLists, given: Sequence[int | str] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    n = lists.model_chunks
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != n:
        raise must_be("activation_bytes", f"one number a {lists.unit}, {n} of them", given)
    return tuple(parse_bytes(v, f"activation_bytes[{i}]") for i, v in enumerate(given))
