"""The one primitive of real runs: this rank's part of a plan, over torch.distributed."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, need
from reshard_lab.planning import Plan
from reshard_lab.runtime.board import Deadline, LateError, PeerError
from reshard_lab.runtime.control import Control, Wire
from reshard_lab.runtime.lanes import Call, Observer
from reshard_lab.runtime.pieces import Memory, Pieces, check_pieces
from reshard_lab.runtime.program import Compiler, Program


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
) -> Any:
    """Carry out this rank's part of ``plan``; called by the ranks of all its devices alike.

    piece:
        this device's source piece, a contiguous CPU tensor of its box's shape; None if it is not
        in the source mesh. For a plan of several tasks a list, one entry a task.
    group:
        a torch.distributed process group that runs gloo on the CPU; default: the default group.
        Nothing else may send point-to-point on it meanwhile.
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

    Returns the destination piece (None if the device is not in the destination mesh; a list for
    several tasks). Under ``signal`` it holds no data. Calls on one group run one after another in
    the order in which they are made, which must be the same on all ranks; the first call with a
    plan checks that all ranks run that plan. Raises ReshardError for pieces that do not fit,
    before anything is sent, for ranks that run different plans, and when another rank does not
    come, fails, or takes longer than ``timeout_s``; after that the group is of no further use.
    """
    deadline = Deadline(timeout_s)
    seat = find_seat(plan, group, ranks)
    pieces = check_pieces(plan, seat.device, piece, out)
    crew = join(plan, seat, deadline)
    handle = Handle(plan, pieces, crew.start(plan, pieces, deadline, observe))
    return handle if async_op else handle.wait()


class Handle:
    """A call under way."""

    def __init__(self, plan: Plan, pieces: Pieces, turn: Turn) -> None:
        self._plan, self._pieces, self._turn = plan, pieces, turn

    def done(self) -> bool:
        """Whether ``wait`` would return, or raise, at once."""
        return self._turn.over.is_set()

    def wait(self) -> Any:
        """The destination piece, when it is there; raises what went wrong."""
        self._turn.over.wait()
        if self._turn.error is not None:
            raise self._turn.error
        return self._pieces.target if len(self._plan.tasks) > 1 else self._pieces.target[0]


class Turn:
    """One call in the queue of its crew."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.over = threading.Event()
        self.error = error
        if error is not None:
            self.over.set()


class Crew:
    """The devices of a plan in one process group, as one of them sees them."""

    def __init__(self, seat: Seat, deadline: Deadline) -> None:
        self.device = seat.device
        members = tuple(sorted(seat.rank_of, key=seat.rank_of.__getitem__))
        self.wire = Wire(seat.group, seat.rank_of)
        try:
            self.own = _own_group(seat, members, deadline)
        except RuntimeError as error:
            raise LateError(
                f"device {self.device}: the devices {list(members)} did not all come within "
                f"{deadline.timeout_s:g} s; every one of them must call run_rank"
            ) from error
        self.control = Control(self.own, members, self.device)
        self.agreed: set[bytes] = set()
        self.calls = 0
        self.last: Turn | None = None

    def agree(self, plan: Plan, deadline: Deadline) -> None:
        """Make sure that all devices run this plan, the first time that it is run."""
        digest = _known(plan).digest
        if digest in self.agreed:
            return
        said = self.meet(digest, deadline)
        if len(set(said.values())) > 1:
            plans: dict[bytes, list[int]] = {}
            for device, word in said.items():
                plans.setdefault(word, []).append(device)
            which = "; ".join(
                f"devices {devices} run plan {word.hex()[:12]}" for word, devices in plans.items()
            )
            raise ReshardError(
                f"the ranks do not run the same plan: {which}; build it from the same arguments "
                "and seed on all of them, or send it as JSON"
            )
        self.agreed.add(digest)

    def meet(self, word: bytes, deadline: Deadline) -> dict[int, bytes]:
        """Wait for all devices of the plan, each bringing a word, when earlier calls are over."""
        _await(self.last, deadline)
        try:
            return self.control.meet(word, deadline)
        except PeerError as error:
            self.last = Turn(error)
            raise

    def start(
        self, plan: Plan, pieces: Pieces, deadline: Deadline, observe: Observer | None
    ) -> Turn:
        """Carry the plan out when all earlier calls are over, on a thread of its own."""
        program = _program(plan, self.device)
        turn, before = Turn(), self.last
        self.last = turn
        self.calls += 1
        number = self.calls

        def work() -> None:
            try:
                _await(before, deadline)
                memory = Memory(pieces)
                Call(program, memory, self.wire, self.control, number, deadline, observe).run()
            except BaseException as error:
                turn.error = error
            finally:
                turn.over.set()

        threading.Thread(target=work, daemon=True).start()
        return turn


