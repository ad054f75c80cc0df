"""The one error class of the package, and the checks of what callers give, which word it.

A check returns the value it was given, in its proper type. ``what`` is how messages call it.
"""

import difflib
import importlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
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


def must_be(what: str, expected: str, given: object) -> ReshardError:
    """The error about a value that is not what was ``expected``.

    >>> must_be("shape", "a sequence of sizes such as (4, 4)", "4x4")
    ReshardError("shape must be a sequence of sizes such as (4, 4), not '4x4'")
    """
    return ReshardError(f"{what} must be {expected}, not {short(given)}")


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
        raise must_be(what, "a whole number", given) from None
    if value < least:
        raise must_be(what, f"at least {least}", value)
    if most is not None and value > most:
        raise must_be(what, f"at most {most}", value)
    return int(value)


def check_number(
    what: str,
    given: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float = -math.inf,
    finite: bool = True,
    expected: str = "",
) -> float:
    """Return ``given`` as a float from ``least`` to ``most`` and more than ``above``.

    NaN, bools and texts are refused, and infinity unless ``finite`` is False. ``expected``: what
    the message says it must be, whichever limit it breaks.

    >>> check_number("share", 1, 0, 1)
    1.0
    """
    try:
        if isinstance(given, (bool, np.bool_, str)):
            raise TypeError
        value = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise must_be(what, expected or "a number", given) from None
    if math.isnan(value) or value < least or value <= above > -math.inf:
        limit = f"more than {above:g}" if above > -math.inf else f"at least {least:g}"
        raise must_be(what, expected or limit.replace("at least -inf", "a number"), given)
    if value > most:
        raise must_be(what, expected or f"at most {most:g}", given)
    if finite and math.isinf(value):
        raise must_be(what, expected or "finite", given)
    return value


def check_each(what: str, given: object, count: int, unit: str, owner: str) -> list[object]:
    """The entries of a list, one for each ``unit`` of ``owner``; or one value, for all of them.

    >>> check_each("nic", "1Gbps", 2, "host", "the cluster")
    ['1Gbps', '1Gbps']
    >>> check_each("nic", ["1Gbps", "2Gbps"], 3, "host", "the cluster")
    Traceback (most recent call last):
    reshard_lab.errors.ReshardError: nic has 2 entries, but the cluster has 3 hosts; give one a \
host, or one value for all
    """
    if hasattr(given, "tolist"):  # a numpy array
        given = given.tolist()
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given] * count
    values = list(given)
    if len(values) != count:
        raise ReshardError(
            f"{what} has {len(values)} entries, but {owner} has {count} {unit}s; "
            f"give one a {unit}, or one value for all"
        )
    return values


def check_bool(what: str, given: object) -> bool:
    """Return ``given`` if it is True or False; a text such as ``"no"`` would count as true.

    >>> check_bool("overlap", False)
    False
    """
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    raise must_be(what, "True or False", given)


def check_type(what: str, given: T, kind: type, how: str = "") -> T:
    """Return ``given`` if it is a ``kind``; ``how`` says where one comes from.

    >>> check_type("shape", (2, 2), tuple)
    (2, 2)
    """
    if isinstance(given, kind):
        return given
    hint = f"; {how}" if how else ""
    raise ReshardError(f"{what} must be a {kind.__name__}, not {short(given)}{hint}")


def check_path(what: str, given: object) -> Path:
    """Return ``given`` as the path of a file or folder; whether there is one is not looked at."""
    try:
        path = os.fspath(given)  # type: ignore[call-overload]
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise must_be(what, "the name of a file or folder", given)
    return Path(path)


@contextmanager
def os_errors(doing: str, how: str = "") -> Iterator[None]:
    """Raise an OSError of the block as "cannot ``doing``"; ``how`` says what to do about it."""
    try:
        yield
    except OSError as error:
        hint = f"; {how}" if how else ""
        raise ReshardError(f"cannot {doing}: {error.strerror}{hint}") from None


def writing(what: str, target: Path) -> AbstractContextManager[None]:
    """While ``what`` is written to ``target``: an OSError names both."""
    how = "give a file in a folder that exists and can be written to"
    return os_errors(f"write {what} {str(target)!r}", how)


def write_text(what: str, path: str | Path, text: str) -> Path:
    """Write ``text`` to ``path``, as UTF-8; if it cannot be written the error names ``what``."""
    target = check_path(f"{what} to write", path)
    with writing(what, target):
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
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
