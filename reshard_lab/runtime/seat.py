"""Where a process sits among the devices of a plan, and what carries its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, check_choice, need
from reshard_lab.planning import Plan

if TYPE_CHECKING:
    import torch

CARRIERS = ("lanes", "broadcast", "chain")


class Seat(NamedTuple):
    """Where this process sits among the devices of a plan."""

    group: Any
    rank_of: dict[int, int]
    """``{device: rank in the group}`` of all devices of the plan."""
    device: int
    """The device that this process is."""
    carrier: str
    on: torch.device
    """Where its pieces are."""


def find_seat(
    plan: Plan, group: Any, ranks: Mapping[int, int] | None, carrier: str | None = None
) -> Seat:
    """The seat of this process; raises ReshardError if it has none in ``group``."""
    dist = need("torch.distributed", "run", "running a plan on processes")
    if not isinstance(plan, Plan):
        raise ReshardError(f"plan must be a Plan, as reshard_lab.plan returns, not {plan!r}")
    group = default_group(group)
    carrier, on = find_carrier(group, carrier)
    size, me = dist.get_world_size(group), dist.get_rank(group)
    rank_of = ranks_of(plan, ranks)
    device_of = {r: d for d, r in rank_of.items()}
    if len(device_of) < len(rank_of) or not all(0 <= r < size for r in device_of):
        raise ReshardError(
            f"the devices sit on ranks {rank_of}, but the group has ranks 0 to {size - 1}, one a "
            "device; start one process a device, or give ranks={device: rank}"
        )
    if me not in device_of:
        raise ReshardError(
            f"rank {me} is no device of the plan; only ranks {sorted(device_of)} call run_rank"
        )
    return Seat(group, rank_of, device_of[me], carrier, on)


def default_group(group: Any) -> Any:
    """``group``, or the default group; raises if there is none."""
    dist = need("torch.distributed", "run", "running a plan on processes")
    if not dist.is_initialized():
        raise ReshardError(
            "torch.distributed is not initialized; call "
            "torch.distributed.init_process_group('gloo', ...) first, or use reshard_lab.run"
        )
    return dist.group.WORLD if group is None else group


def find_carrier(group: Any, carrier: str | None) -> tuple[str, torch.device]:
    """How messages are carried in ``group``, and where the pieces have to be."""
    torch = need("torch", "run", "running a plan on processes")
    dist = need("torch.distributed", "run", "running a plan on processes")
    backends = str(dist.get_backend_config(group))
    nccl, gloo = "cuda:nccl" in backends, "cpu:gloo" in backends
    if not (nccl or gloo):
        raise ReshardError(
            f"the group runs {backends}; plans are carried by gloo on the CPU or by NCCL on GPUs: "
            "use init_process_group('gloo'), or 'nccl', or new_group(backend=...)"
        )
    how = check_choice("carrier", carrier or ("broadcast" if nccl else "lanes"), CARRIERS)
    if how == "lanes" and not gloo:
        raise ReshardError(
            f"carrier 'lanes' needs gloo on the CPU, and the group runs {backends}; use "
            "'broadcast' or 'chain'"
        )
    if nccl and how != "lanes":
        return how, torch.device("cuda", torch.cuda.current_device())
    return how, torch.device("cpu")


def ranks_of(plan: Plan, ranks: Mapping[int, int] | None) -> dict[int, int]:
    """``{device: rank}`` of all devices of the plan."""
    devices = devices_of(plan)
    given = {d: d for d in devices} if ranks is None else ranks
    missing = [d for d in devices if d not in given]
    if missing:
        raise ReshardError(
            f"ranks has no entry for devices {missing}; give {{device: rank}} for {list(devices)}"
        )
    rank_of = {d: given[d] for d in devices}
    return rank_of


def devices_of(plan: Plan) -> tuple[int, ...]:
    """The devices of all meshes of a plan, ascending."""
    return tuple(
        sorted({d for t in plan.tasks for mesh in (t.src.mesh, t.dst.mesh) for d in mesh.devices})
    )
