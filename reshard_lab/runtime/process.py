"""The pool's own process, as the launcher sees it: started, spoken to, ended."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

from reshard_lab.errors import ReshardError, need
from reshard_lab.runtime.protocol import LineReader, write_line

_END_S = 5.0
_PACKAGE = Path(__file__).resolve().parents[2]


class PoolProcess:
    """``python -m reshard_lab.worker``, with a private folder that it removes when it ends.

    Started without a fork of this process. It ends when its standard input closes, so also
    when this process is killed.
    """

    def __init__(self, command: list[str], config: dict[str, Any]) -> None:
        if importlib.util.find_spec("torch") is None:
            need("torch", "run", "running a plan on processes")
        self.folder, self._process = _started(command)
        self._finalizer = weakref.finalize(self, _end, self._process, self.folder, os.getpid())
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, output = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._reader = LineReader(output)
        self._events: list[dict[str, Any]] = []
        self._select = selectors.DefaultSelector()
        self._select.register(output, selectors.EVENT_READ)
        self.send({"folder": str(self.folder), **config})

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        """Give a command (nothing happens if the process has ended: ``next`` will tell)."""
        with contextlib.suppress(BrokenPipeError):
            write_line(self._input, message)

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """The next report, or None if there is none in time."""
        end = time.monotonic() + timeout_s
        while not self._events:
            if not self._select.select(max(0.0, end - time.monotonic())):
                return None
            lines = self._reader.read()
            if lines is None:
                said = self.stderr().strip()
                raise ReshardError(f"the process of the pool ended unexpectedly\n{said}".strip())
            self._events += lines
        return self._events.pop(0)

    def stderr(self, device: int | None = None) -> str:
        """The end of what the process, or the worker of a device, has written to stderr."""
        name = "stderr" if device is None else f"stderr-{device}"
        try:
            return (self.folder / name).read_bytes()[-10_000:].decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End it, its workers and its folder."""
        self._select.close()
        self._finalizer()


def _started(command: list[str]) -> tuple[Path, subprocess.Popen[bytes]]:
    """A folder for the process, and the process; neither is left if it cannot be started."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="reshard_lab-"))
    except OSError as error:
        raise ReshardError(
            f"cannot make a folder for a run: {error}; name one that can be written to in TMPDIR"
        ) from None
    try:
        with open(folder / "stderr", "wb") as errors:
            return folder, subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=child_environment(),
                bufsize=0,
                start_new_session=True,  # what ends all of our group would leave the folder
            )
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, (OSError, TypeError)):  # TypeError: there is no sys.executable
            raise
        raise ReshardError(
            f"cannot start the processes of a run as {command[:3]}: {error}; sys.executable must "
            "be the Python that runs this"
        ) from None


def _end(process: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the launcher: not its process to end
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)


def worker_command(prefix: tuple[str, ...] = ()) -> list[str]:
    """How the pool's process is started."""
    return [*prefix, sys.executable, "-m", "reshard_lab.worker"]


def child_environment() -> dict[str, str]:
    """For processes that import this package: it is found, and computes with one thread each."""
    path = os.pathsep.join(filter(None, (str(_PACKAGE), os.environ.get("PYTHONPATH"))))
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    return os.environ | threads | {"PYTHONPATH": path}


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies, where it can.

    Its parent's thread that started it, to be exact.
    """
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, number)
    if os.getppid() != parent:
        os._exit(1)
