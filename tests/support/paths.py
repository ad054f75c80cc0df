"""Where things are, whichever folder a test lies in."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
CASES = TESTS / "cases"
PROGRAMS = TESTS / "programs"
RESULTS = ROOT / "data" / "results"
