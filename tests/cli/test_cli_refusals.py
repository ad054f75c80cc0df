"""What the command line refuses, each in one clear line."""

import re
import shlex

import pytest

from support.commands import refused
from support.refusals import name_of, says

FIGURE_2 = shlex.split("--shape 4,4 --src-mesh 2x2 --src-spec S01R --dst-mesh 2x2 --dst-spec S0R")
TENSOR = ["--shape=4", "--src-mesh=2", "--src-spec=S0", "--dst-mesh=2", "--dst-spec=R"]
SENT = shlex.split(
    "--shape 1000,1000 --dtype int8 --src-mesh 1x1 --src-spec RR --dst-mesh 2x2 --dst-spec RR "
    "--nic 1MB/s --nic-latency 0s --intra 1GB/s --intra-latency 0s"
)
SIZES = ["pipeline", "--stages", "2", "--microbatches", "2"]
TIMES = ["--forward", "1ms", "--backward", "2ms", "--transfer", "0.5ms"]
SMALL = [*SIZES, *TIMES]
FORWARD = [*SIZES, "--forward", "1ms"]


def explain(*more: str, **changed: str | None) -> list[str]:
    """Figure 2's options with some values changed (``src_mesh="4"``), or left out (None)."""
    options = dict(zip(FIGURE_2[::2], FIGURE_2[1::2], strict=True))
    for key, value in changed.items():
        options[f"--{key.replace('_', '-')}"] = value
    words = [word for pair in options.items() if pair[1] is not None for word in pair]
    return ["explain", *words, *more]


