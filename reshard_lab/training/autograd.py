"""Resharding that gradients flow back through, for any torch.distributed program."""

from collections.abc import Mapping
from typing import Any

from reshard_lab.errors import ReshardError, need
from reshard_lab.pipelining.loads import reverse
from reshard_lab.planning import Plan
from reshard_lab.runtime import run_rank
from reshard_lab.training.collectives import linear_map


def reshard(
    plan: Plan,
    piece: Any,
    group: Any = None,
    *,
    ranks: Mapping[int, int] | None = None,
    timeout_s: float = 60.0,
    back: Plan | None = None,
) -> Any:
    """This rank's part of ``plan``, as ``run_rank``, with a gradient: the reverse resharding.

    Every rank of both meshes calls it, and later runs backward through it, in the same order as
    all its other calls on the group.

    piece:
        this device's source piece, None if it is in the destination mesh alone. Of one task only.
    back:
        the plan that brings the gradient back; default: ``plan`` reversed.

    Returns the destination piece. A device of the source mesh alone gets an empty tensor, which
    stands for it: ``result.sum().backward()`` there waits for the gradient and carries it on.

    What is returned requires a gradient on every rank (in grad mode), whether or not ``piece``
    does: a rank that left out its part of the backward would keep the other mesh waiting. A piece
    that requires none gets none.

    Gradients follow the layouts: each device gives the gradient of its destination piece, replicas
    the same one, and gets that of its source piece, whole, as every replica of it does. Whoever
    computes with replicas on different data adds their gradients up before (or after).
    """
    torch = need("torch", "run", "resharding with a gradient")
    if not isinstance(plan, Plan) or len(plan.tasks) != 1 or not plan.delivers:
        raise ReshardError(
            f"a gradient flows through a Plan of one task that delivers data, not {plan!r}; call "
            "it once a tensor, with any strategy but 'signal'"
        )
    if not plan.tasks[0].dtype.startswith(("float", "bfloat", "complex")):
        raise ReshardError(f"a tensor of {plan.tasks[0].dtype} has no gradient; use run_rank")
    turned = reverse(plan) if back is None else back
    alone = False

    def carry(plan: Plan, piece: Any) -> Any:
        piece = None if piece is None else piece.contiguous()
        return run_rank(plan, piece, group, ranks=ranks, timeout_s=timeout_s)

    def forward(piece: Any) -> Any:
        nonlocal alone
        out = carry(plan, piece)
        alone = out is None
        return piece.new_zeros(0) if alone else out

    def backward(gradient: Any) -> Any:
        return carry(turned, None if alone else gradient)

    # Whoever has no source piece, or one without a gradient, takes part in the backward all the
    # same: this is the input that makes the result require one.
    ticket = torch.zeros(0, requires_grad=True)
    return linear_map(piece, forward, backward, ticket)
