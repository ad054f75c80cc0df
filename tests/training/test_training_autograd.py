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
    for rank, verdicts in enumerate(results["one_way"]):
        assert "crash" not in verdicts and "error" not in verdicts, verdicts
        assert len(verdicts) == 14
        assert all(right is True for right in verdicts.values()), (rank, verdicts)


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
    layouts = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1]), "R")
    plan = rl.plan(rl.ReshardingTask((4,), "float32", *layouts, rl.Cluster(2, 1)))
    reshard(plan, None).sum().backward()
    there, back = pieces
    assert there is None and back.shape == (4,) and back.device.type == "meta"
