"""What calls on several devices are made of: deadlines, threads, messages that must not be late."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import ReshardError, need, short
from reshard_lab.planning import Plan

if TYPE_CHECKING:
    import torch

_MOST_S = 1e6
"""Some 12 days: the kernel counts waits in milliseconds, in 32 bits."""
_SLACK_S = 1.0  # a thread notices the deadline itself, and says more about it

WORD = 32
"""Bytes that each device brings to a meeting."""
POSTED = 32
"""Receives posted ahead, so that a word need not wait for its reader."""


def check_plan(plan: object) -> Plan:
    """Return ``plan`` if it is one, else raise."""
    if not isinstance(plan, Plan):
        raise ReshardError(f"plan must be a Plan, as reshard_lab.plan returns, not {short(plan)}")
    return plan


def torch_modules() -> tuple[Any, Any]:
    """torch and torch.distributed."""
    what = "running a plan on processes"
    return need("torch", "run", what), need("torch.distributed", "run", what)


class PeerError(ReshardError):
    """Another device did not do its part, or its connection is gone."""


class LateError(PeerError):
    """Another device did not do its part in time."""


class Stopped(Exception):
    """Another thread of the call has failed; this one ends without a word."""


class Deadline:
    """A moment by which everything must be done; errors call its time ``what``."""

    def __init__(self, timeout_s: float, what: str = "timeout_s") -> None:
        number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
        if not (number and 0 < timeout_s <= _MOST_S):
            raise ReshardError(
                f"{what} must be a number of seconds above 0, not {short(timeout_s)}; "
                f"{_MOST_S:.0f} at most"
            )
        self.timeout_s = timeout_s
        self.end = time.monotonic() + timeout_s

    def left(self) -> float:
        """Seconds left, at least a millisecond."""
        return max(1e-3, self.end - time.monotonic())


class CallState:
    """What the threads of one call share: a deadline, the first error, and a condition.

    A subclass adds what they wait for: it changes that within ``update`` and waits in ``until``.
    """

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.error: BaseException | None = None
        self.changed = threading.Condition()

    @contextmanager
    def update(self) -> Iterator[None]:
        """Change the state: all threads that wait look again afterwards."""
        with self.changed:
            yield
            self.changed.notify_all()

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for ``true()``; raises Stopped after ``fail``, LateError if it does not come.

        For a caller that holds ``changed`` it still holds on return.
        """
        with self.changed:
            self.changed.wait_for(lambda: true() or self.error is not None, self.deadline.left())
            if self.error is not None:
                raise Stopped
            if not true():
                raise LateError(f"{what} did not come within {self.deadline.timeout_s:g} s")

    def fail(self, error: BaseException) -> None:
        """Keep the first error, and let nobody wait any longer."""
        with self.update():
            self.error = self.error or error

    def run(self, first: Callable[[], None], *others: Callable[[], None], late: str) -> None:
        """Do all at once, ``first`` on this thread; raises the first error of any.

        Threads that have not come to an end then are not joined: they may be stuck in a wait of
        their own until the deadline. ``late``: what the error says where that passes.
        """
        at_work = 1 + len(others)

        def carry_out(work: Callable[[], None]) -> None:
            nonlocal at_work
            try:
                work()
                with self.update():
                    at_work -= 1
            except Stopped:
                pass
            except BaseException as error:
                self.fail(error)

        for work in others:
            threading.Thread(target=carry_out, args=(work,), daemon=True).start()
        carry_out(first)
        with self.changed:
            self.changed.wait_for(
                lambda: self.error is not None or not at_work, self.deadline.left() + _SLACK_S
            )
            if self.error is None and at_work:
                self.error = LateError(f"{late} within {self.deadline.timeout_s:g} s")
        if self.error is not None:
            raise self.error


def finish(work: Any, deadline: Deadline | None, what: str) -> None:
    """Wait for posted work (no deadline: its stream does); raises PeerError: ``what`` failed."""
    try:
        done = work.wait(timedelta(seconds=deadline.left())) if deadline else work.wait()
    except RuntimeError as error:
        text = _reason(error)
        if deadline and "timed out" in text.lower():
            raise LateError(f"{what}: not done within {deadline.timeout_s:g} s") from error
        raise PeerError(f"{what}: {text}") from error
    if deadline and not done:
        raise PeerError(f"{what}: aborted")


