"""Bad calls, and what the errors that refuse them say."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import reshard_lab as rl

Words = str | re.Pattern[str]
Refusal = tuple[Callable[[], Any], Words]


def says(text: str, words: Words) -> bool:
    """Whether ``text`` holds ``words``: a text, or a pattern to search for."""
    return words in text if isinstance(words, str) else words.search(text) is not None


def name_of(words: Words) -> str:
    """What a test of them is called."""
    return (words if isinstance(words, str) else words.pattern)[:80]


def check_refusal(call: Callable[[], Any], words: Words, longest: int = 600) -> None:
    """``call`` ends in a ReshardError that says ``words``."""
    with pytest.raises(rl.ReshardError) as refusal:
        call()
    text = str(refusal.value)
    assert says(text, words), f"{words!r} is not said by {text!r}"
    assert len(text) < longest


def bad_calls(table: dict[str, Iterable[Refusal]]) -> pytest.MarkDecorator:
    """A test of ``call`` and ``words`` for every refusal of ``table``, by what refuses."""
    rows = [
        pytest.param(call, words, id=f"{subject}: {name_of(words)}")
        for subject, refusals in table.items()
        for call, words in refusals
    ]
    return pytest.mark.parametrize(("call", "words"), rows)
