"""Sizes, specs, meshes, layouts, clusters and tasks that are refused."""

import math
from functools import partial

import reshard_lab as rl
from reshard_lab import units
from reshard_lab.errors import short
from support.reference_cases import row_major
from support.refusals import bad_calls, check_refusal

A = rl.Mesh([[0, 1], [2, 3]])
B = rl.Mesh([[4, 5], [6, 7]])
FOUR_DEVICES = rl.Cluster(hosts=2, devices_per_host=2)
EIGHT_DEVICES = rl.Cluster(hosts=4, devices_per_host=2)
BANDWIDTHS = ["10", "10GBit", "10Gb", "fast", "0bps", "-1Gbps", 0, -3, None, math.nan, True]
SIZES = ["64Mb", "64", "1.5B", "-1B", "1e400B", -1, 1.5, math.inf, None]
TIMES = ["20", "20 min", "-1s", -1.0, math.inf, None]


def task(shape, src, dst, dtype="float32", cluster=None) -> rl.ReshardingTask:
    return rl.ReshardingTask(shape, dtype, rl.Layout(*src), rl.Layout(*dst), cluster)


def cluster_with(**fields) -> rl.Cluster:
    return rl.Cluster(**{"hosts": 2, "devices_per_host": 2, **fields})


REFUSALS = {
    "units": [
        *[(partial(units.parse_bandwidth, bad), "bandwidth") for bad in BANDWIDTHS],
        *[(partial(units.parse_bytes, bad), "size") for bad in SIZES],
        *[(partial(units.parse_seconds, bad), "time") for bad in TIMES],
        (lambda: units.parse_bytes("1e400B"), "size must be finite, not '1e400B'"),
        (lambda: units.dtype_name("float33"), "unknown dtype 'float33'; known are bool, int8"),
    ],
    "ShardingSpec": [
        (lambda: rl.ShardingSpec("S0X"), "spec 'S0X' has an unknown token at 'X'"),
        (lambda: rl.ShardingSpec("S"), "spec 'S' has an unknown token at 'S'"),
        (lambda: rl.ShardingSpec("s0"), "unknown token at 's0'"),
        (
            lambda: rl.ShardingSpec("S0S0R"),
            "spec 'S0S0R' uses mesh axis 0 twice (dims 0 and 1); an axis can split one dim",
        ),
        (lambda: rl.ShardingSpec("S00"), "uses mesh axis 0 twice (dim 0)"),
        (lambda: rl.ShardingSpec(7), "a spec is text such as 'S01R', not 7"),
        (lambda: rl.ShardingSpec("x" * 1000), "... "),
    ],
    "Mesh": [
        (lambda: rl.Mesh([[0, 1], [1, 2]]), "lists device 1 twice"),
        (lambda: rl.Mesh([0, -1]), "ids must be at least 0"),
        (lambda: rl.Mesh([]), "must be a non-empty rectangular array"),
        (lambda: rl.Mesh([[0, 1], [2]]), "must be a non-empty rectangular array"),
        (lambda: rl.Mesh([0.0, 1.0]), "array of whole device ids"),
        (lambda: rl.Mesh(3), "must be a non-empty rectangular array"),
        (lambda: row_major((2,)).position(9), "device 9 is not in Mesh"),
    ],
    "Layout": [
        (lambda: rl.Layout(row_major((2, 2)), "S2R"), "uses mesh axis 2, but the mesh has shape"),
        (lambda: rl.Layout(row_major((2,)), "S0", rule="ceil"), "unknown layout rule 'ceil'"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes((4, 4)), "'S0' has 1 tokens, but shape"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes((-1,)), "must be at least 0, not -1"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes((1.5,)), "must be a whole number, not 1.5"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes(4), "must be a sequence of sizes"),
        (
            lambda: rl.Layout(row_major((4,)), "S0", "even").boxes((10,)),
            "dimension 0 of size 10 does not divide evenly over mesh axes (0,) (4 pieces)",
        ),
    ],
    "Cluster": [
        (partial(cluster_with, hosts=10**7), "hosts must be at most 1000000, not 10000000"),
        (partial(cluster_with, hosts=0), "hosts must be at least 1, not 0"),
        (
            partial(cluster_with, devices_per_host=1.5),
            "devices_per_host must be a whole number, not 1.5",
        ),
        (partial(cluster_with, nic="10"), "nic '10' is not a rate"),
        (partial(cluster_with, nics_per_host=0), "nics_per_host must be at least 1"),
        (partial(cluster_with, intra_latency="5"), "intra_latency '5' is not a time"),
        (
            partial(cluster_with, nic=["1Gbps"]),
            "nic has 1 entries, but the cluster has 2 hosts; give one a host",
        ),
        (partial(cluster_with, nic=["1Gbps", 0]), "nic of host 1 must be more than 0"),
        (
            partial(cluster_with, nics_per_host=[1, 0]),
            "nics_per_host of host 1 must be at least 1",
        ),
        (
            lambda: EIGHT_DEVICES.mesh((2, 2), first_host=3),
            "needs devices 6 to 9, but the cluster has devices 0 to 7",
        ),
        (lambda: EIGHT_DEVICES.mesh((0, 2)), "length of axis 0"),
        (
            lambda: rl.Cluster.preset("p3"),
            "unknown cluster preset 'p3'; allowed are DGX-H100",
        ),
    ],
    "ReshardingTask": [
        (lambda: task((4, 4), (A, "S0"), (B, "S0R")), "src spec 'S0' has 1 tokens, but shape"),
        (lambda: task((4,), (A, "S0"), (B, "S0R")), "dst spec 'S0R' has 2 tokens"),
        (lambda: task((4, -1), (A, "RR"), (B, "RR")), "must be at least 0, not -1"),
        (lambda: task((4,), (A, "R"), (B, "R"), "float12"), "unknown dtype 'float12'"),
        (
            lambda: task((4,), (A, "R"), (B, "R"), cluster=FOUR_DEVICES),
            "dst mesh has device 4, but the",
        ),
        (
            lambda: task((10,), (A, "R"), (rl.Mesh([4, 5, 6, 7]), "S0", "even")),
            "size 10 does not divide evenly",
        ),
        (lambda: rl.ReshardingTask((4,), "int8", "S0", "S0"), "src must be a Layout such as"),
        (lambda: task((4,), (A, "R"), (B, "R")).lower_bound_s, "has no cluster; give one"),
        (lambda: task((4,), (A, "R"), (B, "R"), cluster=3), "cluster must be a Cluster, not 3"),
        (
            lambda: task((2**31, 2**31), (A, "RR"), (B, "RR"), "float64"),
            "has more than 2^63 - 1 bytes",
        ),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)


def test_refused_values_are_repeated_in_short():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    assert (short("S0R"), short(Odd()), short(10**5000)) == ("'S0R'", "<Odd>", "<int>")
    assert len(short(list(range(1000)))) == 80
