"""Resharding with gradients in a torch.distributed program (see runtime_ranks.py).

``python -m programs.training_ranks``, in tests/, prints as JSON
``{scenario: [what each rank returned]}``.
"""

import json
import os

import torch

import reshard_lab as rl
from programs.runtime_ranks import run_all
from reshard_lab.boxes import slices_within
from reshard_lab.training import reshard

SHAPE = (6, 5)
WHOLE = tuple((0, n) for n in SHAPE)
LAYOUTS = {
    "rows to columns": (([0, 1], "S0R"), ([2, 3], "RS0")),
    "replicas to parts": (([0, 1], "RR"), ([2, 3], "S0R")),
    "parts to replicas": (([0, 1], "S0R"), ([2, 3], "RR")),
    "replicas to replicas": (([[0, 1]], "RR"), ([[2], [3]], "RR")),
    "meshes that overlap": (([0, 1, 2], "RS0"), ([1, 2, 3], "S0R")),
    "the same mesh": (([0, 1, 2, 3], "S0R"), ([3, 2, 1, 0], "S0R")),
    "empty pieces": (([0], "RR"), ([1, 2, 3, 0], "S0R")),  # rows 2, 2, 2 and none
}


def numbers(seed, shape=SHAPE):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def piece_of(layout, whole, device):
    """A device's piece of a tensor, None if it is not in the mesh."""
    box = layout.boxes(tuple(whole.shape)).get(device)
    zero = tuple((0, n) for n in whole.shape)
    return None if box is None else whole[slices_within(box, zero)].clone()


def plan_of(src, dst, shape=SHAPE, strategy="broadcast"):
    a, b = (rl.Layout(rl.Mesh(mesh), spec) for mesh, spec in (src, dst))
    task = rl.ReshardingTask(shape, "float64", a, b, rl.Cluster(2, 2))
    return rl.plan(task, strategy, chunks=3)


def one_way(rank):
    """x on one mesh, its cube weighed and summed on another; {case: whether all is right}."""
    verdicts = {}
    for name, (src, dst) in LAYOUTS.items():
        for strategy in ("broadcast", "local_allgather"):
            verdicts[f"{name}, {strategy}"] = one_way_right(
                rank, plan_of(src, dst, SHAPE, strategy)
            )
    return verdicts


def one_way_right(rank, plan):
    (task,) = plan.tasks
    whole, weights = numbers(1), numbers(2)
    x = piece_of(task.src, whole, rank)
    if x is not None:
        x.requires_grad_()
    y = reshard(plan, None if x is None else x * x)
    mine = piece_of(task.dst, weights, rank)
    if mine is None:
        assert y.shape == (0,)
        y.sum().backward()
    else:
        assert torch.equal(y.detach(), piece_of(task.dst, whole * whole, rank))
        (mine * y**3).sum().backward()
    if x is None:
        return True
    expected = piece_of(task.src, 6 * weights * whole**5, rank)
    return bool(torch.allclose(x.grad, expected, rtol=1e-12, atol=0))


def there_and_back(rank):
    """Two layers on one mesh, one on another between them: gradients of all three weights."""
    there, back = (
        plan_of(([0, 1], "S0R"), ([2, 3], "S0R")),
        plan_of(([2, 3], "S0R"), ([0, 1], "S0R")),
    )
    x, (u, v, w) = numbers(3), (numbers(seed, (5, 5)).requires_grad_() for seed in (4, 5, 6))
    ((x @ u).sin() @ v).tanh().matmul(w).square().sum().backward()
    expected = [t.grad for t in (u, v, w)]
    mine = [numbers(seed, (5, 5)).requires_grad_() for seed in (4, 5, 6)]
    rows = there.tasks[0].src if rank < 2 else there.tasks[0].dst
    if rank < 2:
        sent = reshard(there, (piece_of(rows, x, rank) @ mine[0]).sin())
        came = reshard(back, None)
        (came @ mine[2]).square().sum().backward()
        sent.sum().backward()
        held = [0, 2]
    else:
        came = reshard(there, None)
        reshard(back, (came @ mine[1]).tanh()).sum().backward()
        held = [1]
    for i in held:  # each rank has seen its rows only
        both = rows.mesh.devices
        other = torch.zeros(5, 5, dtype=torch.float64)
        peer = both[0] if rank == both[1] else both[1]
        if rank < peer:
            torch.distributed.send(mine[i].grad, peer)
            torch.distributed.recv(other, peer)
        else:
            torch.distributed.recv(other, peer)
            torch.distributed.send(mine[i].grad, peer)
        if not torch.allclose(mine[i].grad + other, expected[i], rtol=1e-10):
            return False
    return all((t.grad is not None) == (i in held) for i, t in enumerate(mine))


def pieces_without_gradient(rank):
    """Of two source pieces one requires no gradient: its rank takes part, and gets none."""
    plan = plan_of(*LAYOUTS["rows to columns"])
    (task,) = plan.tasks
    x = piece_of(task.src, numbers(1), rank)
    if rank == 1:
        x.requires_grad_()
    y = reshard(plan, x, timeout_s=20)
    weights = piece_of(task.dst, numbers(2), rank)
    (y.sum() if weights is None else (weights * y).sum()).backward()
    with torch.no_grad():  # nobody means to run backward through this
        again = reshard(plan, x, timeout_s=20)
    if rank == 1:
        assert torch.allclose(x.grad, piece_of(task.src, numbers(2), rank), rtol=1e-12)
    elif rank == 0:
        assert x.grad is None
    return y.requires_grad and not again.requires_grad


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    scenarios = one_way, there_and_back, pieces_without_gradient
    print(json.dumps({f.__name__: run_all(4, f) for f in scenarios}))
