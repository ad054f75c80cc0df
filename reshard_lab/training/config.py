"""A training run's resolved description, from which every device derives what it does."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.pipelining.graph import Graph, build
from reshard_lab.pipelining.loads import BoundaryTensor, Load
from reshard_lab.pipelining.ops import FORWARD, Checked, StageOp, check, even_ranges
from reshard_lab.training.models import MODELS, LayeredModel, Transformer, UNet


class TensorKey(NamedTuple):
    """One boundary tensor of one microbatch, or its gradient."""

    tensor: int
    """Its number among the run's boundary tensors."""
    forward: bool
    microbatch: int


TensorValues = dict[TensorKey, Any]
"""torch tensors."""


@dataclass(frozen=True)
class TrainingConfig:
    """A training run: what the launcher resolved. All else that a device needs follows from it."""

    sizes: Transformer | UNet
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
    """Seconds slept for ``F``, ``B``, ``I`` and ``W``, by model chunk; None: computed."""
    reference: bool
    """Whether one device repeats everything alone, for comparison."""
    timeout_s: float
    plan_numbers: list[list[int | None]]
    """By boundary tensor, the plans that carry it and its gradient; None: they stay on a stage."""

    def to_json(self) -> str:
        name = next(name for name, kind in MODELS.items() if isinstance(self.sizes, kind))
        return json.dumps(asdict(self) | {"sizes": [name, asdict(self.sizes)]})

    @classmethod
    def from_json(cls, text: str) -> TrainingConfig:
        fields = json.loads(text)
        name, sizes = fields["sizes"]
        return cls(**fields | {"sizes": MODELS[name](**sizes)})

    @cached_property
    def model(self) -> LayeredModel:
        return self.sizes.build()

    @cached_property
    def checked(self) -> Checked:
        return check(self.schedule)

    @property
    def stages(self) -> int:
        return len(self.meshes)

    @property
    def samples(self) -> int:
        """Samples of a microbatch."""
        return self.batch // self.checked.lists.microbatches

    @cached_property
    def chunk_layers(self) -> list[range]:
        """Layers of every model chunk, in order and as equal in number as can be."""
        count, chunks = len(self.model.layers), self.checked.lists.model_chunks
        if chunks > count:
            raise ReshardError(
                f"the schedule has {chunks} model chunks, but the model has {count} layers; "
                "use fewer stages (or chunks), or a model with more layers"
            )
        return even_ranges(count, chunks)

    @cached_property
    def boundary_tensors(self) -> list[BoundaryTensor]:
        """What crosses between model chunks: between neighbours first, then skips."""
        layers, chunks = self.model.layers, self.chunk_layers
        chunk_of = {number: chunk for chunk, numbers in enumerate(chunks) for number in numbers}
        tensors = []
        for k, numbers in enumerate(chunks[:-1]):
            shape = (self.samples, *layers[numbers[-1]].out)
            tensors.append(BoundaryTensor(k, k + 1, name=f"{k}>{k + 1}", shape=shape))
        for number, layer in enumerate(layers):
            giver = layer.takes
            if giver is not None and chunk_of[giver] != chunk_of[number]:
                a, b, shape = chunk_of[giver], chunk_of[number], layers[giver].gives or ()
                shape, name = (self.samples, *shape), f"skip {a}>{b}"
                tensors.append(BoundaryTensor(a, b, name=name, shape=shape, layer=giver))
        return tensors

    @cached_property
    def layouts(self) -> list[Layout]:
        """Of boundary tensors, by stage."""
        stages = zip(self.meshes, self.specs, strict=True)
        return [Layout(Mesh(mesh), spec) for mesh, spec in stages]

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Of all stages, ascending."""
        return tuple(sorted(d for layout in self.layouts for d in layout.mesh.devices))

    def stage_of(self, device: int) -> int:
        return next(s for s, at in enumerate(self.layouts) if device in at.mesh.devices)

    def stages_of(self, tensor: BoundaryTensor) -> tuple[int, int]:
        return tensor.from_stage % self.stages, tensor.to_stage % self.stages

    def layers_of(self, stage: int) -> list[int]:
        return [n for layers in self.chunk_layers[stage :: self.stages] for n in layers]

    @cached_property
    def graph(self) -> Graph:
        """Every op and transfer, and what each waits for: as the simulation has it."""
        none = Load(0.0)
        return self.graph_with({}, [(none, none)] * len(self.boundary_tensors))

    def graph_with(
        self, compute: dict[tuple[str, int], float], moves: Sequence[tuple[Load, Load]]
    ) -> Graph:
        """With seconds of ops by kind and model chunk, and the loads of each tensor both ways."""
        loads = defaultdict(lambda: Load(0.0), {key: Load(s) for key, s in compute.items()})
        return build(self.checked, loads, self.boundary_tensors, moves, self.overlap)

    def key(self, item: int) -> TensorKey:
        op = self.graph.ops[item]
        return TensorKey(self.graph.tensors[item], op.kind == FORWARD, op.microbatch)

    def item_text(self, item: int) -> str:
        """An op or transfer in words: ``"F2 of stage 1"``, ``"activation 0>1 of microbatch 2"``."""
        op = self.graph.ops[item]
        if self.graph.targets[item] < 0:
            return f"{op.text(self.checked.lists.chunks)} of stage {self.graph.stages[item]}"
        return self.tensor_text(self.key(item))

    def tensor_text(self, key: TensorKey) -> str:
        kind = "activation" if key.forward else "gradient"
        return f"{kind} {self.boundary_tensors[key.tensor].name} of microbatch {key.microbatch}"


class StageRank(NamedTuple):
    """Where a device sits: its stage, and the groups that it is in there."""

    config: TrainingConfig
    device: int
    stage: int
    tensor_parallel: tuple[int, ...]
    """Devices that share its layers' parameters, itself included."""
    data_parallel: tuple[int, ...]
    """Devices that hold the same parameters for other samples, itself included."""

    @classmethod
    def of(cls, config: TrainingConfig, device: int) -> StageRank:
        stage = config.stage_of(device)
        kinds = parallel_groups(config.layouts[stage])
        groups = [next(group for group in groups if device in group) for groups in kinds]
        return cls(config, device, stage, *groups)

    @property
    def tensor_rank(self) -> int:
        return self.tensor_parallel.index(self.device)

    def model_chunk(self, op: StageOp) -> int:
        return op.chunk * self.config.stages + self.stage

    def inputs(self, chunk: int, forward: bool) -> list[int]:
        """Boundary tensors that a model chunk needs: activations, or gradients of those it made."""
        ends = [t.to_stage if forward else t.from_stage for t in self.config.boundary_tensors]
        return [number for number, end in enumerate(ends) if end == chunk]

    def samples(self, microbatch: int) -> slice:
        """This device's share of a microbatch, in the batch."""
        layout, count = self.config.layouts[self.stage], self.config.samples
        lo, hi = layout.boxes([count] + [1] * (layout.spec.ndim - 1))[self.device][0]
        return slice(microbatch * count + lo, microbatch * count + hi)


def parallel_groups(layout: Layout) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The tensor-parallel and the data-parallel groups of a stage, as device ids.

    Axes that cut the batch, the first dimension, are data-parallel; a tensor-parallel group
    differs in the others alone.

    >>> parallel_groups(Layout(Mesh([[0, 1], [2, 3]]), "S0RR"))
    ([(0, 1), (2, 3)], [(0, 2), (1, 3)])
    """
    data = list(layout.spec.dims[0])
    tensor = [a for a in range(layout.mesh.ndim) if a not in data]
    rows = np.transpose(layout.mesh.array(), data + tensor)
    size = int(np.prod([layout.mesh.shape[a] for a in tensor], dtype=int))
    rows = rows.reshape(-1, size)
    return [tuple(r) for r in rows.tolist()], [tuple(c) for c in rows.T.tolist()]
