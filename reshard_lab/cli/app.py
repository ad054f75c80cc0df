"""The commands of ``reshard-lab``, and its entry point."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from reshard_lab.cli import measure, pipeline, plans
from reshard_lab.errors import ReshardError

PROGRAM = "reshard-lab"
COMMANDS = {**plans.COMMANDS, **measure.COMMANDS, **pipeline.COMMANDS}
BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 2, 130, 141


class _Parser(argparse.ArgumentParser):
    """Argument errors in the same form as all others."""

    def error(self, message: str) -> NoReturn:
        raise ReshardError(f"{message}; see '{self.prog} --help'")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = _Parser(
        prog=PROGRAM, description="Cross-mesh resharding: explain, plan, simulate, run, measure."
    )
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help)
        command.add_options(sub)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
    return top


def _version() -> str:
    try:
        return f"{PROGRAM} {version(PROGRAM)}"
    except PackageNotFoundError:  # run from a checkout, without an installation
        return f"{PROGRAM}, not installed"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0 = done, 2 = bad input (one line on standard error), 130 = Ctrl-C, 141 = nobody reads the
    output any more.
    """
    try:
        args = parser().parse_args(argv)
        print(COMMANDS[args.command].run(args).render(args.json), flush=True)
    except ReshardError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        # What is still buffered has nowhere to go; without this, Python would complain at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE
        print(f"{PROGRAM}: error: cannot write the output: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    return 0
