"""Plans under torchrun: one process a device, on one machine or many, with NCCL where GPUs are.

``run_torchrun`` starts it on this machine, from a program or a notebook cell, and reads what its
ranks report; ``main`` is one rank.
"""

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from reshard_lab.errors import ReshardError, check_choice, check_int, need
from reshard_lab.planning import Plan
from reshard_lab.runtime.calls import Deadline, torch_modules
from reshard_lab.runtime.context import CARRIERS, devices_of
from reshard_lab.runtime.measure import Measurement, environment, measurement
from reshard_lab.runtime.process import child_environment, die_with, end_process
from reshard_lab.runtime.trial import Trial
from reshard_lab.units import format_seconds, parse_seconds

START_S = 300.0
"""To start and connect all ranks: NCCL takes its time on many nodes."""
_AGENT = "from reshard_lab.runtime.torchrun import agent; agent()"
_END_S = 10.0
_MOST_S = 1e9  # some 30 years: not much more can be waited for
_TAIL = 2000  # characters of stderr that a message repeats

Say = Callable[[str], object]


def run_torchrun(
    plan: Plan, repeats: int, warmup: int, timeout_s: float, seed: int, say: Say = print
) -> Measurement:
    """Carry ``plan`` out on this machine's GPUs, one process each; ``say`` gets a line a run.

    The ranks run NCCL, or gloo on a machine without a GPU. Raises ReshardError for more devices
    than GPUs, and for what goes wrong on any rank.
    """
    devices = devices_of(plan)
    gpus = torch_modules()[0].cuda.device_count()
    if 0 < gpus < len(devices):
        raise ReshardError(
            f"the plan has {len(devices)} devices, and this machine has {gpus} GPU"
            f"{'s' * (gpus != 1)}; plan for as many, or start torchrun on several machines with "
            "-m reshard_lab.worker --plan FILE (docs/gpu.md)"
        )
    folder = Path(tempfile.mkdtemp(prefix="reshard_lab-"))
    try:
        plan.to_json(folder / "plan.json")
        command = [sys.executable, "-c", _AGENT, str(os.getpid()), str(folder), "--standalone"]
        command += ["--local-addr=127.0.0.1", f"--nproc-per-node={len(devices)}"]
        command += ["-m", "reshard_lab.worker", "--parent", f"--plan={folder / 'plan.json'}"]
        command += [f"--report={folder}", f"--repeats={repeats}", f"--warmup={warmup}"]
        command += [f"--timeout={timeout_s}s", f"--seed={seed}"]
        limit_s = min(START_S + (repeats + warmup) * timeout_s, _MOST_S)
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


def _follow(command: list[str], errors: Path, limit_s: float, say: Say) -> int | None:
    """Run ``command`` and pass its lines on; its exit status, or None if it took too long."""
    end, rest = time.monotonic() + limit_s, b""
    with open(errors, "wb") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, env=child_environment(), bufsize=0
        )
    assert process.stdout is not None
    try:
        while select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            data = process.stdout.read(1 << 16)
            if not data:
                return process.wait(_END_S)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                say(line.decode(errors="replace"))
        return None
    finally:
        end_process(process, _END_S)  # it ends its ranks; the kernel does if it cannot any more
        process.stdout.close()


def _what_failed(folder: Path, devices: tuple[int, ...], code: int | None) -> str:
    how = "was not done in time" if code is None else f"ended with exit code {code}"
    lines = [f"torchrun {how}"]
    for rank, device in enumerate(devices):
        error = folder / f"error-{rank}"
        if error.exists():
            lines.append(f"device {device} (rank {rank}) failed: {error.read_text()}")
    if len(lines) == 1:
        lines.append((folder / "stderr").read_bytes().decode(errors="replace").strip()[-_TAIL:])
    return "\n".join(lines)


def restored(data: dict[str, Any]) -> Measurement:
    """The measurement that ``Measurement.to_dict`` and JSON made ``data`` of."""
    fields = {name: data[name] for name in Measurement.__dataclass_fields__}
    fields["times_s"] = tuple(fields["times_s"])
    fields["shapes"] = tuple(map(tuple, fields["shapes"]))
    return Measurement(**fields)


