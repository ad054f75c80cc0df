"""The same training on one device, uncut: what the run on many has to equal."""

from __future__ import annotations

from typing import Any

from reshard_lab.training.job import Job
from reshard_lab.training.kit import Kit
from reshard_lab.training.models import data, full_name, parameters, run_layers


def reference(job: Job) -> tuple[list[float], dict[str, Any]]:
    """Losses by step, and the last step's gradients as numpy arrays, by name.

    The whole batch goes through the whole model at once: no stages, microbatches, or resharding.
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
        if step:
            with kit.torch.no_grad():
                for name, gradient in gradients.items():
                    first[name] -= job.learning_rate * gradient
        tensors: dict[int | None, Any] = {None: inputs}
        run_layers(model, range(len(model.layers)), kit, held, tensors)
        loss = model.loss(kit, tensors[None], targets) / (job.batch * model.terms)
        losses.append(float(loss.detach()))
        found = kit.torch.autograd.grad(loss, list(first.values()))
        gradients = dict(zip(first, found, strict=True))
    return losses, {name: gradient.numpy() for name, gradient in gradients.items()}
