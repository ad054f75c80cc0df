"""Predict, then reveal: exercises whose answers the library works out when they are checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

REVEAL = "reveal"


@dataclass(frozen=True, repr=False)
class Verdict:
    """What a check says; ``right`` is None while there is nothing to check."""

    text: str
    right: bool | None

    def __repr__(self) -> str:
        return self.text


def predict(prediction: Any | EllipsisType, answer: Callable[[], Any]) -> Verdict:
    """Check ``prediction`` against what ``answer()`` gives; ``...`` stands for none yet.

    A wrong prediction is not told the answer; the prediction ``"reveal"`` is.

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
    truth = answer()
    truth = truth.item() if hasattr(truth, "item") else truth
    if isinstance(prediction, str) and prediction == REVEAL:
        return Verdict(f"the answer is {truth!r}", None)
    # Lists and tuples of the same things say the same; booleans are not numbers here.
    if _plain(prediction) == _plain(truth):
        return Verdict(f"right: {truth!r}", True)
    return Verdict(f'{prediction!r} is not it: think again, or "reveal"', False)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, bool):
        return str(value)
    return value
