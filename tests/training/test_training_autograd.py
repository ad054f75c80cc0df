"""Gradients flow back through a resharding, in any torch.distributed program."""

import pytest

import reshard_lab as rl
from reshard_lab.training import reshard
from support import rank_programs

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def results():
    """What every rank of every scenario returned."""
    return rank_programs.results_of("training_ranks", 200)


@pytest.mark.distributed
def test_gradients_of_every_source_piece(results):
    """Whole on every replica, whatever the layouts."""
    for rank, found in enumerate(results["one_way"]):
        assert "crash" not in found and "error" not in found, found
        assert len(found) == 14
        assert all(right is True for right in found.values()), (rank, found)


@pytest.mark.distributed
def test_gradients_there_and_back(results):
    assert results["there_and_back"] == [True] * 4, results["there_and_back"]


@pytest.mark.distributed
def test_pieces_that_require_no_gradient_keep_nobody_waiting(results):
    assert results["pieces_without_gradient"] == [True] * 4, results["pieces_without_gradient"]


def test_gradients_stay_where_the_pieces_are(monkeypatch):
    """A device of the destination mesh alone, whose pieces are not on the CPU."""
    torch, pieces = pytest.importorskip("torch"), []

    def run_rank(plan, piece, group, **_):
        pieces.append(piece)
        return torch.zeros(4, device="meta") if piece is None else None

    monkeypatch.setattr("reshard_lab.training.autograd.run_rank", run_rank)
    reshard(plan_of("float32"), None).sum().backward()
    there, back = pieces
    assert there is None and back.shape == (4,) and back.device.type == "meta"


def plan_of(dtype, strategy="broadcast", count=1):
    layouts = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1]), "R")
    task = rl.ReshardingTask((4,), dtype, *layouts, rl.Cluster(2, 1))
    return rl.plan([task] * count, strategy)


def test_what_has_no_gradient():
    for plan in (plan_of("float32", "signal"), plan_of("float32", count=2), "a plan"):
        with pytest.raises(rl.ReshardError, match=r"Plan of one task that delivers data, not "):
            reshard(plan, None)
    with pytest.raises(rl.ReshardError, match=r"a tensor of int32 has no gradient; use run_rank"):
        reshard(plan_of("int32"), None)
