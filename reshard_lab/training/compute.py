"""What a device computes in a step: with torch, or as sleeps; and the uncut model, to compare with.

With torch, the graph of gradients is cut at the boundaries of model chunks: what comes starts a
graph of its own, and a backward begins with the gradient that has come back.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from reshard_lab.errors import ReshardError, need
from reshard_lab.pipelining.ops import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, StageOp
from reshard_lab.runtime.calls import CallState, Deadline
from reshard_lab.training.collectives import BoundaryBox, TensorParallel, all_reduce, boundary_box
from reshard_lab.training.config import StageRank, TensorKey, TensorValues, TrainingConfig
from reshard_lab.training.models import Activations

_PRIME = 2**23 - 15
"""What is in a row or column further on does not repeat. Sums of two are exact float32."""


class StepTensors(CallState):
    """Boundary tensors of a step, put once and taken once, by any thread."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(deadline)
        self._tensors: TensorValues = {}

    def put(self, key: TensorKey, tensor: Any) -> None:
        with self.update():
            self._tensors[key] = tensor

    def take(self, key: TensorKey, what: str) -> Any:
        """Wait for a tensor; LateError says that ``what`` did not come, Stopped after ``fail``."""
        with self.changed:
            self.until(lambda: key in self._tensors, what)
            return self._tensors.pop(key)


class Compute:
    """The ops of one device. This one takes the tensors that come; what to do is a subclass's."""

    def __init__(self, rank: StageRank) -> None:
        self.rank, self.config = rank, rank.config
        self.torch = need("torch", "run", "training")
        self.parameters: dict[str, Any] = {}
        """This device's shards by full name; none where nothing is learned. So with gradients."""
        self.gradients: dict[str, Any] = {}
        self.loss = 0.0
        """This device's part of the step's loss: that of its samples, on the last model chunk."""

    def begin(self, deadline: Deadline) -> None:
        """Begin a step, to be over by a deadline."""
        raise NotImplementedError

    def run(self, op: StageOp, tensors: StepTensors, ready: Callable[[], None]) -> TensorValues:
        """Carry out an op, calling ``ready`` when its inputs have come; its results for others."""
        chunk, forward = self.rank.model_chunk(op), op.kind == FORWARD
        numbers = [] if op.kind == WEIGHT_GRADIENT else self.rank.inputs(chunk, forward)
        text, inputs = op.text(self.config.checked.lists.chunks), {}
        for key in (TensorKey(n, forward, op.microbatch) for n in numbers):
            inputs[key] = tensors.take(key, f"{self.config.tensor_text(key)}, for {text},")
        ready()
        return self.result(op, chunk, inputs)

    def result(self, op: StageOp, chunk: int, inputs: TensorValues) -> TensorValues:
        """What an op makes of its inputs for others."""
        raise NotImplementedError

    def finish(self, data_parallel: Any, deadline: Deadline) -> None:
        """Sum gradients over the data-parallel group: the ops of a step are over."""
        parts = list(self.gradients.values())
        if len(self.rank.data_parallel) == 1 or not parts:
            return
        flat = self.torch.cat([g.reshape(-1) for g in parts])
        all_reduce(flat, data_parallel, deadline)
        for g, total in zip(parts, flat.split([g.numel() for g in parts]), strict=True):
            g.copy_(total.view_as(g))

    def learn(self, rate: float) -> None:
        with self.torch.no_grad():
            for name, p in self.parameters.items():
                p -= rate * self.gradients[name]


