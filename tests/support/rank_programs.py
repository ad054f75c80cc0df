"""Running a program of ranks: it starts them, and prints as JSON what each returned."""

import json
import os
import subprocess
import sys
from typing import Any


def results_of(program: str, timeout_s: float) -> dict[str, Any]:
    """What every rank of every scenario of ``tests/programs/<program>.py`` returned."""
    here = os.pathsep.join(p for p in sys.path if p)  # the same library, and these tests
    done = subprocess.run(
        [sys.executable, "-m", f"programs.{program}"],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
