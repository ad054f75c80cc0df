"""Meshes, specs and layouts against torch's and JAX's answers and public reports."""

from __future__ import annotations

import numpy as np
import pytest

import reshard_lab as rl
from support.reference_cases import read, row_major


def boxes_as_lists(layout: rl.Layout, shape) -> list:
    found = layout.boxes(shape)
    return [[list(edge) for edge in found[d]] for d in sorted(found)]


@pytest.mark.parametrize("case", read("layouts_torch"), ids=lambda c: f"{c['mesh']}{c['shape']}")
def test_chunk_rule_is_torch(case):
    dims = [
        [axis for axis, p in enumerate(case["placements"]) if p == dim]
        for dim in range(len(case["shape"]))
    ]
    layout = rl.Layout(row_major(case["mesh"]), rl.ShardingSpec.from_dims(dims))
    assert boxes_as_lists(layout, case["shape"]) == case["boxes"]


@pytest.mark.parametrize("case", read("layouts_jax"), ids=lambda c: f"{c['mesh']}{c['shape']}")
def test_even_rule_is_jax(case):
    axis = {"a": 0, "b": 1}
    dims = [
        [] if s is None else [axis[x] for x in (s if isinstance(s, list) else [s])]
        for s in case["spec"]
    ]
    layout = rl.Layout(row_major(case["mesh"]), rl.ShardingSpec.from_dims(dims), rule="even")
    if "error" in case:
        with pytest.raises(rl.ReshardError, match="does not divide evenly"):
            layout.boxes(case["shape"])
    else:
        assert boxes_as_lists(layout, case["shape"]) == case["boxes"]


def lengths(n: int, parts: int, rule: str, spec: str = "S0") -> list[int]:
    boxes = rl.Layout(row_major((parts,)), spec, rule).boxes((n,))
    return [hi - lo for ((lo, hi),) in boxes.values()]


@pytest.mark.parametrize(
    ("n", "parts", "rule", "expected"),
    [
        (10, 4, "chunk", [3, 3, 3, 1]),
        (10, 4, "balanced", [3, 3, 2, 2]),
        (5, 4, "chunk", [2, 2, 1, 0]),
        (5, 4, "balanced", [2, 1, 1, 1]),
        (512, 30, "chunk", [18] * 28 + [8, 0]),
        (6, 4, "chunk", [2, 2, 2, 0]),
        (0, 3, "balanced", [0, 0, 0]),
        (12, 4, "even", [3, 3, 3, 3]),
    ],
)
def test_uneven_lengths(n, parts, rule, expected):
    assert lengths(n, parts, rule) == expected


def test_nested_chunk_cuts_the_local_piece_again():
    boxes = rl.Layout(row_major((2, 2)), "S01").boxes((5,))
    assert [b[0] for b in boxes.values()] == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_empty_pieces_are_at_the_end_of_the_dimension_also_when_nested():
    assert rl.Layout(row_major((30,)), "S0").boxes((512,))[29] == ((512, 512),)
    boxes = rl.Layout(row_major((3, 2)), "S01").boxes((4,))  # 2 | 2 | 0, then 1, 1
    assert [b[0] for b in boxes.values()] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 4), (4, 4)]
    boxes = rl.Layout(row_major((2, 2)), "S01").boxes((3,))  # 2 | 1: the fourth is empty
    assert boxes[3] == ((3, 3),)


@pytest.mark.parametrize(
    ("n", "by_position"),
    [
        (4, [[0], [2], [1], [3]]),
        (5, [[0, 1], [3], [2], [4]]),
        (6, [[0, 1], [3, 4], [2], [5]]),
    ],
)
def test_minor_axis_may_cut_first(n, by_position):
    """Tensor parallelism cuts before data parallelism: S10 on (dp, tp)."""
    array = np.arange(n)
    boxes = rl.Layout(row_major((2, 2)), "S10").boxes((n,))
    assert [array[lo:hi].tolist() for ((lo, hi),) in boxes.values()] == by_position