class TorchCompute(Compute):
    """Activations, gradients and losses, computed by torch."""

    def __init__(self, rank: StageRank, group: Any) -> None:
        super().__init__(rank)
        self.model, config = rank.config.model, rank.config
        self.tp = tp = TensorParallel(group, rank.tensor_rank, len(rank.tensor_parallel))
        unsharded = self.model.initial_parameters(config.seed)
        self.parameters = {
            name: tp.shard(unsharded[name], p.cut).clone().requires_grad_()
            for name, p in self.model.params(config.layers_of(rank.stage)).items()
        }
        self.inputs, self.targets = self.model.batch(config.batch, config.seed)
        self.boxes: list[BoundaryBox | None] = []
        for shape in (tensor.shape for tensor in config.boundary_tensors):
            boxes = config.layouts[rank.stage].boxes(shape)
            group = [boxes[device] for device in rank.tensor_parallel]
            self.boxes.append(boundary_box(group, rank.tensor_rank, shape))

    def begin(self, deadline: Deadline) -> None:
        self.tp.deadline = deadline
        self.gradients = {name: self.torch.zeros_like(p) for name, p in self.parameters.items()}
        self.loss = 0.0
        # By model chunk and microbatch: what came, and what left (of the last chunk the loss)
        self._saved: dict[tuple[int, int], tuple[list[Any], list[Any]]] = {}
        self._output_gradients: dict[tuple[int, int], list[Any]] = {}

    def result(self, op: StageOp, chunk: int, inputs: TensorValues) -> TensorValues:
        return (self._forward if op.kind == FORWARD else self._backward)(op, chunk, inputs)

    def _forward(self, op: StageOp, chunk: int, inputs: TensorValues) -> TensorValues:
        boundary, samples = self.config.boundary_tensors, self.rank.samples(op.microbatch)
        leaves = {key.tensor: x.detach().requires_grad_() for key, x in inputs.items()}
        tensors: Activations = {None: self.inputs[samples]}
        for n, leaf in leaves.items():
            tensors[boundary[n].layer] = self.tp.gather(leaf, self.boxes[n])
        self.model.run(self.config.chunk_layers[chunk], self.tp, self.parameters, tensors)
        results, outputs = [], {}
        if chunk == len(self.config.chunk_layers) - 1:
            total = self.model.loss(self.tp, tensors[None], self.targets[samples])
            results = [total / (self.config.batch * self.model.terms)]
            self._check(results[0], op, "the loss")
            self.loss += float(results[0].detach())
        for n in self.rank.inputs(chunk, forward=False):
            output = self.tp.scatter(tensors[boundary[n].layer], self.boxes[n])
            self._check(output, op, f"activation {boundary[n].name}")
            results.append(output)
            outputs[TensorKey(n, True, op.microbatch)] = output.detach().contiguous()
        self._saved[chunk, op.microbatch] = list(leaves.values()), results
        return outputs

    def _backward(self, op: StageOp, chunk: int, inputs: TensorValues) -> TensorValues:
        at, half = (chunk, op.microbatch), op.kind == INPUT_GRADIENT
        leaves, results = self._saved[at]
        came = self._output_gradients.pop(at, list(inputs.values()))
        if chunk == len(self.config.chunk_layers) - 1:
            came = [self.torch.ones_like(results[0])]
        numbers, names = self.rank.inputs(chunk, True), []
        if op.kind == WEIGHT_GRADIENT:
            leaves, numbers = [], []
        if half:
            self._output_gradients[at] = came
        else:
            names = list(self.model.params(self.config.chunk_layers[chunk]))
            del self._saved[at]
        wanted = [*leaves, *(self.parameters[name] for name in names)]
        grad = self.torch.autograd.grad
        gradients = grad(results, wanted, came, retain_graph=half) if wanted else ()
        for name, gradient in zip(names, gradients[len(leaves) :], strict=True):
            self.gradients[name] += gradient
        outputs: TensorValues = {}
        for n, gradient in zip(numbers, gradients[: len(leaves)], strict=True):
            self._check(gradient, op, f"gradient {self.config.boundary_tensors[n].name}")
            outputs[TensorKey(n, False, op.microbatch)] = gradient.contiguous()
        return outputs

    def _check(self, tensor: Any, op: StageOp, what: str) -> None:
        """Refuse NaN and infinity where they first show."""
        bad = int((~self.torch.isfinite(tensor)).sum())
        if bad:
            text = op.text(self.config.checked.lists.chunks)
            raise ReshardError(
                f"stage {self.rank.stage}, {text}: {bad} of {tensor.numel()} elements of {what} "
                f"(shape {tuple(tensor.shape)}) are NaN or infinite; try a smaller learning_rate"
            )


