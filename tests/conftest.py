"""What all tests share.

Programs that tests start, and helpers they import, are not collected for doctests. Property tests
draw the same examples in every run; with HYPOTHESIS_PROFILE=explore they draw new ones.
"""

import os
from pathlib import Path

from hypothesis import settings

HERE = Path(__file__).parent
collect_ignore = [p for p in HERE.rglob("*.py") if not p.name.startswith("test_")]

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
