"""What the README shows runs, and says what it is said to say."""

import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def test_the_example_runs(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "box=((0, 1), (0, 4)), nbytes=16, senders=(0,), receivers=(4, 5)" in printed
    upper = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(names["pieces"][4], upper)
    np.testing.assert_array_equal(names["pieces"][5], upper)


def test_links_to_files_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
