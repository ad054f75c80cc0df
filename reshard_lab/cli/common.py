"""What the commands share: options, the task and plan they describe, and what they print."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from reshard_lab.cluster import Cluster, presets
from reshard_lab.errors import ReshardError, check_int
from reshard_lab.layout import RULES, Layout
from reshard_lab.planning import Plan, plan
from reshard_lab.resharding import ReshardingTask
from reshard_lab.scheduling import METHODS
from reshard_lab.strategies import STRATEGIES
from reshard_lab.task_text import MOST_DEVICES, parse_meshes, parse_shape
from reshard_lab.units import table

_TASK = ("shape", "src_mesh", "src_spec", "dst_mesh", "dst_spec")
_SPEEDS = ("nic", "nics_per_host", "nic_latency", "intra", "intra_latency")
_IN_FILE = (*_TASK, "cluster", "hosts", "devices_per_host", "first_host", *_SPEEDS)
_DEFAULTS = {
    "dtype": "float32",
    "rule": "chunk",
    "strategy": "broadcast",
    "scheduler": "auto",
    "chunks": "auto",
}


def add_task(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Options that describe a tensor, its two layouts and the cluster."""
    add = parser.add_argument_group("tensor and layouts").add_argument
    add("--shape", required=required, help="sizes, such as 4,4")
    for end, where in (("src", "source"), ("dst", "destination")):
        mesh = f"{where} mesh: its shape, such as 2x2, or device ids, such as '[[0,1],[2,3]]'"
        add(f"--{end}-mesh", metavar="MESH", required=required, help=mesh)
        spec = f"{where} sharding spec, such as S01R"
        add(f"--{end}-spec", metavar="SPEC", required=required, help=spec)
    add("--dtype", default=_DEFAULTS["dtype"], help="element type (default float32)")
    rule = f"how uneven sizes are cut: {', '.join(RULES)} (default chunk)"
    add("--rule", default=_DEFAULTS["rule"], help=rule)
    add = parser.add_argument_group(
        "cluster",
        "A mesh given by its shape takes one host a row (its last axis); the source starts at "
        "host 0, the destination at the next host. Speeds default to the preset's, or to those in "
        "parentheses.",
    ).add_argument
    add("--cluster", metavar="PRESET", help=f"a described machine: {', '.join(presets())}")
    add("--hosts", type=int, help="hosts (default: as many as the meshes need)")
    per = "devices of a host (default: the preset's, or the longest row of the meshes)"
    add("--devices-per-host", type=int, metavar="N", help=per)
    first = "host where the destination mesh starts (default: the next after the source)"
    add("--first-host", type=int, metavar="N", help=first)
    add("--nic", metavar="RATE", help="speed of a NIC (10Gbps)")
    add("--nics-per-host", type=int, metavar="N", help="NICs of a host (1)")
    add("--nic-latency", metavar="TIME", help="of a message between hosts (20us)")
    add("--intra", metavar="RATE", help="speed inside a host (150GB/s)")
    add("--intra-latency", metavar="TIME", help="of a message inside a host (5us)")


def add_plan(parser: argparse.ArgumentParser, strategy: bool = True) -> None:
    """Options that say how to plan."""
    add = parser.add_argument_group("plan").add_argument
    if strategy:
        names = f"{', '.join(STRATEGIES)} or auto (default broadcast)"
        add("--strategy", default=_DEFAULTS["strategy"], help=names)
    methods = f"{', '.join(METHODS)} (default auto)"
    add("--scheduler", default=_DEFAULTS["scheduler"], help=methods)
    chunks = "chunks of a broadcast; auto (the default) goes by size and latency"
    add("--chunks", type=_chunks, default=_DEFAULTS["chunks"], help=chunks)
    add("--seed", type=int, default=0, help="seed of what draws at random (0)")


def _chunks(text: str) -> int | str:
    if text != "auto" and not re.fullmatch(r"-?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'auto'")
    return text if text == "auto" else int(text)


