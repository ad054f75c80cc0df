"""How fast boxes are packed and unpacked on a GPU, as a share of a plain copy on it (CuPy)."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from reshard_lab.runtime.arrays import cupy_missing, pack, unpack

SHAPE = (64, 1024, 1024)
"""Of the piece, in float32: 256 MiB."""
BOXES = {
    "half of the first dimension": ((0, 32), (0, 1024), (0, 1024)),
    "half of the second dimension": ((0, 64), (0, 512), (0, 1024)),
    "half of the last dimension": ((0, 64), (0, 1024), (0, 512)),
    "a sixteenth of the last dimension": ((0, 64), (0, 1024), (0, 64)),
}
REPEATS = 20


def seconds(cupy: Any, work: Callable[[], object]) -> float:
    """Median time of ``work`` on the GPU."""
    work()
    times = []
    for _ in range(REPEATS):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return statistics.median(times)


def main() -> int:
    """Print the figures, or why there are none."""
    reason = cupy_missing()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    import cupy

    piece = tuple((0, n) for n in SHAPE)
    array = cupy.zeros(SHAPE, "float32")
    target = cupy.empty_like(array)
    copied = 2 * array.nbytes / seconds(cupy, lambda: cupy.copyto(target, array))
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}: a copy reads and writes {copied / 1e9:.0f} GB/s")
    for what, box in BOXES.items():
        flat = pack(array, piece, box)
        shares = [
            2 * flat.nbytes / seconds(cupy, work) / copied
            for work in (
                lambda box=box: pack(array, piece, box),
                lambda box=box, flat=flat: unpack(target, piece, box, flat),
            )
        ]
        print(f"  {what}: pack {shares[0]:.0%}, unpack {shares[1]:.0%} of that")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
