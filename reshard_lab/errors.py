"""The one error class of the package."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np

T = TypeVar("T")
_LONGEST = 80


class ReshardError(ValueError):
    """Raised for every mistake in what a caller gave.

    The message says what was given, what is allowed and how to fix it.
    """


def short(given: object) -> str:
    """``repr`` of what was given, as errors repeat it: in one line of bounded length.

    >>> short("S0R"), len(short("R" * 1000))
    ("'S0R'", 80)
    """
    try:
        text = " ".join(repr(given).split())
    except Exception:  # whatever it is, the error about it is the one to tell
        text = f"<{type(given).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 13]} ... {text[-8:]}"


def check_choice(what: str, given: object, allowed: Iterable[str]) -> str:
    """Return ``given`` if it is one of ``allowed``, else raise with the nearest name.

    >>> check_choice("strategy", "broadcast", ("broadcast", "send_recv"))
    'broadcast'
    """
    names = tuple(allowed)
    if isinstance(given, str) and given in names:
        return given
    near = difflib.get_close_matches(short(given).strip("'"), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ReshardError(f"unknown {what} {short(given)}; allowed are {', '.join(names)}{hint}")


def check_int(what: str, given: object, least: int = 0, most: int | None = None) -> int:
    """Return ``given`` as an int from ``least`` to ``most``; bools and floats are refused."""
    try:
        if isinstance(given, bool):
            raise TypeError
        value = given.__index__()  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise ReshardError(f"{what} must be a whole number, not {short(given)}") from None
    if value < least:
        raise ReshardError(f"{what} must be at least {least}, not {short(value)}")
    if most is not None and value > most:
        raise ReshardError(f"{what} must be at most {most}, not {short(value)}")
    return int(value)


def check_bool(what: str, given: object) -> bool:
    """Return ``given`` if it is True or False; a text such as ``"no"`` would count as true.

    >>> check_bool("overlap", False)
    False
    """
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    raise ReshardError(f"{what} must be True or False, not {short(given)}")


def check_type(what: str, given: T, kind: type, how: str = "") -> T:
    """Return ``given`` if it is a ``kind``; ``how`` says where one comes from.

    >>> check_type("shape", (2, 2), tuple)
    (2, 2)
    """
    if isinstance(given, kind):
        return given
    hint = f"; {how}" if how else ""
    raise ReshardError(f"{what} must be a {kind.__name__}, not {short(given)}{hint}")


def file_path(what: str, given: object) -> Path:
    """``given`` as the path of a file or folder that can be written, by its name at least."""
    try:
        path = os.fspath(given)  # type: ignore[call-overload]
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise ReshardError(f"{what} must be the name of a file or folder, not {short(given)}")
    return Path(path)


def write_text(what: str, path: str | Path, text: str) -> Path:
    """Write ``text`` to ``path``, as UTF-8; if it cannot be written the error names ``what``."""
    target = file_path(f"{what} to write", path)
    try:
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ReshardError(
            f"cannot write {what} {str(target)!r}: {error.strerror}; give a file in a folder that "
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
