"""The one primitive of real runs: this rank's part of a plan, over torch.distributed."""

import hashlib
import threading
import weakref
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.runtime.arrays import RankPieces, check_pieces
from reshard_lab.runtime.calls import (
    Control,
    Deadline,
    Duplex,
    LateError,
    PeerError,
    Wire,
    torch_modules,
)
from reshard_lab.runtime.context import (
    RankContext,
    communicators_of,
    default_group,
    ranks_of,
    resolve_carrier,
    resolve_rank,
)
from reshard_lab.runtime.lanes import LaneCall
from reshard_lab.runtime.program import Compiler, Observer, PieceMemory, Program
from reshard_lab.runtime.rounds import BatchCall, Rounds, broadcast_groups, rounds_of


def run_rank(
    plan: Plan,
    piece: Any,
    group: Any = None,
    async_op: bool = False,
    *,
    ranks: Mapping[int, int] | None = None,
    out: Any = None,
    timeout_s: float = 60.0,
    observe: Observer | None = None,
    carrier: str | None = None,
) -> Any:
    """Carry out this rank's part of ``plan``; called by the ranks of all its devices alike.

    piece:
        this device's source piece, a contiguous tensor of its box's shape (on the CPU, under NCCL
        on the current GPU); None if it is not in the source mesh. For a plan of several tasks a
        list, one entry a task.
    group:
        a torch.distributed process group that runs gloo on the CPU, or NCCL; default: the default
        group. Nothing else may send point-to-point on it meanwhile.
    async_op:
        return at once, a ``Handle``; the pieces are in use until its ``wait()`` returns.
    ranks:
        ``{device: rank in the group}``; default: device d is rank d.
    out:
        destination piece to fill, like ``piece``; default: a new one.
    timeout_s:
        deadline of the whole call.
    observe:
        called as (lane, step, messages done) from the lanes' threads.
    carrier:
        ``"lanes"``: messages posted as they become possible, a thread each way (gloo; its
        default). For backends that carry out in order what they are given, all messages in one
        order known to all ranks: ``"broadcast"`` (NCCL's default), with the backend's own
        broadcast for each chain of more than two devices, or ``"chain"``, hop by hop in chunks.

    Returns the destination piece (None if the device is not in the destination mesh; a list for
    several tasks). Under ``signal`` it holds no data. Calls on one group run one after another in
    the order in which they are made, which must be the same on all ranks; the first call with a
    plan checks that all ranks run that plan. Raises ReshardError for pieces that do not fit,
    before anything is sent, for ranks that run different plans, and when another rank does not
    come, fails, or takes longer than ``timeout_s``; after that the group is of no further use.
    """
    deadline = Deadline(timeout_s)
    context = resolve_rank(plan, group, ranks, carrier)
    pieces = check_pieces(plan, context.device, piece, out, context.on)
    observe = observe or (lambda lane, step, done: None)
    handle = plan_group(plan, context, deadline).start(plan, context, pieces, deadline, observe)
    return handle if async_op else handle.wait()


