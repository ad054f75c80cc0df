"""Plans, pieces, pools and arguments that the runtime refuses before it starts anything."""

import sys
import tempfile

import pytest

from reshard_lab.runtime.process import PoolProcess
from support.refusals import check_refusal


@pytest.mark.parametrize("executable", ["/nowhere/python", None, ""])
def test_a_process_that_cannot_start_leaves_no_folder(monkeypatch, tmp_path, executable):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", executable)
    check_refusal(
        lambda: PoolProcess([sys.executable, "-m", "reshard_lab.worker"], {}),
        "cannot start the processes of a run",
    )
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_place_for_temporary_files_says_so(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    check_refusal(
        lambda: PoolProcess([sys.executable, "-m", "reshard_lab.worker"], {}),
        "name one that can be written to in TMPDIR",
    )
