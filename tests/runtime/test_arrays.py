"""Packing, handing over and in-memory execution with arrays of every library that is here."""

import importlib.util
import random

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab.runtime import arrays
from support.random_tasks import random_plan

NO_CUPY = arrays.cupy_missing()
LIBRARIES = [
    "numpy",
    pytest.param(
        "torch",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("torch") is None, reason="torch is not installed"
        ),
    ),
    pytest.param("cupy", marks=pytest.mark.skipif(NO_CUPY is not None, reason=str(NO_CUPY))),
]


def made(library, array):
    """``array`` as one of ``library``."""
    if library == "numpy":
        return array
    if library == "torch":
        return __import__("torch").from_numpy(array.copy())
    return __import__("cupy").asarray(array)


def back(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


def random_boxes(seed):
    """A piece somewhere in a tensor, and a box in it."""
    rng = random.Random(seed)
    piece, box = [], []
    for _ in range(rng.randrange(0, 5)):
        lo = rng.randrange(4)
        hi = lo + rng.randrange(1, 6)
        piece.append((lo, hi))
        a = rng.randrange(lo, hi)
        box.append((a, rng.randrange(a + 1, hi + 1)))
    return tuple(piece), tuple(box)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_packed_is_the_box_and_unpacks_into_its_place_alone(library, seed):
    piece, box = random_boxes(seed)
    shape = [hi - lo for lo, hi in piece]
    values = np.arange(np.prod(shape, dtype=int), dtype="int32").reshape(shape)
    inside = np.zeros(shape, bool)
    inside[tuple(slice(a - lo, b - lo) for (a, b), (lo, _) in zip(box, piece, strict=True))] = True
    flat = arrays.pack(made(library, values), piece, box)
    assert back(flat).tolist() == values[inside].tolist()
    target = made(library, np.full(shape, -1, "int32"))
    arrays.unpack(target, piece, box, flat)
    assert (back(target) == np.where(inside, values, -1)).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_new_arrays_are_of_the_same_library_and_type(library):
    like = made(library, np.zeros((2, 3), "float32"))
    fresh = arrays.new(like, (4, 0, 1), "float32")
    assert type(fresh) is type(like)
    assert tuple(fresh.shape) == (4, 0, 1) and fresh.dtype == like.dtype


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_plans_are_executed_with_arrays_of_every_library(library, seed):
    plan = random_plan(seed)
    sources, expected = [], []
    for number, task in enumerate(plan.tasks):
        dtype = "int64" if task.dtype == "int64" else "int16"
        whole = np.arange(np.prod(task.shape, dtype=int), dtype=dtype).reshape(task.shape) + number
        sources.append((task, whole))
    tasks = [rl.ReshardingTask(t.shape, w.dtype, t.src, t.dst, t.cluster) for t, w in sources]
    plan = rl.plan(tasks, plan.strategy, chunks=plan.chunks)

    def pieces(layout, whole):
        return {
            d: whole[tuple(slice(lo, hi) for lo, hi in box)]
            for d, box in layout.boxes(whole.shape).items()
        }

    held = [{d: made(library, part) for d, part in pieces(t.src, w).items()} for t, w in sources]
    expected = [pieces(t.dst, w) for t, w in sources]
    for out, right in zip(rl.execute(plan, held), expected, strict=True):
        assert out.keys() == right.keys()
        for device, part in right.items():
            assert (back(out[device]) == part).all()


@pytest.mark.skipif(NO_CUPY is not None, reason=str(NO_CUPY))
def test_torch_and_cupy_share_memory():
    cupy = pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    array = cupy.arange(6).reshape(2, 3)
    tensor = arrays.to_torch(array)
    tensor[1, 2] = 70
    assert int(array[1, 2]) == 70 and tensor.data_ptr() == array.data.ptr
    assert arrays.to_cupy(torch.ones(3, device="cuda")).sum() == 3


def test_torch_shares_the_memory_of_numpy():
    pytest.importorskip("torch")
    array = np.arange(6).reshape(2, 3)
    arrays.to_torch(array)[1, 2] = 70
    assert array[1, 2] == 70


def test_without_cupy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(rl.ReshardError, match=r"exchange with CuPy needs cupy.*reshard-lab\[gpu\]"):
        arrays.to_cupy(np.zeros(1))
