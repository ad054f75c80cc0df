"""A small causal transformer: embedding, blocks of attention and feed-forward, head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from reshard_lab.errors import ReshardError, check_int, need
from reshard_lab.training.kit import Kit
from reshard_lab.training.models import Layer, Model, Param, Tensors


@dataclass(frozen=True)
class Transformer:
    """Sizes of the transformer. Its layers: the embedding, ``blocks`` blocks, the head.

    Boundary tensors have shape (samples, sequence, hidden). Within a stage with operator axes,
    heads and the feed-forward's inner width are shared out; the embedding and the head are not.
    """

    blocks: int = 4
    hidden: int = 16
    heads: int = 4
    sequence: int = 8
    vocabulary: int = 19

    def __post_init__(self) -> None:
        for name in ("blocks", "hidden", "heads", "sequence", "vocabulary"):
            check_int(name, getattr(self, name), 2 if name == "sequence" else 1)
        if self.hidden % self.heads:
            raise ReshardError(
                f"hidden={self.hidden} does not divide by heads={self.heads}; a head has a whole "
                "number of channels"
            )

    def build(self) -> Model:
        """The model."""
        h, t, v = self.hidden, self.sequence, self.vocabulary
        table, places = Param("table", (v, h), scale=1.0), Param("places", (t, h), scale=1.0)
        head = (*_norm("norm", h), *_linear("out", h, v))
        blocks = [
            Layer(f"block{i}", _block_params(h), partial(_block, heads=self.heads), (t, h))
            for i in range(self.blocks)
        ]
        return Model(
            (
                Layer("embed", (table, places), _embed, (t, h)),
                *blocks,
                Layer("head", head, _head, (t, v)),
            ),
            self.heads,
            "heads",
            partial(_data, shape=(t,), vocabulary=v),
            _loss,
            t,
        )


def _norm(name: str, width: int) -> tuple[Param, Param]:
    return Param(f"{name}.gain", (width,), centre=1.0), Param(f"{name}.bias", (width,))


def _linear(name: str, inner: int, outer: int, cut: int | None = None) -> tuple[Param, Param]:
    """A linear layer's parameters; ``cut`` 0 shares out what it makes, 1 what it takes."""
    weight = Param(f"{name}.weight", (outer, inner), cut, scale=inner**-0.5)
    return weight, Param(f"{name}.bias", (outer,), 0 if cut == 0 else None)


def _block_params(h: int) -> tuple[Param, ...]:
    query, key, value = (_linear(name, h, h, 0) for name in ("query", "key", "value"))
    return (
        *_norm("norm1", h),
        *query,
        key[0],  # a bias would add the same to all scores of a query, which changes nothing
        *value,
        *_linear("merge", h, h, 1),
        *_norm("norm2", h),
        *_linear("up", h, 4 * h, 0),
        *_linear("down", 4 * h, h, 1),
    )


def _embed(kit: Kit, p: Tensors, tokens: Any, skip: Any) -> Any:
    return kit.F.embedding(tokens, p["table"]) + p["places"]


def _normed(kit: Kit, p: Tensors, name: str, x: Any) -> Any:
    return kit.F.layer_norm(x, x.shape[-1:], p[f"{name}.gain"], p[f"{name}.bias"])


def _block(kit: Kit, p: Tensors, x: Any, skip: Any, heads: int) -> Any:
    """Attention and feed-forward, each on the sum of the group's shares of it."""
    linear = kit.F.linear
    y = kit.copy(_normed(kit, p, "norm1", x))
    split = [
        linear(y, p[f"{n}.weight"], p.get(f"{n}.bias"))
        .unflatten(-1, (heads // kit.size, -1))
        .transpose(-2, -3)
        for n in ("query", "key", "value")
    ]
    seen = kit.F.scaled_dot_product_attention(*split, is_causal=True)
    x = x + kit.add(linear(seen.transpose(-2, -3).flatten(-2), p["merge.weight"])) + p["merge.bias"]
    y = kit.copy(_normed(kit, p, "norm2", x))
    y = kit.F.gelu(linear(y, p["up.weight"], p["up.bias"]))
    return x + kit.add(linear(y, p["down.weight"])) + p["down.bias"]


def _head(kit: Kit, p: Tensors, x: Any, skip: Any) -> Any:
    return kit.F.linear(_normed(kit, p, "norm", x), p["out.weight"], p["out.bias"])


def _loss(kit: Kit, logits: Any, targets: Any) -> Any:
    return kit.F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def _data(generator: Any, samples: int, shape: tuple[int, ...], vocabulary: int) -> tuple[Any, Any]:
    """Random tokens; the target of each is the one behind it, of the last the first."""
    torch = need("torch", "run", "training")
    tokens = torch.randint(vocabulary, (samples, *shape), generator=generator)
    return tokens, tokens.roll(-1, dims=1)
