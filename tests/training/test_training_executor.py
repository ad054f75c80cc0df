"""The order of ops and transfers in a step, with nothing to compute and no other device."""

import threading

import pytest

import reshard_lab as rl
from reshard_lab.pipelining import ops
from reshard_lab.pipelining.graph import build
from reshard_lab.pipelining.loads import BoundaryTensor, Load
from reshard_lab.runtime.calls import Deadline, LateError, Stopped
from reshard_lab.training.compute import StepTensors
from reshard_lab.training.config import TensorKey
from reshard_lab.training.executor import execute


def graph_of(schedule, overlap, ends=((0, 1),)):
    none = Load(0.0)
    compute = {(kind, chunk): none for kind in "FBIW" for chunk in range(3)}
    tensors = [BoundaryTensor(a, b) for a, b in ends]
    transfers = [(none, none)] * len(tensors)
    return build(ops.check(schedule), compute, tensors, transfers, overlap)


def name(graph, item):
    """``"F0"``, or ``"F0 0>1"`` for the transfer of its result."""
    target, text = graph.targets[item], graph.ops[item].text()
    return text if target < 0 else f"{text} {graph.stages[item]}>{target}"


def executed(schedule, stage, overlap, ends=((0, 1),)):
    """``{thread: items}`` as they are carried out by ``stage``."""
    graph, done = graph_of(schedule, overlap, ends), {}

    def note(item):
        done.setdefault(threading.current_thread(), []).append(name(graph, item))

    execute(graph, stage, overlap, StepTensors(Deadline(10)), note, note)
    return done


TWO = rl.pipeline.schedule("1f1b", stages=2, microbatches=2)
BLOCKING = [
    ["F0", "F0 0>1", "F1", "F1 0>1", "B0 1>0", "B0", "B1 1>0", "B1"],
    ["F0 0>1", "F0", "F1 0>1", "B0", "B0 1>0", "F1", "B1", "B1 1>0"],
]


@pytest.mark.parametrize("stage", [0, 1])
def test_blocking_one_thread_does_all_in_the_global_order(stage):
    """Ticks of ops: stage 0 F0 0, F1 1, B0 3, B1 5; stage 1 F0 1, B0 2, F1 3, B1 4."""
    assert executed(TWO, stage, overlap=False) == {threading.current_thread(): BLOCKING[stage]}


def test_overlapped_every_link_has_a_thread_of_its_own():
    """Also that of a skip, in the order in which its stage makes the tensors."""
    three = rl.pipeline.schedule("gpipe", stages=3, microbatches=2)
    done = executed(three, 0, overlap=True, ends=((0, 1), (1, 2), (0, 2)))
    assert done.pop(threading.current_thread()) == ["F0", "F1", "B0", "B1"]
    assert sorted(done.values()) == [
        ["B0 1>0", "B1 1>0"],
        ["B0 2>0", "B1 2>0"],
        ["F0 0>1", "F1 0>1"],
        ["F0 0>2", "F1 0>2"],
    ]


def test_overlapped_ops_do_not_wait_for_what_they_send():
    """All transfers are stuck until the last op is over."""
    graph, done, over = graph_of(TWO, overlap=True), [], threading.Event()

    def compute(item):
        done.append(name(graph, item))
        if done[-1] == "B1":
            over.set()

    def carry(item):
        assert over.wait(10)
        done.append(name(graph, item))

    execute(graph, 0, True, StepTensors(Deadline(10)), compute, carry)
    assert done[:4] == ["F0", "F1", "B0", "B1"] and len(done) == 8


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("fails", ["F1", "F1 0>1"])
def test_the_first_error_ends_the_step(overlap, fails):
    """Nobody waits for a tensor that will not come any more."""
    graph, tensors = graph_of(TWO, overlap), StepTensors(Deadline(30))

    def work(item):
        if name(graph, item) == fails:
            raise KeyError("a mishap")
        if name(graph, item).startswith("B0"):
            tensors.take(TensorKey(0, False, 0), "a tensor that nobody makes")

    with pytest.raises(KeyError, match="a mishap"):
        execute(graph, 0, overlap, tensors, work, work)


def test_transfers_that_do_not_end():
    graph = graph_of(TWO, overlap=True)
    tensors, stuck = StepTensors(Deadline(0.2)), threading.Event()
    with pytest.raises(LateError, match=r"the transfers of stage 0 were not over within 0.2 s"):
        execute(graph, 0, True, tensors, lambda item: None, lambda item: stuck.wait(10))
    stuck.set()


def test_tensors_are_put_once_and_taken_once():
    tensors = StepTensors(Deadline(0.1))
    key, other = TensorKey(0, True, 1), TensorKey(0, False, 1)
    tensors.put(key, "tensor")
    assert tensors.take(key, "it") == "tensor"
    with pytest.raises(LateError, match=r"it did not come within 0\.1 s"):
        tensors.take(key, "it")  # what is taken is gone
    with pytest.raises(LateError, match=r"activation 0>1 did not come within 0.1 s"):
        tensors.take(other, "activation 0>1")
    tensors.fail(KeyError(1))
    tensors.fail(KeyError(2))
    with pytest.raises(Stopped):
        tensors.take(key, "it")
    assert tensors.error.args == (1,)
