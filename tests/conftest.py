"""Scripts that tests start, and helpers they import, are not collected for doctests."""

from pathlib import Path

HERE = Path(__file__).parent
collect_ignore = [p.name for p in HERE.glob("*.py") if not p.name.startswith("test_")]
