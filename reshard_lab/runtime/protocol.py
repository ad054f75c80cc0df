"""How the launcher and its processes talk: JSON lines over pipes, and a page of shared memory."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any, NamedTuple

LANES = ("copy", "send", "recv")
_FIELDS = 8  # repeat, (step + 1, messages done) a lane, one spare


def write_line(fd: int, message: dict[str, Any]) -> None:
    """Write one message, all of it."""
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(fd, data) :]


class LineReader:
    """Messages from the read end of a pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.rest = b""

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that one read completes, maybe none yet; None at the end of the pipe."""
        data = os.read(self.fd, 1 << 16)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Position(NamedTuple):
    """Where a device is."""

    repeat: int
    """Counted from 1, warm-ups included; 0 = not begun."""
    lanes: dict[str, tuple[int, int]]
    """``{lane: (step, messages done)}`` of the last step of every lane that has begun."""


class Progress:
    """Where every device is, in memory that outlives a process that is killed."""

    def __init__(self, path: Path, count: int) -> None:
        size = count * _FIELDS * 4
        with open(path, "ab") as file:  # keeps what is there
            file.truncate(size)
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._cells = memoryview(self._map).cast("i")

    def begin(self, rank: int, repeat: int) -> None:
        """A repeat begins on this rank."""
        at = rank * _FIELDS
        for i in range(1, _FIELDS):
            self._cells[at + i] = 0
        self._cells[at] = repeat

    def note(self, rank: int, lane: str, step: int, done: int) -> None:
        """So many messages of a step are done."""
        at = rank * _FIELDS + 1 + 2 * LANES.index(lane)
        self._cells[at + 1] = done
        self._cells[at] = step + 1

    def read(self, rank: int) -> Position:
        """Where the rank is."""
        repeat, *cells = self._cells[rank * _FIELDS : (rank + 1) * _FIELDS].tolist()
        pairs = zip(cells[::2], cells[1::2], strict=False)
        found = {lane: (step - 1, done) for lane, (step, done) in zip(LANES, pairs, strict=False)}
        return Position(repeat, {lane: at for lane, at in found.items() if at[0] >= 0})

    def close(self) -> None:
        """Unmap the page."""
        self._cells.release()
        self._map.close()
