"""A simulator that anyone can check by reading: fixed time steps, dictionaries, no cleverness.

It knows the rules and nothing of the package's engine. In each step every message that may move
gets its max-min fair share of the ports it uses; what a port is kept busy with for a message's
latency counts as bytes at the message's own speed.
"""

from __future__ import annotations

import reshard_lab as rl


def slow_duration(plan: rl.Plan, steps_a_message: int = 60) -> float:
    """Seconds the plan takes; the step is the shortest message's time over ``steps_a_message``."""
    cluster = plan.cluster
    left: dict[tuple[int, int, int], float] = {}
    ports: dict[tuple[int, int, int], list[tuple]] = {}
    full: dict[tuple[int, int, int], float] = {}
    for t in plan.transfers:
        for hop, (a, b) in enumerate(zip(t.path, t.path[1:], strict=False)):
            if cluster.host_of(a) == cluster.host_of(b):
                uses = [("device tx", a), ("device rx", b)]
                latency = cluster.intra_latency_s
            else:
                uses = [("nic tx", cluster.nic_of(a)), ("nic rx", cluster.nic_of(b))]
                latency = cluster.nic_latency_s
            speed = min(capacity(cluster, port) for port in uses)
            for chunk in range(t.chunks):
                lo, hi = chunk * t.nbytes // t.chunks, (chunk + 1) * t.nbytes // t.chunks
                message = (t.id, hop, chunk)
                left[message] = hi - lo + latency * speed
                ports[message], full[message] = uses, speed
    lanes: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for device, steps in plan.programs.items():
        for step in steps:
            if step.op != "copy":
                hop = plan.transfers[step.transfer].path.index(device) - (step.op == "recv")
                lanes.setdefault((step.op, device), []).append((step.transfer, hop))
    dt = min((left[m] / full[m] for m in left), default=0.0) / steps_a_message
    done: set[tuple[int, int, int]] = set()
    waiting = set(left)
    moving: set[tuple[int, int, int]] = set()
    time = 0.0

    def complete(transfer: int) -> bool:
        t = plan.transfers[transfer]
        return len(t.path) == 1 or (transfer, len(t.path) - 2, t.chunks - 1) in done

    def may_move(message: tuple[int, int, int]) -> bool:
        transfer, hop, chunk = message
        t = plan.transfers[transfer]
        if chunk and (transfer, hop, chunk - 1) not in done:
            return False
        if hop and (transfer, hop - 1, chunk) not in done:
            return False
        if chunk == 0 and hop == 0 and not all(complete(other) for other in t.after):
            return False
        if chunk == 0 and plan.ordered:
            for lane in (("send", t.path[hop]), ("recv", t.path[hop + 1])):
                for transfer_before, hop_before in lanes[lane]:
                    if (transfer_before, hop_before) == (transfer, hop):
                        break
                    last = plan.transfers[transfer_before].chunks - 1
                    if (transfer_before, hop_before, last) not in done:
                        return False
        return True

    changed = True
    rate: dict[tuple[int, int, int], float] = {}
    while waiting or moving:
        if changed:
            started = {m for m in waiting if may_move(m)}
            assert started or moving, "nothing can move"
            waiting -= started
            moving |= started
            rate = fair_rates(sorted(moving), ports, full, cluster)
        time += dt
        for message in moving:
            left[message] -= rate[message] * dt
        over = {m for m in moving if left[m] <= 1e-9 * full[m] * dt}
        moving -= over
        done |= over
        changed = bool(over)
    return time


def capacity(cluster: rl.Cluster, port: tuple) -> float:
    """Bytes a second of a port."""
    kind, number = port
    if kind.startswith("nic"):
        return cluster.host_nic_Bps[cluster.host_of_nic(number)]
    return cluster.intra_Bps


def fair_rates(messages: list, ports: dict, full: dict, cluster: rl.Cluster) -> dict:
    """Raise all rates together; whoever reaches its own speed or a full port stops there."""
    rate = dict.fromkeys(messages, 0.0)
    rising = list(messages)
    while rising:
        room = {m: full[m] - rate[m] for m in rising}
        for port in {p for m in rising for p in ports[m]}:
            used = sum(rate[m] for m in messages if port in ports[m])
            sharing = [m for m in rising if port in ports[m]]
            share = (capacity(cluster, port) - used) / len(sharing)
            for m in sharing:
                room[m] = min(room[m], share)
        step = min(room.values())
        for m in rising:
            rate[m] += step
        rising = [m for m in rising if room[m] > step * (1 + 1e-9) + 1e-9 * full[m]]
    return rate
