"""The paper's tasks: figure 2, one sender to many, and table 2 at its own size or scaled down."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.resharding import ReshardingTask

DTYPE = "float32"


def on_figure2(
    src_spec: str, dst_spec: str, shape: Sequence[int] = (4, 4), dtype: str = "float32"
) -> ReshardingTask:
    """A task on the meshes of figure 2: from [[0, 1], [2, 3]] to [[4, 5], [6, 7]], a row a host."""
    cluster = Cluster(hosts=4, devices_per_host=2)
    src = Layout(cluster.mesh((2, 2)), src_spec)
    dst = Layout(cluster.mesh((2, 2), first_host=2), dst_spec)
    return ReshardingTask(shape, dtype, src, dst, cluster)


def figure2(number: int) -> ReshardingTask:
    """Task 1 or 2 of figure 2: S01R on mesh A to S0R on mesh B, or S0R on B back to S0R on A.

    >>> [len(figure2(n).unit_tasks) for n in (1, 2)]
    [4, 2]
    """
    if number not in (1, 2):
        raise ReshardError(f"figure 2 has tasks 1 and 2, not {number!r}")
    there = on_figure2("S01R", "S0R")
    if number == 1:
        return there
    back = Layout(there.src.mesh, "S0R")
    return ReshardingTask(there.shape, there.dtype, there.dst, back, there.cluster)


def one_sender_task(
    shape: Sequence[int], hosts: int, devices: int, cluster: Cluster, dtype: str = "uint8"
) -> ReshardingTask:
    """Section 3.1: device 0 sends a tensor to the first ``devices`` (B) of hosts 1 to A.

    >>> one_sender_task((8,), 2, 2, Cluster(3, 4)).dst.mesh
    Mesh([[4, 5], [8, 9]])
    """
    src, dst = Layout(Mesh([0]), "R"), Layout(host_rows(cluster, hosts, devices, 1), "R")
    return ReshardingTask(shape, dtype, src, dst, cluster)


def host_rows(cluster: Cluster, hosts: int, devices: int, first_host: int = 0) -> Mesh:
    """A mesh of ``hosts`` × ``devices``: each row the first devices of a host."""
    starts = np.arange(first_host, first_host + hosts) * cluster.devices_per_host
    return Mesh(starts[:, None] + np.arange(devices))


class SuiteCase(NamedTuple):
    """One row of table 2: a tensor, and its layouts on hosts of four devices."""

    number: int
    shape: tuple[int, ...]
    src_hosts: int
    src_spec: str
    dst_hosts: int
    dst_spec: str
    unit_tasks: int
    """As the paper counts them."""
    note: str = ""


_CUBE = (1024, 1024, 512)
_SAME = "7 and 8 are the same in the public suite; its 4 replicas are run as 8 full copies here"

SUITE = (
    SuiteCase(1, _CUBE, 2, "S0RR", 2, "S0RR", 2),
    SuiteCase(2, _CUBE, 2, "RRR", 2, "S0RR", 2),
    SuiteCase(3, _CUBE, 2, "RS0R", 2, "S0RR", 4),
    SuiteCase(4, _CUBE, 2, "RS01R", 2, "S01RR", 64),
    SuiteCase(5, _CUBE, 2, "S1RR", 2, "S0RR", 4),
    SuiteCase(6, (3072, 1024, 170), 2, "S0RR", 3, "S0RR", 4, "uneven: rows 1:½:½:1"),
    SuiteCase(7, _CUBE, 1, "S1RR", 2, "RRR", 4, _SAME),
    SuiteCase(8, _CUBE, 1, "S1RR", 2, "RRR", 4, _SAME),
    SuiteCase(9, _CUBE, 2, "RS0R", 2, "RRS0", 4),
)
"""Table 2: meshes are (hosts, 4); the source starts at host 0, the destination at the next."""


class Scale(NamedTuple):
    """How far a case is made smaller; the default leaves it as it is in the paper."""

    shrink: int = 1
    """Every dimension is divided by this, rounded down."""
    most_devices: int | None = None
    """Cases that need more devices get hosts of fewer."""


FULL = Scale()
"""The paper's own sizes."""


def suite_case(number: int) -> SuiteCase:
    """Case ``number`` of table 2, 1 to 9."""
    if not 1 <= check_int("case", number) <= len(SUITE):
        raise ReshardError(f"case {number} is not in table 2; its cases are 1 to {len(SUITE)}")
    return SUITE[number - 1]


def case_devices_per_host(case: SuiteCase, scale: Scale = FULL) -> int:
    """Devices of a host: 4, halved until the case fits ``scale.most_devices``."""
    hosts, per = case.src_hosts + case.dst_hosts, 4
    while scale.most_devices is not None and hosts * per > scale.most_devices and per > 1:
        per //= 2
    if scale.most_devices is not None and hosts * per > scale.most_devices:
        raise ReshardError(
            f"case {case.number} needs at least {hosts} devices, one a host, "
            f"but {scale.most_devices} are allowed"
        )
    return per


def suite_task(number: int, cluster: Cluster | None = None, scale: Scale = FULL) -> ReshardingTask:
    """Case ``number`` as a task on ``cluster`` (default: as many p3.8xlarge as it needs).

    >>> len(suite_task(4).unit_tasks), suite_task(9).nbytes == 2 * 2**30
    (64, True)
    """
    case = suite_case(number)
    factor, per = check_int("shrink", scale.shrink, 1), case_devices_per_host(case, scale)
    hosts = case.src_hosts + case.dst_hosts
    shape = tuple(n // factor for n in case.shape)
    if not math.prod(shape):
        raise ReshardError(
            f"shrink {factor} leaves nothing of case {number}, shape {case.shape}; "
            f"use at most {min(case.shape)}"
        )
    on = cluster or Cluster.preset("p3.8xlarge", hosts=hosts)
    if on.devices_per_host < per:
        raise ReshardError(
            f"case {number} puts {per} devices on a host, but {on!r} has {on.devices_per_host}; "
            "use larger hosts or fewer devices (Scale(most_devices=...))"
        )
    src = host_rows(on, case.src_hosts, per)
    dst = host_rows(on, case.dst_hosts, per, case.src_hosts)
    return ReshardingTask(shape, DTYPE, Layout(src, case.src_spec), Layout(dst, case.dst_spec), on)