def _reason(error: RuntimeError) -> str:
    """The first sentence of a message of gloo, without the place in its source."""
    return re.sub(r"^(\[[^]]*\]\s*)+", "", str(error)).split(". ")[0]


class Wire:
    """Point-to-point messages of one process group, addressed by device."""

    finish = staticmethod(finish)

    def __init__(self, group: Any, rank_of: Mapping[int, int]) -> None:
        self.dist = torch_modules()[1]
        self._group = weakref.ref(group)  # torch keeps it until it is destroyed
        self.rank_of = rank_of
        """Rank in ``group`` of every device."""

    def send(self, data: torch.Tensor, device: int) -> Any:
        """Post a message; returns its work."""
        peer = {"group_dst": self.rank_of[device]}
        return self._post(self.dist.isend, data, f"sending to device {device}", peer)

    def recv(self, into: torch.Tensor, device: int) -> Any:
        """Post a receive; returns its work."""
        peer = {"group_src": self.rank_of[device]}
        return self._post(self.dist.irecv, into, f"receiving from device {device}", peer)

    def _post(
        self, post: Callable[..., Any], data: torch.Tensor, what: str, peer: dict[str, int]
    ) -> Any:
        group = self._group()
        if group is None:
            raise PeerError("the process group has been destroyed")
        try:
            return post(data, group=group, **peer)
        except RuntimeError as error:
            raise PeerError(f"{what}: {_reason(error)}") from error


class Duplex:
    """Messages between devices that may send to each other at once.

    gloo announces a receive on the connection on which this process sends to that device, behind
    all that is being sent there already: of two devices with much to send to each other, one would
    wait until the other is done. So what goes to higher devices has connections of its own.
    """

    finish = staticmethod(finish)

    def __init__(self, me: int, up: Wire, down: Wire) -> None:
        self.me, self.up, self.down = me, up, down

    def send(self, data: torch.Tensor, device: int) -> Any:
        """Post a message; returns its work."""
        return (self.up if self.me < device else self.down).send(data, device)

    def recv(self, into: torch.Tensor, device: int) -> Any:
        """Post a receive; returns its work."""
        return (self.up if device < self.me else self.down).recv(into, device)


class Control:
    """Meetings of the devices of a plan, on a process group on which no data travels.

    Its words cannot get between the messages of a payload. Order per pair is the same at both ends;
    tags are not relied on.
    """

    def __init__(self, group: Any, devices: tuple[int, ...], me: int) -> None:
        self.torch, _ = torch_modules()
        self.devices, self.me = devices, me
        self.wire = Wire(group, {device: rank for rank, device in enumerate(devices)})

    def meet(self, word: bytes, deadline: Deadline) -> dict[int, bytes]:
        """Wait for all devices; returns the ``WORD`` bytes that each of them brought.

        The first device gathers the words and hands out the table.
        """
        uint8 = self.torch.uint8
        table = self.torch.zeros((len(self.devices), WORD), dtype=uint8)
        own = self.torch.frombuffer(bytearray(word.ljust(WORD, b"\0")), dtype=uint8)
        leader, others = self.devices[0], self.devices[1:]
        if self.me == leader:
            table[0].copy_(own)
            row = dict(zip(self.devices, table, strict=True))
            self._each(others, lambda d: self.wire.recv(row[d], d), deadline, "waits for")
            self._each(others, lambda d: self.wire.send(table, d), deadline, "answers")
        else:
            what = f"device {self.me} waits for device {leader}, which waits for all"
            self.wire.finish(self.wire.send(own, leader), deadline, what)
            self.wire.finish(self.wire.recv(table, leader), deadline, what)
        return dict(zip(self.devices, map(bytes, table.tolist()), strict=True))

    def _each(
        self, devices: Sequence[int], post: Callable[[int], Any], deadline: Deadline, verb: str
    ) -> None:
        """A message with each of ``devices``, not too many at once."""
        for start in range(0, len(devices), POSTED):
            part = devices[start : start + POSTED]
            works = [post(d) for d in part]
            for d, work in zip(part, works, strict=True):
                self.wire.finish(work, deadline, f"device {self.me} {verb} device {d}")
