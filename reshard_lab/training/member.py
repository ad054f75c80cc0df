"""A device's part of a training run, inside its worker process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from reshard_lab.errors import need
from reshard_lab.pipelining.ops import FORWARD
from reshard_lab.planning import Plan
from reshard_lab.runtime import run_rank
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.measure import cpu_ticks
from reshard_lab.runtime.protocol import Progress
from reshard_lab.runtime.rank import find_seat, join
from reshard_lab.training.compute import Computed
from reshard_lab.training.job import Job, groups_of
from reshard_lab.training.kit import Kit, meet, together
from reshard_lab.training.mailbox import Key, Mailbox
from reshard_lab.training.pace import Pace
from reshard_lab.training.reference import reference
from reshard_lab.training.role import Role
from reshard_lab.training.walk import Clock, walk

JOB, PLAN, RESULT, REFERENCE = "train.json", "train-{}.json", "train-{}.npz", "train-alone.npz"
"""Files of a run in the pool's folder."""

Note = Callable[[str, int, int], None]
"""Called as (lane, item, how far it is): on ``copy`` (ops) one of ``WAITS``, ``RUNS`` and ``OVER``,
on ``send`` and ``recv`` one of the latter two."""
WAITS, RUNS, OVER = range(3)


class Groups:
    """Process groups of a pool's workers, made once and used by every run that follows.

    All workers of the pool make them, in one order: torch waits for all of them. The timeout of a
    group bounds its making alone; whoever uses it has a deadline of his own.
    """

    def __init__(self, ranks: dict[int, int]) -> None:
        self.dist = need("torch.distributed", "run", "training")
        self.ranks = ranks
        self._made: dict[tuple[str, tuple[int, ...]], Any] = {}

    def meet(self, deadline: Deadline) -> None:
        """Wait for all workers of the pool: that one is missing shows here, not in a group."""
        meet("the meeting of all devices before a run", self.dist.group.WORLD, deadline)

    def make(self, use: str, devices: tuple[int, ...], deadline: Deadline) -> Any:
        """The group of ``devices`` (ascending) for one use."""
        if (use, devices) not in self._made:
            ranks, timeout = [self.ranks[d] for d in devices], timedelta(seconds=deadline.left())
            with together(f"making a group of devices {list(devices)}"):
                made = self.dist.new_group(ranks, timeout=timeout, backend="gloo")
            self._made[use, devices] = made
        return self._made[use, devices]


class _Lines(NamedTuple):
    """The process groups of one device in one job."""

    everybody: Any
    operator: Any
    data: Any
    links: dict[tuple[int, int], tuple[Any, dict[int, int]]]
    """By stages: the group, and the rank of every device in it."""


def _lines(groups: Groups, job: Job, role: Role | None, deadline: Deadline) -> _Lines:
    """Take part in making all groups of the job, as every worker does; those of this device."""
    groups.meet(deadline)
    everybody = groups.make("all", job.devices, deadline)
    own: dict[str, Any] = {"operator": None, "data": None}
    for layout in job.layouts:
        for use, found in zip(("operator", "data"), groups_of(layout), strict=True):
            for devices in found:
                if len(devices) > 1:
                    made = groups.make(use, tuple(sorted(devices)), deadline)
                    if role is not None and role.device in devices:
                        own[use] = made
    links = {}
    for a, b in job.links:
        members = tuple(sorted((*job.layouts[a].mesh.devices, *job.layouts[b].mesh.devices)))
        made = groups.make("up" if a < b else "down", members, deadline)
        links[a, b] = (made, {device: rank for rank, device in enumerate(members)})
    return _Lines(everybody, own["operator"], own["data"], links)


class UnderWay:
    """Notes of transfers, several of which may be under way on a lane, a thread each: the one that
    has been so for longest is noted, and only when there is none the last that is over.
    """

    def __init__(self, note: Note) -> None:
        self.note = note
        self._lock = threading.Lock()
        self._items: dict[str, list[int]] = {"send": [], "recv": []}

    def begin(self, lane: str, item: int) -> None:
        """A transfer begins."""
        with self._lock:
            self._items[lane].append(item)
            self.note(lane, self._items[lane][0], RUNS)

    def end(self, lane: str, item: int) -> None:
        """A transfer is over."""
        with self._lock:
            self._items[lane].remove(item)
            left = self._items[lane]
            self.note(lane, left[0] if left else item, RUNS if left else OVER)


class StepRecord(NamedTuple):
    """A step on one device; times in seconds of the machine's monotonic clock."""

    began: float
    ended: float
    clock: Clock
    loss: float
    """This device's part of it: that of its samples, on the last piece of the model."""


