"""Sentences below a picture, in lines that fit its width."""

from __future__ import annotations

from reshard_lab.plots import svg

_LINE = 15.0


def note(x: float, y: float, words: str, width: float, size: float = 10) -> tuple[list[str], float]:
    """``words`` in lines of at most ``width`` pixels from (x, y) down, and where they end."""
    parts = []
    for line in wrapped(words, width, size):
        y += _LINE
        parts.append(svg.label(x, y, line, size, font_style="italic"))
    return parts, y


def wrapped(words: str, width: float, size: float) -> list[str]:
    """``words`` in lines of at most ``width`` pixels, where a single word is not longer.

    >>> wrapped("one two three", 60, 10)
    ['one two', 'three']
    """
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else ""
        if longer and svg.text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