class Handle:
    """A call of ``run_rank`` under way."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.over = threading.Event()
        self.error = error
        self._result = result
        if error is not None:
            self.over.set()

    def done(self) -> bool:
        """Whether ``wait`` would return, or raise, at once."""
        return self.over.is_set()

    def wait(self) -> Any:
        """The destination piece, when it is there; raises what went wrong."""
        self.over.wait()
        if self.error is not None:
            raise self.error
        return self._result


class PlanGroup:
    """The devices of a plan in one process group, as one of them sees them."""

    def __init__(self, context: RankContext, deadline: Deadline) -> None:
        self.device = context.device
        devices = tuple(sorted(context.rank_of, key=context.rank_of.__getitem__))
        try:
            control = _own_group("control", context, devices, deadline)
            low = _own_group("down", context, devices, deadline)
        except RuntimeError as error:
            raise LateError(
                f"device {self.device}: the devices {list(devices)} did not all come within "
                f"{deadline.timeout_s:g} s; every one of them must call run_rank"
            ) from error
        self.groups = (control, low)  # a Wire does not keep its group
        self.control = Control(control, devices, self.device)
        down = Wire(low, {device: rank for rank, device in enumerate(devices)})
        self.wire = Duplex(self.device, Wire(context.group, context.rank_of), down)
        self.agreed: set[bytes] = set()
        self.calls = 0
        self.last: Handle | None = None

    def agree(self, plan: Plan, carrier: str, deadline: Deadline) -> None:
        """Make sure that all devices run this plan alike, the first time that it is run."""
        digest = hashlib.sha256(compiled(plan).digest + carrier.encode()).digest()
        if digest in self.agreed:
            return
        words = self.meet(digest, deadline)
        if len(set(words.values())) > 1:
            which = "; ".join(
                f"devices {[d for d in words if words[d] == word]} run plan {word.hex()[:12]}"
                for word in dict.fromkeys(words.values())
            )
            raise ReshardError(
                f"the ranks do not run the same plan: {which}; build it from the same arguments "
                "and seed on all of them, or send it as JSON, and give all the same carrier"
            )
        self.agreed.add(digest)

    def meet(self, word: bytes, deadline: Deadline) -> dict[int, bytes]:
        """Wait for all devices of the plan, each bringing a word, when earlier calls are over."""
        _await(self.last, deadline)
        try:
            return self.control.meet(word, deadline)
        except PeerError as error:
            self.last = Handle(error=error)
            raise

    def start(
        self,
        plan: Plan,
        context: RankContext,
        pieces: RankPieces,
        deadline: Deadline,
        observe: Observer,
    ) -> Handle:
        """Carry the plan out when all earlier calls are over, on a thread of its own."""
        program, memory = compiled(plan).program(plan, self.device), PieceMemory(pieces, context.on)
        self.calls += 1
        if context.carrier == "lanes":
            wires = self.wire, self.control
            carry_out = LaneCall(program, memory, *wires, self.calls, deadline, observe).run
        else:
            rounds = compiled(plan).rounds(plan, context.carrier)
            needed = broadcast_groups(rounds, context.rank_of)
            communicators = communicators_of(context.group)
            if communicators.lack(needed):
                _await(self.last, deadline)
                communicators.make_alone(needed, context)
            carry_out = BatchCall(rounds, program, memory, context, deadline, observe).run
        handle = Handle(pieces.target if len(plan.tasks) > 1 else pieces.target[0])
        before, self.last = self.last, handle

        def work() -> None:
            try:
                _await(before, deadline)
                carry_out()
            except BaseException as error:
                handle.error = error
            finally:
                handle.over.set()

        threading.Thread(target=work, daemon=True).start()
        return handle


def prepare(
    plan: Plan,
    group: Any = None,
    *,
    ranks: Mapping[int, int] | None = None,
    carrier: str | None = None,
) -> None:
    """Make the process groups that the broadcasts of ``plan`` need.

    ``run_rank`` makes them itself where the plan has a device on every rank of the default group.
    Else all those ranks call this before, for the same plans in the same order: torch makes
    process groups, and NCCL its communicators, with all ranks at once. What is made is kept.
    """
    group = default_group(group)
    carrier, on = resolve_carrier(group, carrier)
    if carrier != "lanes":
        needed = broadcast_groups(compiled(plan).rounds(plan, carrier), ranks_of(plan, ranks))
        communicators_of(group).make(needed, on)


def _own_group(use: str, context: RankContext, devices: tuple[int, ...], deadline: Deadline) -> Any:
    """A gloo group of the devices of a plan alone; the other ranks do not call.

    Named after its devices and ranks. ``new_group(use_local_synchronization=True)`` puts the
    number of groups that a rank has made before into the name, which differs between ranks that
    took part in different plans, and they would wait for each other in vain.
    """
    _, dist = torch_modules()
    name = f"reshard_lab/{use}/" + ",".join(f"{d}:{context.rank_of[d]}" for d in devices)
    store = dist.PrefixStore(name, context.group.get_group_store())
    timeout = timedelta(seconds=deadline.left())
    return dist.ProcessGroupGloo(store, devices.index(context.device), len(devices), timeout)


def _await(call: Handle | None, deadline: Deadline) -> None:
    """Until an earlier call is over; raises if it failed."""
    if call is None:
        return
    if not call.over.wait(deadline.left()):
        raise LateError(f"an earlier call was not over within {deadline.timeout_s:g} s")
    if call.error is not None:
        raise ReshardError(
            f"an earlier call on this group failed ({call.error}); start over with a new group"
        ) from call.error


_PLAN_GROUPS: weakref.WeakKeyDictionary[Any, dict[Any, PlanGroup]] = weakref.WeakKeyDictionary()


def plan_group(plan: Plan, context: RankContext, deadline: Deadline) -> PlanGroup:
    """The group of the plan's devices, agreed on the plan; made anew for new ranks only."""
    groups = _PLAN_GROUPS.setdefault(context.group, {})
    key = tuple(sorted(context.rank_of.items()))
    if key not in groups:
        groups[key] = PlanGroup(context, deadline)
    groups[key].agree(plan, context.carrier, deadline)
    return groups[key]


class CompiledPlan:
    """What is worked out once a plan: that it is right, its digest, its devices' programs.

    It does not keep the plan: each method is given it.
    """

    def __init__(self, plan: Plan) -> None:
        plan.verify()
        self.digest = hashlib.sha256(plan.to_json().encode()).digest()
        self._programs: dict[int, Program] = {}
        self._rounds: dict[str, Rounds] = {}

    def program(self, plan: Plan, device: int) -> Program:
        """The program of ``device``."""
        if device not in self._programs:
            self._programs[device] = Compiler(plan).compile(device)
        return self._programs[device]

    def rounds(self, plan: Plan, carrier: str) -> Rounds:
        """The operations of all devices, in one order."""
        if carrier not in self._rounds:
            self._rounds[carrier] = rounds_of(plan, collective=carrier == "broadcast")
        return self._rounds[carrier]


_COMPILED: dict[int, tuple[weakref.ref[Plan], CompiledPlan]] = {}
"""By identity, as long as the plan lives: comparing plans takes longer than working with them."""


def compiled(plan: Plan) -> CompiledPlan:
    """The plan, compiled and kept."""
    key = id(plan)
    if key not in _COMPILED:
        forget = weakref.ref(plan, lambda _: _COMPILED.pop(key, None))
        _COMPILED[key] = (forget, CompiledPlan(plan))
    return _COMPILED[key][1]
