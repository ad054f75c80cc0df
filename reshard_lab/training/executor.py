"""A device's part of a training run, inside its worker process: the steps, item by item.

Items are ops and transfers, in the order in which ``pipelining.graph`` numbers them for the
simulation: to carry them out one by one by number is possible, a stage's ops by number are its
list, and a link's transfers by number are in the order in which their ops end, which is that of
sending at both ends. Blocking, one thread carries out all items of its stage by number.
Overlapped, it does so with the ops alone, and every link (ordered pair of stages) has a thread of
its own at both ends, which calls ``run_rank`` in the link's order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.pipelining.graph import Graph
from reshard_lab.planning import Plan
from reshard_lab.runtime import run_rank
from reshard_lab.runtime.calls import CallState, Deadline
from reshard_lab.runtime.context import resolve_rank
from reshard_lab.runtime.measure import cpu_ticks
from reshard_lab.runtime.process import Progress
from reshard_lab.runtime.rank import plan_group
from reshard_lab.training.collectives import ProcessGroups, barrier
from reshard_lab.training.compute import (
    Compute,
    PacedCompute,
    StepTensors,
    TorchCompute,
    train_uncut,
)
from reshard_lab.training.config import StageRank, TrainingConfig, parallel_groups

CONFIG, PLAN, RESULT, UNCUT = "train.json", "train-{}.json", "train-{}.npz", "train-alone.npz"
"""Files of a run in the pool's folder."""

Note = Callable[[str, int, int], None]
"""Called as (lane, item, how far it is): on ``copy`` (ops) one of ``WAITS``, ``RUNS`` and ``OVER``,
on ``send`` and ``recv`` one of the latter two."""
WAITS, RUNS, OVER = range(3)


def execute(
    graph: Graph,
    stage: int,
    overlap: bool,
    state: CallState,
    compute: Callable[[int], None],
    transfer: Callable[[int], None],
) -> None:
    """Carry out all items in which ``stage`` takes part; raises the first error of any thread."""
    lanes: dict[tuple[int, int] | None, list[int]] = {None: []}
    for item, ends in enumerate(zip(graph.stages, graph.targets, strict=True)):
        if stage in ends:
            lane = ends if overlap and ends[1] >= 0 else None
            lanes.setdefault(lane, []).append(item)

    def carry_out(items: list[int]) -> None:
        for item in items:
            (compute if graph.targets[item] < 0 else transfer)(item)

    threads = [partial(carry_out, items) for items in lanes.values()]
    state.run(*threads, late=f"the transfers of stage {stage} were not over")


class TransferNotes:
    """Notes of transfers, a thread each: of those under way on a lane the one that has been so for
    longest is noted, and only when there is none the last that is over.
    """

    def __init__(self, note: Note) -> None:
        self.note = note
        self._lock = threading.Lock()
        self._items: dict[str, list[int]] = {"send": [], "recv": []}

    def begin(self, lane: str, item: int) -> None:
        with self._lock:
            self._items[lane].append(item)
            self.note(lane, self._items[lane][0], RUNS)

    def end(self, lane: str, item: int) -> None:
        with self._lock:
            left = self._items[lane]
            left.remove(item)
            self.note(lane, left[0] if left else item, RUNS if left else OVER)


class StageGroups(NamedTuple):
    """The process groups of one device in one run."""

    everybody: Any
    tensor_parallel: Any
    data_parallel: Any
    links: dict[tuple[int, int], tuple[Any, dict[int, int]]]
    """By stages: the group, and the rank of every device in it."""

    @classmethod
    def of(
        cls, pool: ProcessGroups, config: TrainingConfig, device: int, deadline: Deadline
    ) -> StageGroups:
        """Take part in making all groups of the run, as every worker does; those of ``device``."""
        # That a worker is missing shows in this barrier, not in the making of a group.
        barrier("the meeting of all devices before a run", pool.dist.group.WORLD, deadline)
        everybody = pool.get("all", config.devices, deadline)
        own = {"tensor": None, "data": None}
        for layout in config.layouts:
            for use, groups in zip(own, parallel_groups(layout), strict=True):
                for devices in groups:
                    if len(devices) > 1:
                        group = pool.get(use, tuple(sorted(devices)), deadline)
                        own[use] = group if device in devices else own[use]
        links = {}
        for a, b in config.graph.links():
            both = (*config.layouts[a].mesh.devices, *config.layouts[b].mesh.devices)
            group = pool.get("up" if a < b else "down", tuple(sorted(both)), deadline)
            links[a, b] = (group, {device: rank for rank, device in enumerate(sorted(both))})
        return cls(everybody, own["tensor"], own["data"], links)


class StepRecord(NamedTuple):
    """A step on one device; times in seconds of the machine's monotonic clock."""

    began: float
    ended: float
    starts: np.ndarray
    ends: np.ndarray
    """Of every item; nan where the device takes no part."""
    loss: float


