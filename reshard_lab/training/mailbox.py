"""Where tensors wait on a device between the ops that compute with them and what carries them."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from reshard_lab.runtime.board import Deadline, LateError, Stopped


class Key(NamedTuple):
    """One tensor of one step."""

    way: int
    forward: bool
    microbatch: int


class Mailbox:
    """Tensors by key, put once and taken once, by any thread."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.error: BaseException | None = None
        self._changed = threading.Condition()
        self._held: dict[Key, Any] = {}

    def put(self, key: Key, tensor: Any) -> None:
        """It is there."""
        with self._changed:
            self._held[key] = tensor
            self._changed.notify_all()

    def take(self, key: Key, what: str) -> Any:
        """Wait for it; LateError says that ``what`` did not come. Stopped after ``fail``."""
        with self._changed:
            self._changed.wait_for(
                lambda: key in self._held or self.error is not None, self.deadline.left()
            )
            if self.error is not None:
                raise Stopped
            if key not in self._held:
                raise LateError(f"{what} did not come within {self.deadline.timeout_s:g} s")
            return self._held.pop(key)

    def fail(self, error: BaseException) -> None:
        """Keep the first error; nobody waits any longer."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()
