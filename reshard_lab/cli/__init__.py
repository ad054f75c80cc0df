"""The command line, ``reshard-lab``: arguments in, text or JSON out."""

from __future__ import annotations

from reshard_lab.cli.app import main

__all__ = ["main"]
