"""Predict, then reveal: exercises whose answers the library works out when they are checked."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from reshard_lab.errors import check_type, must_be, short

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


def predict(
    prediction: Any | EllipsisType,
    answer: Callable[[], Any],
    hint: str = "",
    within: float = _ROUNDING,
) -> Verdict:
    """Check ``prediction`` against what ``answer()`` gives; ``...`` stands for none yet.

    A wrong prediction is told the ``hint`` but not the answer; the prediction ``"reveal"`` is told
    that. A number is right when it is within ``within`` of the answer, as a share of the larger of
    the two. Where the answer is a set, any order is right.

    >>> predict(..., lambda: 2 + 2)
    your prediction goes in place of the dots; "reveal" shows the answer
    >>> predict(5, lambda: 2 + 2, hint="count them on your fingers")
    5 is not it. Count them on your fingers. ("reveal" shows the answer)
    >>> predict(4, lambda: 2 + 2)
    right: 4
    >>> predict("reveal", lambda: 2 + 2)
    the answer is 4
    >>> predict(1.33, lambda: 4 / 3, within=0.01)
    right: 1.333
    """
    check_type("hint", hint, str)
    if not (isinstance(within, float) and 0 <= within < 1):
        raise must_be("within", "a share, such as 0.01", within)
    if prediction is ...:
        return Verdict('your prediction goes in place of the dots; "reveal" shows the answer', None)
    truth = _plain(answer())
    if isinstance(prediction, str) and prediction.strip().lower() == REVEAL:
        return Verdict(f"the answer is {_words(truth)}", None)
    given = _plain(prediction)
    if _same(given, truth, within):
        return Verdict(f"right: {_words(truth)}", True)
    hint = (hint or "think again").rstrip(".")
    more = f"{hint[0].upper()}{hint[1:]}."
    return Verdict(f'{short(given)} is not it. {more} ("reveal" shows the answer)', False)


def _plain(value: Any) -> Any:
    """Arrays, columns and single numbers of numpy and pandas as Python's own."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return value.tolist() if hasattr(value, "tolist") else value


def _words(truth: Any) -> str:
    """The answer as it is shown: a float with the digits that say something."""
    return f"{truth:.4g}" if isinstance(truth, float) else repr(truth)


def _same(given: Any, truth: Any, share: float) -> bool:
    """Whether both say the same; lists and tuples do, booleans and numbers do not."""
    given, truth = _plain(given), _plain(truth)
    listed = isinstance(given, (list, tuple))
    if listed and isinstance(truth, (set, frozenset)):
        return len(given) == len(truth) and all(one in truth for one in given)
    if listed and isinstance(truth, (list, tuple)):
        return len(given) == len(truth) and all(
            _same(g, t, share) for g, t in zip(given, truth, strict=True)
        )
    if isinstance(given, dict) and isinstance(truth, dict):
        return given.keys() == truth.keys() and all(_same(given[k], truth[k], share) for k in truth)
    if isinstance(given, bool) or isinstance(truth, bool):
        return given is truth
    if isinstance(given, numbers.Real) and isinstance(truth, numbers.Real):
        try:
            return bool(given == truth) or math.isclose(given, truth, rel_tol=share)
        except OverflowError:  # a whole number beyond all floats
            return False
    # Only like is compared with like: there are things that say they equal everything.
    return type(given) is type(truth) and bool(given == truth)
