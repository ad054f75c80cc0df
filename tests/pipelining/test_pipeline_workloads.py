"""Workloads against torch: modules on the meta device, counted by torch's FLOP counter."""

from __future__ import annotations

import itertools

import pytest

import reshard_lab as rl
from reshard_lab import pipeline
from reshard_lab.pipelining.gpt import GPT_SIZES
from reshard_lab.pipelining.u_transformer import U_TRANSFORMER_SIZES

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from oracles.pipeline_models import GPTStage, UTransformer, count  # noqa: E402

SMALL_GPT = {
    "sequence": 64,
    "hidden": 48,
    "layers": 5,
    "heads": 4,
    "vocab": 160,
    "batch": 24,
    "microbatches": 4,
    "operator": 1,
    "data": 1,
}
SMALL_U = {
    "channels": 64,
    "image": 16,
    "batch": 12,
    "microbatches": 4,
    "operator": 1,
    "data": 1,
}


def gpt_stages(sizes: dict, recompute: bool):
    """(parameters, forward, backward, bytes, output shapes) of every stage, counted."""
    samples = sizes["batch"] // sizes["microbatches"]
    targets = torch.zeros(samples, sizes["sequence"], dtype=torch.long, device="meta")
    x = targets
    cuts = [sizes["layers"] // sizes["stages"]] * sizes["stages"]
    for i in range(sizes["layers"] % sizes["stages"]):
        cuts[i] += 1
    for s, blocks in enumerate(cuts):
        with torch.device("meta"):
            stage = GPTStage(
                blocks,
                sizes["hidden"],
                sizes["heads"],
                sizes["vocab"],
                sizes["sequence"],
                s == 0,
                s == len(cuts) - 1,
                recompute,
            ).to(getattr(torch, sizes["dtype"]))
        forward, backward, nbytes, (x,) = count(
            stage, (x, targets), (targets,), lambda m, *a: [m(*a)]
        )
        parameters = sum(p.numel() for p in stage.parameters())
        yield parameters, forward, backward, nbytes, tuple(x.shape)
        x = x.detach().requires_grad_()


def assert_stage(work, parameters, forward, backward, nbytes):
    assert work.parameters == parameters
    assert work.forward_flops == forward
    assert work.backward_flops == backward
    # Means and deviations of norms, and what a convolution keeps of padding, are left out.
    assert work.activation_bytes == pytest.approx(nbytes, rel=0.02)


@pytest.mark.parametrize(
    ("size", "changes", "recompute"),
    [
        ("1.3B", {"operator": 1}, False),
        ("2.6B", {"operator": 1, "data": 1}, True),
        ("1.3B", SMALL_GPT, False),
        ("1.3B", SMALL_GPT | {"stages": 3, "dtype": "float32"}, True),
        ("1.3B", SMALL_GPT | {"stages": 1}, False),
    ],
)
def test_gpt_is_torchs(size, changes, recompute):
    model = pipeline.gpt(size, recompute, **changes)
    sizes = GPT_SIZES[size] | changes
    counted = list(gpt_stages(sizes, recompute))
    assert len(counted) == len(model.stages) == sizes["stages"]
    for work, (parameters, forward, backward, nbytes, _) in zip(model.stages, counted, strict=True):
        assert_stage(work, parameters, forward, backward, nbytes)
    shapes = [shape for *_, shape in counted[:-1]]
    assert [t.shape for t in model.tensors] == shapes
    tied = sizes["vocab"] * sizes["hidden"] * (sizes["stages"] > 1)
    assert model.parameters == sum(c[0] for c in counted) - tied


def u_stages(sizes: dict, recompute: bool):
    """(parameters, forward, backward, bytes, outputs that later stages use) of every stage."""
    c, image = sizes["channels"], sizes["image"]
    samples = sizes["batch"] // sizes["microbatches"]
    kind = {"device": "meta", "dtype": getattr(torch, sizes["dtype"])}
    with torch.device("meta"):
        model = UTransformer(c, sizes["heads"]).to(kind["dtype"])
    x, time = torch.empty(samples, 3, image, image, **kind), torch.empty(samples, c, **kind)
    context = torch.empty(samples, (image // 8) ** 2, 4 * c, **kind)
    target = torch.empty(samples, 4, image, image, **kind)
    skips: list = []
    for first, end in itertools.pairwise([0, *sizes["cuts"], 13]):
        own = torch.nn.ModuleList(m for i in range(first, end) for m in model.modules_of(i))

        def run(_, x, time, *skips, first=first, end=end):
            x, time, skips = model.run(range(first, end), x, time, skips, context, recompute)
            return [torch.nn.functional.mse_loss(x, target)] if end == 13 else [x, time, *skips]

        forward, backward, nbytes, outputs = count(own, (x, time, *skips), (context, target), run)
        yield sum(p.numel() for p in own.parameters()), forward, backward, nbytes, outputs
        if end < 13:
            x, time, *skips = (o.detach().requires_grad_() for o in outputs)


@pytest.mark.parametrize(
    ("size", "changes", "recompute"),
    [
        ("1B", {"operator": 1}, False),
        ("2B", {"operator": 1}, True),
        ("1B", SMALL_U | {"cuts": (2, 6, 11)}, False),
        ("1B", SMALL_U | {"cuts": ()}, True),
    ],
)
def test_u_transformer_is_torchs(size, changes, recompute):
    model = pipeline.u_transformer(size, recompute, **changes)
    sizes = U_TRANSFORMER_SIZES[size] | changes
    counted = list(u_stages(sizes, recompute))
    assert len(counted) == len(model.stages) == len(sizes["cuts"]) + 1
    for work, (parameters, forward, backward, nbytes, _) in zip(model.stages, counted, strict=True):
        assert_stage(work, parameters, forward, backward, nbytes)
    assert model.parameters == sum(c[0] for c in counted)
    if len(model.stages) == 2:
        crossing = sorted(tuple(o.shape) for o in counted[0][4])
        assert sorted(t.shape for t in model.tensors) == crossing


@pytest.mark.parametrize("kind", ["gpt", "u_transformer"])
def test_the_part_that_makes_weight_gradients(kind):
    """Torch's backward to the inputs of the second stage alone leaves those FLOPs out."""
    tokens = torch.zeros(6, 64, dtype=torch.long, device="meta")
    if kind == "gpt":
        work = pipeline.gpt("1.3B", **SMALL_GPT | {"dtype": "float32"}).stages[1]
        with torch.device("meta"):
            stage = GPTStage(2, 48, 4, 160, 64, False, True)
        inputs = [torch.empty(6, 64, 48, device="meta", requires_grad=True)]
        loss = stage(inputs[0], tokens)
    else:
        model = pipeline.u_transformer("1B", **SMALL_U)
        work = model.stages[1]
        with torch.device("meta"):
            net = UTransformer(64, 8)
        shapes = {t.name: t.shape for t in model.tensors}
        order = ["hidden", "time embedding", *sorted(n for n in shapes if n.startswith("skip"))]
        inputs = [torch.empty(shapes[n], device="meta", requires_grad=True) for n in order]
        context = torch.empty(3, 4, 256, device="meta")
        loss = net.run(range(8, 13), inputs[0], inputs[1], inputs[2:], context)[0].sum()
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(loss, inputs)
    assert work.backward_flops - work.weight_flops == counter.get_total_flops()


def test_published_sizes():
    """Section 5.2: 1.3 and 2.6 billion parameters; "1B" and "2B"."""
    assert pipeline.gpt("1.3B").parameters == pytest.approx(1.3e9, rel=0.02)
    assert pipeline.gpt("2.6B").parameters == pytest.approx(2.6e9, rel=0.02)
    assert pipeline.u_transformer("1B").parameters == pytest.approx(1.3e9, rel=0.02)
    assert pipeline.u_transformer("2B").parameters == pytest.approx(2.6e9, rel=0.02)
    assert [pipeline.gpt(s).devices for s in ("1.3B", "2.6B")] == [4, 8]
    for size, cut in (("1B", 8), ("2B", 9)):
        model = pipeline.u_transformer(size)
        assert [len(s.layers) for s in model.stages] == [cut, 13 - cut]


def test_flops_of_gpt_in_closed_form():
    """72 b s l h^2 (1 + s / 6h + V / 12 l h) forward and backward (Narayanan et al. 2021, section
    5.1, without recomputation), which is three times 24 b s h^2 + 4 b s^2 h a layer and the output.
    """
    for size in ("1.3B", "2.6B"):
        c = GPT_SIZES[size]
        s, n, h, v = c["sequence"], c["layers"], c["hidden"], c["vocab"]
        expected = 72 * c["batch"] * s * n * h**2 * (1 + s / (6 * h) + v / (12 * n * h))
        assert pipeline.gpt(size).flops == pytest.approx(expected, rel=1e-12)
        again = pipeline.gpt(size, recompute=True).flops
        assert again == pytest.approx(expected * 4 / 3, rel=1e-12)


def test_operator_and_data_parallel_sizes_share_out_the_activations():
    """A stage of blocks alone: s b h (8 + 24/t + 2 a s / (h t)) bytes a block (Korthikanti et al.
    2022, equation 2, without dropout and its masks).
    """
    sizes = SMALL_GPT | {"stages": 3, "layers": 6}
    s, h, a, b = 64, 48, 4, 6
    for t in (1, 2, 4):
        for d in (1, 2, 3):
            model = pipeline.gpt("1.3B", **sizes | {"operator": t, "data": d})
            a_block = s * b * h * (8 + 24 / t + 2 * a * s / (h * t)) / d
            assert model.stages[1].activation_bytes == 2 * a_block
            assert model.stages[1].forward_flops == pipeline.gpt("1.3B", **sizes).stages[1][2]


def test_operator_parallel_size_shares_out_the_activations_of_u_transformer():
    """By hand, for the layer with a residual block alone and for the middle, E elements a map.

    A residual block keeps on every device what goes into norm, SiLU and convolution before its
    first split convolution (3 E), and shares out the same three behind it. A transformer block
    keeps nine maps on every device: the inputs of its four norms and of the five maps that are
    split by their outputs; it shares out q, k, v and the weights of both attentions, what goes
    into the maps back (twice E, once 4 E), and 12 E of the gated unit.
    """
    samples, heads, tokens, context = 3, 8, 2**2, 2**2
    for t in (1, 2, 4):
        model = pipeline.u_transformer("1B", **SMALL_U | {"operator": t, "cuts": (3, 4, 5)})
        e = samples * 4 * 64 * tokens
        assert model.stages[1].layers == ("down 3",)
        assert model.stages[1].activation_bytes == 4 * (3 * e + 3 * e / t)
        attention = 3 * e + heads * samples * tokens**2 + e
        kv = samples * context * 2 * 4 * 64
        cross = e + kv + heads * samples * tokens * context + e
        split = 2 * 3 * e + attention + cross + 12 * e + 4 * e
        assert model.stages[2].layers == ("middle",)
        assert model.stages[2].activation_bytes == 4 * (2 * 3 * e + 9 * e + split / t)


def test_stages_start_on_hosts_of_their_own():
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=5)
    small = pipeline.gpt("1.3B")  # half a host a stage
    assert [small.mesh(cluster, s).devices for s in (0, 1)] == [(0, 1), (4, 5)]
    large = pipeline.gpt("2.6B", operator=3)  # a host and a half a stage
    assert [large.mesh(cluster, s).devices for s in (0, 1)] == [(*range(6),), (*range(8, 14),)]


def test_tensors_between_stages():
    model = pipeline.gpt("2.6B")
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=2)
    (tensor,) = model.tensors
    assert (tensor.from_stage, tensor.to_stage, tensor.shape) == (0, 1, (8, 1024, 2560))
    task = model.task(tensor, cluster)
    assert (task.dtype, str(task.src.spec), str(task.dst.spec)) == ("float16", "S0RR", "S0RR")
    assert (task.src.mesh.shape, task.src.mesh.devices) == ((2, 2), (0, 1, 2, 3))
    assert task.dst.mesh.devices == (4, 5, 6, 7)
    assert task.src.boxes(task.shape)[1] == ((0, 4), (0, 1024), (0, 2560))  # replicated on 0, 1
    assert task.src.boxes(task.shape)[2] == ((4, 8), (0, 1024), (0, 2560))


def test_skips_past_a_stage_are_links_of_their_own():
    model = pipeline.u_transformer(
        "1B", cuts=(3, 9), **{k: SMALL_U[k] for k in ("channels", "image")}
    )
    ends = {(t.from_stage, t.to_stage) for t in model.tensors}
    assert ends == {(0, 1), (1, 2), (0, 2)}
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=3)
    arguments = model.arguments(cluster, 1e13)
    assert [len(tasks) for tasks in arguments["forward_transfer_s"]] == [
        sum((t.from_stage, t.to_stage) == ends for t in model.tensors) for ends in ((0, 1), (1, 2))
    ]
    (skip,) = arguments["skips"]
    assert (skip.from_stage, skip.to_stage) == (0, 2)
    moved = [t.name for t in model.tensors if (t.from_stage, t.to_stage) == (0, 2)]
    assert len(skip.forward_transfer_s) == len(moved)
    assert "time embedding" in moved
    # What is handed on at a cut is not sent a second time as a skip.
    hidden = next(t for t in model.tensors if t.name == "hidden" and t.from_stage == 0)
    same = [
        t for t in model.tensors if t.shape == hidden.shape and (t.from_stage, t.to_stage) == (0, 1)
    ]
    assert same == [hidden]
    timeline = pipeline.simulate(pipeline.schedule("1f1b", 3, model.microbatches), **arguments)
    assert {"link 0>2", "link 2>0"} < set(timeline.rows)


def test_arguments_of_simulate():
    model = pipeline.gpt("1.3B")
    speed = pipeline.device_speed("p3.8xlarge", "float16")
    assert "arXiv 1909.08053" in speed.source
    cluster = rl.Cluster.preset("p3.8xlarge", hosts=2)
    arguments = model.arguments(cluster, speed.flops_per_s)
    schedule = pipeline.schedule("1f1b", 2, model.microbatches)
    signal = pipeline.simulate(schedule, **arguments, strategy="signal")
    rate = speed.flops_per_s * 2
    first, second = (s.forward_flops + s.backward_flops for s in model.stages)
    # Stage 1 has the output matrix and is the slower: it works without a break once stage 0 has
    # filled the pipe, and stage 0 ends with one backward.
    assert second > first
    expected = (first + second * model.microbatches) / rate
    assert signal.makespan_s == pytest.approx(expected, rel=1e-3)
    assert signal.peak_bytes == [
        2 * model.stages[0].activation_bytes,
        model.stages[1].activation_bytes,
    ]
