"""How many messages a device has under way at once: no more than 128, whatever the plan."""

import threading
from collections import Counter, deque
from types import SimpleNamespace

import pytest

import reshard_lab as rl
from reshard_lab.runtime.arrays import check_pieces
from reshard_lab.runtime.calls import Control, Deadline
from reshard_lab.runtime.lanes import LaneCall, Tokens, TransferState
from reshard_lab.runtime.program import Compiler, PieceMemory

torch = pytest.importorskip("torch")
EACH_WAY, WORDS = 48, 32  # 2 x 48 + 32 = 128


class Wire:
    """Stands for the connections of one device: all that is posted is done when it is waited for.

    ``words`` are what comes from each device.
    """

    def __init__(self, words=()):
        self.under_way, self.most, self.done = Counter(), Counter(), Counter()
        self.words = {device: deque() for device, _ in words}
        for device, transfer in words:
            self.words[device].append(transfer)
        self.lock = threading.Lock()

    def _post(self, way, device, fill=lambda: None):
        with self.lock:
            for key in (way, (way, device)):
                self.under_way[key] += 1
                self.most[key] = max(self.most[key], self.under_way[key])
        return way, device, fill

    def send(self, data, device):
        return self._post("send", device)

    def recv(self, into, device):
        if device not in self.words:
            return self._post("recv", device)
        word = torch.tensor([1, self.words[device].popleft()])
        return self._post("recv", device, lambda: into.copy_(word))

    def finish(self, work, deadline, what):
        way, device, fill = work
        fill()
        with self.lock:
            self.under_way.subtract((way, (way, device)))
            self.done[way] += 1


def carried(plan, device, piece):
    """What ``device`` had under way while it carried out its part."""
    wire = Wire()
    memory = PieceMemory(check_pieces(plan, device, piece, None))
    control = SimpleNamespace(torch=torch, me=device, wire=Wire())
    program = Compiler(plan).compile(device)
    LaneCall(program, memory, wire, control, 1, Deadline(20), lambda *_: None).run()
    assert not +wire.under_way
    return wire


def test_a_chain_of_many_chunks():
    """In the middle device as many come in as go out."""
    cluster = rl.Cluster(hosts=3, devices_per_host=1)
    layouts = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([1, 2]), "R")
    plan = rl.plan(rl.ReshardingTask((1000,), "int8", *layouts, cluster), chunks=500)
    (chain,) = plan.transfers
    assert chain.messages == 500
    for device, ways in zip(chain.path, (["send"], ["recv", "send"], ["recv"]), strict=True):
        piece = torch.zeros(1000, dtype=torch.int8) if device == 0 else None
        wire = carried(plan, device, piece)
        assert wire.done == dict.fromkeys(ways, 500)
        assert {way: wire.most[way] for way in ways} == dict.fromkeys(ways, EACH_WAY)


@pytest.mark.parametrize(
    ("src", "dst", "shape"), [("S0R", "RS0", (8, 64)), ("RS0", "S0R", (64, 8))]
)
def test_a_plan_without_an_order_shares_them_among_its_lanes(src, dst, shape):
    """Seven lanes each way, 16 messages in each. They need not be at work at once: so by lane.

    What is cut out of rows, or put into them, is staged, and bounded by that already.
    """
    cluster = rl.Cluster(hosts=8, devices_per_host=1)
    mesh = cluster.mesh(8)
    layouts = rl.Layout(mesh, src), rl.Layout(mesh, dst)
    task = rl.ReshardingTask((64, 64), "int8", *layouts, cluster)
    plan = rl.plan(task, scheduler="concurrent", chunks=16)
    assert not plan.ordered
    wire = carried(plan, 3, torch.zeros(shape, dtype=torch.int8))
    assert wire.done["send"] == wire.done["recv"] > 2 * EACH_WAY
    for way in ("send", "recv"):
        lanes = [wire.most[way, device] for device in range(8) if device != 3]
        assert min(lanes) > 1 and sum(lanes) <= EACH_WAY


def test_words_of_other_devices():
    awaited = [(1 + n % 3, n) for n in range(100)]
    wire = Wire(awaited)
    control = SimpleNamespace(torch=torch, me=0, wire=wire)
    tokens = Tokens(control, SimpleNamespace(awaited=awaited), 1, TransferState(Deadline(5)))
    tokens.begin()
    for device, transfer in awaited:
        tokens.wait(device, transfer)
    assert wire.done["recv"] == 100 and wire.most["recv"] == WORDS


def test_a_meeting_of_many():
    devices = tuple(range(100))
    control = Control(Group(), devices, 0)
    control.wire = Wire()
    control.meet(b"here", Deadline(5))
    assert control.wire.done == {"recv": 99, "send": 99}
    assert control.wire.most["recv"] == control.wire.most["send"] == WORDS


class Group:
    """A process group that nobody talks on."""