def main(argv: Sequence[str]) -> int:
    """One rank, started by torchrun; returns the exit status."""
    if "--parent" in argv:  # from run_torchrun: ranks end with what started them
        die_with(os.getppid())
        argv = [word for word in argv if word != "--parent"]
    args = _parser().parse_args(argv)
    try:
        measured = _carry_out(args)
    except Exception as error:
        text = str(error)
        if not isinstance(error, ReshardError):
            text = repr(error)
            traceback.print_exc()
        rank = os.environ.get("RANK", "0")
        print(f"rank {rank}: {text}", file=sys.stderr, flush=True)
        if args.report:
            with contextlib.suppress(OSError):
                Path(args.report, f"error-{rank}").write_text(text, encoding="utf-8")
        return 1
    if measured is not None:
        text = json.dumps(measured.to_dict())
        if args.report:
            Path(args.report, "result.json").write_text(text, encoding="utf-8")
        else:
            print(text, flush=True)
    sys.stdout.flush()
    os._exit(0)  # NCCL may take long to tidy up what the end of the process tidies up anyway


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun ... -m reshard_lab.worker",
        description="Carry a plan out, one process a device: rank r is its r-th device.",
    )
    parser.add_argument("--plan", required=True, help="a file that Plan.to_json wrote")
    parser.add_argument("--repeats", type=int, default=10, help="timed runs (10)")
    parser.add_argument("--warmup", type=int, default=3, help="runs before those (3)")
    parser.add_argument("--timeout", default="60s", help="deadline of each run (60s)")
    parser.add_argument("--seed", type=int, default=0, help="of the data (0)")
    carriers = "broadcast or chain; on the CPU also lanes (default: broadcast on GPUs, else lanes)"
    parser.add_argument("--carrier", help=carriers)
    report = "folder for result.json, and for error-RANK of a rank that failed (default: print)"
    parser.add_argument("--report", metavar="DIR", help=report)
    return parser


def _carry_out(args: argparse.Namespace) -> Measurement | None:
    """Run the plan on the process group that torchrun describes; rank 0 gets the measurement."""
    plan = Plan.from_json(args.plan)
    plan.verify()
    check_int("--repeats", args.repeats, 1)
    check_int("--warmup", args.warmup)
    check_int("--seed", args.seed)
    timeout_s = Deadline(parse_seconds(args.timeout, "--timeout"), "--timeout").timeout_s
    devices = devices_of(plan)
    rank, local, world = _ranks(len(devices))
    torch, dist = torch_modules()
    backend = _backend(torch, local)
    carrier = None if args.carrier is None else check_choice("carrier", args.carrier, CARRIERS)
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=timedelta(seconds=max(START_S, timeout_s)))
    ranks = {device: r for r, device in enumerate(devices)}
    trial = Trial(plan, devices[rank], ranks, args.seed, timeout_s, carrier=carrier)
    times, runs = [], args.warmup + args.repeats
    for number in range(runs):
        seconds, _ = trial.repeat()
        words = trial.group.meet(struct.pack("d", seconds), Deadline(timeout_s))
        times.append(max(struct.unpack("d", word[:8])[0] for word in words.values()))
        if rank == 0:
            kind = "warm-up" if number < args.warmup else "run"
            print(
                f"{kind} {number + 1} of {runs}: {format_seconds(times[-1])}",
                file=sys.stdout if args.report else sys.stderr,
                flush=True,
            )
    if rank:
        return None
    nodes = world // int(os.environ.get("LOCAL_WORLD_SIZE", world))
    on = f"on {nodes} node{'s' * (nodes != 1)}"
    link = f"{world} processes {on} (unshaped)"
    if backend == "nccl":
        link = f"{world} x {torch.cuda.get_device_name()} {on}"
    stamp = environment("torchrun", backend, link, torch.__version__) | {"carrier": trial.carrier}
    return measurement(plan, times[args.warmup :], plan.delivers, stamp)


def _ranks(devices: int) -> tuple[int, int, int]:
    """Rank, rank on this node and number of ranks, as torchrun says."""
    try:
        rank, local, world = (int(os.environ[k]) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    except (KeyError, ValueError):
        raise ReshardError(
            "RANK, LOCAL_RANK and WORLD_SIZE are not set; start this with torchrun: torchrun "
            f"--nproc-per-node {devices} -m reshard_lab.worker --plan ..."
        ) from None
    if world != devices:
        raise ReshardError(
            f"the plan has {devices} devices, and torchrun started {world} processes; start one a "
            f"device, such as --nproc-per-node {devices} on one node"
        )
    return rank, local, world


def _backend(torch: Any, local: int) -> str:
    if not torch.cuda.is_available():
        return "gloo"
    if local >= torch.cuda.device_count():
        raise ReshardError(
            f"LOCAL_RANK {local} has no GPU: this node has {torch.cuda.device_count()}; start at "
            "most one process a GPU on every node"
        )
    torch.cuda.set_device(local)
    return "nccl"
