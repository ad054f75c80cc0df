"""Read off a pipeline's timeline: memory over time, where the time went, the critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reshard_lab.pipelining.ops import BACKWARD, FORWARD, WEIGHT_GRADIENT

if TYPE_CHECKING:
    from reshard_lab.pipelining.timeline import PipelineTimeline


class Share(NamedTuple):
    """How a stage spent its time, as fractions of the makespan that sum to 1."""

    stage: int
    compute: float
    communication: float
    """Exposed communication. Overlapped: idle while what its next op waits for is queued for its
    link or on its way. Blocking: occupied by transfers."""
    bubble: float
    """Idle for any other reason."""


class Memory(NamedTuple):
    """What a stage keeps for its backwards, from ``time_s`` until the next entry."""

    time_s: float
    live: int
    """Microbatches (times chunks) whose forward has begun and whose backward has not ended."""
    nbytes: int | None
    """Bytes of their activations, if sizes were given."""


def memory(timeline: PipelineTimeline) -> tuple[tuple[Memory, ...], ...]:
    """By stage, live activations over time: an entry at the start and at each change."""
    last = (BACKWARD, WEIGHT_GRADIENT) if timeline.lists.trains else (FORWARD,)
    sizes = timeline.activation_bytes
    empty = Memory(0.0, 0, None if sizes is None else 0)
    entries = [[empty] for _ in range(timeline.stages)]

    def change(stage: int, time_s: float, by: int, piece: int) -> None:
        before = entries[stage][-1]
        nbytes = None if sizes is None else (before.nbytes or 0) + by * sizes[piece]
        entries[stage].append(Memory(time_s, before.live + by, nbytes))

    graph = timeline.graph
    for item, (op, stage, target) in enumerate(
        zip(graph.ops, graph.stages, graph.targets, strict=True)
    ):
        if target < 0:
            piece = op.chunk * timeline.stages + stage
            if op.kind == FORWARD:
                change(stage, timeline.starts_s[item], 1, piece)
            if op.kind in last:
                change(stage, timeline.ends_s[item], -1, piece)
    return tuple(map(tuple, entries))


def shares(timeline: PipelineTimeline) -> tuple[Share, ...]:
    """Compute, exposed communication and bubble of every stage."""
    graph, starts, ends = timeline.graph, timeline.starts_s, timeline.ends_s
    compute = [0.0] * timeline.stages
    communication = [0.0] * timeline.stages
    idle_since = [0.0] * timeline.stages
    for item, (stage, target) in enumerate(zip(graph.stages, graph.targets, strict=True)):
        lasted = ends[item] - starts[item]
        if target < 0:
            compute[stage] += lasted
            if timeline.overlap:
                communication[stage] += _awaited(timeline, item, idle_since[stage])
                idle_since[stage] = ends[item]
        elif not timeline.overlap:
            communication[stage] += lasted
            communication[target] += lasted
    total = timeline.makespan_s
    if not total:
        return tuple(Share(s, 0.0, 0.0, 1.0) for s in range(timeline.stages))
    return tuple(
        Share(s, busy / total, lost / total, max(0.0, 1 - (busy + lost) / total))
        for s, (busy, lost) in enumerate(zip(compute, communication, strict=True))
    )


def _awaited(timeline: PipelineTimeline, item: int, idle_since: float) -> float:
    """Seconds before an op in which its stage was idle and its last input was under way."""
    graph = timeline.graph
    inputs = [i for i in graph.before(item) if graph.targets[i] >= 0]
    if not inputs or timeline.starts_s[item] == idle_since:
        return 0.0
    last = max(inputs, key=lambda i: timeline.ends_s[i])
    made = timeline.ends_s[graph.before(last)[0]]
    return max(0.0, timeline.starts_s[item] - max(idle_since, made))


def critical_path(timeline: PipelineTimeline) -> list[int]:
    """Items from time 0 to the makespan, each starting when the one before it ends."""
    starts, ends = timeline.starts_s, timeline.ends_s
    at: int | None = ends.index(timeline.makespan_s)
    path = []
    while at is not None:
        path.append(at)
        at = next((i for i in timeline.graph.before(at) if ends[i] == starts[at]), None)
    return path[::-1]
