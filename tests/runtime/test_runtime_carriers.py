"""run_rank with the carriers made for NCCL, on gloo (tests/programs/carrier_ranks.py)."""

import re

import pytest

from support import rank_programs

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def results():
    """What every rank of every scenario returned; one program runs them all."""
    return rank_programs.results_of("carrier_ranks", 400)


@pytest.mark.distributed
def test_random_plans_deliver_by_broadcasts_and_by_chains(results):
    assert results["random_plans"] == [[True, True]] * 8


@pytest.mark.distributed
def test_process_groups_are_made_once_and_kept(results):
    assert results["groups_are_kept"] == [[True, 2, 2]] * 4


@pytest.mark.distributed
def test_calls_under_way_at_once_keep_their_order(results):
    assert results["asynchronous"] == [[True] * 3] * 4


@pytest.mark.distributed
def test_a_signal_is_carried(results):
    assert results["signal"] == [True] * 4


@pytest.mark.distributed
def test_a_plan_on_some_of_the_ranks_has_to_be_prepared(results):
    *devices, outside = results["unprepared"]
    assert outside is None
    for said in devices:
        assert re.search(r"only 4 of 5 ranks; .*prepare\(plan, \.\.\.\) on all", said["error"])


@pytest.mark.distributed
def test_a_rank_that_does_not_come_is_noticed_at_the_deadline(results):
    late = results["late"][:2]
    for root, said in enumerate(late):
        text = (
            rf"device {root}: broadcast of transfer {root} {root} -> 2 -> 3 .*: not done within 1 s"
        )
        assert re.search(text, said["error"]) and said["seconds"] < 4
