"""The one primitive of real runs: this rank's part of a plan, over torch.distributed."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from reshard_lab.errors import ReshardError, need
from reshard_lab.planning import Plan
from reshard_lab.runtime.batches import (
    BatchCall,
    Communicators,
    Ways,
    casts_of,
    make_communicators,
)
from reshard_lab.runtime.calls import Deadline, LateError, PeerError
from reshard_lab.runtime.control import Control, Duplex, Wire
from reshard_lab.runtime.lanes import Call, Observer
from reshard_lab.runtime.pieces import Memory, Pieces, check_pieces
from reshard_lab.runtime.program import Compiler, Program
from reshard_lab.runtime.rounds import Rounds, rounds_of
from reshard_lab.runtime.seat import (
    Seat,
    default_group,
    devices_of,
    find_carrier,
    find_seat,
    ranks_of,
)

__all__ = ["Crew", "Handle", "devices_of", "find_seat", "join", "prepare", "run_rank"]


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
    seat = find_seat(plan, group, ranks, carrier)
    pieces = check_pieces(plan, seat.device, piece, out, seat.on)
    crew = join(plan, seat, deadline)
    handle = Handle(plan, pieces, crew.start(plan, seat, pieces, deadline, observe))
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
        try:
            self.own = _own_group("control", seat, members, deadline)
            self.down = _own_group("down", seat, members, deadline)
        except RuntimeError as error:
            raise LateError(
                f"device {self.device}: the devices {list(members)} did not all come within "
                f"{deadline.timeout_s:g} s; every one of them must call run_rank"
            ) from error
        self.control = Control(self.own, members, self.device)
        down = Wire(self.down, {device: rank for rank, device in enumerate(members)})
        self.wire = Duplex(self.device, Wire(seat.group, seat.rank_of), down)
        self.agreed: set[bytes] = set()
        self.calls = 0
        self.last: Turn | None = None

    def agree(self, plan: Plan, carrier: str, deadline: Deadline) -> None:
        """Make sure that all devices run this plan alike, the first time that it is run."""
        digest = hashlib.sha256(_known(plan).digest + carrier.encode()).digest()
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
                "and seed on all of them, or send it as JSON, and give all the same carrier"
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
        self, plan: Plan, seat: Seat, pieces: Pieces, deadline: Deadline, observe: Observer | None
    ) -> Turn:
        """Carry the plan out when all earlier calls are over, on a thread of its own."""
        carry = self._carrier(plan, seat, pieces, deadline, observe)
        turn, before = Turn(), self.last
        self.last = turn

        def work() -> None:
            try:
                _await(before, deadline)
                carry()
            except BaseException as error:
                turn.error = error
            finally:
                turn.over.set()

        threading.Thread(target=work, daemon=True).start()
        return turn

    def _carrier(
        self, plan: Plan, seat: Seat, pieces: Pieces, deadline: Deadline, observe: Observer | None
    ) -> Callable[[], None]:
        """What carries the plan out; made by the caller's thread, run by another."""
        known, memory = _known(plan), Memory(pieces)
        program = known.program(plan, self.device)
        self.calls += 1
        if seat.carrier == "lanes":
            return Call(program, memory, self.wire, self.control, self.calls, deadline, observe).run
        rounds = known.rounds(plan, seat.carrier)
        ways = Ways(seat.group, seat.rank_of, communicators_of(seat.group), seat.on)
        needed = casts_of(rounds, seat.rank_of)
        if ways.communicators.lack(needed):
            _await(self.last, deadline)
            make_communicators(needed, ways)
        return BatchCall(rounds, program, memory, ways, deadline, observe).on_stream()


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
    whole = default_group(group)
    how, on = find_carrier(whole, carrier)
    if how != "lanes":
        rank_of = ranks_of(plan, ranks)
        needed = casts_of(_known(plan).rounds(plan, how), rank_of)
        communicators_of(whole).make(needed, on)


def _own_group(use: str, seat: Seat, members: tuple[int, ...], deadline: Deadline) -> Any:
    """A gloo group of the devices of a plan alone; the other ranks do not call.

    Named after its devices and ranks. ``new_group(use_local_synchronization=True)`` puts the
    number of groups that a rank has made before into the name, which differs between ranks that
    took part in different plans, and they would wait for each other in vain.
    """
    dist = need("torch.distributed", "run", "running a plan on processes")
    name = f"reshard_lab/{use}/" + ",".join(f"{d}:{seat.rank_of[d]}" for d in members)
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


_COMMUNICATORS: weakref.WeakKeyDictionary[Any, Communicators] = weakref.WeakKeyDictionary()


def communicators_of(group: Any) -> Communicators:
    """Those made for ``group`` so far."""
    return _COMMUNICATORS.setdefault(group, Communicators(group))


_CREWS: weakref.WeakKeyDictionary[Any, dict[Any, Crew]] = weakref.WeakKeyDictionary()


def join(plan: Plan, seat: Seat, deadline: Deadline) -> Crew:
    """The crew of ``plan`` in its group, agreed on the plan; made anew for new ranks only."""
    crews = _CREWS.setdefault(seat.group, {})
    key = tuple(sorted(seat.rank_of.items()))
    if key not in crews:
        crews[key] = Crew(seat, deadline)
    crews[key].agree(plan, seat.carrier, deadline)
    return crews[key]


class _Known:
    """What is worked out once a plan: that it is right, its digest, its devices' programs."""

    def __init__(self, plan: Plan) -> None:
        plan.verify()
        self.digest = hashlib.sha256(plan.to_json().encode()).digest()
        self._programs: dict[int, Program] = {}
        self._rounds: dict[str, Rounds] = {}

    def program(self, plan: Plan, device: int) -> Program:
        """What ``device`` does."""
        if device not in self._programs:
            self._programs[device] = Compiler(plan).compile(device)
        return self._programs[device]

    def rounds(self, plan: Plan, carrier: str) -> Rounds:
        """What all devices do, in one order."""
        if carrier not in self._rounds:
            self._rounds[carrier] = rounds_of(plan, collective=carrier == "broadcast")
        return self._rounds[carrier]


_PLANS: dict[int, tuple[weakref.ref[Plan], _Known]] = {}
"""By identity, as long as the plan lives: comparing plans takes longer than working with them."""


def _known(plan: Plan) -> _Known:
    key = id(plan)
    if key not in _PLANS:
        forget = weakref.ref(plan, lambda _: _PLANS.pop(key, None))
        _PLANS[key] = (forget, _Known(plan))
    return _PLANS[key][1]
