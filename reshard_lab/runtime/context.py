"""This process among the devices of a plan: its rank, its carrier, the groups of its broadcasts."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.planning import Plan
from reshard_lab.runtime.calls import check_plan, torch_modules

if TYPE_CHECKING:
    import torch

CARRIERS = ("lanes", "broadcast", "chain")


class RankContext(NamedTuple):
    """What a process has to know to take part in a plan."""

    group: Any
    rank_of: dict[int, int]
    """``{device: rank in the group}`` of all devices of the plan."""
    device: int
    """The device that this process is."""
    carrier: str
    on: torch.device
    """Where its pieces are."""


def resolve_rank(
    plan: Plan, group: Any, ranks: Mapping[int, int] | None, carrier: str | None = None
) -> RankContext:
    """The context of this process; raises ReshardError if it is no device of the plan."""
    _, dist = torch_modules()
    check_plan(plan)
    group = default_group(group)
    carrier, on = resolve_carrier(group, carrier)
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
    return RankContext(group, rank_of, device_of[me], carrier, on)


def default_group(group: Any) -> Any:
    """``group``, or the default group; raises if there is none."""
    _, dist = torch_modules()
    if not dist.is_initialized():
        raise ReshardError(
            "torch.distributed is not initialized; call "
            "torch.distributed.init_process_group('gloo', ...) first, or use reshard_lab.run"
        )
    return dist.group.WORLD if group is None else group


def resolve_carrier(group: Any, carrier: str | None) -> tuple[str, torch.device]:
    """How messages are carried in ``group``, and where the pieces have to be."""
    torch, dist = torch_modules()
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
    given = dict(zip(devices, devices, strict=True)) if ranks is None else ranks
    missing = [d for d in devices if d not in given]
    if missing:
        raise ReshardError(
            f"ranks has no entry for devices {missing}; give {{device: rank}} for {list(devices)}"
        )
    return {d: given[d] for d in devices}


def devices_of(plan: Plan) -> tuple[int, ...]:
    """The devices of all meshes of a plan, ascending."""
    layouts = [layout for task in plan.tasks for layout in (task.src, task.dst)]
    return tuple(sorted({device for layout in layouts for device in layout.mesh.devices}))


class Communicators:
    """The process groups that broadcasts of one group's plans use, made once and kept."""

    def __init__(self, group: Any) -> None:
        self._group = weakref.ref(group)  # torch keeps it until it is destroyed
        self.groups: dict[tuple[int, ...], Any] = {}
        """By ranks in the group, ascending."""
        self.connected = False

    def lack(self, needed: Sequence[tuple[int, ...]]) -> bool:
        """Whether ``make`` has something to do."""
        return not (self.connected and all(ranks in self.groups for ranks in needed))

    def make_alone(self, needed: Sequence[tuple[int, ...]], context: RankContext) -> None:
        """``make``, called by the devices of one plan; raises if other ranks would have to."""
        ranks, world = len(context.rank_of), torch_modules()[1].get_world_size()
        if ranks < world:
            raise ReshardError(
                "the process groups of the plan are not made yet, and its devices are on only "
                f"{ranks} of {world} ranks; before, call reshard_lab.runtime.prepare(plan, ...) on "
                "all ranks, for the same plans in the same order"
            )
        self.make(needed, context.on)

    def make(self, needed: Sequence[tuple[int, ...]], on: torch.device) -> None:
        """Make what is missing. Called by all ranks of the default group, in the same order."""
        torch, dist = torch_modules()
        group = self._group()
        for ranks in needed:
            if ranks not in self.groups:
                listed = [dist.get_global_rank(group, rank) for rank in ranks]
                self.groups[ranks] = dist.new_group(listed, backend=dist.get_backend(group))
        if not self.connected and dist.get_rank(group) >= 0:
            # The first call of a group connects it, and has to be one of all its ranks.
            dist.all_reduce(torch.zeros(1, device=on), group=group)
            self.connected = True


_COMMUNICATORS: weakref.WeakKeyDictionary[Any, Communicators] = weakref.WeakKeyDictionary()


def communicators_of(group: Any) -> Communicators:
    """Those made for ``group`` so far."""
    return _COMMUNICATORS.setdefault(group, Communicators(group))