class StepExecutor:
    """One device's ops and transfers, step by step."""

    compute: Compute

    def __init__(
        self, rank: StageRank, groups: StageGroups, folder: Path, note: Note, deadline: Deadline
    ) -> None:
        self.rank, self.config, self.groups, self.note = rank, rank.config, groups, note
        self.transfer_notes = TransferNotes(note)
        self.plans = self._plans(folder, deadline)
        if self.config.paced is None:
            self.compute = TorchCompute(rank, groups.tensor_parallel)
        else:
            self.compute = PacedCompute(rank, all(plan.delivers for plan in self.plans.values()))

    def _plans(self, folder: Path, deadline: Deadline) -> dict[tuple[int, bool], Plan]:
        """By boundary tensor and direction, this device's plans; agreed on with their devices."""
        plans: dict[tuple[int, bool], Plan] = {}
        read = lru_cache(maxsize=None)(Plan.from_json)
        for tensor, numbers in enumerate(self.config.plan_numbers):
            ends = self.config.stages_of(self.config.boundary_tensors[tensor])
            for forward, number in zip((True, False), numbers, strict=True):
                if number is None or self.rank.stage not in ends:
                    continue
                plan = plans[tensor, forward] = read(folder / PLAN.format(number))
                group, ranks = self.groups.links[ends if forward else ends[::-1]]
                plan_group(plan, resolve_rank(plan, group, ranks), deadline)
        return plans

    def step(self) -> StepRecord:
        """All items of this device, and the sum of gradients over its data-parallel group."""
        config = self.config
        times = np.full((2, len(config.graph.ops)), np.nan)
        meeting = Deadline(config.timeout_s)
        barrier("the meeting before a step", self.groups.everybody, meeting)
        tensors = StepTensors(Deadline(config.timeout_s))
        self.compute.begin(tensors.deadline)
        began = time.monotonic()
        op = partial(self._op, tensors=tensors, times=times)
        transfer = partial(self._transfer, tensors=tensors, times=times)
        execute(config.graph, self.rank.stage, config.overlap, tensors, op, transfer)
        self.compute.finish(self.groups.data_parallel, tensors.deadline)
        return StepRecord(began, time.monotonic(), times[0], times[1], self.compute.loss)

    def _op(self, item: int, tensors: StepTensors, times: np.ndarray) -> None:
        def ready() -> None:
            self.note("copy", item, RUNS)
            times[0, item] = time.monotonic()

        self.note("copy", item, WAITS)
        outputs = self.compute.run(self.config.graph.ops[item], tensors, ready)
        times[1, item] = time.monotonic()
        for key, tensor in outputs.items():
            tensors.put(key, tensor)
        self.note("copy", item, OVER)

    def _transfer(self, item: int, tensors: StepTensors, times: np.ndarray) -> None:
        graph, key = self.config.graph, self.config.key(item)
        link = graph.stages[item], graph.targets[item]
        group, ranks = self.groups.links[link]
        sends = link[0] == self.rank.stage
        lane = "send" if sends else "recv"
        piece = tensors.take(key, self.config.item_text(item)) if sends else None
        self.transfer_notes.begin(lane, item)
        times[0, item] = time.monotonic()
        plan, left = self.plans[key.tensor, key.forward], tensors.deadline.left()
        received = run_rank(plan, piece, group, ranks=ranks, timeout_s=left)
        times[1, item] = time.monotonic()
        self.transfer_notes.end(lane, item)
        if not sends:
            tensors.put(key, received)


def take_part(
    device: int,
    folder: Path,
    pool: ProcessGroups,
    progress: Progress,
    report: Callable[..., None],
) -> None:
    """Carry out the run in the pool's folder, on one worker: every step is reported.

    One that is not in the run makes process groups with the others and is done. The first device
    repeats the steps alone, for comparison; its repeats are counted on from those of the steps.
    """
    config = TrainingConfig.from_json((folder / CONFIG).read_text())
    deadline, me = Deadline(config.timeout_s), pool.ranks[device]
    groups = StageGroups.of(pool, config, device, deadline)
    if device not in config.devices:
        return
    rank, note = StageRank.of(config, device), partial(progress.note, me)
    executor = StepExecutor(rank, groups, folder, note, deadline)
    report(event="repeat", cpu=None)
    steps: list[StepRecord] = []
    gradients: dict[str, Any] = {}
    for number in range(config.warmup + config.steps):
        progress.begin(me, number + 1)
        before = cpu_ticks()
        steps.append(executor.step())
        after = cpu_ticks()
        if number == config.warmup:
            # numpy arrays that later steps leave alone
            gradients = {n: g.numpy() for n, g in executor.compute.gradients.items()}
        spent = None if before is None or after is None else [after[i] - before[i] for i in (0, 1)]
        if number >= config.warmup:
            executor.compute.learn(config.learning_rate)
        report(event="repeat", cpu=spent)
    arrays: dict[str, Any] = {
        n: np.array([getattr(s, n) for s in steps]) for n in StepRecord._fields
    }
    arrays |= {f"gradient {name}": array for name, array in gradients.items()}
    np.savez(folder / RESULT.format(device), **arrays)
    if config.reference and device == config.devices[0]:

        def alive(step: int) -> None:
            progress.begin(me, config.warmup + config.steps + 1 + step)
            report(event="alive")

        losses, gradients = train_uncut(config, alive)
        np.savez(folder / UNCUT, losses=np.array(losses), **gradients)
