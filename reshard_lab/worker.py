"""The processes behind a pool: ``python -m reshard_lab.worker``, started by the launcher.

With options (``--plan FILE ...``) it is one rank of a plan under torchrun instead.

One process, the zygote, imports torch once and forks a worker for every device, again after a
failure. It passes commands on to the workers and their reports to the launcher, says when one
dies, and ends, together with the workers and the pool's folder, when its standard input closes:
whatever happens to the launcher, nothing stays behind.
"""

import contextlib
import os
import selectors
import shutil
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.runtime import network, torchrun
from reshard_lab.runtime.calls import LateError, PeerError, torch_modules
from reshard_lab.runtime.process import LineReader, Progress, die_with, write_line
from reshard_lab.runtime.trial import Trial
from reshard_lab.training.collectives import ProcessGroups
from reshard_lab.training.executor import take_part


class Child(NamedTuple):
    """A worker, as the zygote sees it."""

    pid: int
    commands: int
    """The pipe's end to write to."""
    reader: LineReader
    """Of its reports."""

    def close(self) -> None:
        """The pipes' ends here."""
        os.close(self.commands)
        os.close(self.reader.fd)


class Zygote:
    """Forks the workers, kills them, and passes messages on."""

    def __init__(self, config: dict[str, Any], commands: LineReader, reports: int) -> None:
        self.config, self.commands, self.reports = config, commands, reports
        self.children: dict[int, Child] = {}
        self.forks = 0
        self.select = selectors.DefaultSelector()
        self.select.register(commands.fd, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Until standard input closes, or nobody reads the reports any more."""
        try:
            while True:
                for key, _ in self.select.select():
                    if key.data is not None:
                        self._pass_on(key.data)
                        continue
                    lines = self.commands.read()
                    if lines is None:
                        return
                    for line in lines:
                        self._obey(line)
        except BrokenPipeError:
            pass
        finally:
            self._kill()
            shutil.rmtree(self.config["folder"], ignore_errors=True)

    def _obey(self, command: dict[str, Any]) -> None:
        if command["do"] == "fork":
            self.forks += 1
            for device in self.config["devices"]:
                self._fork(device)
            pids = {device: child.pid for device, child in self.children.items()}
            write_line(self.reports, {"event": "forked", "pids": pids})
        elif command["do"] == "kill":
            self._kill()
            write_line(self.reports, {"event": "killed"})
        else:
            for device in command["devices"]:
                with contextlib.suppress(KeyError, BrokenPipeError):  # it died; that was reported
                    write_line(self.children[device].commands, command)

    def _fork(self, device: int) -> None:
        commands, to_child = os.pipe()
        from_child, reports = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            for fd in (to_child, from_child, self.reports):
                os.close(fd)
            for child in self.children.values():
                child.close()
            self.select.close()
            _live(self.config, self.forks, device, parent, LineReader(commands), reports)
        os.close(commands)
        os.close(reports)
        self.children[device] = Child(pid, to_child, LineReader(from_child))
        self.select.register(from_child, selectors.EVENT_READ, device)

    def _pass_on(self, device: int) -> None:
        child = self.children.get(device)
        if child is None:
            return
        lines = child.reader.read()
        if lines is None:
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
            self._forget(device)
            lines = [{"event": "exit", "code": code}]
        for line in lines:
            write_line(self.reports, {"device": device, **line})

    def _kill(self) -> None:
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
        for device, child in list(self.children.items()):
            os.waitpid(child.pid, 0)
            self._forget(device)

    def _forget(self, device: int) -> None:
        child = self.children.pop(device)
        self.select.unregister(child.reader.fd)
        child.close()


def _live(
    config: dict[str, Any], forks: int, device: int, parent: int, commands: LineReader, reports: int
) -> NoReturn:
    """The forked process: a worker until its commands end; never returns."""
    folder = Path(config["folder"])
    code = 1
    try:
        errors = os.open(folder / f"stderr-{device}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        die_with(parent)
        worker = Worker(config, forks, device, reports)
        while (lines := commands.read()) is not None:
            for line in lines:
                worker.run(line)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Worker:
    """One device of the pool."""

    def __init__(self, config: dict[str, Any], forks: int, device: int, reports: int) -> None:
        torch, dist = torch_modules()
        self.device, self.reports = device, reports
        devices = config["devices"]
        self.ranks = {d: rank for rank, d in enumerate(devices)}
        self.folder = folder = Path(config["folder"])
        self.progress = Progress(folder / "progress", len(devices))
        self.groups = ProcessGroups(self.ranks)
        if config["network"]:
            network.enter(network.Network.from_json(config["network"]).near[device])
        os.environ["GLOO_SOCKET_IFNAME"] = config["interface"]
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(folder / f"store-{forks}"), len(devices)),
            rank=self.ranks[device],
            world_size=len(devices),
            timeout=timedelta(seconds=config["start_timeout_s"]),
        )
        self.report(event="ready")

    def report(self, **message: Any) -> None:
        """Tell the launcher."""
        write_line(self.reports, message)

    def run(self, command: dict[str, Any]) -> None:
        """Carry out a command and report every repeat, or what went wrong."""
        try:
            if command["do"] == "train":
                take_part(self.device, self.folder, self.groups, self.progress, self.report)
            else:
                self.carry(command)
            self.report(event="done")
        except ReshardError as error:
            kinds: dict[type, str] = {LateError: "late", PeerError: "peer"}
            self.report(event="error", kind=kinds.get(type(error), "own"), text=str(error))
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            self.report(event="error", kind="own", text=repr(error))

    def carry(self, command: dict[str, Any]) -> None:
        """Carry out one plan."""
        plan, limit_s = Plan.from_json(self.folder / command["plan"]), command["timeout_s"]
        trial = Trial(plan, self.device, self.ranks, command["seed"], limit_s, self.observe)
        for repeat in range(1, command["repeats"] + 1):
            self.progress.begin(self.ranks[self.device], repeat)
            seconds, cpu = trial.repeat()
            self.report(event="repeat", seconds=seconds, cpu=cpu)

    def observe(self, lane: str, step: int, done: int) -> None:
        """Note where the lanes are."""
        self.progress.note(self.ranks[self.device], lane, step, done)


def main() -> None:
    """The zygote: its first line of input says which devices, and in which folder to meet."""
    if len(sys.argv) > 1:
        sys.exit(torchrun.main(sys.argv[1:]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the launcher, which ends us
    reports = os.dup(1)
    os.dup2(2, 1)
    commands = LineReader(0)
    lines = commands.read()
    if not lines:
        return
    torch, _ = torch_modules()
    if lines[0]["network"]:
        network.build(network.Network.from_json(lines[0]["network"]))
    zygote = Zygote(lines[0], commands, reports)
    write_line(reports, {"event": "up", "torch": torch.__version__})
    zygote.serve()
    os._exit(0)  # nothing is left to tidy up, which the libraries would take their time over


if __name__ == "__main__":
    main()
