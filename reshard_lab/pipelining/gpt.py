"""GPT, as the paper trains it (section 5.2, table 3)."""

from typing import Any

from reshard_lab.errors import ReshardError
from reshard_lab.pipelining.loads import BoundaryTensor
from reshard_lab.pipelining.ops import even_ranges
from reshard_lab.pipelining.workload import (
    Cost,
    ModelPart,
    Workload,
    attention,
    cut_workload,
    keep,
    linear,
    norm,
    settings_of,
    total,
)

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
    name, settings = settings_of("GPT", GPT_SIZES, size, changes)
    hidden, sequence, vocab = settings["hidden"], settings["sequence"], settings["vocab"]
    layers, stages, heads = settings["layers"], settings["stages"], settings["heads"]
    if layers < stages:
        raise ReshardError(f"{name}: {layers} layers do not fill {stages} stages; use fewer stages")
    if hidden % heads:
        raise ReshardError(f"{name}: hidden={hidden} does not divide into {heads} heads")
    samples = settings["batch"] // settings["microbatches"]
    tokens = samples * sequence
    block = _block(samples, sequence, hidden, heads)
    names = [f"block {i}" for i in range(layers)]
    blocks = [ModelPart(name, block, {f"into {name}": tokens * hidden}) for name in names]
    cut = [[blocks[i] for i in numbers] for numbers in even_ranges(layers, stages)]
    cut[0].insert(0, ModelPart("embedding", Cost((vocab + sequence) * hidden), {}))
    # The final norm, the logits by the tied matrix (its parameters are the embedding's), the loss
    logits = linear(tokens, hidden, vocab, bias=False)._replace(parameters=0)
    output = total([norm(tokens * hidden, hidden), logits, keep(tokens * vocab, split=True)])
    copied = vocab * hidden if stages > 1 else 0
    cut[-1].append(ModelPart("output", output, {"into output": tokens * hidden}, copied))
    shape = (samples, sequence, hidden)
    tensors = [BoundaryTensor(s, s + 1, name="hidden", shape=shape) for s in range(stages - 1)]
    return cut_workload(name, settings, recompute, cut, tensors)


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
