"""What the first notebooks tabulate: pieces, uneven sizes, the two readings of a unit task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from reshard_lab.boxes import box_text, box_volume
from reshard_lab.errors import ReshardError, need
from reshard_lab.layout import RULES, Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning.explain import device_list
from reshard_lab.resharding import ReshardingTask, UnitTask, need_cluster, nic_hosts
from reshard_lab.spec import ShardingSpec

if TYPE_CHECKING:
    import pandas as pd


def pieces(array: np.ndarray, layout: Layout) -> dict[int, np.ndarray]:
    """``{device: the part of array it holds}``, in mesh order.

    >>> pieces(np.arange(4), Layout(Mesh([7, 8]), "S0"))[8].tolist()
    [2, 3]
    """
    return {
        device: array[tuple(slice(lo, hi) for lo, hi in box)]
        for device, box in layout.boxes(array.shape).items()
    }


def uneven(sizes: Sequence[int], mesh: Mesh, spec: str = "S0") -> pd.DataFrame:
    """How many elements each device gets of a one-dimensional tensor, under the three rules.

    One row a size and rule; under ``even`` a size that does not divide says so.
    """
    if ShardingSpec(spec).ndim != 1:
        raise ReshardError(f"spec {spec!r} is not of one dimension; give one token such as 'S0'")
    rows = []
    for n in sizes:
        for rule in RULES:
            row: dict[str, object] = {"size": n, "rule": rule}
            try:
                boxes = Layout(mesh, spec, rule).boxes((n,))
                row |= {f"device {d}": str(box_volume(box)) for d, box in boxes.items()}
            except ReshardError:
                row |= {f"device {d}": "refused" for d in mesh.devices}
            rows.append(row)
    return need("pandas", "notebooks", "a table").DataFrame(rows).set_index(["size", "rule"])


def unit_tasks(task: ReshardingTask, whole_slices: bool = False) -> pd.DataFrame:
    """The list of appendix B: one row a unit task, N the devices that hold it, M those it goes to.

    whole_slices:
        the paper's text (a source slice travels whole) instead of intersections.
    """
    units = task.whole_slice_tasks if whole_slices else task.unit_tasks
    rows = [
        {
            "box": box_text(unit.box),
            "elements": box_volume(unit.box),
            "bytes": unit.nbytes,
            "N": device_list(unit.senders),
            "M": device_list(unit.receivers),
        }
        for unit in units
    ]
    columns = ["box", "elements", "bytes", "N", "M"]
    made = need("pandas", "notebooks", "a table").DataFrame(rows, columns=columns)
    return made.rename_axis("unit task")


def two_readings(task: ReshardingTask) -> pd.DataFrame:
    """Bytes that enter each host under both readings of a unit task, beside those it needs.

    A box enters a host once, however many of its devices need it, and not at all where the host
    holds it. The last row adds up the hosts.
    """
    cluster = need_cluster([task])
    boxes = task.dst.boxes(task.shape)
    hosts = sorted({cluster.host_of(d) for d in boxes})

    def entering(units: Sequence[UnitTask]) -> dict[int, int]:
        total = dict.fromkeys(hosts, 0)
        for unit in units:
            for host in nic_hosts(unit, cluster)[1]:
                total[host] += unit.nbytes
        return total

    cut, whole = entering(task.unit_tasks), entering(task.whole_slice_tasks)
    rows = [
        {
            "host": f"host {host}",
            "needs": _distinct_bytes(task, host),
            "intersections": cut[host],
            "whole slices": whole[host],
        }
        for host in hosts
    ]
    made = need("pandas", "notebooks", "a table").DataFrame(rows).set_index("host")
    made.loc["all"] = made.sum()
    return made.rename_axis(columns="bytes")


def _distinct_bytes(task: ReshardingTask, host: int) -> int:
    """Bytes of distinct elements that devices of ``host`` need and none of them holds.

    Counted element by element over a mask of the tensor: slow, and independent of unit tasks.
    """
    cluster = need_cluster([task])
    mask = np.zeros(task.shape, dtype=bool)
    for layout, value in ((task.dst, True), (task.src, False)):
        for device, box in layout.boxes(task.shape).items():
            if cluster.host_of(device) == host:
                mask[tuple(slice(lo, hi) for lo, hi in box)] = value
    return int(mask.sum()) * task.itemsize
