"""Predict, then reveal: exercises whose answers the library works out when they are checked."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from reshard_lab.errors import short

REVEAL = "reveal"
_ROUNDING = 1e-9
"""Numbers this close, relative to the larger, count as the same."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """What a check says; ``right`` is None while there is nothing to check."""

    text: str
    right: bool | None

    def __repr__(self) -> str:
        return self.text


def predict(prediction: Any | EllipsisType, answer: Callable[[], Any]) -> Verdict:
    """Check ``prediction`` against what ``answer()`` gives; ``...`` stands for none yet.

    A wrong prediction is not told the answer; the prediction ``"reveal"`` is. Numbers are right
    within rounding.

    >>> predict(..., lambda: 2 + 2)
    your prediction goes in place of the dots; "reveal" shows the answer
    >>> predict(5, lambda: 2 + 2)
    5 is not it: think again, or "reveal"
    >>> predict(4, lambda: 2 + 2)
    right: 4
    >>> predict("reveal", lambda: 2 + 2)
    the answer is 4
    """
    if prediction is ...:
        return Verdict('your prediction goes in place of the dots; "reveal" shows the answer', None)
    truth = _plain(answer())
    if isinstance(prediction, str) and prediction == REVEAL:
        return Verdict(f"the answer is {truth!r}", None)
    given = _plain(prediction)
    if _same(given, truth):
        return Verdict(f"right: {truth!r}", True)
    return Verdict(f'{short(given)} is not it: think again, or "reveal"', False)


def _plain(value: Any) -> Any:
    """Arrays, columns and single numbers of numpy and pandas as Python's own."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return value.tolist() if hasattr(value, "tolist") else value


def _close(given: Any, truth: Any) -> bool:
    try:
        return math.isclose(given, truth, rel_tol=_ROUNDING)
    except OverflowError:  # a whole number beyond all floats
        return False


def _same(given: Any, truth: Any) -> bool:
    """Whether both say the same; lists and tuples do, booleans and numbers do not."""
    given, truth = _plain(given), _plain(truth)
    if isinstance(given, (list, tuple)) and isinstance(truth, (list, tuple)):
        return len(given) == len(truth) and all(map(_same, given, truth))
    if isinstance(given, dict) and isinstance(truth, dict):
        return given.keys() == truth.keys() and all(_same(given[k], truth[k]) for k in truth)
    if isinstance(given, bool) or isinstance(truth, bool):
        return given is truth
    if isinstance(given, numbers.Real) and isinstance(truth, numbers.Real):
        return bool(given == truth) or _close(given, truth)
    return bool(given == truth)
