"""Record what the library computes and says, so that a refactoring can show that nothing moved.

    python tools/fingerprint.py write FILE [--quick]
    python tools/fingerprint.py compare OLD NEW

``write`` stores a flat JSON object with keys ``group | case | property``: floats as their repr,
long texts as a hash, the hash with numbers rounded, and their first 200 characters. ``--quick``
takes every sixth case. ``compare`` prints what differs, and exits with 1 if anything does. Problems
for searching schedulers are so small that counted steps end a search long before its clock does.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import json
import math
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reshard_lab as rl

CASES = Path(__file__).resolve().parent.parent / "tests" / "cases"
ALLGATHERS = ("local_allgather", "global_allgather")
STRATEGIES = ("broadcast", "send_recv", *ALLGATHERS, "alpa", "auto", "signal")
METHODS, SCHEDULES = rl.scheduling.METHODS, rl.pipeline.SCHEDULES
SEARCHES = ("dfs", "ensemble", "exact", "auto", "split")
MOST_SEARCHED, MOST_CHUNKS = 16, 4000
DTYPES = ("int8", "float32", "int16", "complex128", "bfloat16", "bool", "float64", "uint8")
MESHES = [(1,), (2,), (3,), (4,), (2, 2), (1, 3), (2, 1, 2), (3, 2), (8,), (2, 4)]
MODELS = {"gpt": ("1.3B", "2.6B"), "u_transformer": ("1B", "2B")}
NUMBER = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")


def plain(value: Any) -> Any:
    """``value`` as lists and numbers; records lose their names, so they may get others."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "items"):
        return [[plain(k), plain(v)] for k, v in value.items()]
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (str, int, float, type(None))) else repr(value)


def stored(value: Any) -> str:
    """How a value stands in the file."""
    text = value if isinstance(value, str) else json.dumps(plain(value))
    about = NUMBER.sub(lambda m: f"{float(m[0]):.11g}", text)
    exact, rough = (hashlib.sha256(t.encode()).hexdigest()[:16] for t in (text, about))
    return text if len(text) <= 200 else f"sha256 {exact} rounded {rough} {text[:200]}"


