"""The workloads as torch modules, written apart from the library, to be counted on meta tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode


def attend(q, k, v, heads):
    """Softmax attention by plain matrix products; (samples, tokens, width) each."""
    samples, tokens, width = q.shape
    q, k, v = (t.reshape(samples, -1, heads, width // heads).transpose(1, 2) for t in (q, k, v))
    scores = q @ k.transpose(-2, -1) * (width // heads) ** -0.5
    mixed = scores.softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(samples, tokens, width)


def again(function, kept, *arguments):
    """Run ``function`` now and, all of it, once more in the backward; ``kept`` is what it keeps."""
    AGAIN.extend(t.detach() for t in kept)
    return checkpoint(function, *arguments, use_reentrant=False)


AGAIN: list[torch.Tensor] = []


class Block(nn.Module):
    """One block of GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.before_attention(x)).chunk(3, -1)
        x = x + self.out(attend(q, k, v, self.heads))
        return x + self.narrow(functional.gelu(self.wide(self.before_feed(x))))


class GPTStage(nn.Module):
    """Some blocks; the first stage embeds, the last one computes the loss."""

    def __init__(self, blocks, width, heads, vocab, sequence, first, last, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.tokens = nn.Embedding(vocab, width) if first or last else None
        self.positions = nn.Embedding(sequence, width) if first else None
        self.norm = nn.LayerNorm(width) if last else None

    def forward(self, x, targets):
        if self.positions is not None:
            x = self.tokens(x) + self.positions.weight
        for block in self.blocks:
            x = again(block, [x], x) if self.recompute else block(x)
        if self.norm is None:
            return x
        if self.recompute:
            return again(self.finish, [x], x, targets)
        return self.finish(x, targets)

    def finish(self, x, targets):
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Residual(nn.Module):
    def __init__(self, into, out, time):
        super().__init__()
        self.first, self.second = nn.GroupNorm(32, into), nn.GroupNorm(32, out)
        self.conv1, self.conv2 = nn.Conv2d(into, out, 3, 1, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.time = nn.Linear(time, out)
        self.short = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(functional.silu(self.first(x))) + self.time(time)[:, :, None, None]
        return self.conv2(functional.silu(self.second(y))) + self.short(x)


class Transformer(nn.Module):
    def __init__(self, width, context, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.q, self.kv = (
            nn.Linear(width, width, bias=False),
            nn.Linear(context, 2 * width, bias=False),
        )
        self.cross = nn.Linear(width, width)
        self.gated, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, image, context):
        samples, width, side, _ = image.shape
        x = self.enter(self.norm(image).flatten(2).transpose(1, 2))
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + self.out(attend(q, k, v, self.heads))
        k, v = self.kv(context).chunk(2, -1)
        x = x + self.cross(attend(self.q(self.norms[1](x)), k, v, self.heads))
        value, gate = self.gated(self.norms[2](x)).chunk(2, -1)
        x = x + self.narrow(value * functional.gelu(gate))
        return self.leave(x).transpose(1, 2).reshape(samples, width, side, side) + image


class UTransformer(nn.Module):
    """Thirteen layers that pass on (map, time embedding, skips)."""

    def __init__(self, c, heads):
        super().__init__()
        widths, time, context = [c, 2 * c, 4 * c, 4 * c], 4 * c, 4 * c
        self.c = c
        self.embed = nn.ModuleList([nn.Linear(c, time), nn.Linear(time, time)])
        self.enter = nn.Conv2d(3, c, 3, 1, 1)
        self.finish = nn.ModuleList([nn.GroupNorm(32, c), nn.Conv2d(c, 4, 3, 1, 1)])
        layers, skips, at = [], [c], c
        for level, width in enumerate(widths):
            parts = {"residual": Residual(at, width, time)}
            skips.append(width)
            if level < 3:
                parts["attend"] = Transformer(width, context, heads)
                parts["halve"] = nn.Conv2d(width, width, 3, 2, 1)
                skips.append(width)
            layers.append(nn.ModuleDict(parts))
            at = width
        layers.append(
            nn.ModuleDict(
                {
                    "residual": Residual(at, at, time),
                    "attend": Transformer(at, context, heads),
                    "again": Residual(at, at, time),
                }
            )
        )
        for level in (3, 2, 1, 0):
            for i in range(2):
                parts = {"residual": Residual(at + skips.pop(), widths[level], time)}
                at = widths[level]
                if level < 3:
                    parts["attend"] = Transformer(at, context, heads)
                if i == 1 and level:
                    parts["upsample"] = nn.Conv2d(at, at, 3, 1, 1)
                layers.append(nn.ModuleDict(parts))
        self.layers = nn.ModuleList(layers)

    def modules_of(self, number):
        parts = [self.layers[number]]
        if number == 0:
            parts += [self.embed, self.enter]
        return [*parts, self.finish] if number == 12 else parts

    def layer(self, number, x, time, skips, context):
        """Layer ``number``; ``time`` comes in as sinusoids to layer 0, embedded to the others."""
        part = self.layers[number]
        skips = list(skips)
        if number == 0:
            for linear in self.embed:
                time = functional.silu(linear(time))
            x = self.enter(x)
            skips.append(x)
        if number > 4:
            x = torch.cat([x, skips.pop()], 1)
        x = part["residual"](x, time)
        if "attend" in part:
            x = part["attend"](x, context)
        if "again" in part:
            x = part["again"](x, time)
        if number < 4:
            skips.append(x)
        if "halve" in part:
            x = part["halve"](x)
            skips.append(x)
        if "upsample" in part:
            x = part["upsample"](functional.interpolate(x, scale_factor=2.0))
        if number == 12:
            x = self.finish[1](functional.silu(self.finish[0](x)))
        return x, time, skips

    def run(self, numbers, x, time, skips, context, recompute=False):
        for number in numbers:
            if recompute:
                kept = [x, time, *(skips[-1:] if number > 4 else [])]
                x, time, skips = again(self.layer, kept, number, x, time, skips, context)
            else:
                x, time, skips = self.layer(number, x, time, skips, context)
        return x, time, skips


def count(stage, inputs, given, outputs_of):
    """FLOPs forward and backward of ``outputs_of(stage, *inputs)``, and the bytes it keeps.

    Returns (forward, backward, bytes, outputs); parameters and ``given`` do not count as kept.
    """
    others = {t.untyped_storage()._cdata for t in (*stage.parameters(), *given)}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    AGAIN.clear()
    with (
        set_checkpoint_early_stop(False),
        FlopCounterMode(display=False) as forward,
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        outputs = outputs_of(stage, *inputs)
    with FlopCounterMode(display=False) as backward:
        flowing = [o for o in outputs if o.requires_grad]
        torch.autograd.backward(flowing, [torch.ones_like(o) for o in flowing])
    kept |= {t.untyped_storage()._cdata: t for t in AGAIN}
    nbytes = sum(t.untyped_storage().nbytes() for key, t in kept.items() if key not in others)
    return forward.get_total_flops(), backward.get_total_flops(), nbytes, outputs