class PacedCompute(Compute):
    """A sleep for every op; tensors of real size move. Every element is where it stands in its
    tensor plus a number of the tensor's own, so what goes astray shows.
    """

    def __init__(self, rank: StageRank, delivers: bool) -> None:
        super().__init__(rank)
        self.delivers = delivers
        """Whether the plans do: under ``signal`` there is nothing to check."""
        self.step = -1
        self.patterns: dict[int, Any] = {}
        """By boundary tensor from or to here: where each element of this device's box stands."""
        for number, tensor in enumerate(self.config.boundary_tensors):
            if rank.stage in self.config.stages_of(tensor):
                box = self.config.layouts[rank.stage].boxes(tensor.shape)[rank.device]
                at = np.ravel_multi_index(np.ix_(*(range(lo, hi) for lo, hi in box)), tensor.shape)
                self.patterns[number] = self.torch.from_numpy(at % _PRIME).float()

    def begin(self, deadline: Deadline) -> None:
        self.step += 1

    def result(self, op: StageOp, chunk: int, inputs: TensorValues) -> TensorValues:
        assert self.config.paced is not None
        end = time.monotonic() + self.config.paced[op.kind][chunk]
        for key, tensor in inputs.items():
            self._check(tensor, key, op)
        forward = op.kind == FORWARD
        numbers = [] if op.kind == WEIGHT_GRADIENT else self.rank.inputs(chunk, not forward)
        keys = [TensorKey(n, forward, op.microbatch) for n in numbers]
        outputs = {key: self._expected(key) for key in keys}
        time.sleep(max(0.0, end - time.monotonic()))
        return outputs

    def _expected(self, key: TensorKey) -> Any:
        tensor, forward, microbatch = key
        number = (self.step * len(self.config.boundary_tensors) + tensor) * 2 + forward
        number = 1 + number * self.config.checked.lists.microbatches + microbatch
        return self.patterns[tensor] + float(number % _PRIME)

    def _check(self, tensor: Any, key: TensorKey, op: StageOp) -> None:
        expected = self._expected(key)
        if self.delivers and not self.torch.equal(tensor, expected):
            at = int((tensor != expected).reshape(-1).nonzero()[0])
            value, wanted = (float(t.reshape(-1)[at]) for t in (tensor, expected))
            name = self.config.boundary_tensors[key.tensor].name
            raise ReshardError(
                f"stage {self.rank.stage}, {op.text()}: tensor {name} did not come whole: "
                f"element {at} of its box is {value:.0f}, not {wanted:.0f}"
            )


def train_uncut(
    config: TrainingConfig, alive: Callable[[int], None]
) -> tuple[list[float], dict[str, Any]]:
    """The same training on one device: losses by step, and the first step's gradients as arrays.

    The whole batch goes through the whole model at once: no stages, microbatches, or resharding.
    ``alive`` is called with the number of every step, from 0, before it is taken.
    """
    tp, model = TensorParallel(), config.model
    inputs, targets = model.batch(config.batch, config.seed)
    initial = model.initial_parameters(config.seed)
    parameters = {name: p.requires_grad_() for name, p in initial.items()}
    losses: list[float] = []
    gradients: dict[str, Any] = {}
    for step in range(config.steps):
        alive(step)
        tensors: Activations = {None: inputs}
        model.run(range(len(model.layers)), tp, parameters, tensors)
        loss = model.loss(tp, tensors[None], targets) / (config.batch * model.terms)
        losses.append(float(loss.detach()))
        of_step = tp.torch.autograd.grad(loss, list(parameters.values()))
        gradients = gradients or {n: g.numpy() for n, g in zip(parameters, of_step, strict=True)}
        with tp.torch.no_grad():
            for p, gradient in zip(parameters.values(), of_step, strict=True):
                p -= config.learning_rate * gradient
    return losses, gradients
