"""A slow and obvious pipeline simulator, written apart from the library: time goes up by ticks.

Times are whole numbers. It knows nothing of graphs: stages and links look at what is there in
every tick and begin what they can.
"""

from __future__ import annotations

from typing import NamedTuple


class Tensor(NamedTuple):
    """Goes from model chunk to model chunk; its gradient comes back."""

    source: int
    target: int
    forward: int
    backward: int


def parse(text: str) -> tuple[str, int, int]:
    microbatch, _, chunk = text[1:].partition(".")
    return text[0], int(microbatch), int(chunk or 0)


def neighbours(model_chunks: int, forward: list[int], backward: list[int]) -> list[Tensor]:
    return [Tensor(k, k + 1, forward[k], backward[k]) for k in range(model_chunks - 1)]


class Stuck(Exception):
    """Nothing moves any more, and not everything is done."""


def overlapped(schedule, duration_of, tensors) -> dict[tuple[int, str], tuple[int, int]]:
    """``{(stage, op): (start, end)}``; ``duration_of(kind, model_chunk)`` in ticks."""
    count = len(schedule)
    at = [0] * count
    free_at = [0] * count
    times = {}
    landed: set[tuple] = set()  # (tensor, forward?, microbatch) that have arrived
    queues: dict[tuple[int, int], list[tuple[tuple, int]]] = {}  # per link: (what, ticks)
    under_way: dict[tuple[int, int], tuple[tuple, int]] = {}  # per link: (what, when it lands)
    unsent: list[tuple[int, int, int, str]] = []  # (end, position in list, stage, op)
    now = 0
    while any(at[s] < len(schedule[s]) for s in range(count)) or unsent or under_way:
        changed = True
        while changed:
            changed = False
            for item in sorted(unsent):
                end, _, stage, op = item
                if end <= now:
                    unsent.remove(item)
                    changed = True
                    kind, m, chunk = parse(op)
                    model_chunk = chunk * count + stage
                    for number, t in enumerate(tensors):
                        for forward in (True, False):
                            if forward and not (kind == "F" and t.source == model_chunk):
                                continue
                            if not forward and not (kind in "BI" and t.target == model_chunk):
                                continue
                            other = (t.target if forward else t.source) % count
                            what = (number, forward, m)
                            if other == stage:
                                landed.add(what)
                            else:
                                ticks = t.forward if forward else t.backward
                                queues.setdefault((stage, other), []).append((what, ticks))
            for link, (what, lands) in list(under_way.items()):
                if lands <= now:
                    del under_way[link]
                    landed.add(what)
                    changed = True
            for link, queue in queues.items():
                if queue and link not in under_way:
                    what, ticks = queue.pop(0)
                    under_way[link] = (what, now + ticks)
                    changed = True
            for stage in range(count):
                if at[stage] < len(schedule[stage]) and free_at[stage] <= now:
                    op = schedule[stage][at[stage]]
                    kind, m, chunk = parse(op)
                    model_chunk = chunk * count + stage
                    wanted = [
                        (n, kind == "F", m)
                        for n, t in enumerate(tensors)
                        if (kind == "F" and t.target == model_chunk)
                        or (kind in "BI" and t.source == model_chunk)
                    ]
                    if all(w in landed for w in wanted):
                        end = now + duration_of(kind, model_chunk)
                        times[stage, op] = (now, end)
                        free_at[stage] = end
                        unsent.append((end, at[stage], stage, op))
                        at[stage] += 1
                        changed = True
        ahead = [f for f in free_at if f > now] + [w[1] for w in under_way.values() if w[1] > now]
        ahead += [u[0] for u in unsent if u[0] > now]
        if not ahead:
            if any(at[s] < len(schedule[s]) for s in range(count)):
                raise Stuck
            break
        now += 1
    return times


def blocking(schedule, duration_of, tensors) -> int:
    """The makespan when a transfer occupies both stages, after the op that makes its tensor."""
    count = len(schedule)
    model_chunks = count * (1 + max(parse(op)[2] for ops in schedule for op in ops))
    no_time = neighbours(model_chunks, [0] * model_chunks, [0] * model_chunks)
    ticks = overlapped(schedule, lambda kind, model_chunk: 1, no_time)
    programs: list[list[tuple]] = [[] for _ in range(count)]
    for (stage, op), (tick, _) in ticks.items():
        kind, m, chunk = parse(op)
        model_chunk = chunk * count + stage
        programs[stage].append((tick, 0, stage, stage, 0, m, kind, duration_of(kind, model_chunk)))
        for number, t in enumerate(tensors):
            if kind == "F" and t.source == model_chunk:
                other, cost = t.target % count, t.forward
            elif kind in "BI" and t.target == model_chunk:
                other, cost = t.source % count, t.backward
            else:
                continue
            if other != stage:
                entry = (tick, 1, stage, other, number, m, kind, cost)
                programs[stage].append(entry)
                programs[other].append(entry)
    for program in programs:
        program.sort()
    free_at = [0] * count
    now = 0
    while any(programs):
        changed = True
        while changed:
            changed = False
            for stage in range(count):
                if programs[stage] and free_at[stage] <= now:
                    entry = programs[stage][0]
                    other = entry[3] if entry[2] == stage else entry[2]
                    if free_at[other] <= now and programs[other] and programs[other][0] == entry:
                        programs[stage].pop(0)
                        if other != stage:
                            programs[other].pop(0)
                        free_at[stage] = free_at[other] = now + entry[7]
                        changed = True
        if not any(f > now for f in free_at):
            if any(programs):
                raise Stuck
            break
        now += 1
    return max(free_at)


def live(schedule) -> list[int]:
    """By stage, the most microbatches between the start of F and the end of B or W."""
    training = any(op[0] != "F" for ops in schedule for op in ops)
    peaks = []
    for ops in schedule:
        held: set[str] = set()
        most = 0
        for op in ops:
            if op[0] == "F":
                held.add(op[1:])
            most = max(most, len(held))
            if op[0] in ("BW" if training else "F"):
                held.remove(op[1:])
        peaks.append(most)
    return peaks
