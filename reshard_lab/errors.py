"""The one error class of the package."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


class ReshardError(ValueError):
    """Raised for every mistake in what a caller gave.

    The message says what was given, what is allowed and how to fix it.
    """


def choose(what: str, given: object, allowed: Iterable[str]) -> str:
    """Return ``given`` if it is one of ``allowed``, else raise with the nearest name.

    >>> choose("strategy", "broadcast", ("broadcast", "send_recv"))
    'broadcast'
    """
    names = tuple(allowed)
    if isinstance(given, str) and given in names:
        return given
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ReshardError(f"unknown {what} {given!r}; allowed are {', '.join(names)}{hint}")


def whole(what: str, given: object, least: int = 0, most: int | None = None) -> int:
    """Return ``given`` as an int from ``least`` to ``most``; bools and floats are refused."""
    try:
        if isinstance(given, bool):
            raise TypeError
        value = given.__index__()  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise ReshardError(f"{what} must be a whole number, not {given!r}") from None
    if value < least:
        raise ReshardError(f"{what} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ReshardError(f"{what} must be at most {most}, not {value}")
    return int(value)


def write_text(what: str, path: str | Path, text: str) -> Path:
    """Write ``text`` to ``path``, as UTF-8; if it cannot be written the error names ``what``."""
    target = Path(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReshardError(
            f"cannot write {what} {str(path)!r}: {error.strerror}; give a file in a folder that "
            "exists and can be written to"
        ) from None
    return target


def need(module: str, extra: str, what: str) -> ModuleType:
    """Import ``module`` for ``what``; its absence is an error that names the extra to install.

    >>> need("math", "notebooks", "a figure").floor(2.5)
    2
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise ReshardError(
            f"{what} needs {error.name}, which is not installed; "
            f"install it with: pip install 'reshard-lab[{extra}]'"
        ) from None
