"""What happened when in a pipeline: the record, what can be read off it, and the face over both."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from reshard_lab.errors import need
from reshard_lab.pipelining.graph import Graph
from reshard_lab.pipelining.ops import BACKWARD, FORWARD, NAMES, WEIGHT_GRADIENT, OpLists
from reshard_lab.simulation.trace import metadata, trace_text
from reshard_lab.units import format_seconds


class Event(NamedTuple):
    """One bar of the picture: an op on a stage, or a transfer on a link."""

    row: str
    """``"stage 0"``, or ``"link 0>1"`` for what stage 0 sends to stage 1."""
    op: str
    """The op, or the one whose result is carried, as in the schedule."""
    what: str
    """A name in ``ops.NAMES``; for a transfer ``"activation"`` or ``"gradient"``."""
    tensor: str
    """For a transfer the model chunks at its ends, as ``"0>1"`` or ``"skip 0>2"``; else empty."""
    microbatch: int
    chunk: int
    start_s: float
    end_s: float


class StageShare(NamedTuple):
    """How a stage spent its time, as fractions of the makespan that sum to 1."""

    stage: int
    compute: float
    communication: float
    """Exposed communication. Overlapped: idle while what its next op waits for is queued for its
    link or on its way. Blocking: occupied by transfers."""
    bubble: float
    """Idle for any other reason."""


class StageMemory(NamedTuple):
    """What a stage keeps for its backwards, from ``time_s`` until the next entry."""

    time_s: float
    live: int
    """Microbatches (times chunks) whose forward has begun and whose backward has not ended."""
    nbytes: int | None
    """Bytes of their activations, if sizes were given."""


@dataclass(frozen=True, repr=False)
class PipelineRecord:
    """Every op and transfer of a pipeline with its start and end."""

    lists: OpLists
    """The schedule that was carried out."""
    overlap: bool
    graph: Graph
    """Every op and transfer, and what each waits for."""
    starts_s: tuple[float, ...]
    """By item."""
    ends_s: tuple[float, ...]
    tensors: tuple[str, ...]
    """Names of the boundary tensors, as ``Event.tensor`` has them."""
    activation_bytes: tuple[int, ...] | None
    """By model chunk: bytes of one microbatch kept for its backward, if given."""

    @cached_property
    def makespan_s(self) -> float:
        """Seconds until everything has ended."""
        return max(self.ends_s)

    @property
    def stages(self) -> int:
        return self.lists.stages


def memory(record: PipelineRecord) -> tuple[tuple[StageMemory, ...], ...]:
    """By stage, live activations over time: an entry at the start and at each change."""
    last = (BACKWARD, WEIGHT_GRADIENT) if record.lists.trains else (FORWARD,)
    sizes = record.activation_bytes
    empty = StageMemory(0.0, 0, None if sizes is None else 0)
    entries = [[empty] for _ in range(record.stages)]

    def change(stage: int, time_s: float, by: int, model_chunk: int) -> None:
        before = entries[stage][-1]
        nbytes = None if sizes is None else (before.nbytes or 0) + by * sizes[model_chunk]
        entries[stage].append(StageMemory(time_s, before.live + by, nbytes))

    for item, op, stage in record.graph.computed():
        model_chunk = op.chunk * record.stages + stage
        if op.kind == FORWARD:
            change(stage, record.starts_s[item], 1, model_chunk)
        if op.kind in last:
            change(stage, record.ends_s[item], -1, model_chunk)
    return tuple(map(tuple, entries))


def shares(record: PipelineRecord) -> tuple[StageShare, ...]:
    """Compute, exposed communication and bubble of every stage."""
    graph, starts, ends = record.graph, record.starts_s, record.ends_s
    compute = [0.0] * record.stages
    communication = [0.0] * record.stages
    idle_since = [0.0] * record.stages
    for item, (stage, target) in enumerate(zip(graph.stages, graph.targets, strict=True)):
        duration = ends[item] - starts[item]
        if target < 0:
            compute[stage] += duration
            if record.overlap:
                communication[stage] += _awaited_s(record, item, idle_since[stage])
                idle_since[stage] = ends[item]
        elif not record.overlap:
            communication[stage] += duration
            communication[target] += duration
    total = record.makespan_s or 1.0
    return tuple(
        StageShare(s, busy / total, lost / total, max(0.0, 1 - (busy + lost) / total))
        for s, (busy, lost) in enumerate(zip(compute, communication, strict=True))
    )


def _awaited_s(record: PipelineRecord, item: int, idle_since: float) -> float:
    """Seconds before an op in which its stage was idle and its last input was under way."""
    graph = record.graph
    inputs = [i for i in graph.before(item) if graph.targets[i] >= 0]
    if not inputs or record.starts_s[item] == idle_since:
        return 0.0
    last = max(inputs, key=lambda i: record.ends_s[i])
    produced = record.ends_s[graph.before(last)[0]]
    return max(0.0, record.starts_s[item] - max(idle_since, produced))


def critical_path(record: PipelineRecord) -> list[int]:
    """Items from time 0 to the makespan, each starting when the one before it ends."""
    starts, ends = record.starts_s, record.ends_s
    item: int | None = ends.index(record.makespan_s)
    path = []
    while item is not None:
        path.append(item)
        item = next((i for i in record.graph.before(item) if ends[i] == starts[item]), None)
    return path[::-1]


def event(record: PipelineRecord, item: int) -> Event:
    """An op or a transfer, in words."""
    graph = record.graph
    op, stage, target = graph.ops[item], graph.stages[item], graph.targets[item]
    row, tensor, what = f"stage {stage}", "", NAMES[op.kind]
    if target >= 0:
        row, tensor = f"link {stage}>{target}", record.tensors[graph.tensors[item]]
        what = "activation" if op.kind == FORWARD else "gradient"
    text = op.text(record.lists.chunks)
    start, end = record.starts_s[item], record.ends_s[item]
    return Event(row, text, what, tensor, op.microbatch, op.chunk, start, end)


class PipelineTimeline(PipelineRecord):
    """Every op and transfer of a pipeline with its start and end; made by ``pipeline.simulate``."""

    @property
    def peak_live(self) -> list[int]:
        """By stage, the most microbatches live at once (times chunks, where it has several).

        A microbatch is live from the start of its forward to the end of its backward: of ``B``,
        or of ``W``, which needs the activations as well. In inference, to the end of the forward.
        """
        return [max(m.live for m in entries) for entries in self.memory]

    @property
    def peak_bytes(self) -> list[int] | None:
        """By stage, the most bytes of live activations at once; None if sizes were not given."""
        if self.activation_bytes is None:
            return None
        return [max(m.nbytes or 0 for m in entries) for entries in self.memory]

    memory = cached_property(memory)
    shares = cached_property(shares)

    @property
    def bubble_share(self) -> float:
        """Part of all stages' time that is idle and not exposed communication."""
        return sum(s.bubble for s in self.shares) / self.stages

    @property
    def exposed_communication_share(self) -> float:
        """Part of all stages' time lost to transfers that compute does not hide."""
        return sum(s.communication for s in self.shares) / self.stages

    @cached_property
    def critical_path(self) -> tuple[Event, ...]:
        """Events from time 0 to the makespan, each starting when the one before it ends.

        Shortening any other event alone does not shorten the pipeline.
        """
        return tuple(event(self, item) for item in critical_path(self))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Ops of the stages and transfers of the links, in order of start."""
        every = [event(self, item) for item in range(len(self.starts_s))]
        return tuple(sorted(every, key=lambda e: (e.start_s, e.end_s)))

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows of the picture: the stages, then the links by sender and receiver."""
        stages = [f"stage {s}" for s in range(self.stages)]
        return (*stages, *(f"link {a}>{b}" for a, b in self.graph.links()))

    def to_frame(self) -> Any:
        """``events`` as a pandas DataFrame, one row each, columns named as their fields."""
        pandas = need("pandas", "notebooks", "PipelineTimeline.to_frame")
        return pandas.DataFrame(list(self.events), columns=list(Event._fields))

    def to_chrome_trace(self, path: str | Path | None = None) -> str:
        """The events for chrome://tracing or ui.perfetto.dev as JSON, also written to ``path``.

        Stages are threads of process 0, links threads of process 1; times are microseconds.
        """
        thread = {row: (int(row.startswith("link")), i) for i, row in enumerate(self.rows)}
        trace = [metadata("process_name", pid, name=n) for pid, n in enumerate(("stages", "links"))]
        trace += [metadata("thread_name", *ids, name=row) for row, ids in thread.items()]
        trace += [
            {
                "ph": "X",
                "name": e.op,
                "cat": e.what,
                "pid": thread[e.row][0],
                "tid": thread[e.row][1],
                "ts": e.start_s * 1e6,
                "dur": (e.end_s - e.start_s) * 1e6,
                "args": {"microbatch": e.microbatch, "chunk": e.chunk, "tensor": e.tensor},
            }
            for e in self.events
        ]
        return trace_text(trace, path)

    def __repr__(self) -> str:
        how = "overlapped" if self.overlap else "blocking"
        return (
            f"PipelineTimeline({self.stages} stages, {self.lists.microbatches} microbatches, "
            f"{how}: {format_seconds(self.makespan_s)}, bubble {self.bubble_share:.1%}, "
            f"exposed communication {self.exposed_communication_share:.1%})"
        )
