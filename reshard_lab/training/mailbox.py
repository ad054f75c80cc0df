"""Where tensors wait on a device between the ops that compute with them and what carries them."""

from __future__ import annotations

from typing import Any, NamedTuple

from reshard_lab.runtime.calls import CallState, Deadline


class Key(NamedTuple):
    """One tensor of one step."""

    way: int
    forward: bool
    microbatch: int


class Mailbox(CallState):
    """Tensors of a step by key, put once and taken once, by any thread."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(deadline)
        self._held: dict[Key, Any] = {}

    def put(self, key: Key, tensor: Any) -> None:
        """It is there."""
        with self.update():
            self._held[key] = tensor

    def take(self, key: Key, what: str) -> Any:
        """Wait for it; LateError says that ``what`` did not come. Stopped after ``fail``."""
        with self.changed:
            self.until(lambda: key in self._held, what)
            return self._held.pop(key)
