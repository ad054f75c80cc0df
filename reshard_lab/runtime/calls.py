"""One call of a plan or a training step on a device: its deadline, its threads, its first error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reshard_lab.errors import ReshardError, short

_MOST_S = 1e6
"""Some 12 days: the kernel counts waits in milliseconds, in 32 bits."""
_SLACK_S = 1.0  # a thread notices the deadline itself, and says more about it


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
