"""run_rank inside torch.distributed programs (tests/programs/runtime_ranks.py)."""

import threading

import pytest

from reshard_lab.runtime.calls import CallState, Deadline, Duplex, LateError, Stopped
from support import rank_programs
from support.random_tasks import traced_plans

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def results():
    """What every rank of every scenario returned; one program runs them all."""
    return rank_programs.results_of("runtime_ranks", 400)


@pytest.mark.distributed
@pytest.mark.parametrize(
    "name",
    [
        "mapping",
        "subgroup",
        "outsiders_do_not_call",
        "plans_on_different_devices",
        "devices_change_ranks",
        "several_tensors",
        "given_destination",
        "signal_moves_no_data",
        "chain_forwards_chunks",
        "chain_does_not_wait_for_its_middle",
    ],
)
def test_every_rank_has_what_it_should(results, name):
    assert results[name] and all(r is True for r in results[name]), results[name]


@pytest.mark.distributed
@pytest.mark.parametrize("name", ["one_plan_from_json", "asynchronous", "asynchronous_overlaps"])
def test_every_call_of_every_rank_is_right(results, name):
    assert results[name] and all(r and set(r) == {True} for r in results[name]), results[name]


@pytest.mark.distributed
def test_different_plans_are_refused_on_all_ranks(results):
    for text, good_afterwards in results["mismatch"]:
        assert "the ranks do not run the same plan: devices [0, 2, 3] run plan " in text
        assert "; devices [1] run plan " in text
        assert good_afterwards is True


@pytest.mark.distributed
def test_unfit_pieces_are_refused_before_anything_is_sent(results):
    for text, good_afterwards in results["unfit_pieces"]:
        assert "source piece of device" in text
        assert good_afterwards is True


@pytest.mark.distributed
def test_a_skipped_first_call_ends_by_the_deadline(results):
    *others, skipped = results["skipped_first_call"]
    assert skipped is None
    for text, seconds in others:
        assert "[0, 1, 2, 3] did not all come within 2 s" in text
        assert seconds < 10


@pytest.mark.distributed
def test_a_skipped_later_call_ends_by_the_deadline(results):
    first, second, skipped, last = results["skipped_later_call"]
    assert skipped == []
    for text, seconds, again, soon in (first, second, last):
        assert "transfer" in text or "device" in text
        assert seconds < 10
        assert "an earlier call on this group failed" in again and soon < 2
    assert any("within 2 s" in text for text, *_ in (first, second, last))


@pytest.mark.distributed
def test_a_dead_peer_is_noticed_by_the_deadline(results):
    outcomes = results["dead_peer"]
    assert outcomes[2] is None
    for rank in (0, 1, 3):
        assert "device" in outcomes[rank]["error"]
        assert outcomes[rank]["seconds"] < 20


@pytest.mark.distributed
def test_ranks_that_do_not_fit_the_plan(results):
    for outcome in results["world_too_small"]:
        assert "but the group has ranks 0 to 2, one a device" in outcome["error"]
    assert "rank 1 is no device of the plan; only ranks [0]" in results["not_a_device"][1]["error"]


def moments(plan, ranks):
    """``{(transfer, op, device): {messages done: moment}}``."""
    at = {}
    for device, trace in enumerate(ranks):
        for lane, step, done, moment in trace["events"] if trace else ():
            transfer = plan.programs[device][step].transfer
            at.setdefault((transfer, lane, device), {})[done] = moment
    return at


@pytest.mark.distributed
def test_things_happen_in_the_order_of_the_plan(results):
    """Delayed at random, every device still keeps lanes, ``after`` and chunks in order."""
    across = forwarded = 0
    for number, plan in enumerate(traced_plans()):
        ranks = [events[number] for events in results["traces"]]
        assert all(trace is None or trace["right"] for trace in ranks)
        at = moments(plan, ranks)
        for device, trace in enumerate(ranks):
            for lane in ("send", "recv"):
                mine = [e[1:3] for e in trace["events"] if e[0] == lane] if trace else []
                assert mine == sorted(mine), "a lane left program order"
            assert trace is None or {tuple(e[:3]) for e in trace["events"]} == {
                (s.op, i, n)
                for i, s in enumerate(plan.programs.get(device, ()))
                for n in range((plan.transfers[s.transfer].messages if s.op != "copy" else 1) + 1)
            }
        for t in plan.transfers:
            last = t.messages
            for other in t.after:
                a = plan.transfers[other]
                end = ("recv" if len(a.path) > 1 else "copy", a.path[-1])
                complete = max(at[other, *end].values())
                assert complete < at[t.id, "recv", t.path[1]][1]
                across += a.path[-1] != t.path[0]
            for device in t.path[1:-1]:
                taken, sent = at[t.id, "recv", device], at[t.id, "send", device]
                assert all(taken[n] < sent[n] for n in range(1, last + 1))
                forwarded += last > 1
    assert across > 20 and forwarded > 20


def test_the_threads_of_a_call_wake_in_time():
    state = CallState(Deadline(0.05))
    with pytest.raises(LateError, match=r"transfer 3 did not come within 0\.05 s"):
        state.until(lambda: False, "transfer 3")
    state = CallState(Deadline(5))
    stuck = threading.Event()

    def fail():
        state.fail(KeyError("first"))
        raise KeyError("second")

    with pytest.raises(KeyError, match="first"):
        state.run(lambda: state.until(lambda: False, "nothing"), fail, stuck.wait, late="")
    stuck.set()
    with pytest.raises(Stopped):
        state.until(lambda: True, "nothing")


class NamedWire:
    """A wire that tells what it was given."""

    def __init__(self, name):
        self.name = name

    def send(self, data, device):
        return self.name, "send", device

    def recv(self, into, device):
        return self.name, "recv", device

    def finish(self, work, deadline, what):
        return self.name


def test_two_ways_between_two_devices_are_two_connections():
    low, high = (Duplex(me, NamedWire("up"), NamedWire("down")) for me in (3, 7))
    assert low.send(None, 7) == ("up", "send", 7) and high.recv(None, 3) == ("up", "recv", 3)
    assert high.send(None, 3) == ("down", "send", 3) and low.recv(None, 7) == ("down", "recv", 7)
