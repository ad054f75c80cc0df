"""Axes: round steps along them, and where a time stands on the page."""

import math
from typing import Any, NamedTuple

from reshard_lab.errors import ReshardError, short
from reshard_lab.plots import svg
from reshard_lab.units import format_seconds

SIZE = 11
LEFT = 112.0
"""Least margin of pictures that may stand below each other, so that their times do too."""
_MOST_TICKS = 10
_SHORTEST = 1e-300
"""Shorter axes have no ticks but 0: so small, numbers have too few digits for round ones."""


def round_steps(longest: float, most: int = 6) -> list[float]:
    """0 and the multiples of a round step up to ``longest``, at most ``most`` steps.

    >>> round_steps(57.4)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    >>> round_steps(0.3, 3)
    [0.0, 0.1, 0.2, 0.3]
    """
    if not _SHORTEST < longest < math.inf:
        return [0.0]
    power = math.floor(math.log10(longest / most))
    step, digits = next(
        (factor * 10.0**power, -power)
        for factor in (1, 2, 5, 10)
        if factor * 10.0**power * most >= longest * (1 - 1e-9)
    )
    count = int(longest / step * (1 + 1e-9))
    return [round(i * step, digits) for i in range(count + 1)]


def instant(what: str, given: Any) -> float:
    """``given`` if it is a number of seconds that can stand on an axis."""
    try:
        fits = 0 <= given < math.inf
    except TypeError:
        fits = False
    if not fits:
        raise ReshardError(f"{what} must be a time of at least 0 s, not {short(given)}")
    return float(given)


class TimeScale(NamedTuple):
    """Seconds from 0 to ``longest_s`` over ``width`` pixels from ``left`` on."""

    left: float
    width: float
    longest_s: float

    def x(self, time_s: float) -> float:
        """Where ``time_s`` stands, in pixels."""
        return self.left + self.width * time_s / self.longest_s

    @property
    def right(self) -> float:
        """Where the axis ends, in pixels."""
        return self.left + self.width

    def axis(self, y: float) -> list[str]:
        """The axis below all rows, at ``y``, with ticks and its name; takes 38 pixels."""
        parts = [svg.line(self.left, y, self.right, y)]
        for time_s in round_steps(self.longest_s, _MOST_TICKS):
            x = self.x(time_s)
            parts.append(svg.line(x, y, x, y + 4))
            parts.append(svg.label(x, y + 17, format_seconds(time_s), SIZE, "middle"))
        return [*parts, svg.label(self.left + self.width / 2, y + 34, "time", SIZE, "middle")]

    def grid(self, top: float, bottom: float) -> list[str]:
        """Faint lines up from the ticks."""
        faint = {"stroke_width": 0.5, "stroke_opacity": 0.25}
        xs = [self.x(time_s) for time_s in round_steps(self.longest_s, _MOST_TICKS)[1:]]
        return [svg.line(x, top, x, bottom, **faint) for x in xs]
