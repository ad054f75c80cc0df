"""The same training on one device, uncut: what the run on many has to equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reshard_lab.training.job import Job
from reshard_lab.training.kit import Kit
from reshard_lab.training.models import data, full_name, parameters, run_layers


def reference(job: Job, alive: Callable[[int], None]) -> tuple[list[float], dict[str, Any]]:
    """Losses by step, and the first step's gradients as numpy arrays, by name.

    The whole batch goes through the whole model at once: no stages, microbatches, or resharding.
    ``alive`` is called with the number of every step, from 0, before it is taken.
    """
    kit, model = Kit(), job.built
    inputs, targets = data(model, job.batch, job.seed)
    first = parameters(model, job.seed)
    held = {
        number: {p.name: first[full_name(layer, p)].requires_grad_() for p in layer.params}
        for number, layer in enumerate(model.layers)
    }
    losses: list[float] = []
    gradients: dict[str, Any] = {}
    for step in range(job.steps):
        alive(step)
        tensors: dict[int | None, Any] = {None: inputs}
        run_layers(model, range(len(model.layers)), kit, held, tensors)
        loss = model.loss(kit, tensors[None], targets) / (job.batch * model.terms)
        losses.append(float(loss.detach()))
        found = kit.torch.autograd.grad(loss, list(first.values()))
        gradients = gradients or {n: g.numpy() for n, g in zip(first, found, strict=True)}
        with kit.torch.no_grad():
            for parameter, gradient in zip(first.values(), found, strict=True):
                parameter -= job.learning_rate * gradient
    return losses, gradients