class Member:
    """One device of a training run."""

    def __init__(
        self, job: Job, role: Role, lines: _Lines, folder: Path, note: Note, deadline: Deadline
    ) -> None:
        self.job, self.role, self.lines, self.note = job, role, lines, note
        self.under_way = UnderWay(note)
        self.plans = self._plans(folder, deadline)
        group, rank = role.operator_group, role.operator_group.index(role.device)
        if job.paced is None:
            self.compute: Computed | Pace = Computed(role, Kit(lines.operator, rank, len(group)))
        else:
            self.compute = Pace(role, all(plan.delivers for plan in self.plans.values()))

    def _plans(self, folder: Path, deadline: Deadline) -> dict[tuple[int, bool], Plan]:
        """By way and direction, the plans in which this device takes part; all agreed upon."""
        stages = self.job.stages
        found: dict[tuple[int, bool], Plan] = {}
        read: dict[int, Plan] = {}
        for way, numbers in enumerate(self.job.plans):
            ends = (self.job.ways[way].source % stages, self.job.ways[way].target % stages)
            if self.role.stage not in ends:
                continue
            for forward, number in zip((True, False), numbers, strict=True):
                if number is None:
                    continue
                if number not in read:
                    read[number] = Plan.from_json(folder / PLAN.format(number))
                plan = found[way, forward] = read[number]
                group, ranks = self.lines.links[ends if forward else ends[::-1]]
                join(plan, find_seat(plan, group, ranks), deadline)
        return found

    def step(self) -> StepRecord:
        """All ops and transfers of this device, and the sum of gradients over its data group."""
        clock = Clock(len(self.job.graph.ops))
        meet("the meeting before a step", self.lines.everybody, Deadline(self.job.timeout_s))
        mailbox = Mailbox(Deadline(self.job.timeout_s))
        self.compute.begin(mailbox.deadline)
        began = time.monotonic()
        walk(
            self.job.graph,
            self.role.stage,
            self.job.overlap,
            mailbox,
            lambda item: self._op(item, mailbox, clock),
            lambda item: self._carry(item, mailbox, clock),
        )
        self.compute.finish(self.lines.data)
        return StepRecord(began, time.monotonic(), clock, self.compute.loss)

    def _op(self, item: int, mailbox: Mailbox, clock: Clock) -> None:
        def began() -> None:
            self.note("copy", item, RUNS)
            clock.begin(item)

        self.note("copy", item, WAITS)
        leave = self.compute.run(self.job.graph.ops[item], mailbox, began)
        clock.end(item)
        for key, tensor in leave.items():
            mailbox.put(key, tensor)
        self.note("copy", item, OVER)

    def _carry(self, item: int, mailbox: Mailbox, clock: Clock) -> None:
        """This device's end of a transfer."""
        graph = self.job.graph
        op, link = graph.ops[item], (graph.stages[item], graph.targets[item])
        forward = op.kind == FORWARD
        key = Key(graph.tensors[item], forward, op.microbatch)
        group, ranks = self.lines.links[link]
        plan = self.plans[key.way, forward]
        sends = link[0] == self.role.stage
        lane = "send" if sends else "recv"
        piece = mailbox.take(key, self.job.item_text(item)) if sends else None
        self.under_way.begin(lane, item)
        clock.begin(item)
        left = mailbox.deadline.left()
        out = run_rank(plan, piece, group, ranks=ranks, timeout_s=left)
        clock.end(item)
        self.under_way.end(lane, item)
        if not sends:
            mailbox.put(key, out)


class Worker(Protocol):
    """What a worker of a pool lends to the run."""

    device: int
    ranks: dict[int, int]
    folder: Path
    progress: Progress
    groups: Groups | None

    def report(self, **message: Any) -> None:
        """Tell the launcher."""

    def observe(self, lane: str, step: int, done: int) -> None:
        """Note where the device is."""


def take_part(worker: Worker) -> None:
    """Carry out the job in the pool's folder, on one worker: every step is reported.

    Workers of the pool that the job does not use make the process groups with the others. One
    repeats the steps alone, for comparison; its repeats are counted on from those of the steps.
    """
    job = Job.from_json((worker.folder / JOB).read_text())
    role = Role.of(job, worker.device) if worker.device in job.devices else None
    if worker.groups is None:
        worker.groups = Groups(worker.ranks)
    ready_by = Deadline(job.timeout_s)
    lines = _lines(worker.groups, job, role, ready_by)
    if role is None:
        return
    me = worker.ranks[worker.device]
    member = Member(job, role, lines, worker.folder, worker.observe, ready_by)
    worker.report(event="repeat", cpu=None)
    steps, gradients = [], {}
    for number in range(job.warmup + job.steps):
        worker.progress.begin(me, number + 1)
        before = cpu_ticks()
        steps.append(member.step())
        after = cpu_ticks()
        if number == job.warmup:
            gradients = member.compute.found()
        spent = None if before is None or after is None else [after[i] - before[i] for i in (0, 1)]
        if number >= job.warmup:
            member.compute.learn(job.learning_rate)
        worker.report(event="repeat", cpu=spent)
    _save(worker.folder / RESULT.format(worker.device), steps, gradients)
    if job.reference and worker.device == job.devices[0]:

        def alive(step: int) -> None:
            worker.progress.begin(me, job.warmup + job.steps + 1 + step)
            worker.report(event="alive")

        losses, gradients = reference(job, alive)
        np.savez(worker.folder / REFERENCE, losses=np.array(losses), **gradients)


def _save(path: Path, steps: list[StepRecord], gradients: dict[str, Any]) -> None:
    """Times, losses and gradients, for the launcher to read."""
    np.savez(
        path,
        began=np.array([s.began for s in steps]),
        ended=np.array([s.ended for s in steps]),
        starts=np.array([s.clock.starts for s in steps]),
        ends=np.array([s.clock.ends for s in steps]),
        losses=np.array([s.loss for s in steps]),
        **{f"gradient {name}": array for name, array in gradients.items()},
    )