def told(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``call`` returns, or the name and the message of what it raises."""
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"


def public(name: str, *modules: str) -> Any:
    """``name`` from the first of ``modules`` that has it."""
    for module in modules:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise SystemExit(f"{name} is in none of {modules}")


class Store:
    """The values of one run; takes every ``step``-th case."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.values: dict[str, str] = {}

    def put(self, case: str, name: str, value: Any) -> None:
        """Note one value."""
        assert f"{case} | {name}" not in self.values, (case, name)
        self.values[f"{case} | {name}"] = stored(value)

    def add(self, case: str, record: Any, names: str, before: str = "") -> None:
        """Note properties, and results of methods, of ``record``, or the error in its place."""
        for name in ["error"] if isinstance(record, str) else names.split():
            value = record if isinstance(record, str) else getattr(record, name)
            self.put(case, before + name.strip("_"), told(value) if callable(value) else value)

    def read(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Entries of ``tests/cases/<name>.json`` with their numbers."""
        found = json.loads((CASES / f"{name}.json").read_text())
        return ((i, found[i]) for i in range(0, len(found), self.step))

    def random(self, name: str, count: int) -> Iterator[tuple[int, random.Random]]:
        """Numbered sources of random cases."""
        return ((i, random.Random(f"{name} {i}")) for i in range(0, count, self.step))

    def plan(self, case: str, tasks: Any, *how: Any) -> None:
        """Everything that a plan says and does."""
        p = told(rl.plan, tasks, *how)
        names = "makespan_s lower_bound_s optimal notes peak_bytes verify explain __repr__"
        self.add(case, p, names)
        if isinstance(p, str):
            return
        for name, value in json.loads(p.to_json()).items():
            if name != "programs":
                self.put(case, f"json.{name}", value)
        self.put(case, "programs", [[d, *map(tuple, steps)] for d, steps in p.programs.items()])
        self.add(case, p.gantt(), "steps deliveries idle __repr__", "gantt.")
        old = "reshard_lab.planning.nics"
        traffic = p.traffic() if hasattr(p, "traffic") else public("traffic", old)(p)
        self.add(case, traffic, "hosts nbytes loads bottlenecks crossing __repr__", "traffic.")
        chunks = sum(t.chunks * len(t.path) for t in p.transfers)
        for resolution in ("fluid", "chunks") if chunks <= MOST_CHUNKS else ("fluid",):
            t, names = rl.simulate(p, resolution), "critical_path nic_use staging to_chrome_trace"
            self.add(case, t, f"duration_s __len__ __repr__ {names}", f"{resolution}.")
            self.put(case, f"{resolution}.rows", list(t))
        if p.nbytes <= 100_000:
            self.put(case, "execute", told(executed, p))

    def solve(self, case: str, problem: Any, seed: int = 0) -> None:
        """What every method makes of ``problem``."""
        bounds = "fluid_bound unsplit_bound"
        self.add(case, problem, f"durations senders receivers groups idle {bounds}")
        names = f"makespan lower_bound {bounds} optimal gap notes sender start assignments sharing"
        for method in METHODS:
            if method not in SEARCHES or len(problem) <= MOST_SEARCHED:
                s = told(rl.scheduling.solve, problem, method, seed=seed)
                self.add(f"{case} {method}", s, f"{names} __repr__")

    def pipeline(self, case: str, schedule: Any, **given: Any) -> None:
        """A pipeline carried out in both manners."""
        names = "peak_live peak_bytes events critical_path memory shares rows bubble_share"
        names += " exposed_communication_share to_chrome_trace __repr__"
        for how in (True, False):
            t = told(rl.pipeline.simulate, schedule, overlap=how, **given)
            self.add(case, t, f"makespan_s {names}", "overlapped." if how else "blocking.")


def executed(p: Any) -> list[Any]:
    """What destination devices hold after ``p`` ran in memory on counted elements."""
    given = []
    for task in p.tasks:
        whole = (np.arange(math.prod(task.shape)) % 251).astype(task.dtype).reshape(task.shape)
        boxes = task.src.boxes(task.shape).items()
        given.append({d: whole[tuple(slice(*edge) for edge in box)] for d, box in boxes})
    made = rl.execute(p, given)
    listed = [made] if isinstance(made, dict) else made
    return [{d: [a.dtype.name, a.tolist()] for d, a in pieces.items()} for pieces in listed]


def few(tasks: Any) -> bool:
    """Whether a plan of ``tasks`` is found long before the clock ends its short searches."""
    problem = rl.scheduling.Problem.from_tasks(tasks)
    easy = len(problem) <= MOST_SEARCHED and rl.scheduling.solve(problem, "greedy").optimal
    return len(problem) <= 6 or bool(easy)


def schedules(store: Store) -> None:
    """The problems and tensors of schedules.json (seconds are bytes there), random problems."""
    for i, case in store.read("schedules"):
        size, tasks = case["cluster"], []
        cluster = rl.Cluster(size["hosts"], size["devices_per_host"], 1, 1, 0, "inf", 0)
        for tensor in case["tensors"]:
            ends = (tensor["src"], tensor["dst"])
            src, dst = (rl.Layout(rl.Mesh(end["mesh"]), end["spec"]) for end in ends)
            tasks.append(rl.ReshardingTask(tensor["shape"], case["dtype"], src, dst, cluster))
            store.add(f"task | {i}.{len(tasks)}", tasks[-1], "unit_tasks lower_bound_s __repr__")
        problem = rl.scheduling.Problem.from_tasks(tasks)
        store.solve(f"solve | {i}", problem)
        hows: list[tuple[Any, ...]] = [("broadcast", "load_balance", 100)]
        if len(problem) <= 200:
            hows += [("auto", "naive", "auto"), ("broadcast", "concurrent", 4)]
            hows += [("local_allgather", "greedy", 4), ("send_recv", "load_balance", 1)]
        if few(tasks):
            hows += [("broadcast", "auto", 4), ("broadcast", "split", 4)]
        for how in hows:
            store.plan(f"plan of schedules | {i} {how}", tasks, *how)
    for i, rng in store.random("problem", 60):
        n, nics = rng.randrange(1, 9), rng.randrange(2, 6)
        lasts = [rng.choice((0, 1, 2, 0.5, rng.random())) for _ in range(n)]
        senders = [rng.sample(range(nics), rng.randrange(1, 3)) for _ in range(n)]
        receivers = [rng.sample(range(nics, 2 * nics), rng.randrange(3)) for _ in range(n)]
        problem = rl.scheduling.Problem(lasts, senders, receivers)
        store.solve(f"solve random | {i}", problem, seed=i % 3)


def random_layout(rng: random.Random, devices: range, ndim: int) -> Any:
    """A layout on some of ``devices``; every mesh axis cuts one dimension or none."""
    shape = rng.choice([m for m in MESHES if math.prod(m) <= len(devices)])
    ids = rng.sample(devices, len(devices)) if rng.random() < 0.5 else devices
    dims: list[list[int]] = [[] for _ in range(ndim + 1)]
    for axis in rng.sample(range(len(shape)), len(shape)):
        rng.choice(dims).append(axis)
    mesh = rl.Mesh(np.array(ids[: math.prod(shape)]).reshape(shape))
    spec = rl.ShardingSpec.from_dims(dims[:ndim])
    return rl.Layout(mesh, spec, rng.choice(("chunk", "balanced")))


def random_tasks(rng: random.Random) -> list[Any]:
    """One to three tensors on one cluster; meshes overlap, or lie on either half of it."""
    hosts, per = rng.choice(((2, 4), (4, 2), (4, 4), (3, 3), (8, 1), (6, 2)))
    nics = rng.choice((1, 1, 1, 2, 4, [rng.choice((1, 2)) for _ in range(hosts)]))
    rates = [rng.choice(("10Gbps", "1Gbps", "25Gbps")) for _ in range(hosts)]
    nic, slow = rng.choice(("10Gbps", "400Mbit", 1e6, rates)), rng.choice(("20us", 0, "1ms"))
    intra = rng.choice(("150GB/s", "inf", "1GB/s", "100MB/s"))
    cluster = rl.Cluster(hosts, per, nic, nics, slow, intra, rng.choice(("5us", 0)))
    every, half = range(cluster.size), cluster.size // 2
    ends, tasks = rng.choice(((every, every), (every[:half], every[half:]))), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        sizes = rng.choice(((0, 1, 2, 3, 5, 7, 16, 33), (64, 100, 257)))
        shape = tuple(rng.choice(sizes) for _ in range(rng.randrange(1, 5)))
        src, dst = (random_layout(rng, end, len(shape)) for end in ends)
        tasks.append(rl.ReshardingTask(shape, rng.choice(DTYPES), src, dst, cluster))
    return tasks


def random_plans(store: Store) -> None:
    """Plans of random tensors under all strategies and schedulers in turn."""
    for i, rng in store.random("plan", 320):
        tasks, turn = random_tasks(rng), i // store.step
        strategy, scheduler = STRATEGIES[turn % 7], METHODS[turn // 7 % len(METHODS)]
        if scheduler in rl.scheduling.SHARED_OUT:
            strategy = rng.choice(("broadcast", "auto"))
        if scheduler in SEARCHES and not few(tasks):
            scheduler = "load_balance"
        how = (strategy, scheduler, rng.choice((1, 4, 100, "auto")), i % 3)
        store.add(f"random task | {i}", tasks[0], "cluster unit_tasks __repr__")
        store.plan(f"random plan | {i} {how}", tasks, *how)


def layouts(store: Store) -> None:
    """Layouts of both files, a plan from each to the next of its shape; closed forms."""
    for name, rules in (("layouts_torch", ("chunk", "balanced")), ("layouts_jax", ("even",))):
        seen: dict[tuple[int, ...], Any] = {}
        for i, case in store.read(name):
            shape, places = tuple(case["shape"]), case.get("placements", ())
            dims = [[a for a, p in enumerate(places) if p == d] for d in range(len(shape))]
            if "spec" in case:
                dims = [["ab".index(a) for a in d or ()] for d in case["spec"]]
            spec, ids = rl.ShardingSpec.from_dims(dims), np.arange(math.prod(case["mesh"]))
            here, there = (rl.Mesh(n + ids.reshape(case["mesh"])) for n in (0, 16))
            for rule in rules:
                layout = rl.Layout(here, spec, rule)
                store.put(f"{name} | {i} {rule}", "boxes", told(layout.boxes, shape))
                store.add(f"{name} | {i} {rule}", layout, "spec __repr__")
            if shape in seen:
                ends = seen[shape], rl.Layout(there, spec), rl.Cluster(16, 2, "1Gbps", 1 + i % 2)
                task, how = rl.ReshardingTask(shape, "int16", *ends), STRATEGIES[i % 5]
                store.plan(f"plan of {name} | {i} {how}", task, how, "load_balance", "auto")
            seen[shape] = rl.Layout(here, spec)
    closed = public("closed_form_s", "reshard_lab", "reshard_lab.strategies")
    for i, rng in store.random("closed form", 120):
        free = (0, "inf", 0) if i % 2 else ("20us", "150GB/s", "5us")
        given = STRATEGIES[i % 5], rng.choice((1, 7, 10**8)), *rng.choices(range(1, 6), k=2)
        seconds = told(closed, *given, rl.Cluster(6, 4, 1e9, 1, *free), rng.choice((1, 4, 100)))
        store.put(f"closed form | {i} {given}", "seconds", seconds)


def pipelines(store: Store) -> None:
    """The cases of pipelines.json, random ones, and the models."""
    for i, case in store.read("pipelines"):
        lists = rl.pipeline.schedule(case["schedule"], case["stages"], case["microbatches"])
        given = {name: value for name, value in case.items() if name.endswith("_s")}
        store.pipeline(f"pipeline | {i}", lists, **given)
    for i, rng in store.random("pipeline", 120):
        name, stages = SCHEDULES[i // store.step % len(SCHEDULES)], rng.randrange(1, 6)
        chunks = rng.randrange(1, 4) if name == "interleaved_1f1b" else 1
        lists = rl.pipeline.schedule(name, stages, rng.randrange(1, 10), chunks, i % 4 == 0)
        store.put(f"random pipeline | {i}", "lists", lists)
        store.put(f"random pipeline | {i}", "csv", told(rl.pipeline.to_torch_csv, lists))
        n = stages * chunks
        times = [[rng.choice((1, 0.25, rng.random())) for _ in range(n)] for _ in range(3)]
        given = {"forward_s": times[0], "backward_s": times[1]}
        given["forward_transfer_s"] = times[2][1:]
        if i % 2:
            given["weight_s"] = [b * rng.random() for b in times[1]]
            given["activation_bytes"] = [rng.randrange(1000) for _ in range(n)]
        if i % 3 and n > 2:
            given["skips"] = [(0, n - 1, rng.random())]
        if i % 5 == 0 and few(tensors := random_tasks(rng)):
            given["forward_transfer_s"] = [tensors] * (n - 1)
        store.pipeline(f"random pipeline | {i}", lists, **given)
    changed: list[dict[str, Any]] = [
        {},
        {"recompute": True},
        {"batch": 512, "microbatches": 8, "operator": 4},
    ]
    for kind, size, n in [(k, s, n) for k in MODELS for s in MODELS[k] for n in range(3)]:
        model, which = getattr(rl.pipeline, kind)(size, **changed[n]), f"{kind} {size} {n}"
        names = "name dtype batch stages parameters devices flops __repr__"
        store.add(f"workload | {which}", model, names)
        crossing = [(tensor.name, tensor.shape, tensor.spec) for tensor in model.tensors]
        store.put(f"workload | {which}", "tensors", crossing)
        given = model.arguments(rl.Cluster.preset("p3.8xlarge", hosts=8), 37.5e12)
        for name in SCHEDULES[1:3]:
            lists = rl.pipeline.schedule(name, len(model.stages), model.microbatches)
            store.pipeline(f"workload pipeline | {which} {name}", lists, **given)


EDGE = """
rl.Cluster(@, 2) | 0 | 1.5 | None | True | "x" | 10**9 | -1
rl.Cluster(2, 2, @) | ["1Gbps", "x"] | "10Gb" | 0 | [1] | intra="fast" | "x" | "inf"
rl.Cluster(2, 2, @) | nic_latency="20" | nic_latency=-1 | intra=0 | nic=["1Gbps", 5e7]
rl.Cluster.preset(@) | "p3.8xlarge" | "p4d", 2 | "laptop" | "DGX-H100" | "nothing" | 3
c.mesh(@) | (2, 2), 1 | (9, 9) | (0, 2) | "x" | 2, 7 | 2, -1
rl.Mesh(@) | [] | [[0, 0]] | [-1] | [[0], [1, 2]] | "x" | [0.5] | 3 | [[3, 1]] | [0]).position(7
rl.ShardingSpec(@) | "S^{01}R" | "S^{10,}R" | "S0S0" | "S00" | "X" | "" | 3 | "S" | "S^{1x}"
rl.ShardingSpec.from_dims(@) | [(1, 0), ()] | [(0, 0)] | [(-1,)]
rl.Layout(@) | m, "S2R" | m, "S0R", "even" | m, "R", "odd" | 3, "R" | m, 3 | [[0, 0]], "R"
rl.Layout(m, "S0R", "even").boxes(@) | (4, 2) | (3, 2) | (4,) | "ab" | (-1, 2) | (1.5, 2) | 3
rl.ReshardingTask((4, 4), @) | "x", a, b, c | "int8", 3, b | "int8", a, 3 | "int8", a, b, 3
rl.ReshardingTask(@, "int8", a, b, c) | (4,) | (10**10, 10**10) | (4, -4) | 3
rl.ReshardingTask((4, 4), "int8", a, @) | b).lower_bound_s, (0 | far, c
rl.plan(@) | 3 | [] | "x" | [3] | [t, other] | rl.ReshardingTask((4, 4), "int8", a, b)
rl.plan(t, @) | "fast" | "broadcast", "best" | chunks=0 | chunks="x" | chunks=1.5 | seed=-1 | "x", 3
rl.plan(t, @) | "send_recv", "split" | "alpa", "concurrent" | None | chunks=True | seed="x"
p.explain(@) | -1 | 0 | 1 | "x"
p.gantt().steps(@) | -1 | 1 | "x"
p.to_json(@) | 3 | "" | "/nowhere/a.json"
rl.Plan.from_json(@) | "/nowhere/a.json" | 3 | "" | "csv" | "." | "newer"
rl.simulate(@) | 3 | p, "fine" | p, cluster=big | p, cluster=slow | p, core_oversubscription=4
rl.simulate(p, @) | core_oversubscription=0 | core_oversubscription="x").to_chrome_trace(3
rl.simulate(p).to_chrome_trace(@) | 3 | "" | "/nowhere/a.json"
rl.execute(p, @) | 3 | {} | {0: z} | {**held, 9: z} | {d: 3 for d in held} | [held, held] | [3]
rl.execute(@) | 3, {} | sig, held | p, {d: z for d in held} | p, {d: z.T for d in held}
rl.run(@) | p, "moon" | 3 | p, "local", 0 | p, "local", 1, -1 | p, timeout_s=0 | p, seed=-1
rl.calibrate(@) | [] | [(p, 0)] | [(p, "x")] | [(3, 1.0)] | [(p, 0.5)] | [(p, 1.0), (sig, 2.0)]
rl.EmulatedCluster(@) | 0, 1 | 2, 0 | 2, 1, "x" | 2, 1, devices=[9]
rl.runtime.Pool(@) | 0 | [] | [-1] | "x"
S.Problem([1], @) | [], [] | [()], [(1,)] | [3], [(1,)] | [(0, 0)], [(1,)] | [(0,)], [(-1,)]
S.Problem(@, [(0,)], [(1,)]) | [-1] | ["x"] | [1e308] * 3
S.Problem.from_tasks(@) | 3 | [] | [t, other] | [t]
S.solve(q, @) | "best" | "auto", -1 | "auto", "x" | "auto", 1, -1 | "auto", 1, "x" | None | "exact"
P.schedule(@, 2) | "x", 2 | "1f1b", 0 | "1f1b", "x" | "gpipe", 10**9 | "1f1b", 2, 2 | None, 1
P.schedule("gpipe", 2, @) | 0 | "x" | 2, None, 1 | 2, True
P.check(@) | 3 | [] | [["F0"], ["B0"]] | [["B0", "F0"]] | [["F0", "F0"]] | [["X0"]] | [[3]] | [[]]
P.check([@]) | ["F0", "B0"], ["B0", "F0"] | ["F1"] | ["F0", "I0"] | ["F0", "B0", "W0"] | ["F0.1"]
P.simulate(two, @) | 1 | -1, 1 | "x", 1 | [1], 1 | 1, [1, 2, 3] | 1e308, 2 | 1, 2, [1, 2]
P.simulate(two, 1, 2, @) | overlap=1 | skips=3 | skips=[3] | skips=[(1, 0, 1)] | skips=[(0, 9, 1)]
P.simulate(two, 1, 2, @) | [t, other] | [[t, other]] | t, strategy="x" | weight_s=3 | {1} | "x"
P.simulate(two, 1, 2, activation_bytes=@) | [1] | "x" | [1, "1B"] | [1, "1"]
P.gpt(@) | "3B" | "1.3B", layers=1 | "1.3B", heads=3 | "1.3B", x=1 | "1.3B", batch=7 | "1.3B", 1
P.u_transformer("1B", @) | cuts=(0,) | cuts=(9, 8) | image=3 | cuts=3 | dtype="x" | batch=7
P.gpt().arguments(@) | c, 0 | c, 1e12 | rl.Cluster(1, 2), 1e12 | c, float("inf")
P.device_speed(@, "float16") | "p3.8xlarge" | "laptop" | "x"
P.to_torch_csv(@) | two | 3 | two, "" | two, "/nowhere/a.csv" | [["F0"], []]
P.from_torch_csv(@) | "csv" | "/nowhere/a.csv" | "newer" | "."
"""
"""Calls at the public edge, most of them bad: ``call(@) | what stands for @ | ...``."""


def edge(store: Store) -> None:
    """What the calls of ``EDGE`` return or raise; writes into the working folder."""
    S, P, c = rl.scheduling, rl.pipeline, rl.Cluster(4, 2)
    big, slow, far = rl.Cluster(8, 2), rl.Cluster(4, 2, "1Gbps"), rl.Layout(rl.Mesh([98, 99]), "RR")
    m, z = c.mesh((2, 2)), np.zeros((2, 4), "float32")
    a, b = rl.Layout(m, "S0R"), rl.Layout(c.mesh((2, 2), first_host=2), "RS1")
    t, other = (rl.ReshardingTask((4, 4), "float32", a, b, on) for on in (c, slow))
    p, sig, held = rl.plan(t, chunks=4), rl.plan(t, "signal"), dict.fromkeys(m.devices, z)
    q = S.Problem([1, 2, 3], [(0, 1)] * 3, [(2,), (3,), (2, 3)])
    two = P.schedule("1f1b", 2, 2)
    P.to_torch_csv(two, "csv")
    Path("newer").write_text('{"schema": "reshard_lab.plan", "version": 99}')
    known = globals() | locals()
    for line in EDGE.strip().splitlines():
        call, *values = line.split(" | ")
        for text in (call.replace("@", value) for value in values):
            said = told(eval, text, dict(known))
            store.put(f"edge | {text}", "said", said if isinstance(said, str) else repr(said))


def close(old: str, new: str) -> bool:
    """Whether two values differ in the rounding of numbers only."""
    if old.startswith("sha256 ") and new.startswith("sha256 "):
        return old.split()[3] == new.split()[3]
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=False)
    near = all(math.isclose(float(x), float(y), rel_tol=1e-12) for x, y in pairs)
    return near and NUMBER.sub("#", old) == NUMBER.sub("#", new)


def compare(old: dict[str, str], new: dict[str, str]) -> int:
    """Print the keys that differ, by kind, group and property; 1 if there are any."""
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in old | new:
        if old.get(key) != new.get(key):
            kind = "missing in NEW" if key not in new else "missing in OLD"
            if key in old and key in new:
                kind = "rounding" if close(old[key], new[key]) else "different"
            group, *_, name = key.split(" | ")
            found[kind, group, name].append(key)
    for (kind, group, name), keys in sorted(found.items()):
        print(f"{kind}: {len(keys)} of {group}, {name}")
        for key in keys:
            print(f"  {key}\n    old {old.get(key)}\n    new {new.get(key)}")
    print(f"{len(old)} and {len(new)} values, {sum(map(len, found.values()))} differ:")
    for (kind, group, name), keys in sorted(found.items()):
        print(f"  {kind}: {len(keys)} of {group}, {name}")
    return int(bool(found))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Record what must not move, or compare records.")
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if len(given.files) != (1 if given.command == "write" else 2):
        parser.error("write takes one file, compare takes two")
    if given.command == "compare":
        old, new = (json.loads(path.read_text()) for path in given.files)
        return compare(old, new)
    for solver in ("scipy.optimize", "ortools.sat.python.cp_model"):
        importlib.import_module(solver)  # here, since imports take time from the first search
    store = Store(6 if given.quick else 1)
    for part in (schedules, layouts, pipelines, random_plans):
        part(store)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        edge(store)
    given.files[0].write_text(json.dumps(store.values, indent=0) + "\n")
    print(f"{len(store.values)} values in {given.files[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
