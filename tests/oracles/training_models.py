"""The models of reshard_lab.training written out in plain torch, for one process: the truth."""

import math

import torch
from torch.nn import functional


def plain_run(sizes, batch, seed=0, steps=1, learning_rate=0.1):
    """Losses by step and the first step's gradients, by name, of the whole model on the batch."""
    model = sizes.build()
    p = {name: t.requires_grad_() for name, t in model.initial_parameters(seed).items()}
    inputs, targets = model.batch(batch, seed)
    forward = transformer if hasattr(sizes, "heads") else unet
    losses, gradients = [], []
    for _ in range(steps):
        loss = forward(sizes, p, inputs, targets)
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: tensor.grad.numpy() for name, tensor in p.items()})
        with torch.no_grad():
            for tensor in p.values():
                tensor -= learning_rate * tensor.grad
                tensor.grad = None
    return losses, gradients[0]


def norm(x, p, name):
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return scaled * p[f"{name}.gain"] + p[f"{name}.bias"]


def attention(x, p, name, heads):
    width = x.shape[-1] // heads
    q = x @ p[f"{name}.query.weight"].T + p[f"{name}.query.bias"]
    k = x @ p[f"{name}.key.weight"].T
    v = x @ p[f"{name}.value.weight"].T + p[f"{name}.value.bias"]
    later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    seen = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        seen.append(weights @ v[..., part])
    return torch.cat(seen, -1) @ p[f"{name}.merge.weight"].T + p[f"{name}.merge.bias"]


def transformer(sizes, p, tokens, targets):
    x = p["embed.table"][tokens] + p["embed.places"]
    for i in range(sizes.blocks):
        name = f"block{i}"
        x = x + attention(norm(x, p, f"{name}.norm1"), p, name, sizes.heads)
        up = norm(x, p, f"{name}.norm2") @ p[f"{name}.up.weight"].T + p[f"{name}.up.bias"]
        x = x + functional.gelu(up) @ p[f"{name}.down.weight"].T + p[f"{name}.down.bias"]
    logits = norm(x, p, "head.norm") @ p["head.out.weight"].T + p["head.out.bias"]
    return functional.cross_entropy(logits.reshape(-1, sizes.vocabulary), targets.reshape(-1))


def group_norm(x, p, name, groups):
    split = x.unflatten(1, (groups, -1))
    mean = split.mean((2, 3, 4), keepdim=True)
    variance = (split - mean).square().mean((2, 3, 4), keepdim=True)
    scaled = ((split - mean) / (variance + 1e-5).sqrt()).flatten(1, 2)
    return scaled * p[f"{name}.gain"][:, None, None] + p[f"{name}.bias"][:, None, None]


def residual(x, p, name, groups):
    y = functional.silu(group_norm(x, p, f"{name}.norm1", groups))
    y = functional.conv2d(y, p[f"{name}.conv1.weight"], padding=1)
    y = functional.silu(group_norm(y, p, f"{name}.norm2", groups))
    y = functional.conv2d(y, p[f"{name}.conv2.weight"], p[f"{name}.conv2.bias"], padding=1)
    return y + functional.conv2d(x, p[f"{name}.beside.weight"], p[f"{name}.beside.bias"])


def unet(sizes, p, images, targets):
    x = functional.conv2d(images, p["in.conv.weight"], p["in.conv.bias"], padding=1)
    kept = []
    for i in range(sizes.levels):
        x = residual(x, p, f"down{i}", sizes.groups)
        kept.append(x)
        x = functional.avg_pool2d(x, 2)
    x = residual(x, p, "middle", sizes.groups)
    for i in reversed(range(sizes.levels)):
        x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        x = residual(torch.cat([x, kept.pop()], 1), p, f"up{i}", sizes.groups)
    x = functional.conv2d(x, p["out.conv.weight"], p["out.conv.bias"], padding=1)
    return functional.mse_loss(x, targets)