def test_device_order_is_the_meshs_not_the_ids():
    boxes = rl.Layout(rl.Mesh([[0, 3], [1, 2]]), "RS1").boxes((1, 2))
    column = {d: b[1][0] for d, b in boxes.items()}
    assert column == {0: 0, 1: 0, 3: 1, 2: 1}


@pytest.mark.parametrize(
    ("text", "dims", "canonical"),
    [
        ("S01R", ((0, 1), ()), "S01R"),
        ("S^{01}R", ((0, 1), ()), "S01R"),
        ("S^01 R", ((0, 1), ()), "S01R"),
        ("  R S^1 ", ((), (1,)), "RS1"),
        ("S10", ((1, 0),), "S10"),
        ("S^{10,2}R", ((10, 2), ()), "S^{10,2}R"),
        ("S^{12,}", ((12,),), "S^{12,}"),
        ("RRR", ((), (), ()), "RRR"),
        ("", (), ""),
    ],
)
def test_spec_text(text, dims, canonical):
    spec = rl.ShardingSpec(text)
    assert spec.dims == dims
    assert str(spec) == canonical
    assert rl.ShardingSpec(canonical) == spec
    assert rl.ShardingSpec.from_dims(dims) == spec


def test_slices_list_replicas_in_order_of_their_first_device():
    slices = rl.Layout(rl.Mesh([[3, 1], [2, 0]]), "S1").slices((4,))
    assert slices == {((0, 2),): (2, 3), ((2, 4),): (0, 1)}


def test_records_are_values():
    a, b = rl.Mesh([[0, 1]]), rl.Mesh(np.array([[0, 1]]))
    assert a == b and hash(a) == hash(b) and a != rl.Mesh([0, 1])
    assert rl.Layout(a, "S0") == rl.Layout(b, rl.ShardingSpec("S0"))
    assert rl.Layout(a, "S0") != rl.Layout(a, "S0", rule="balanced")
    assert repr(rl.Layout(a, "S01", "even")) == "Layout(Mesh([[0, 1]]), 'S01', rule='even')"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rl.ShardingSpec("S0X"), "spec 'S0X' has an unknown token at 'X'"),
        (lambda: rl.ShardingSpec("S"), "spec 'S' has an unknown token at 'S'"),
        (lambda: rl.ShardingSpec("s0"), "unknown token at 's0'"),
        (
            lambda: rl.ShardingSpec("S0S0R"),
            r"spec 'S0S0R' uses mesh axis 0 twice \(dims 0 and 1\); an axis can split one dim",
        ),
        (lambda: rl.ShardingSpec("S00"), r"uses mesh axis 0 twice \(dim 0\)"),
        (lambda: rl.ShardingSpec(7), "a spec is text such as 'S01R', not 7"),
        (lambda: rl.Layout(row_major((2, 2)), "S2R"), r"uses mesh axis 2, but the mesh has shape"),
        (lambda: rl.Layout(row_major((2,)), "S0", rule="ceil"), "unknown layout rule 'ceil'"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes((4, 4)), r"'S0' has 1 tokens, but shape"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes((-1,)), "must be at least 0, not -1"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes((1.5,)), "must be a whole number, not 1.5"),
        (lambda: rl.Layout(row_major((2,)), "S0").boxes(4), "must be a sequence of sizes"),
        (
            lambda: rl.Layout(row_major((4,)), "S0", "even").boxes((10,)),
            r"dimension 0 of size 10 does not divide evenly over mesh axes \(0,\) \(4 pieces\)",
        ),
        (lambda: rl.Mesh([[0, 1], [1, 2]]), "lists device 1 twice"),
        (lambda: rl.Mesh([0, -1]), "ids must be at least 0"),
        (lambda: rl.Mesh([]), "must be a non-empty rectangular array"),
        (lambda: rl.Mesh([[0, 1], [2]]), "must be a non-empty rectangular array"),
        (lambda: rl.Mesh([0.0, 1.0]), "array of whole device ids"),
        (lambda: rl.Mesh(3), "must be a non-empty rectangular array"),
        (lambda: row_major((2,)).position(9), "device 9 is not in Mesh"),
    ],
)
def test_mistakes_are_told_in_words(make, words):
    with pytest.raises(rl.ReshardError, match=words):
        make()
