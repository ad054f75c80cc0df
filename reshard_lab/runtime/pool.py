"""Starting processes that carry plans out, watching them, and taking their times."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int
from reshard_lab.planning import Plan
from reshard_lab.runtime.calls import Deadline, check_plan
from reshard_lab.runtime.context import devices_of
from reshard_lab.runtime.measure import Measurement, cpu_share, environment, measurement
from reshard_lab.runtime.network import Network
from reshard_lab.runtime.process import LastOperation, PoolProcess, explain_stop, last_operation

_PLAN = "plan.json"
_SLACK_S = 1.0  # a worker notices the deadline itself, and says more about it
_GRACE_S = 0.5  # after a first bad report: the cause may not be the first to be heard

T = TypeVar("T")
Reports = dict[int, list[dict[str, Any]]]
"""What every device reported on its way, one entry a step."""


class PoolJob(NamedTuple):
    """Something that devices of a pool do together."""

    what: str
    """In words, for the message if it is stopped."""
    devices: tuple[int, ...]
    command: dict[str, Any]
    """For every device; ``reshard_lab.worker`` knows what to ``do``."""
    files: dict[str, str]
    """Text by name, put into the pool's folder meanwhile."""
    timeout_s: float
    """Longest time without a report of any device: ``repeat``, or ``alive`` where something that
    is no repeat takes its time."""
    last: LastOperation
    """What a device did last, in words."""


def check_run(
    plan: object, repeats: object, warmup: object, timeout_s: Any, seed: object
) -> tuple[int, int, float, int]:
    """What ``run`` was given beside the plan, wherever that is; raises for what cannot be run."""
    check_plan(plan)
    return (
        check_int("repeats", repeats, 1),
        check_int("warmup", warmup),
        Deadline(timeout_s).timeout_s,
        check_int("seed", seed),
    )


def device_ids(devices: int | Iterable[int]) -> tuple[int, ...]:
    """The devices of a pool, ascending: those listed, or 0 to n - 1 for a number n."""
    listed = devices if isinstance(devices, Iterable) else range(check_int("devices", devices, 1))
    ids = tuple(sorted({check_int("device", d) for d in listed}))
    if not ids:
        raise ReshardError("a pool needs at least one device; give a number or a list of ids")
    return ids


