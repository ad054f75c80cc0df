"""``reshard-lab simulate``."""

from __future__ import annotations

import json
import shlex

import reshard_lab as rl
from reshard_lab.cli import main

OPTIONS = shlex.split(
    "--shape 1000,1000 --dtype int8 --src-mesh 1x1 --src-spec RR --dst-mesh 2x2 --dst-spec RR "
    "--nic 1MB/s --nic-latency 0s --intra 1GB/s --intra-latency 0s"
)


def ask(capsys, *argv: str) -> str:
    assert main(["simulate", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_what_it_prints(capsys):
    out = ask(capsys, *OPTIONS, "--strategy", "send_recv")
    words = [line.split() for line in out.splitlines()]
    assert words[1][:3] == ["simulated", "4", "s,"]
    assert ["0", "0", "sends", "3.815", "MiB", "4", "s", "0", "s", "100%"] in words
    path = [line for line in out.splitlines() if "transfer" in line]
    assert len(path) == 4
    assert path[0].endswith("starts at once")
    assert path[1].endswith("device 0 is sending transfer 0")
    short = ask(capsys, *OPTIONS, "--strategy", "send_recv", "--limit", "1")
    assert short.splitlines()[-1] == "... and 3 more steps"


def test_json_is_what_the_library_says(capsys, tmp_path):
    file, trace = tmp_path / "plan.json", tmp_path / "trace.json"
    assert main(["plan", *OPTIONS, "-o", str(file)]) == 0
    capsys.readouterr()
    text = ask(
        capsys, str(file), "--json", "--resolution", "fluid", "--trace", str(trace),
        "--core-oversubscription", "8",
    )  # fmt: skip
    simulation = json.loads(text)["simulation"]
    plan = rl.Plan.from_json(file)
    timeline = rl.simulate(plan, "fluid", core_oversubscription=8)
    assert simulation["duration_s"] == timeline.duration_s > rl.simulate(plan).duration_s
    assert simulation["resolution"] == "fluid"
    assert simulation["transmissions"] == [row._asdict() for row in timeline]
    assert [use["nic"] for use in simulation["nics"]] == [u.nic for u in timeline.nic_use()]
    assert trace.read_text() == timeline.to_chrome_trace()
