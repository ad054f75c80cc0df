"""Round numbers for axes."""

from __future__ import annotations

import math

_LEAST = 1e-300
"""Shorter axes have no ticks but 0: so small, numbers have too few digits for round ones."""


def round_steps(longest: float, most: int = 6) -> list[float]:
    """0 and the multiples of a round step up to ``longest``, at most ``most`` steps.

    >>> round_steps(57.4)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    >>> round_steps(0.3, 3)
    [0.0, 0.1, 0.2, 0.3]
    """
    if not _LEAST < longest < math.inf:
        return [0.0]
    power = math.floor(math.log10(longest / most))
    step, digits = next(
        (factor * 10.0**power, -power)
        for factor in (1, 2, 5, 10)
        if factor * 10.0**power * most >= longest * (1 - 1e-9)
    )
    count = int(longest / step * (1 + 1e-9))
    return [round(i * step, digits) for i in range(count + 1)]
