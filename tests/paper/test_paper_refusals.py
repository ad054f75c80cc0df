"""Cases, figures, tables and sweeps that the reproduction of the paper refuses."""

import math
import re
from functools import partial

import pandas as pd
import pytest

import reshard_lab as rl
from reshard_lab import paper
from reshard_lab.paper.overlap import overlap_levels
from reshard_lab.paper.pipelines import figure4, model
from reshard_lab.paper.reproduce import reproduce
from support.refusals import bad_calls, check_refusal

NO_BOOLS = ["no", 1, None]
UNEQUAL_HOSTS = rl.Cluster(2, 1, nic=[1e9, 2e9])
FRAME = pd.DataFrame({"method": ["a"], "predicted_s": [1.0], "measured_s": [1.0], "p": [1]})


def ideal(hosts: int, devices_per_host: int) -> rl.Cluster:
    return rl.Cluster(hosts, devices_per_host, nic=1e6, nic_latency=0, intra="inf", intra_latency=0)


def sweep(**changes):
    return paper.sweep(**{"nbytes": 1000, "cache": False, "progress": False, **changes})


REFUSALS = {
    "suite_task": [
        (lambda: paper.suite_task(10), "case 10 is not in table 2; its cases are 1 to 9"),
        (lambda: paper.suite_task(0), "case 0 is not in table 2"),
        (
            lambda: paper.suite_task(6, None, paper.Scale(shrink=200)),
            "shrink 200 leaves nothing of case 6",
        ),
        (
            lambda: paper.suite_task(6, None, paper.Scale(most_devices=4)),
            "case 6 needs at least 5 devices",
        ),
        (
            lambda: paper.suite_task(1, rl.Cluster(hosts=4, devices_per_host=2)),
            "puts 4 devices on a host",
        ),
    ],
    "figure3": [
        (lambda: paper.figure3(cluster=UNEQUAL_HOSTS), "give a cluster of equal hosts"),
    ],
    "figure4": [(lambda: figure4(stages=0), "stages must be at least 1, not 0")],
    "figure5": [
        (lambda: paper.figure5(ideal, nbytes=10), "not a whole number of int32 elements"),
    ],
    "figure7": [
        (lambda: paper.figure7(models=["gpt-3B"]), "unknown workload 'gpt-3B'"),
        (lambda: paper.figure7(preset="p4"), "unknown cluster preset 'p4'"),
        (lambda: paper.figure7([]), "models is empty"),
        (lambda: paper.figure7(3), "unknown workload 3"),
        (lambda: paper.figure7("GPT-1.3B", levels=[3]), "each of levels must be a Level, not 3"),
        *[
            (
                partial(paper.figure7, "GPT-1.3B", recompute=value),
                f"recompute must be True or False, not {value!r}",
            )
            for value in NO_BOOLS
        ],
    ],
    "figure9": [
        (lambda: paper.figure9(microbatches=[0]), "microbatches must be at least 1, not 0"),
        (lambda: paper.figure9("U-Transformer-1B", []), "microbatches is empty"),
        (
            lambda: paper.figure9("U-Transformer-1B", "x"),
            "microbatches must be a whole number, not 'x'",
        ),
        *[
            (
                partial(paper.figure9, "U-Transformer-1B", 2, recompute=value),
                f"recompute must be True or False, not {value!r}",
            )
            for value in NO_BOOLS
        ],
    ],
    "model": [
        (
            lambda: model("GPT-7B"),
            "unknown workload 'GPT-7B'; allowed are GPT-1.3B, GPT-2.6B",
        ),
    ],
    "headlines": [
        (lambda: paper.headlines(None), "figure7 must be a DataFrame, not None"),
        (lambda: paper.headlines(pd.DataFrame()), "figure7 has no column 'model'"),
        (lambda: paper.headlines(paper.figure7("GPT-1.3B").iloc[:0]), "figure7 has no rows"),
    ],
    "ranking": [
        (
            lambda: paper.ranking(FRAME, "x"),
            "frame has no column 'x'; it has method, predicted_s",
        ),
        (lambda: paper.ranking(None, "p"), "frame must be a DataFrame"),
        (lambda: paper.ranking(FRAME, []), "by is empty"),
    ],
    "recorded": [
        (lambda: paper.recorded("figure99"), "unknown recorded figure 'figure99'"),
    ],
    "sweep": [
        (partial(sweep, strategies="ring"), "unknown strategy 'ring'"),
        (partial(sweep, schedulers=["auto", "best"]), "unknown scheduler 'best'"),
        (partial(sweep, hosts=0), "hosts must be at least 1"),
        (partial(sweep, chunks="many"), "chunks must be a whole number, not 'many'"),
        (partial(sweep, nbytes="1 KB of"), "nbytes '1 KB of' is not a number of bytes"),
        (partial(sweep, senders=3), "senders must be (hosts, devices on each)"),
        (partial(sweep, src="S0S0"), "uses mesh axis 0 twice"),
        (partial(sweep, jobs=0), "jobs must be at least 1"),
        (
            partial(sweep, cache=0),
            "cache, if not True or False, must be the name of a file or folder, not 0",
        ),
        (partial(sweep, cluster=UNEQUAL_HOSTS), "give a cluster of equal hosts"),
    ],
    "overlap_levels": [
        *[
            (partial(overlap_levels, bad), "transfer must be a share of forward_s above 0")
            for bad in (0, -1, math.nan, math.inf, "0.4", None)
        ],
        *[
            (
                partial(overlap_levels, transfer, on=rl.EmulatedCluster(4, 2)),
                re.compile("give a transfer .* between 8 KiB and 256 MiB"),
            )
            for transfer in (1e-9, 1e9)
        ],
    ],
    "reproduce": [
        (partial(reproduce, "o", quiet=value), f"quiet must be True or False, not {value!r}")
        for value in NO_BOOLS
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (["huge"], "unknown size 'huge'"),
        ([], "out must be the name of a file or folder, not None"),
    ],
)
def test_a_reproduction_is_refused_before_anything_is_made(tmp_path, rest, words):
    out = tmp_path / "o" if rest else None
    check_refusal(lambda: reproduce(out, *rest), words)
    assert not list(tmp_path.iterdir())
