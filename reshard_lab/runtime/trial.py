"""One plan on one device of a pool: the data it starts with, repeats of the run, the check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reshard_lab.boxes import Box, box_shape, box_text
from reshard_lab.errors import ReshardError, check_int, need, short
from reshard_lab.planning import Plan
from reshard_lab.runtime import oracle
from reshard_lab.runtime.arrays import bytes_of
from reshard_lab.runtime.calls import Deadline
from reshard_lab.runtime.context import devices_of, resolve_rank
from reshard_lab.runtime.measure import cpu_ticks
from reshard_lab.runtime.program import Observer
from reshard_lab.runtime.rank import plan_group, run_rank

_SEED_STEP = 7919  # tensors of one plan hold different data


class Repeats(NamedTuple):
    """How often a plan is to be carried out, and on which data."""

    repeats: int
    """That are timed."""
    warmup: int
    timeout_s: float
    """Deadline of each."""
    seed: int


def check_run(
    plan: object, repeats: object, warmup: object, timeout_s: Any, seed: object
) -> Repeats:
    """What ``run`` was given, wherever that is; raises ReshardError for what cannot be run."""
    if not isinstance(plan, Plan):
        raise ReshardError(f"plan must be a Plan, as reshard_lab.plan returns, not {short(plan)}")
    return Repeats(
        check_int("repeats", repeats, 1),
        check_int("warmup", warmup),
        Deadline(timeout_s).timeout_s,
        check_int("seed", seed),
    )


class Trial:
    """A plan that this device carries out again and again, on the default process group."""

    def __init__(
        self,
        plan: Plan,
        device: int,
        ranks: Mapping[int, int],
        seed: int,
        timeout_s: float,
        observe: Observer | None = None,
        carrier: str | None = None,
    ) -> None:
        self.plan, self.device, self.ranks = plan, device, ranks
        self.timeout_s, self.observe, self.carrier = timeout_s, observe, carrier
        context = resolve_rank(plan, None, ranks, carrier)
        self.on, self.how = context.on, context.carrier
        self.seeds = [seed + _SEED_STEP * number for number in range(len(plan.tasks))]
        self.boxes = [t.dst.boxes(t.shape).get(device) for t in plan.tasks]
        held = [t.src.boxes(t.shape).get(device) for t in plan.tasks]
        self.source = [self._empty(number, box) for number, box in enumerate(held)]
        self.target = [self._empty(number, box) for number, box in enumerate(self.boxes)]
        for number, (task, box) in enumerate(zip(plan.tasks, held, strict=True)):
            if box is not None:
                made = oracle.pattern(task.shape, task.dtype, box, self.seeds[number])
                torch = need("torch", "run", "running a plan on processes")
                bytes_of(self.source[number]).copy_(torch.from_numpy(made))
        self.group = plan_group(plan, context, Deadline(timeout_s))

    def repeat(self) -> tuple[float, list[int] | None]:
        """Seconds from the barrier to the end of this device's part; the result is checked.

        Also what the CPU did meanwhile, as seen by the last device, which in a chain works until
        the end.
        """
        for tensor in self.target:
            if tensor is not None:
                bytes_of(tensor).fill_(oracle.POISON)
        last = self.device == devices_of(self.plan)[-1]
        self.group.meet(b"barrier", Deadline(self.timeout_s))
        elapsed = _stopwatch(self.on)
        before = cpu_ticks() if last else None
        run_rank(
            self.plan,
            self.source,
            ranks=self.ranks,
            out=self.target,
            timeout_s=self.timeout_s,
            observe=self.observe,
            carrier=self.carrier,
        )
        lasted = elapsed()
        after = cpu_ticks() if last else None
        if self.plan.delivers:
            self.check()
        if before is None or after is None:
            return lasted, None
        return lasted, [b - a for a, b in zip(before, after, strict=True)]

    def check(self) -> None:
        """Compare every byte that this device was brought; raises ReshardError."""
        for number, (task, box) in enumerate(zip(self.plan.tasks, self.boxes, strict=True)):
            if box is None:
                continue
            found = bytes_of(self.target[number]).cpu().numpy()
            wrong = oracle.first_wrong(task.shape, task.dtype, box, self.seeds[number], found)
            if wrong is not None:
                raise ReshardError(
                    f"device {self.device} holds wrong bytes in its destination piece "
                    f"{box_text(box)} of tensor {number} ({task.dtype}, shape {task.shape}): "
                    f"element {wrong.element} is 0x{wrong.found}, expected 0x{wrong.expected}"
                )

    def _empty(self, number: int, box: Box | None) -> Any:
        torch = need("torch", "run", "running a plan on processes")
        if box is None:
            return None
        dtype = getattr(torch, self.plan.tasks[number].dtype)
        return torch.empty(box_shape(box), dtype=dtype, device=self.on)


def _stopwatch(on: Any) -> Callable[[], float]:
    """Started now; gives the seconds until it is called: those of the GPU where the pieces are."""
    if on.type != "cuda":
        start = time.perf_counter()
        return lambda: time.perf_counter() - start
    cuda = need("torch", "run", "running a plan on processes").cuda
    cuda.synchronize(on)
    first, second = (cuda.Event(enable_timing=True) for _ in range(2))
    first.record()

    def elapsed() -> float:
        second.record()
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3

    return elapsed
