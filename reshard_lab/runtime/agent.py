"""Starting torchrun from a program or a notebook cell, and reading what its ranks report."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reshard_lab.errors import ReshardError, need
from reshard_lab.planning import Plan
from reshard_lab.runtime.context import devices_of
from reshard_lab.runtime.measure import Measurement
from reshard_lab.runtime.process import child_environment, die_with
from reshard_lab.runtime.torchrun import START_S, restored
from reshard_lab.runtime.trial import check_run

_AGENT = "from reshard_lab.runtime.agent import agent; agent()"
_END_S = 10.0
_MOST_S = 1e9  # some 30 years: not much more can be waited for
_TAIL = 2000  # characters of stderr that a message repeats


def run_torchrun(
    plan: Plan,
    repeats: int = 10,
    warmup: int = 3,
    timeout_s: float = 60.0,
    seed: int = 0,
    say: Callable[[str], object] = print,
) -> Measurement:
    """Carry ``plan`` out on this machine's GPUs, one process each; ``say`` gets a line a run.

    The ranks run NCCL, or gloo on a machine without a GPU. Raises ReshardError for more devices
    than GPUs, and for what goes wrong on any rank.
    """
    asked = check_run(plan, repeats, warmup, timeout_s, seed)
    devices = devices_of(plan)
    gpus = need("torch", "run", "running a plan on processes").cuda.device_count()
    if 0 < gpus < len(devices):
        raise ReshardError(
            f"the plan has {len(devices)} devices, and this machine has {gpus} GPU"
            f"{'s' * (gpus != 1)}; plan for as many, or start torchrun on several machines with "
            "-m reshard_lab.worker --plan FILE (docs/gpu.md)"
        )
    folder = Path(tempfile.mkdtemp(prefix="reshard_lab-"))
    try:
        plan.to_json(folder / "plan.json")
        options = {
            "--plan": folder / "plan.json",
            "--report": folder,
            "--repeats": asked.repeats,
            "--warmup": asked.warmup,
            "--timeout": f"{asked.timeout_s}s",
            "--seed": asked.seed,
        }
        command = [sys.executable, "-c", _AGENT, str(os.getpid()), str(folder), "--standalone"]
        command += ["--local-addr=127.0.0.1", f"--nproc-per-node={len(devices)}"]
        command += ["-m", "reshard_lab.worker", "--parent"]
        command += [str(word) for option in options.items() for word in option]
        limit_s = min(START_S + (asked.repeats + asked.warmup) * asked.timeout_s, _MOST_S)
        code = _follow(command, folder / "stderr", limit_s, say)
        result = folder / "result.json"
        if code or not result.exists():
            raise ReshardError(_what_failed(folder, devices, code))
        return restored(json.loads(result.read_text(encoding="utf-8")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def agent() -> None:
    """torchrun as ``run_torchrun`` starts it: it ends with its parent, and tidies up after it."""
    parent, folder = int(sys.argv.pop(1)), sys.argv.pop(1)
    die_with(parent, signal.SIGTERM)
    try:
        need("torch.distributed.run", "run", "running a plan on processes").main()
    finally:
        if os.getppid() != parent:
            shutil.rmtree(folder, ignore_errors=True)


def _follow(
    command: list[str], errors: Path, limit_s: float, say: Callable[[str], object]
) -> int | None:
    """Run ``command`` and pass its lines on; its exit status, or None if it took too long."""
    end, rest = time.monotonic() + limit_s, b""
    with open(errors, "wb") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, env=child_environment(), bufsize=0
        )
    try:
        assert process.stdout is not None
        while select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            data = process.stdout.read(1 << 16)
            if not data:
                return process.wait(_END_S)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                say(line.decode(errors="replace"))
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun; it ends its ranks, and the kernel does if it cannot any more."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _what_failed(folder: Path, devices: tuple[int, ...], code: int | None) -> str:
    """Which devices failed, and in what words."""
    how = "was not done in time" if code is None else f"ended with exit code {code}"
    lines = [f"torchrun {how}"]
    for rank, device in enumerate(devices):
        told = folder / f"error-{rank}"
        if told.exists():
            lines.append(f"device {device} (rank {rank}) failed: {told.read_text()}")
    if len(lines) == 1:
        tail = (folder / "stderr").read_bytes().decode(errors="replace").strip()[-_TAIL:]
        lines.append(tail)
    return "\n".join(lines)
