"""The pool's own process as the launcher sees it: what they say to each other, how it is ended.

They talk in JSON lines over pipes, and by a page of shared memory in which the workers note where
they are: so that there is something to say of one that died.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reshard_lab.errors import ReshardError, os_errors
from reshard_lab.planning import Plan
from reshard_lab.runtime.calls import torch_modules

LANES = ("copy", "send", "recv")
_VERB = {"copy": "copying", "send": "sending", "recv": "receiving"}
_FIELDS = 8  # repeat, (step + 1, messages done) a lane, one spare
_END_S = 5.0
_PACKAGE = Path(__file__).resolve().parents[2]
_TAIL = 2000  # characters of stderr that a message repeats


def write_line(fd: int, message: dict[str, Any]) -> None:
    """Write one message, all of it."""
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(fd, data) :]


class LineReader:
    """Messages from the read end of a pipe."""

    def __init__(self, fd: int) -> None:
        self.fd, self.rest = fd, b""

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that one read completes, maybe none yet; None at the end of the pipe."""
        data = os.read(self.fd, 1 << 16)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Position(NamedTuple):
    """How far a device has come in a run."""

    repeat: int
    """Counted from 1, warm-ups included; 0 = not begun."""
    lanes: dict[str, tuple[int, int]]
    """``{lane: (step, messages done)}`` of the last step of every lane that has begun."""


class Progress:
    """How far every device has come, in memory that outlives a process that is killed."""

    def __init__(self, path: Path, count: int) -> None:
        with open(path, "ab") as file:  # keeps what is there
            file.truncate(count * _FIELDS * 4)
        self._cells = np.memmap(path, np.int32, "r+", shape=(count, _FIELDS))

    def begin(self, rank: int, repeat: int) -> None:
        """A repeat begins on this rank."""
        self._cells[rank, 1:] = 0
        self._cells[rank, 0] = repeat

    def note(self, rank: int, lane: str, step: int, done: int) -> None:
        """So many messages of a step are done."""
        at = 1 + 2 * LANES.index(lane)
        self._cells[rank, at + 1] = done
        self._cells[rank, at] = step + 1

    def read(self, rank: int) -> Position:
        """How far the rank has come."""
        repeat, *cells = self._cells[rank].tolist()
        lanes = zip(LANES, cells[::2], cells[1::2], strict=False)
        return Position(repeat, {lane: (step - 1, done) for lane, step, done in lanes if step})

    def close(self) -> None:
        """Unmap the page."""
        del self._cells


LastOperation = Callable[[int, Position | None], str]
"""What a device was doing, in words."""


def explain_stop(
    what: str,
    last: LastOperation,
    *,
    waiting: Iterable[int],
    reports: Sequence[dict[str, Any]],
    timeout_s: float,
    positions: Mapping[int, Position],
    stderr: Mapping[int, str],
) -> str:
    """The message of the error: who failed, how, at what step, with the end of its stderr.

    From what is known just before the processes are ended: devices ``waiting`` had not finished,
    ``reports`` are ``exit`` and ``error`` events as they came, ``timeout_s`` is the longest time
    without a report that was allowed; positions and stderr are those of all devices.
    """
    exits = {e["device"]: e["code"] for e in reports if e["event"] == "exit"}
    errors = {e["device"]: e for e in reports if e["event"] == "error"}
    own = [d for d, e in errors.items() if e["kind"] == "own"]
    late = not errors or any(e["kind"] == "late" for e in errors.values())
    silent = [d for d in waiting if d not in errors]
    if exits:
        blamed = {d: f"died ({_how(code)})" for d, code in exits.items()}
    elif silent and late and not own:
        blamed = dict.fromkeys(silent, f"hangs: no sign of it within {timeout_s:g} s")
    else:
        blamed = {d: f"failed: {errors[d]['text']}" for d in own or errors}
    lines = [f"{what} was stopped"]
    for device, text in blamed.items():
        lines.append(f"device {device} {text}; {last(device, positions.get(device))}")
        if tail := stderr.get(device, "").strip()[-_TAIL:]:
            lines.append(f"stderr of device {device}:\n{tail}")
    return "\n".join(lines)


def last_operation(plan: Plan, device: int, position: Position | None) -> str:
    """What a device was doing, lane by lane."""
    if position is None or position.repeat == 0:
        return "it had not begun"
    steps = plan.programs.get(device, ())
    doing = []
    for lane, (index, done) in position.lanes.items():
        step = steps[index]
        total = 1 if lane == "copy" else plan.transfers[step.transfer].messages
        peer = {"copy": "", "send": f" to device {step.peer}", "recv": f" from device {step.peer}"}
        doing.append(
            f"{_VERB[lane]} transfer {step.transfer}{peer[lane]} (step {index + 1} of {len(steps)},"
            f" {done} of {total} messages done)"
        )
    what = " and ".join(doing) or "none yet"
    return f"last operation, in repeat {position.repeat} (warm-ups counted): {what}"


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


class PoolProcess:
    """``python -m reshard_lab.worker``, with a private folder that it removes when it ends.

    Started without a fork of this process. It ends when its standard input closes, so also
    when this process is killed.
    """

    def __init__(self, command: list[str], config: dict[str, Any]) -> None:
        if importlib.util.find_spec("torch") is None:
            torch_modules()  # raises
        self.folder, self._process = _started(command)
        self.progress = Progress(self.folder / "progress", len(config["devices"]))
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
        """Give a command (nothing happens if the process has ended: ``next`` will say so)."""
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
        self.progress.close()
        self._finalizer()


def _started(command: list[str]) -> tuple[Path, subprocess.Popen[bytes]]:
    """A folder for the process, and the process; neither is left if it cannot be started."""
    with os_errors("make a folder for a run", "name one that can be written to in TMPDIR"):
        folder = Path(tempfile.mkdtemp(prefix="reshard_lab-"))
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
    end_process(process, _END_S, ask=False)
    process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)


def end_process(process: subprocess.Popen[bytes], timeout_s: float, ask: bool = True) -> None:
    """Wait for its end, killing it if that takes too long; ``ask`` it to end by SIGTERM before."""
    if ask and process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
