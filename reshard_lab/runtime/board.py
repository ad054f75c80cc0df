"""What the lanes of one device tell each other while a plan runs. Pure Python."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from reshard_lab.errors import ReshardError, short

_MOST_S = 1e6
"""Some 12 days: the kernel counts waits in milliseconds, in 32 bits."""


class PeerError(ReshardError):
    """Another device did not do its part, or its connection is gone."""


class LateError(PeerError):
    """Another device did not do its part in time."""


class Stopped(Exception):
    """Another lane of this device has failed; this one ends without a word."""


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


class Board:
    """What has happened on this device in one call, for all its lanes to see and wait for."""

    def __init__(self, deadline: Deadline, lanes: int) -> None:
        self.changed = threading.Condition()
        self.deadline = deadline
        self.lanes = lanes  # still at work
        self.arrived: dict[int, int] = {}
        """Messages taken in, by transfer."""
        self.complete: set[int] = set()
        """Transfers known to be complete at their last device."""
        self.error: BaseException | None = None

    def until(self, true: Callable[[], bool], what: str) -> None:
        """With ``changed`` held: until ``true()``; raises once a lane has failed."""
        self.changed.wait_for(lambda: true() or self.error is not None, self.deadline.left())
        if self.error is not None:
            raise Stopped
        if not true():
            raise LateError(f"{what} did not come within {self.deadline.timeout_s:g} s")

    def until_arrived(self, transfer: int, messages: int, what: str) -> None:
        """Until so many messages of a transfer have been taken in."""
        with self.changed:
            self.until(lambda: self.arrived.get(transfer, 0) >= messages, what)

    def until_complete(self, transfer: int, what: str) -> None:
        """Until a transfer is known to be complete."""
        with self.changed:
            self.until(lambda: transfer in self.complete, what)

    def note_arrived(self, transfer: int, messages: int) -> None:
        """So many messages of a transfer have been taken in."""
        with self.changed:
            self.arrived[transfer] = messages
            self.changed.notify_all()

    def note_complete(self, transfer: int) -> None:
        """A transfer is complete at its last device."""
        with self.changed:
            self.complete.add(transfer)
            self.changed.notify_all()

    def leave(self) -> None:
        """A lane has done all its moves."""
        with self.changed:
            self.lanes -= 1
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Keep the first error, and let nobody wait any longer."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def close(self) -> None:
        """Until all lanes are done, or one has failed: then raise its error.

        The others may be stuck in a wait of their own until the deadline: they are not joined.
        """
        with self.changed:
            slack = 1.0  # a lane notices the deadline itself, and says more about it
            over = self.changed.wait_for(
                lambda: self.error is not None or not self.lanes, self.deadline.left() + slack
            )
            if self.error is not None:
                raise self.error
            if not over:
                raise LateError(f"not done within {self.deadline.timeout_s:g} s")
