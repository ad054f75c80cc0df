"""The reference cases, read from tests/cases/."""

from __future__ import annotations

import json

import numpy as np

import reshard_lab as rl
from support.paths import CASES


def read(name: str) -> list[dict]:
    """The list in ``tests/cases/<name>.json``."""
    return json.loads((CASES / f"{name}.json").read_text())


def row_major(shape) -> rl.Mesh:
    """Devices 0..n-1 in row-major order."""
    return rl.Mesh(np.arange(int(np.prod(shape))).reshape(shape))


def tasks_of(case: dict, nic: float = 1.0) -> list[rl.ReshardingTask]:
    """The tensors of one entry of schedules.json; at 1 byte/s, seconds are bytes."""
    size = case["cluster"]
    cluster = rl.Cluster(
        hosts=size["hosts"],
        devices_per_host=size["devices_per_host"],
        nic=nic,
        nic_latency=0,
        intra="inf",
        intra_latency=0,
    )
    return [
        rl.ReshardingTask(
            t["shape"],
            case["dtype"],
            rl.Layout(rl.Mesh(t["src"]["mesh"]), t["src"]["spec"]),
            rl.Layout(rl.Mesh(t["dst"]["mesh"]), t["dst"]["spec"]),
            cluster,
        )
        for t in case["tensors"]
    ]


def pieces_of(layout: rl.Layout, array: np.ndarray) -> dict[int, np.ndarray]:
    """What NumPy slicing says every device holds."""
    return {
        device: array[tuple(slice(lo, hi) for lo, hi in box)]
        for device, box in layout.boxes(array.shape).items()
    }


def one_sender(hosts: int, devices: int, n: int, cluster: rl.Cluster) -> rl.ReshardingTask:
    """``n`` bytes of device 0 to all devices of ``hosts`` others."""
    src = rl.Layout(rl.Mesh([0]), "R")
    dst = rl.Layout(cluster.mesh((hosts, devices), first_host=1), "R")
    return rl.ReshardingTask((n,), "int8", src, dst, cluster)
