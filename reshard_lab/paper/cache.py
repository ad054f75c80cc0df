"""Results kept on disk under the content of what they came from."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import reshard_lab
from reshard_lab.errors import check_path, os_errors

FOLDER_VARIABLE = "RESHARD_LAB_CACHE"
SOLVERS = ("numpy", "ortools", "scipy")
"""Libraries on which results may depend."""


class Cache:
    """Rows by key: one small JSON file each, written in one step.

    Whatever interrupts a run, a file is whole or not there; one that cannot be read counts as not
    there. Two runs may share a folder. Raises ReshardError for a folder that cannot be written to.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        what = "cache, if not True or False,"
        self.folder = default_folder() if folder is None else check_path(what, folder)
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)

    def _writing(self) -> AbstractContextManager[None]:
        return os_errors(
            f"keep results in {str(self.folder)!r}",
            f"choose another folder (cache=..., or the variable {FOLDER_VARIABLE}), or none "
            "(cache=False)",
        )

    def load(self, key: str) -> Mapping[str, Any] | None:
        """The row under ``key``, or None."""
        try:
            row = json.loads(self._file(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) else None

    def store(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep ``row`` under ``key``."""
        file = self._file(key)
        with self._writing():
            file.parent.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".new")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as out:
                    json.dump(row, out)
                os.replace(name, file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


def default_folder() -> Path:
    """``$RESHARD_LAB_CACHE``, or ``reshard_lab`` in the user's cache folder."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reshard_lab"


def key_of(function: str, point: Mapping[str, Any], version: str) -> str:
    """A name for the result of ``function`` of ``point``, as the code of ``version`` gives it."""
    text = json.dumps([version, function, point], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def code_version() -> str:
    """A hash of every module of the package, and of the versions of ``SOLVERS``: any change to
    them gives new results.
    """
    root = Path(reshard_lab.__file__).parent
    found = hashlib.sha256(repr([(name, _installed(name)) for name in SOLVERS]).encode())
    for file in sorted(root.rglob("*.py")):
        found.update(str(file.relative_to(root)).encode())
        found.update(file.read_bytes())
    return found.hexdigest()


def _installed(name: str) -> str:
    """Version of a library."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
