"""One training run, described: what the launcher decides and every device carries out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reshard_lab.boxes import Box
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.checking import Checked, check
from reshard_lab.pipelining.graph import Graph, build
from reshard_lab.pipelining.loads import BoundaryTensor, Load
from reshard_lab.pipelining.ops import FORWARD
from reshard_lab.training.models import Model, Way, cut_layers, ways_of
from reshard_lab.training.transformer import Transformer
from reshard_lab.training.unet import UNet

MODELS: dict[str, type[Transformer] | type[UNet]] = {"transformer": Transformer, "unet": UNet}


@dataclass(frozen=True)
class Job:
    """A training run. Everything else that a device needs to know follows from it."""

    model: Transformer | UNet
    schedule: list[list[str]]
    overlap: bool
    meshes: list[list[Any]]
    """Device ids of every stage, as nested lists."""
    specs: list[str]
    """Layout of boundary tensors on every stage."""
    batch: int
    steps: int
    warmup: int
    learning_rate: float
    seed: int
    paced: dict[str, list[float]] | None
    """Seconds of ``F``, ``B``, ``I`` and ``W`` by piece of the model, slept; None: computed."""
    reference: bool
    """Whether one device repeats everything alone, for comparison."""
    timeout_s: float
    plans: list[list[int | None]]
    """By way, the numbers of the plans that carry the tensor and its gradient; None: they stay on
    one stage."""

    def to_json(self) -> str:
        """As text, for the devices."""
        name = next(name for name, kind in MODELS.items() if isinstance(self.model, kind))
        return json.dumps(asdict(self) | {"model": [name, asdict(self.model)]})

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that ``to_json`` wrote."""
        fields = json.loads(text)
        name, sizes = fields["model"]
        return cls(**fields | {"model": MODELS[name](**sizes)})

    @cached_property
    def built(self) -> Model:
        """The model's layers."""
        return self.model.build()

    @cached_property
    def checked(self) -> Checked:
        """The schedule, read."""
        return check(self.schedule)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.meshes)

    @property
    def samples(self) -> int:
        """Samples of a microbatch."""
        return self.batch // self.checked.lists.microbatches

    @cached_property
    def pieces(self) -> list[range]:
        """Layers of every piece of the model."""
        return cut_layers(self.built, self.checked.lists.pieces)

    @cached_property
    def ways(self) -> list[Way]:
        """What crosses between pieces."""
        return ways_of(self.built, self.pieces, self.samples)

    @cached_property
    def layouts(self) -> list[Layout]:
        """Of boundary tensors, by stage."""
        return [
            Layout(Mesh(mesh), spec) for mesh, spec in zip(self.meshes, self.specs, strict=True)
        ]

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Of all stages, ascending."""
        return tuple(sorted(d for layout in self.layouts for d in layout.mesh.devices))

    def stage_of(self, device: int) -> int:
        """The stage of a device."""
        return next(s for s, at in enumerate(self.layouts) if device in at.mesh.devices)

    @cached_property
    def graph(self) -> Graph:
        """Every op and transfer, and what each waits for: as the simulation has it."""
        none = Load(0.0)
        return self.graph_with({}, [(none, none)] * len(self.ways))

    def graph_with(
        self, compute: dict[tuple[str, int], float], moves: Sequence[tuple[Load, Load]]
    ) -> Graph:
        """``graph`` with seconds of ops by kind and piece, and the loads of ways there and back."""
        loads = {
            (kind, piece): Load(compute.get((kind, piece), 0.0))
            for kind in "FBIW"
            for piece in range(len(self.pieces))
        }
        tensors = [BoundaryTensor(w.source, w.target) for w in self.ways]
        return build(self.checked, loads, tensors, moves, self.overlap)

    def item_text(self, item: int) -> str:
        """An op or transfer in words: ``"F2 of stage 1"``, ``"activation 0>1 of microbatch 2"``."""
        op = self.graph.ops[item]
        if self.graph.targets[item] < 0:
            return f"{op.text(self.checked.lists.chunks)} of stage {self.graph.stages[item]}"
        return tensor_text(self.ways[self.graph.tensors[item]], op.kind == FORWARD, op.microbatch)

    @cached_property
    def links(self) -> list[tuple[int, int]]:
        """Ordered pairs of stages of which the first sends to the second."""
        ends = zip(self.graph.stages, self.graph.targets, strict=True)
        return sorted({(a, b) for a, b in ends if b >= 0})


def tensor_text(way: Way, forward: bool, microbatch: int) -> str:
    """A tensor that moves, in words."""
    return f"{'activation' if forward else 'gradient'} {way.name} of microbatch {microbatch}"


def groups_of(layout: Layout) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The operator groups and the data groups of a stage, as device ids.

    Axes that cut the batch, the first dimension, are data axes; an operator group differs in the
    others alone.

    >>> groups_of(Layout(Mesh([[0, 1], [2, 3]]), "S0RR"))
    ([(0, 1), (2, 3)], [(0, 2), (1, 3)])
    """
    data = list(layout.spec.dims[0])
    operator = [a for a in range(layout.mesh.ndim) if a not in data]
    rows = np.transpose(layout.mesh.array(), data + operator)
    size = int(np.prod([layout.mesh.shape[a] for a in operator], dtype=int))
    rows = rows.reshape(-1, size)
    return [tuple(r) for r in rows.tolist()], [tuple(c) for c in rows.T.tolist()]


def group_with(groups: list[tuple[int, ...]], device: int) -> tuple[int, ...]:
    """The group that ``device`` is in."""
    return next(group for group in groups if device in group)


def boxes_in(layout: Layout, shape: tuple[int, ...], group: tuple[int, ...]) -> list[Box]:
    """The boxes of a tensor of ``shape`` on the devices of a group."""
    boxes = layout.boxes(shape)
    return [boxes[device] for device in group]
