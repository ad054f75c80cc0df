"""GPT, as the paper trains it (section 5.2, table 3)."""

from __future__ import annotations

from typing import Any

from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.pipelining.workloads.costs import Cost, attention, keep, linear, norm, total
from reshard_lab.pipelining.workloads.record import Layer, Workload, sizes_of, stage_work

GPT_SIZES: dict[str, dict[str, Any]] = {
    "1.3B": {
        "sequence": 1024,
        "hidden": 2048,
        "layers": 24,
        "heads": 32,
        "vocab": 51200,
        "batch": 64,
        "microbatches": 4,
        "stages": 2,
        "data": 1,
        "operator": 2,
        "dtype": "float16",
    },
}
GPT_SIZES["2.6B"] = GPT_SIZES["1.3B"] | {"hidden": 2560, "layers": 32, "batch": 32, "data": 2}
"""Public configurations of the paper's evaluation."""


def gpt(size: str = "1.3B", recompute: bool = False, **changes: Any) -> Workload:
    """A decoder-only transformer with pre-normalised blocks and the output matrix tied to the
    token embedding, cut into stages of as equal numbers of blocks as can be (the first longer).

    size:
        ``"1.3B"`` or ``"2.6B"``, the paper's configurations (section 5.2, table 3).
    recompute:
        keep only the input of every block and run its forward again in the backward.
    changes:
        other values of sequence, hidden, layers, heads, vocab, batch, microbatches, stages, data,
        operator, dtype.

    A block on b samples of s tokens, h wide: 12 h^2 + 13 h parameters, 24 b s h^2 + 4 b s^2 h
    FLOPs forward (all of the s x s scores are computed), twice that backward; the output
    2 b s h V. The last stage holds a copy of the shared matrix.

    >>> gpt("1.3B")
    Workload(GPT-1.3B: 1.32 billion parameters, 555.8 TFLOP a batch of 64, 2 stages of (1, 2) \
devices, 64 MiB cross a microbatch)
    """
    base = GPT_SIZES[check_choice("GPT size", size, GPT_SIZES)]
    for key in changes:
        check_choice("GPT setting", key, base)
    name = f"GPT-{size}" + (" changed" if changes else "")
    sizes = sizes_of(name, base | changes)
    hidden, sequence, vocab = sizes["hidden"], sizes["sequence"], sizes["vocab"]
    layers, stages = sizes["layers"], sizes["stages"]
    if layers < stages:
        raise ReshardError(f"{name}: {layers} layers do not fill {stages} stages; use fewer stages")
    if hidden % sizes["heads"]:
        raise ReshardError(f"{name}: hidden={hidden} does not divide into {sizes['heads']} heads")
    samples = sizes["batch"] // sizes["microbatches"]
    tokens = samples * sequence
    block = _block(samples, sequence, hidden, sizes["heads"])
    cut: list[list[Layer]] = []
    for s in range(stages):
        count = layers // stages + (s < layers % stages)
        done = sum(len(part) for part in cut)
        names = [f"block {done + i}" for i in range(count)]
        cut.append([Layer(name, block, {f"into {name}": tokens * hidden}) for name in names])
    embedding = Layer("embedding", Cost((vocab + sequence) * hidden), {})
    head = Layer("output", _output(tokens, hidden, vocab), {"into output": tokens * hidden})
    parameters = embedding.cost.parameters + layers * block.parameters + head.cost.parameters
    cut[0].insert(0, embedding)
    cut[-1].append(head)
    copies = [vocab * hidden if 0 < s == stages - 1 else 0 for s in range(stages)]
    shape = (samples, sequence, hidden)
    return Workload(
        name,
        sizes["dtype"],
        sizes["batch"],
        sizes["microbatches"],
        sizes["data"],
        sizes["operator"],
        tuple(stage_work(c, sizes, recompute, n) for c, n in zip(cut, copies, strict=True)),
        tuple(BoundaryTensor(s, s + 1, name="hidden", shape=shape) for s in range(stages - 1)),
        parameters,
    )


def _block(samples: int, sequence: int, hidden: int, heads: int) -> Cost:
    """Attention and a feed-forward four times as wide, each after a layer norm."""
    tokens = samples * sequence
    return total(
        [
            norm(tokens * hidden, hidden),
            linear(tokens, hidden, 3 * hidden),
            attention(samples, sequence, sequence, hidden, heads),
            linear(tokens, hidden, hidden, split=True),
            norm(tokens * hidden, hidden),
            linear(tokens, hidden, 4 * hidden),
            keep(tokens * 4 * hidden, split=True),  # GELU
            linear(tokens, 4 * hidden, hidden, split=True),
        ]
    )


def _output(tokens: int, hidden: int, vocab: int) -> Cost:
    """Final layer norm, logits by the tied matrix (its parameters are the embedding's), loss."""
    logits = linear(tokens, hidden, vocab, bias=False)._replace(parameters=0)
    return total([norm(tokens * hidden, hidden), logits, keep(tokens * vocab, split=True)])
