"""How every method looks in bar charts: one colour and hatch in all figures."""

from __future__ import annotations

from typing import NamedTuple

from reshard_lab.plots.svg import COLORS

_ORANGE, _SKY, _GREEN, _YELLOW, _BLUE, _VERMILION, _PINK = COLORS


class Look(NamedTuple):
    """Fill of a bar: a colour, and matplotlib's name of the hatch over it."""

    color: str
    hatch: str


METHODS = {
    # the paper's
    "send_recv": Look(_ORANGE, ""),
    "local_allgather": Look(_YELLOW, "xx"),
    "global_allgather": Look(_PINK, ".."),
    "alpa": Look(_SKY, "//"),
    "broadcast": Look(_GREEN, "\\\\"),
    "naive": Look(_PINK, ""),
    "load_balance": Look(_ORANGE, "//"),
    "ensemble": Look(_GREEN, "\\\\"),  # the same plans as "broadcast"
    "overlap": Look(_SKY, "xx"),
    "eager_1f1b": Look(_PINK, "//"),
    "ours": Look(_BLUE, "oo"),
    "signal": Look(_YELLOW, "--"),
    # further ones
    "auto": Look(_VERMILION, "--"),
    "split": Look(_YELLOW, ".."),
    "concurrent": Look(_BLUE, "++"),
}
"""By name of the method; within a figure of the paper no two share a colour, or a hatch."""


def look(method: str, position: int) -> Look:
    """How ``method`` looks; a series that is no method takes the look of its ``position``."""
    return METHODS.get(method, _SERIES[position % len(_SERIES)])


_SERIES = tuple(map(Look, COLORS, ("", "//", "\\\\", "xx", "..", "--", "++")))
