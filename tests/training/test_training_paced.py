"""Paced compute, on one device: what it makes, what it lets pass, and what it does not."""

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.pipelining.ops import FORWARD, StageOp
from reshard_lab.runtime.calls import Deadline
from reshard_lab.training import Transformer
from reshard_lab.training.compute import PacedCompute, StepTensors
from reshard_lab.training.config import StageRank, TensorKey
from support.training_jobs import two_by_two

torch = pytest.importorskip("torch")
SIZES = Transformer(blocks=2, hidden=16, heads=2, sequence=6)


def paced(device, delivers=True):
    compute = PacedCompute(StageRank.of(two_by_two(), device), delivers)
    compute.begin(Deadline(5))
    return compute


def ran(device, kind, microbatch, arrived=None, delivers=True):
    """What leaves, when ``given`` has come."""
    tensors = StepTensors(Deadline(0.1))
    for key, tensor in (arrived or {}).items():
        tensors.put(key, tensor)
    return paced(device, delivers).run(StageOp(kind, microbatch, 0), tensors, lambda: None)


def whole(microbatch):
    """The tensor that stage 0 makes, put together from what its two devices make."""
    key = TensorKey(0, True, microbatch)
    return torch.cat([ran(device, FORWARD, microbatch)[key] for device in (0, 1)]), key


def test_every_element_says_where_it_stands():
    """Neighbours differ by one, in the order of the whole tensor; tensors by their number."""
    (first, _), (second, _) = whole(0), whole(1)
    assert first.shape == (4, 6, 16)
    steps = np.diff(first.reshape(-1).numpy())
    assert (steps == 1).all() and (second - first).unique().tolist() == [1.0]


def test_what_has_come_whole_passes():
    tensor, key = whole(1)
    for device, part in ((2, slice(0, 3)), (3, slice(3, 6))):
        (back,) = ran(device, FORWARD, 1, {key: tensor[:, part].clone()}) or ({},)
        assert not back  # the last piece sends nothing on


@pytest.mark.parametrize(
    ("what", "spoil"),
    [
        ("another place of the same tensor", lambda t, other: t.roll(1, 0)),
        ("a neighbour", lambda t, other: t.roll(1, 2)),
        ("the rest of the sequence", lambda t, other: t.roll(3, 1)),
        ("another microbatch", lambda t, other: other),
        ("nothing at all", lambda t, other: t * 0),
        ("a last element that is missing", lambda t, other: t.index_fill(2, torch.tensor(15), 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_went_astray_does_not(what, spoil):
    (tensor, key), (other, _) = whole(1), whole(0)
    arrived = {key: spoil(tensor, other)[:, :3].clone()}
    text = r"stage 1, F1: tensor 0>1 did not come whole: element \d+ of its box is \d+, not \d+"
    with pytest.raises(rl.ReshardError, match=text):
        ran(2, FORWARD, 1, arrived)
    ran(2, FORWARD, 1, arrived, delivers=False)  # under signal nothing is delivered
