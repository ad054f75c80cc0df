"""What happened when: the record of a simulated pipeline."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from reshard_lab.errors import need, write_text
from reshard_lab.pipelining import analysis
from reshard_lab.pipelining.analysis import Memory, Share
from reshard_lab.pipelining.graph import Graph
from reshard_lab.pipelining.ops import FORWARD, NAMES, Lists
from reshard_lab.units import format_seconds


class Event(NamedTuple):
    """One bar of the picture: an op on a stage, or a transfer on a link."""

    row: str
    """``"stage 0"``, or ``"link 0>1"`` for what stage 0 sends to stage 1."""
    op: str
    """The op, or the one whose result is carried, as in the schedule."""
    what: str
    """``"forward"``, ``"backward"``, ``"input gradient"``, ``"weight gradient"``; for a transfer
    ``"activation"`` or ``"gradient"``."""
    tensor: str
    """For a transfer the pieces of the model at its ends, as ``"0>1"`` or ``"skip 0>2"``; empty
    for an op."""
    microbatch: int
    chunk: int
    start_s: float
    end_s: float


@dataclass(frozen=True, repr=False)
class PipelineTimeline:
    """Every op and transfer of a pipeline with its start and end; made by ``pipeline.simulate``."""

    lists: Lists
    """The schedule that was carried out."""
    overlap: bool
    graph: Graph
    """Every op and transfer, and what each waits for."""
    starts_s: tuple[float, ...]
    """By item."""
    ends_s: tuple[float, ...]
    tensors: tuple[str, ...]
    """By boundary tensor: the pieces of the model at its ends, as ``"0>1"`` or ``"skip 0>2"``."""
    activation_bytes: tuple[int, ...] | None
    """By piece of the model: bytes of one microbatch kept for its backward, if given."""

    @cached_property
    def makespan_s(self) -> float:
        """Seconds until everything has ended."""
        return max(self.ends_s)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.lists.stages

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

    @cached_property
    def memory(self) -> tuple[tuple[Memory, ...], ...]:
        """By stage, live activations over time: an entry at the start and at each change."""
        return analysis.memory(self)

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """By stage: time spent on compute, on exposed communication, and idle otherwise."""
        return analysis.shares(self)

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

        Shortening any other event alone does not shorten the whole.
        """
        return tuple(self._event(i) for i in analysis.critical_path(self))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Ops of the stages and transfers of the links, in order of start."""
        made = [self._event(i) for i in range(len(self.starts_s))]
        return tuple(sorted(made, key=lambda e: (e.start_s, e.end_s)))

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows of the picture: the stages, then the links by sender and receiver."""
        ends = set(zip(self.graph.stages, self.graph.targets, strict=True))
        links = sorted((a, b) for a, b in ends if b >= 0)
        stages = tuple(f"stage {s}" for s in range(self.stages))
        return (*stages, *(f"link {a}>{b}" for a, b in links))

    def to_frame(self) -> Any:
        """``events`` as a pandas DataFrame, one row each, columns named as their fields."""
        pandas = need("pandas", "notebooks", "PipelineTimeline.to_frame")
        return pandas.DataFrame(list(self.events), columns=list(Event._fields))

    def to_chrome_trace(self, path: str | Path | None = None) -> str:
        """The events for chrome://tracing or ui.perfetto.dev as JSON, also written to ``path``.

        Stages are threads of process 0, links threads of process 1; times are microseconds.
        """
        thread = {row: (int(row.startswith("link")), i) for i, row in enumerate(self.rows)}
        trace: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
            for pid, name in enumerate(("stages", "links"))
        ]
        trace += [
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": row}}
            for row, (pid, tid) in thread.items()
        ]
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
        text = json.dumps({"displayTimeUnit": "ms", "traceEvents": trace})
        if path is not None:
            write_text("trace", path, text)
        return text

    def _event(self, item: int) -> Event:
        graph = self.graph
        op, stage, target = graph.ops[item], graph.stages[item], graph.targets[item]
        row, tensor, what = f"stage {stage}", "", NAMES[op.kind]
        if target >= 0:
            row, tensor = f"link {stage}>{target}", self.tensors[graph.tensors[item]]
            what = "activation" if op.kind == FORWARD else "gradient"
        text = op.text(self.lists.chunks)
        start, end = self.starts_s[item], self.ends_s[item]
        return Event(row, text, what, tensor, op.microbatch, op.chunk, start, end)

    def __repr__(self) -> str:
        how = "overlapped" if self.overlap else "blocking"
        return (
            f"PipelineTimeline({self.stages} stages, {self.lists.microbatches} microbatches, "
            f"{how}: {format_seconds(self.makespan_s)}, bubble {self.bubble_share:.1%}, "
            f"exposed communication {self.exposed_communication_share:.1%})"
        )