def add_plan_file(parser: argparse.ArgumentParser) -> None:
    """A plan file, or the options that describe a plan."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a file that 'plan -o' wrote")
    add_task(parser, required=False)
    add_plan(parser)


def add_run(parser: argparse.ArgumentParser, places: Sequence[str]) -> None:
    """Options that say where, and how often, to run."""
    add = parser.add_argument_group("run").add_argument
    add("--where", default="local", choices=places, help=f"{', '.join(places)} (default local)")
    add("--repeats", type=int, default=10, help="timed runs (10)")
    add("--warmup", type=int, default=3, help="runs before those (3)")
    add("--timeout", default="60s", metavar="TIME", help="give up after this long (60s)")


def option(key: str) -> str:
    """The option that argparse keeps under ``key``."""
    return f"--{key.replace('_', '-')}"


def given(args: argparse.Namespace, *keys: str) -> dict[str, Any]:
    """Those of the options that were given, by key."""
    return {key: getattr(args, key) for key in keys if getattr(args, key) is not None}


def task_of(args: argparse.Namespace) -> ReshardingTask:
    """The task that the options describe."""
    missing = [option(key) for key in _TASK if getattr(args, key) is None]
    if missing:
        raise ReshardError(f"no plan file, and without one {', '.join(missing)} must be given")
    preset = {} if args.cluster is None else Cluster.preset(args.cluster).to_dict()
    if args.devices_per_host is not None:
        check_int("--devices-per-host", args.devices_per_host, 1, MOST_DEVICES)
    per = args.devices_per_host or preset.get("devices_per_host")
    if args.first_host is not None:
        check_int("--first-host", args.first_host)
    names = "--src-mesh", "--dst-mesh"
    src, dst, per = parse_meshes(args.src_mesh, args.dst_mesh, names, per, args.first_host)
    needed = max((*src.devices, *dst.devices)) // per + 1
    hosts = needed if args.hosts is None else args.hosts
    speeds = given(args, *_SPEEDS)
    cluster = Cluster(**{**preset, **speeds, "hosts": hosts, "devices_per_host": per})
    shape = parse_shape(args.shape, "--shape")
    ends = Layout(src, args.src_spec, args.rule), Layout(dst, args.dst_spec, args.rule)
    return ReshardingTask(shape, args.dtype, *ends, cluster)


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the options describe."""
    return plan(task_of(args), args.strategy, args.scheduler, chunks=args.chunks, seed=args.seed)


def plan_or_file(args: argparse.Namespace) -> Plan:
    """The plan of the file given as PLAN, or the one that the options describe."""
    keys = (*_IN_FILE, *_DEFAULTS)
    described = [option(k) for k, v in given(args, *keys).items() if v != _DEFAULTS.get(k)]
    if args.plan and described:
        raise ReshardError(f"give a plan file or {', '.join(described)}, not both")
    return Plan.from_json(args.plan) if args.plan else plan_of(args)


def task_data(task: ReshardingTask) -> dict[str, Any]:
    """``task`` as plain values for JSON."""
    return {
        "shape": task.shape,
        "dtype": task.dtype,
        "nbytes": task.nbytes,
        "source": _layout_data(task.src, task.shape),
        "destination": _layout_data(task.dst, task.shape),
        "cluster": task.cluster.to_dict() if task.cluster else None,
    }


def _layout_data(layout: Layout, shape: tuple[int, ...]) -> dict[str, Any]:
    return {
        "mesh": layout.mesh.array().tolist(),
        "spec": str(layout.spec),
        "rule": layout.rule,
        "boxes": {str(device): box for device, box in layout.boxes(shape).items()},
    }


class Command(NamedTuple):
    """A command: what its help says, what adds its options, and what carries it out."""

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Output]


class Output(NamedTuple):
    """The result of a command."""

    text: str
    data: Any
    """Printed as JSON under ``--json``; a number that is not finite, which JSON lacks, as null."""

    def render(self, as_json: bool) -> str:
        """What goes to standard output."""
        return json.dumps(_finite(self.data), indent=2, allow_nan=False) if as_json else self.text


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def table_text(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned text."""
    return "\n".join(table(rows))


def facts_text(facts: Iterable[tuple[str, str]]) -> str:
    """A line a fact: its name, and what it is."""
    return "\n".join(f"{name:<12} {words}" for name, words in facts)
