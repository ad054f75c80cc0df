"""What a device computes with torch: the pieces of its stage, forward and backward.

The graph of gradients is cut at the boundaries of pieces: what comes starts a graph of its own,
and a backward begins with the gradient that has come back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError
from reshard_lab.pipelining.ops import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Op
from reshard_lab.runtime.calls import Deadline
from reshard_lab.training.job import boxes_in
from reshard_lab.training.kit import Kit, Span, add_up, span_of
from reshard_lab.training.mailbox import Key, Mailbox
from reshard_lab.training.models import Tensors, data, full_name, parameters, run_layers
from reshard_lab.training.role import Began, Role


class _Kept(NamedTuple):
    """What a microbatch leaves behind on a piece, for its backward."""

    leaves: list[Any]
    """Tensors that came, by way of ``inputs``."""
    results: list[Any]
    """Tensors that left, by way of their gradients; on the last piece the loss."""


class Computed:
    """Torch computes: activations, gradients, losses."""

    def __init__(self, role: Role, kit: Kit) -> None:
        self.role, self.kit, self.torch = role, kit, kit.torch
        self.job = role.job
        whole = parameters(self.job.built, self.job.seed)
        self.parameters: dict[int, Tensors] = {
            layer: {
                p.name: kit.own(whole[full_name(made, p)], p.cut).clone().requires_grad_()
                for p in made.params
            }
            for piece in role.pieces
            for layer in self.job.pieces[piece]
            for made in (self.job.built.layers[layer],)
        }
        self.inputs, self.targets = data(self.job.built, self.job.batch, self.job.seed)
        self.spans = [self._span(number) for number in range(len(self.job.ways))]
        self._clear()

    def begin(self, deadline: Deadline) -> None:
        """A step begins, to be over by a deadline."""
        self.deadline = self.kit.deadline = deadline
        self._clear()

    def _clear(self) -> None:
        """No gradients, no losses."""
        zeros = self.torch.zeros_like
        self.gradients = {
            layer: {name: zeros(p) for name, p in held.items()}
            for layer, held in self.parameters.items()
        }
        self.loss = 0.0
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._halves: dict[tuple[int, int], list[Any]] = {}

    def run(self, op: Op, mailbox: Mailbox, began: Began) -> dict[Key, Any]:
        """Carry out an op when its input has come; returns what leaves."""
        given = self.role.await_inputs(op, mailbox)
        began()
        carry = self._forward if op.kind == FORWARD else self._backward
        return carry(op, self.role.piece(op), given)

    def _span(self, way: int) -> Span | None:
        shape = self.job.ways[way].shape
        group = self.role.operator_group
        boxes = boxes_in(self.job.layouts[self.role.stage], shape, group)
        return span_of(boxes, group.index(self.role.device), shape)

    def _forward(self, op: Op, piece: int, given: list[Any]) -> dict[Key, Any]:
        m, ways, spans = op.microbatch, self.job.ways, self.spans
        leaves = [tensor.detach().requires_grad_() for tensor in given]
        tensors: dict[int | None, Any] = {None: self.inputs[self.role.samples(m)]}
        for way, leaf in zip(self.role.inputs(piece, True), leaves, strict=True):
            tensors[ways[way].skip] = self.kit.unite(leaf, spans[way])
        run_layers(self.job.built, self.job.pieces[piece], self.kit, self.parameters, tensors)
        results, leave = [], {}
        if piece == len(self.job.pieces) - 1:
            targets = self.targets[self.role.samples(m)]
            total = self.job.built.loss(self.kit, tensors[None], targets)
            results = [total / (self.job.batch * self.job.built.terms)]
            self._check(results[0], op, "the loss")
            self.loss += float(results[0].detach())
        for way in self.role.inputs(piece, forward=False):
            made = self.kit.part(tensors[ways[way].skip], spans[way])
            self._check(made, op, f"activation {ways[way].name}")
            results.append(made)
            leave[Key(way, True, m)] = made.detach().contiguous()
        self._kept[piece, m] = _Kept(leaves, results)
        return leave

    def _backward(self, op: Op, piece: int, given: list[Any]) -> dict[Key, Any]:
        m, at = op.microbatch, (piece, op.microbatch)
        leaves, results = self._kept[at]
        came = self._halves.pop(at) if op.kind == WEIGHT_GRADIENT else given
        if piece == len(self.job.pieces) - 1:
            came = [self.torch.ones_like(results[0])]
        held = [(n, name) for n in self.job.pieces[piece] for name in self.parameters[n]]
        wanted = [] if op.kind == WEIGHT_GRADIENT else leaves
        weights = [] if op.kind == INPUT_GRADIENT else [self.parameters[n][k] for n, k in held]
        found: tuple[Any, ...] = ()
        if wanted or weights:
            found = self.torch.autograd.grad(
                results, [*wanted, *weights], came, retain_graph=op.kind == INPUT_GRADIENT
            )
        for (n, name), gradient in zip(held, found[len(wanted) :], strict=False):
            self.gradients[n][name] += gradient
        leave = {}
        if op.kind != WEIGHT_GRADIENT:
            for way, gradient in zip(self.role.inputs(piece, True), found, strict=False):
                self._check(gradient, op, f"gradient {self.job.ways[way].name}")
                leave[Key(way, False, m)] = gradient.contiguous()
        if op.kind == INPUT_GRADIENT:
            self._halves[at] = came
        else:
            del self._kept[at]
        return leave

    def _check(self, tensor: Any, op: Op, what: str) -> None:
        """Refuse what is not a number, where it first shows."""
        finite = self.torch.isfinite(tensor)
        if not bool(finite.all()):
            bad = int(tensor.numel() - finite.sum())
            text = op.text(self.job.checked.lists.chunks)
            raise ReshardError(
                f"stage {self.role.stage}, {text}: {bad} of {tensor.numel()} elements of {what} "
                f"(shape {tuple(tensor.shape)}) are NaN or infinite; try a smaller learning_rate"
            )

    def finish(self, data_group: Any) -> None:
        """The step's ops are over: add up gradients over the data group."""
        parts = [g for held in self.gradients.values() for g in held.values()]
        if len(self.role.data_group) == 1 or not parts:
            return
        flat = self.torch.cat([g.reshape(-1) for g in parts])
        add_up(flat, data_group, self.deadline)
        for g, summed in zip(parts, flat.split([g.numel() for g in parts]), strict=True):
            g.copy_(summed.view_as(g))

    def learn(self, rate: float) -> None:
        """A step of gradient descent."""
        with self.torch.no_grad():
            for layer, held in self.parameters.items():
                for name, p in held.items():
                    p -= rate * self.gradients[layer][name]

    def found(self) -> dict[str, Any]:
        """This device's gradients by full name, as numpy arrays that later steps leave alone."""
        return {
            full_name(layer, p): self.gradients[number][p.name].numpy()
            for number in self.gradients
            for layer in (self.job.built.layers[number],)
            for p in layer.params
        }
