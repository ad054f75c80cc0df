"""The command line as tests call it."""

from reshard_lab.cli import main


def ask(capsys, *argv: str) -> str:
    """Standard output of a command that succeeds."""
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *argv: str) -> str:
    """The one line that a command prints when it refuses its input, without its beginning."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("reshard-lab: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("reshard-lab: error: ").rstrip("\n")
