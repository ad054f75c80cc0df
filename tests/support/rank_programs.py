"""Running a program of ranks: it starts them, and prints as JSON what each returned."""

import json
import os
import subprocess
import sys
from typing import Any

from support.paths import TESTS


def results_of(program: str, timeout_s: float) -> dict[str, Any]:
    """What every rank of every scenario of ``tests/programs/<program>.py`` returned."""
    done = subprocess.run(
        [sys.executable, "-m", f"programs.{program}"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
