"""Plans, pieces, pools and arguments that the runtime refuses before it starts anything."""

import dataclasses
import math
import re
import sys
import tempfile
from functools import partial

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.runtime import launch, network, trial
from reshard_lab.runtime.arrays import check_pieces
from reshard_lab.runtime.process import PoolProcess
from support.refusals import bad_calls, check_refusal

torch = pytest.importorskip("torch")


def plan_between(cluster, src: rl.Layout, dst: rl.Layout, shape=(4,), dtype="int8") -> rl.Plan:
    return rl.plan(rl.ReshardingTask(shape, dtype, src, dst, cluster))


FOUR_HOSTS = rl.Cluster(hosts=4, devices_per_host=2)
SIX_HOSTS = rl.Cluster(hosts=6, devices_per_host=2)
PLAN = plan_between(
    FOUR_HOSTS,
    rl.Layout(FOUR_HOSTS.mesh((2, 2)), "S01R"),
    rl.Layout(FOUR_HOSTS.mesh((2, 2), 2), "S0R"),
    (13, 7),
    "float32",
)
BEYOND = plan_between(
    SIX_HOSTS, rl.Layout(SIX_HOSTS.mesh((2, 2)), "S0"), rl.Layout(SIX_HOSTS.mesh((2, 2), 4), "S0")
)
TWO_HOSTS = rl.Cluster(hosts=2, devices_per_host=2)
SMALL = plan_between(
    TWO_HOSTS,
    rl.Layout(TWO_HOSTS.mesh(2), "S0R"),
    rl.Layout(TWO_HOSTS.mesh(2, first_host=1), "RS0"),
    (4, 6),
    "float32",
)
POOL = rl.runtime.Pool(8)
RUNS = {
    "Pool.run": POOL.run,
    **{
        f"run({where!r})": partial(rl.run, where=where)
        for where in ("local", "emulated", "torchrun")
    },
}
ARGUMENTS = [
    ({"repeats": 0}, "repeats must be at least 1, not 0"),
    ({"warmup": -1}, "warmup must be at least 0, not -1"),
    ({"timeout_s": 0}, "timeout_s must be a number of seconds above 0, not 0"),
    (
        {"timeout_s": math.inf},
        "timeout_s must be a number of seconds above 0, not inf; 1000000 at most",
    ),
    ({"timeout_s": 1e7}, "timeout_s must be a number .*; 1000000 at most"),
    ({"timeout_s": True}, "timeout_s must be a number of seconds above 0, not True"),
    ({"timeout_s": None}, "timeout_s must be a number of seconds above 0, not None"),
    ({"repeats": "3"}, "repeats must be a whole number, not '3'"),
    ({"seed": "x"}, "seed must be a whole number, not 'x'"),
]
DEVICES = [
    (0, "devices must be at least 1, not 0"),
    ([], "a pool needs at least one device"),
    ([0, -1], "device must be at least 0, not -1"),
    (2.5, "devices must be a whole number, not 2.5"),
    (["x"], "device must be a whole number, not 'x'"),
]

REFUSALS = {
    **{
        name: [
            (partial(run, PLAN, **arguments), re.compile(f"^{words}"))
            for arguments, words in ARGUMENTS
        ]
        for name, run in RUNS.items()
    },
    "places": [
        (partial(rl.run, PLAN, where=where), f"{where!r}; allowed are local")
        for where in ("moon", "Local")
    ],
    "plans": [
        (lambda: POOL.run("plan"), "plan must be a Plan, as reshard_lab.plan returns"),
        (lambda: POOL.run(BEYOND), "uses devices [8, 9, 10, 11], which the pool"),
        (lambda: POOL.run(dataclasses.replace(PLAN, transfers=())), "no transfer writes"),
    ],
    "Pool": [
        *[(partial(rl.runtime.Pool, devices), words) for devices, words in DEVICES],
        (
            lambda: rl.runtime.Pool(2, start_timeout_s=-1),
            re.compile("^start_timeout_s must be a number .*, not -1"),
        ),
    ],
    "EmulatedCluster": [
        *[
            (partial(rl.EmulatedCluster, 2, 1, devices=devices), words)
            for devices, words in DEVICES
        ],
        (
            lambda: rl.EmulatedCluster(2, 1, devices=3),
            "has device 2, but the cluster has devices 0 to 1",
        ),
        (
            lambda: rl.EmulatedCluster(2, 1, nic=launch.fastest_nic_Bps() * 1.01),
            re.compile(
                f"more than {launch.available_cores()} cores can emulate: at most .*'400Mbit'"
            ),
        ),
        (
            lambda: network.Network.of(rl.Cluster(hosts=257, devices_per_host=1)),
            "at most 256 hosts of 254 NICs",
        ),
    ],
    "run_rank": [
        (
            lambda: rl.runtime.run_rank(SMALL, None),
            "torch.distributed is not initialized; call",
        ),
        (
            lambda: rl.runtime.run_rank("plan", None),
            re.compile("plan must be a Plan, .* not 'plan'"),
        ),
        *[
            (
                partial(rl.runtime.run_rank, SMALL, None, timeout_s=bad),
                "timeout_s must be a number of seconds above 0",
            )
            for bad in (0, -1, None, math.nan)
        ],
    ],
    "pieces": [
        *[
            (partial(check_pieces, SMALL, 0, piece, None), words)
            for piece, words in [
                (
                    None,
                    re.compile(
                        r"source piece of device 0 is missing; expected .* shape \(2, 6\), "
                        r"float32 \(box"
                    ),
                ),
                (np.zeros((2, 6)), "is a ndarray; expected is a contiguous CPU tensor"),
                (
                    torch.zeros(6, 2),
                    re.compile(r"has shape \(6, 2\), float32; expected .* shape \(2, 6\), float32"),
                ),
                (torch.zeros(2, 6).double(), "has shape (2, 6), float64; expected"),
                (
                    torch.zeros(2, 6, device="meta"),
                    re.compile(r"is on meta; .* use \.cpu\(\)"),
                ),
                (torch.zeros(6, 2).T, "has strides (1, 2); use .contiguous()"),
                ([torch.zeros(2, 6)] * 2, "the plan has 1 tasks, but piece is a list of 2"),
            ]
        ],
        (
            lambda: check_pieces(SMALL, 2, torch.zeros(2, 6), None),
            "of device 2 was given, but that device is not in",
        ),
        (
            lambda: check_pieces(SMALL, 2, None, torch.zeros(6)),
            "destination piece of device 2 has shape (6,)",
        ),
    ],
    "trial": [
        (
            lambda: trial.pattern((4,), "int8", ((0, 5),)),
            "box [0:5] is not inside a tensor of shape (4,",
        ),
        (lambda: trial.pattern((4,), "int7", ((0, 4),)), "unknown dtype 'int7'"),
        (
            lambda: trial.first_wrong((4,), "int16", ((0, 4),), 0, np.zeros(4, np.int16)),
            "must be given as 8 bytes",
        ),
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused_before_anything_starts(nothing_starts, call, words):
    check_refusal(call, words)


@pytest.mark.parametrize("executable", ["/nowhere/python", None, ""])
def test_a_process_that_cannot_start_leaves_no_folder(monkeypatch, tmp_path, executable):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", executable)
    check_refusal(
        lambda: PoolProcess([sys.executable, "-m", "reshard_lab.worker"], {}),
        "cannot start the processes of a run",
    )
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_place_for_temporary_files_says_so(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    check_refusal(
        lambda: PoolProcess([sys.executable, "-m", "reshard_lab.worker"], {}),
        "name one that can be written to in TMPDIR",
    )
