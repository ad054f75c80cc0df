"""Meshes, specs and layouts against torch's and JAX's answers and public reports."""

from __future__ import annotations

import numpy as np
import pytest

import reshard_lab as rl
from support.reference_cases import read, row_major


def boxes_as_lists(layout: rl.Layout, shape) -> list:
    boxes = layout.boxes(shape)
    return [[list(edge) for edge in boxes[d]] for d in sorted(boxes)]


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
