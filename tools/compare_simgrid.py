"""The simulator beside SimGrid on random plans: for development, no part of the package.

SimGrid (Debian and Ubuntu: ``apt-get install python3-simgrid``) is given the same messages, the
same links and the same waits, and shares links by its own solver. Its fluid model without TCP
effects and cross traffic (CM02) shares a link equally, which is what is wanted here. A message's
latency is a time its ports are busy for, so it goes in as bytes at the message's own speed.

    python tools/compare_simgrid.py --plans 50 --seed 0

prints both times of every plan and the largest difference; exits 1 if it is over 2 %.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path

import reshard_lab as rl

sys.path.append("/usr/lib/python3/dist-packages")  # last: only what this environment lacks
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from support.random_tasks import STRATEGIES, timed_task, unordered

try:
    import simgrid
except ModuleNotFoundError:
    sys.exit("SimGrid is not installed; on Debian or Ubuntu: apt-get install python3-simgrid")

LIMIT = 0.02
MOST_MESSAGES = 2000


def random_plan(rng: random.Random) -> rl.Plan:
    """A plan of 10 to ``MOST_MESSAGES`` messages; a good part of them unordered, sharing NICs."""
    while True:
        task = timed_task(
            rng,
            overlap=rng.random() < 0.3,
            uniform=rng.random() < 0.5,
            nics=(1, 2),
            latency=rng.random() < 0.5,
        )
        strategy = rng.choice(STRATEGIES)
        plan = rl.plan(task, strategy, "load_balance", chunks=rng.choice([4, 16, 32]))
        if strategy in ("broadcast", "send_recv") and rng.random() < 0.7:
            plan = unordered(plan)
        if 10 <= len(messages(plan)) <= MOST_MESSAGES:
            return plan


Message = tuple[int, int, int]


def messages(plan: rl.Plan) -> list[Message]:
    """(transfer, hop, chunk) of every message."""
    return [
        (t.id, hop, chunk)
        for t in plan.transfers
        for hop in range(len(t.path) - 1)
        for chunk in range(t.chunks)
    ]


def waits(plan: rl.Plan) -> dict[Message, set[Message]]:
    """What every message waits for: its own chain, ``after``, and in order the lanes of devices."""
    awaited: dict[Message, set[Message]] = {m: set() for m in messages(plan)}
    for m in awaited:
        t = plan.transfers[m[0]]
        if m[2]:
            awaited[m].add((m[0], m[1], m[2] - 1))
        if m[1]:
            awaited[m].add((m[0], m[1] - 1, m[2]))
        if m[1] == m[2] == 0:
            for other in map(plan.transfers.__getitem__, t.after):
                if len(other.path) > 1:
                    awaited[m].add((other.id, len(other.path) - 2, other.chunks - 1))
    for device, steps in plan.programs.items() if plan.ordered else ():
        before: dict[str, Message] = {}
        for step in steps:
            if step.op == "copy":
                continue
            t = plan.transfers[step.transfer]
            hop = t.path.index(device) - (step.op == "recv")
            if step.op in before:
                awaited[t.id, hop, 0].add(before[step.op])
            before[step.op] = (t.id, hop, t.chunks - 1)
    return awaited


class Platform:
    """All plans' devices and ports in one SimGrid zone; the plans have nothing in common."""

    def __init__(self) -> None:
        self.zone = simgrid.NetZone.create_full_zone("all")
        self.links: dict[tuple, object] = {}
        self.hosts: dict[tuple[int, int], object] = {}
        self.routes: set[tuple] = set()

    def host(self, number: int, device: int) -> object:
        key = (number, device)
        if key not in self.hosts:
            self.hosts[key] = self.zone.create_host(f"plan{number}-device{device}", 1e9)
        return self.hosts[key]

    def route(self, number: int, cluster: rl.Cluster, a: int, b: int) -> float:
        """Connect two devices one way; returns the speed of the slower port."""
        if cluster.host_of(a) == cluster.host_of(b):
            ports = [("device-tx", a, cluster.intra_Bps), ("device-rx", b, cluster.intra_Bps)]
        else:
            speeds = [cluster.host_nic_Bps[cluster.host_of(d)] for d in (a, b)]
            ports = [
                ("nic-tx", cluster.nic_of(a), speeds[0]),
                ("nic-rx", cluster.nic_of(b), speeds[1]),
            ]
        if (number, a, b) not in self.routes:
            self.routes.add((number, a, b))
            links = [self.link(number, *port) for port in ports]
            ends = self.host(number, a).netpoint, self.host(number, b).netpoint
            along = [simgrid.LinkInRoute(link) for link in links]
            self.zone.add_route(*ends, None, None, along, False)
        return min(port[2] for port in ports)

    def link(self, number: int, kind: str, port: int, speed: float) -> object:
        key = (number, kind, port)
        if key not in self.links:
            link = self.zone.create_link(f"plan{number}-{kind}{port}", speed)
            link.set_latency(0)
            self.links[key] = link.seal()
        return self.links[key]


