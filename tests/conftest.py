"""What all tests share.

Programs that tests start, and helpers they import, are not collected for doctests. Property tests
draw the same examples in every run; with HYPOTHESIS_PROFILE=explore they draw new ones.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
collect_ignore = [p for p in HERE.rglob("*.py") if not p.name.startswith("test_")]

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture
def nothing_starts(monkeypatch, tmp_path):
    """No process is started and no file is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *_, **__: pytest.fail("started"))
    yield
    assert not list(tmp_path.iterdir())