def _own_group(seat: Seat, members: tuple[int, ...], deadline: Deadline) -> Any:
    """A gloo group of the devices of a plan alone; the other ranks do not call.

    Named after its devices and ranks. ``new_group(use_local_synchronization=True)`` puts the
    number of groups that a rank has made before into the name, which differs between ranks that
    took part in different plans, and they would wait for each other in vain.
    """
    dist = need("torch.distributed", "run", "running a plan on processes")
    name = "reshard_lab/" + ",".join(f"{d}:{seat.rank_of[d]}" for d in members)
    store = dist.PrefixStore(name, seat.group.get_group_store())
    timeout = timedelta(seconds=deadline.left())
    return dist.ProcessGroupGloo(store, members.index(seat.device), len(members), timeout)


def _await(turn: Turn | None, deadline: Deadline) -> None:
    """Until an earlier call is over; raises if it failed."""
    if turn is None:
        return
    if not turn.over.wait(deadline.left()):
        raise LateError(f"an earlier call was not over within {deadline.timeout_s:g} s")
    if turn.error is not None:
        raise ReshardError(
            f"an earlier call on this group failed ({turn.error}); start over with a new group"
        ) from turn.error


_CREWS: weakref.WeakKeyDictionary[Any, dict[Any, Crew]] = weakref.WeakKeyDictionary()


def join(plan: Plan, seat: Seat, deadline: Deadline) -> Crew:
    """The crew of ``plan`` in its group, agreed on the plan; made anew for new ranks only."""
    crews = _CREWS.setdefault(seat.group, {})
    key = tuple(sorted(seat.rank_of.items()))
    if key not in crews:
        crews[key] = Crew(seat, deadline)
    crews[key].agree(plan, deadline)
    return crews[key]


class Seat(NamedTuple):
    """Where this process sits among the devices of a plan."""

    group: Any
    rank_of: dict[int, int]
    """``{device: rank in the group}`` of all devices of the plan."""
    device: int
    """The device that this process is."""


def find_seat(plan: Plan, group: Any, ranks: Mapping[int, int] | None) -> Seat:
    """The seat of this process; raises ReshardError if it has none in ``group``."""
    dist = need("torch.distributed", "run", "running a plan on processes")
    if not isinstance(plan, Plan):
        raise ReshardError(f"plan must be a Plan, as reshard_lab.plan returns, not {plan!r}")
    if not dist.is_initialized():
        raise ReshardError(
            "torch.distributed is not initialized; call "
            "torch.distributed.init_process_group('gloo', ...) first, or use reshard_lab.run"
        )
    group = dist.group.WORLD if group is None else group
    if "cpu:gloo" not in str(dist.get_backend_config(group)):
        raise ReshardError(
            f"the group runs {dist.get_backend_config(group)}; plans are carried by gloo on the "
            "CPU: use init_process_group('gloo') or new_group(backend='gloo')"
        )
    size, me = dist.get_world_size(group), dist.get_rank(group)
    devices = devices_of(plan)
    given = {d: d for d in devices} if ranks is None else ranks
    missing = [d for d in devices if d not in given]
    if missing:
        raise ReshardError(
            f"ranks has no entry for devices {missing}; give {{device: rank}} for {list(devices)}"
        )
    rank_of = {d: given[d] for d in devices}
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
    return Seat(group, rank_of, device_of[me])


def devices_of(plan: Plan) -> tuple[int, ...]:
    """The devices of all meshes of a plan, ascending."""
    return tuple(
        sorted({d for t in plan.tasks for mesh in (t.src.mesh, t.dst.mesh) for d in mesh.devices})
    )


class _Known:
    """What is worked out once a plan: that it is right, its digest, its devices' programs."""

    def __init__(self, plan: Plan) -> None:
        plan.verify()
        self.digest = hashlib.sha256(plan.to_json().encode()).digest()
        self.programs: dict[int, Program] = {}


_PLANS: dict[int, tuple[weakref.ref[Plan], _Known]] = {}
"""By identity, as long as the plan lives: comparing plans takes longer than working with them."""


def _known(plan: Plan) -> _Known:
    key = id(plan)
    if key not in _PLANS:
        forget = weakref.ref(plan, lambda _: _PLANS.pop(key, None))
        _PLANS[key] = (forget, _Known(plan))
    return _PLANS[key][1]


def _program(plan: Plan, device: int) -> Program:
    programs = _known(plan).programs
    if device not in programs:
        programs[device] = Compiler(plan).compile(device)
    return programs[device]