def carry_out(platform: Platform, number: int, plan: rl.Plan) -> list[float]:
    """Start an actor that works off the plan's messages; the list gets the time it ends."""
    cluster = plan.cluster
    size, ends = {}, {}
    for m in messages(plan):
        t = plan.transfers[m[0]]
        a, b = t.path[m[1]], t.path[m[1] + 1]
        speed = platform.route(number, cluster, a, b)
        lo, hi = (c * t.nbytes // t.chunks for c in (m[2], m[2] + 1))
        size[m] = max(1, round(hi - lo + cluster.link_latency_s(a, b) * speed))
        ends[m] = a, b
    missing = waits(plan)
    then: dict[Message, list[Message]] = {m: [] for m in missing}
    for m, others in missing.items():
        for other in others:
            then[other].append(m)
    finished: list[float] = []

    def actor() -> None:
        flying: dict[Message, object] = {}

        def start(m: Message) -> None:
            a, b = (platform.host(number, d) for d in ends[m])
            flying[m] = simgrid.Comm.sendto_async(a, b, size[m])

        for m in [m for m, others in missing.items() if not others]:
            start(m)
        while flying:
            names = list(flying)
            done = names[simgrid.Comm.wait_any([flying[m] for m in names])]
            del flying[done]
            for m in then[done]:
                missing[m].discard(done)
                if not missing[m]:
                    start(m)
        finished.append(simgrid.Engine.clock)

    first = next(iter(ends.values()))[0]
    simgrid.Actor.create(f"plan{number}", platform.host(number, first), actor)
    return finished


def compare(count: int, seed: int) -> float:
    """Print both times of ``count`` plans; returns the largest relative difference."""
    rng = random.Random(seed)
    plans = [random_plan(rng) for _ in range(count)]
    platform = Platform()
    for number, plan in enumerate(plans):
        for t in plan.transfers:
            for a, b in zip(t.path, t.path[1:], strict=False):
                platform.route(number, plan.cluster, a, b)
    platform.zone.seal()
    ends = [carry_out(platform, number, plan) for number, plan in enumerate(plans)]
    simgrid.Engine.instance.run()
    worst, shared = 0.0, 0
    print(f"plan {'strategy':<17} {'order':<9} messages {'here_s':>12} {'simgrid_s':>12}")
    for number, (plan, (theirs,)) in enumerate(zip(plans, ends, strict=True)):
        here = rl.simulate(plan, "chunks", verify=False).duration_s
        difference = theirs / here - 1
        worst = max(worst, abs(difference))
        shared += here < plan.makespan_s * 0.999
        order = "as given" if plan.ordered else "none"
        print(
            f"{number:>4} {plan.strategy:<17} {order:<9} {len(messages(plan)):>8} "
            f"{here:>12.6g} {theirs:>12.6g} {difference:>+9.2e}"
        )
    print(f"{count} plans, {shared} of them shorter than in order: largest difference {worst:.2e}")
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare the simulator with SimGrid.")
    parser.add_argument("--plans", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked, rest = parser.parse_known_args()
    engine = simgrid.Engine(
        [
            "compare",
            "--cfg=network/model:CM02",
            "--cfg=network/crosstraffic:0",
            "--cfg=network/TCP-gamma:0",
            "--cfg=surf/precision:1e-12",
            "--log=root.thresh:critical",
            *rest,
        ]
    )
    worst = compare(asked.plans, asked.seed)
    sys.exit(int(not worst <= LIMIT or math.isnan(worst)))