class Pool:
    """Processes that carry out plans, one for each device, for a whole sweep.

    devices:
        their ids, or a number n for 0 to n - 1. A plan may use any of them.
    start_timeout_s:
        for importing torch and connecting the processes.

    They run on this machine and talk over its loopback interface. They start with the first run.
    Close the pool, or use it in a ``with`` statement. After a run that failed, the next one starts
    fresh processes.
    """

    where = "local"
    link = "loopback (unshaped)"
    """What the bytes go over, in words."""
    prefix: tuple[str, ...] = ()
    """Command under which the pool's process is started."""
    network: Network | None = None
    """For the pool's process to make, and its workers to live in."""
    cluster: Cluster | None = None
    """With the speeds of the links, where they are known."""

    def __init__(self, devices: int | Iterable[int], *, start_timeout_s: float = 60.0) -> None:
        self.devices = device_ids(devices)
        self.start_timeout_s = Deadline(start_timeout_s, "start_timeout_s").timeout_s
        self.pids: dict[int, int] = {}
        """Process of every device while they run, as numbered where the pool's process runs."""
        self._lock = threading.Lock()
        self._process: PoolProcess | None = None
        self._torch = ""

    def run(
        self, plan: Plan, repeats: int = 10, warmup: int = 3, timeout_s: float = 60.0, seed: int = 0
    ) -> Measurement:
        """Carry ``plan`` out ``warmup`` + ``repeats`` times and measure the latter.

        Before each repeat the destinations are poisoned and all devices meet; the time of a
        repeat is that of the slowest device. Every destination piece is checked after every
        repeat (except under ``signal``). ``timeout_s`` bounds each repeat; ``seed`` sets the
        data. Raises ReshardError naming the device that died, hangs, failed or got wrong bytes,
        its last operation and the end of its stderr; all processes are then ended.
        """
        repeats, warmup, timeout_s, seed = check_run(plan, repeats, warmup, timeout_s, seed)
        self.check_plan(plan)
        options = {"repeats": warmup + repeats, "timeout_s": timeout_s, "seed": seed}
        what, command = f"the {plan.strategy} plan", {"do": "run", "plan": _PLAN, **options}
        last, files = partial(last_operation, plan), {_PLAN: plan.to_json()}
        job = PoolJob(what, devices_of(plan), command, files, timeout_s, last)
        reports = self.carry_out(job, lambda folder, reports: reports)
        timed = list(zip(*reports.values(), strict=True))[warmup:]
        stamp = self.stamp(e["cpu"] for r in timed for e in r)
        return measurement(
            plan, [max(e["seconds"] for e in r) for r in timed], plan.delivers, stamp
        )

    def check_plan(self, plan: Plan) -> None:
        """Raise ReshardError if the plan is not right, or not for this pool."""
        self.check_devices("plan", devices_of(plan))
        plan.verify()

    def check_devices(self, what: str, devices: tuple[int, ...]) -> None:
        """Raise ReshardError if the pool does not have all ``devices`` of a ``what``."""
        missing = sorted(set(devices) - set(self.devices))
        if missing:
            raise ReshardError(
                f"the {what} uses devices {missing}, which the pool does not have: it was made for "
                f"{list(self.devices)}; use Pool({list(devices)})"
            )

    def carry_out(self, job: PoolJob, read: Callable[[Path, Reports], T]) -> T:
        """Have the job carried out; returns what ``read`` makes of the pool's folder and of
        the reports. Raises ReshardError as ``run`` does; all processes are then ended.
        """
        with self._lock:
            try:
                process = self._ready()
                for rank in range(len(self.devices)):  # where an earlier job was is of no interest
                    process.progress.begin(rank, 0)
                for name, text in job.files.items():
                    (process.folder / name).write_text(text)
                process.send({"devices": job.devices, **job.command})
                return read(process.folder, self._collect(process, job))
            except BaseException:  # also Ctrl-C: what is under way cannot be trusted any more
                self._stop()
                raise
            finally:
                if self._process is not None:
                    for name in job.files:
                        (self._process.folder / name).unlink(missing_ok=True)

    def stamp(self, cpu: Iterable[Sequence[float] | None]) -> dict[str, Any]:
        """The environment of what was measured, with the share of the cores that was busy in spans
        ``(busy seconds, all seconds)``.
        """
        stamp = environment(self.where, "gloo", self.link, self._torch)
        return stamp | {"cpu_share": cpu_share(cpu)}

    def close(self) -> None:
        """End all processes and remove their folder."""
        if self._process is not None:
            self._process.close()
        self._process = None
        self.pids = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _interface(self) -> str:
        names = [name for _, name in socket.if_nameindex()]
        return "lo" if "lo" in names else "lo0"

    def _command(self) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "reshard_lab.worker"]

    def _ready(self) -> PoolProcess:
        """The pool's process, with a worker for every device."""
        deadline = Deadline(self.start_timeout_s)
        if self._process is None:
            config = {
                "devices": self.devices,
                "interface": self._interface(),
                "start_timeout_s": self.start_timeout_s,
                "network": self.network,
            }
            self._process = PoolProcess(self._command(), config)
            self._torch = self._start_event("up", deadline)["torch"]
        if self.pids:
            return self._process
        self._process.send({"do": "fork"})
        pids = self._start_event("forked", deadline)["pids"]
        for _ in self.devices:
            self._start_event("ready", deadline)
        self.pids = {int(device): pid for device, pid in pids.items()}
        return self._process

    def _start_event(self, expected: str, deadline: Deadline) -> dict[str, Any]:
        assert self._process is not None
        event = self._process.next(deadline.left())
        if event is not None and event["event"] == expected:
            return event
        device, came = None, f"nothing within start_timeout_s={self.start_timeout_s:g}"
        if event is not None:
            device = event.get("device")
            came = f"{event['event']} of device {device}"
        raise ReshardError(
            f"the processes of the pool did not start: {expected!r} was expected, {came} came\n"
            f"{self._process.stderr(device).strip()}"
        )

    def _collect(self, process: PoolProcess, job: PoolJob) -> Reports:
        """The reports of every repeat by device, once all are done."""
        repeats: Reports = {device: [] for device in job.devices}
        waiting = set(job.devices)
        while waiting:
            event = process.next(job.timeout_s + _SLACK_S)
            if event is None or event["event"] in ("exit", "error"):
                raise self._failed(process, job, waiting, event)
            if event["event"] == "repeat":
                repeats[event["device"]].append(event)
            elif event["event"] == "done":
                waiting.discard(event["device"])
        return repeats

    def _failed(
        self, process: PoolProcess, job: PoolJob, waiting: set[int], event: dict[str, Any] | None
    ) -> ReshardError:
        """The error that says what happened, when the others have had time to say theirs."""
        reports = [] if event is None else [event]
        end = time.monotonic() + _GRACE_S
        while event is not None and (event := process.next(end - time.monotonic())) is not None:
            if event["event"] in ("exit", "error"):
                reports.append(event)
            elif event["event"] == "done":
                waiting.discard(event["device"])
        return ReshardError(
            explain_stop(
                job.what,
                job.last,
                waiting=sorted(waiting),
                reports=reports,
                timeout_s=job.timeout_s,
                positions={d: process.progress.read(rank) for rank, d in enumerate(self.devices)},
                stderr={d: process.stderr(d) for d in self.devices},
            )
        )

    def _stop(self) -> None:
        """End the workers; the process that forks them stays, if it answers."""
        self.pids = {}
        process = self._process
        if process is None:
            return
        try:
            process.send({"do": "kill"})
            while (event := process.next(_SLACK_S)) is not None:
                if event["event"] == "killed":
                    return
        except ReshardError:
            pass
        self.close()
