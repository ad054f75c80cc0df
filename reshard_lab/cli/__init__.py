"""The command line, ``reshard-lab``: arguments in, text or JSON out."""

from reshard_lab.cli.app import main

__all__ = ["main"]