REFUSALS = [
    ([], "the following arguments are required: COMMAND"),
    (["simulat"], "invalid choice: 'simulat'"),
    (explain(src_spec="S01X"), "spec 'S01X' has an unknown token at 'X'"),
    (explain(src_spec="S0S0"), "spec 'S0S0' uses mesh axis 0 twice (dims 0 and 1)"),
    (explain(src_spec="S2R"), "spec 'S2R' uses mesh axis 2, but the mesh has shape (2, 2)"),
    (explain(src_spec="S0"), "src spec 'S0' has 1 tokens, but shape (4, 4) has 2 dimensions"),
    (explain(src_mesh="[[0,1],[1,2]]"), "lists device 1 twice"),
    (explain(src_mesh="[[0,1],[2"), "--src-mesh '[[0,1],[2' is not a list of device ids"),
    (explain(src_mesh="two"), "--src-mesh 'two' is not a mesh; give its shape as 2x2"),
    (explain(src_mesh="2x0"), "length of axis 1 of --src-mesh 2x0 must be at least 1, not 0"),
    (explain(dst_mesh="[[4,5],[6,99]]", hosts="4"), "dst mesh has device 99, but the cluster has"),
    (explain(shape="4;4"), "--shape '4;4' is not a list of sizes; write it as 4,4"),
    (explain(dtype="float31"), "unknown dtype 'float31'"),
    (explain(rule="chunks"), "unknown layout rule 'chunks'; allowed are chunk, balanced, even"),
    (explain(shape="5,4", rule="even"), "does not divide evenly"),
    (explain(cluster="p3"), "unknown cluster preset 'p3'"),
    (explain(nic="10Gb/h"), "nic '10Gb/h' is not a rate"),
    (explain(hosts="0"), "hosts must be at least 1, not 0"),
    (explain(devices_per_host="0"), "--devices-per-host must be at least 1, not 0"),
    (explain(first_host="x"), "argument --first-host: invalid int value: 'x'"),
    (explain(shape=None), "the following arguments are required: --shape"),
    (explain(limit="-1"), "--limit must be at least 0, not -1"),
    (
        explain("--shape=-4,4", shape=None),
        re.compile(r"^size of dimension 0 of shape \(-4, 4\) must be at least 0, not -4$"),
    ),
    (["plan", *FIGURE_2, "--strategy", "brodcast"], "unknown strategy 'brodcast'"),
    (["plan", *FIGURE_2, "--scheduler", "best"], "unknown scheduler 'best'"),
    (["plan", *FIGURE_2, "--chunks", "0"], "chunks must be at least 1, not 0"),
    (
        ["plan", *FIGURE_2, "-o", "no/such/folder/plan.json"],
        "cannot write plan file 'no/such/folder/plan.json'",
    ),
    (
        ["plan", *TENSOR, "--output", ""],
        re.compile("^--output must be the name of a file or folder, not ''"),
    ),
    (
        ["simulate", *TENSOR, "--trace", ""],
        re.compile("^--trace must be the name of a file or folder, not ''"),
    ),
    (
        ["simulate", *SENT, "--resolution", "fine"],
        "unknown resolution 'fine'; allowed are auto, chunks",
    ),
    (
        ["simulate", *SENT, "--core-oversubscription", "0"],
        "must be a number of at least 1, not 0.0",
    ),
    (["simulate", *SENT, "--trace", "/nowhere/t.json"], "cannot write trace '/nowhere/t.json'"),
    (["simulate", "plan.json", *SENT], "give a plan file or --shape"),
    (["simulate"], "no plan file"),
    (
        ["pipeline", "--stages", "2"],
        "--microbatches, --forward must be given, or --workload with one of",
    ),
    ([*SMALL, "--workload", "gpt-1.3B"], "give --workload or --forward, --backward, --transf"),
    ([*SMALL, "--preset", "p3.8xlarge"], "--preset describes a workload, but --workload is"),
    ([*SMALL, "--recompute"], "--recompute describes a workload, but --workload is missing"),
    (
        ["pipeline", "--workload", "gpt"],
        "unknown workload 'gpt'; allowed are GPT-1.3B, GPT-2.6B, U-T",
    ),
    (["pipeline", "--workload", "gpt-1.3B", "--preset", "p5"], "unknown cluster preset 'p5'"),
    (["pipeline", "--workload", "gpt-1.3B", "--strategy", "best"], "unknown strategy 'best'"),
    (
        ["pipeline", "--workload", "gpt-1.3B", "--microbatches", "3"],
        "3 microbatches do not divide a batch of",
    ),
    (
        ["pipeline", "--workload", "U-Transformer-1B", "--stages", "3"],
        "--stages cannot change U-Transformer",
    ),
    ([*SMALL, "--schedule", "1f2b"], "unknown --schedule '1f2b'; allowed are gpipe"),
    ([*SMALL, "--forward", "1"], "--forward '1' is not a time; write '20us'"),
    ([*SMALL, "--forward", "1ms,2ms,3ms"], "--forward has 3 entries, but the schedule has 2"),
    ([*SMALL, "--weight", "3ms"], "--weight is 0.003 for stage 0, more than its --backward"),
    ([*SMALL, "--stages", "0"], "--stages must be at least 1, not 0"),
    ([*SMALL, "--chunks", "2"], "--chunks 2 needs --schedule interleaved_1f1b: with eager"),
    (
        [*SMALL, "--compare", "--schedule", "interleaved_1f1b"],
        "--compare puts 1F1B beside other schedules of the same work, but interleaved_1f1b",
    ),
    ([*SMALL, "--svg", "/nowhere/x.svg"], "cannot write picture '/nowhere/x.svg': No such"),
    ([*SMALL, "--csv", "/nowhere/x.csv"], "cannot write table '/nowhere/x.csv': No such"),
    ([*SMALL, "--trace", "/nowhere/x"], "cannot write trace '/nowhere/x': No such"),
    ([*FORWARD, "--stages", "99999999999", "--backward", "2ms"], "are too many"),
    (
        [*FORWARD],
        "--backward is missing, but the schedule has backward ops; give their seconds, or use --s",
    ),
    ([*FORWARD, "--backward", "1ms,2ms,3ms"], "--backward has 3 entries"),
    ([*FORWARD, "--backward", "1ms", "--svg", ""], "--svg must be the name of a file"),
    (
        [*FORWARD, "--backward", "1ms", "--svg", "a", "--csv", "./a"],
        "--svg and --csv both write './a'",
    ),
    (
        [*FORWARD, "--backward", "1ms", "--chunks", "3"],
        "--chunks 3 needs --schedule interleaved_1f1b",
    ),
    (
        [*SIZES, "--microbatches", "4", "--forward", "1s", "--backward", "1e308s", "--json"],
        "add up to more than",
    ),
]


@pytest.mark.parametrize(("argv", "words"), REFUSALS, ids=[name_of(w) for _, w in REFUSALS])
def test_bad_input_is_one_clear_line(capsys, argv, words):
    assert says(refused(capsys, *argv), words)
