"""Plans under torchrun: one process a device, on one machine or many, with NCCL where GPUs are."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import struct
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from reshard_lab.errors import ReshardError, check_choice, check_int, need
from reshard_lab.planning import Plan
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.context import CARRIERS, devices_of
from reshard_lab.runtime.measure import Measurement, environment, measurement
from reshard_lab.runtime.process import die_with
from reshard_lab.runtime.trial import Trial
from reshard_lab.units import format_seconds, parse_seconds

START_S = 300.0
"""To start and connect all ranks: NCCL takes its time on many nodes."""


def parser() -> argparse.ArgumentParser:
    """Options of ``torchrun ... -m reshard_lab.worker``."""
    made = argparse.ArgumentParser(
        prog="torchrun ... -m reshard_lab.worker",
        description="Carry a plan out, one process a device: rank r is its r-th device.",
    )
    made.add_argument("--plan", required=True, help="a file that Plan.to_json wrote")
    made.add_argument("--repeats", type=int, default=10, help="timed runs (10)")
    made.add_argument("--warmup", type=int, default=3, help="runs before those (3)")
    made.add_argument("--timeout", default="60s", help="deadline of each run (60s)")
    made.add_argument("--seed", type=int, default=0, help="of the data (0)")
    carriers = "broadcast or chain; on the CPU also lanes (default: broadcast on GPUs, else lanes)"
    made.add_argument("--carrier", help=carriers)
    report = "folder for result.json, and for error-RANK of a rank that failed (default: print)"
    made.add_argument("--report", metavar="DIR", help=report)
    return made


def main(argv: Sequence[str]) -> int:
    """One rank; returns the exit status."""
    if "--parent" in argv:  # from run_torchrun: ranks end with what started them
        die_with(os.getppid())
        argv = [word for word in argv if word != "--parent"]
    args = parser().parse_args(argv)
    try:
        found = carry_out(args)
    except ReshardError as error:
        return _failed(args, str(error))
    except Exception as error:
        traceback.print_exc()
        return _failed(args, repr(error))
    if found is not None:
        text = json.dumps(found)
        if args.report:
            Path(args.report, "result.json").write_text(text, encoding="utf-8")
        else:
            print(text, flush=True)
    sys.stdout.flush()
    os._exit(0)  # NCCL may take long to tidy up what the end of the process tidies up anyway


def _failed(args: argparse.Namespace, text: str) -> int:
    rank = os.environ.get("RANK", "0")
    print(f"rank {rank}: {text}", file=sys.stderr, flush=True)
    if args.report:
        with contextlib.suppress(OSError):
            Path(args.report, f"error-{rank}").write_text(text, encoding="utf-8")
    return 1


def carry_out(args: argparse.Namespace) -> dict[str, Any] | None:
    """Run the plan on the process group that torchrun describes; rank 0 gets the measurement."""
    plan = Plan.from_json(args.plan)
    plan.verify()
    (
        check_int("--repeats", args.repeats, 1),
        check_int("--warmup", args.warmup),
        check_int("--seed", args.seed),
    )
    timeout_s = Deadline(parse_seconds(args.timeout, "--timeout"), "--timeout").timeout_s
    devices = devices_of(plan)
    rank, local, world = _place(len(devices))
    torch = need("torch", "run", "running a plan on processes")
    dist = need("torch.distributed", "run", "running a plan on processes")
    backend = _backend(torch, local)
    carrier = None if args.carrier is None else check_choice("carrier", args.carrier, CARRIERS)
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=timedelta(seconds=max(START_S, timeout_s)))
    ranks = {device: r for r, device in enumerate(devices)}
    trial = Trial(plan, devices[rank], ranks, args.seed, timeout_s, carrier=carrier)
    times = []
    for number in range(args.warmup + args.repeats):
        mine, _ = trial.repeat()
        words = trial.group.meet(struct.pack("d", mine), Deadline(timeout_s))
        slowest = max(struct.unpack("d", word[:8])[0] for word in words.values())
        times.append(slowest)
        if rank == 0:
            kind = "warm-up" if number < args.warmup else "run"
            print(
                f"{kind} {number + 1} of {args.warmup + args.repeats}: {format_seconds(slowest)}",
                file=sys.stdout if args.report else sys.stderr,
                flush=True,
            )
    if rank:
        return None
    stamp = environment("torchrun", backend, _link(torch, backend, world), torch.__version__)
    stamp["carrier"] = trial.how
    return measurement(plan, times[args.warmup :], plan.delivers, stamp).to_dict()


def _place(devices: int) -> tuple[int, int, int]:
    """Rank, rank on this node and number of ranks, as torchrun tells them."""
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


def _link(torch: Any, backend: str, world: int) -> str:
    nodes = world // int(os.environ.get("LOCAL_WORLD_SIZE", world))
    on = f"on {nodes} node{'s' * (nodes != 1)}"
    if backend == "nccl":
        return f"{world} x {torch.cuda.get_device_name()} {on}"
    return f"{world} processes {on} (unshaped)"


def restored(data: dict[str, Any]) -> Measurement:
    """The measurement that ``Measurement.to_dict`` and JSON made ``data`` of."""
    fields = {name: data[name] for name in Measurement.__dataclass_fields__}
    fields["times_s"] = tuple(fields["times_s"])
    fields["shapes"] = tuple(map(tuple, fields["shapes"]))
    return Measurement(**fields)
