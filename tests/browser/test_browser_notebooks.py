"""Every notebook, opened and run in a browser."""

import browser_lab
import browser_page
import pytest

NAMES = sorted(path.name for path in (browser_lab.ROOT / "notebooks").glob("*.ipynb"))
RUNS_WITHIN_S = 300


@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_without_errors(lab, page, pictures, name):
    notebook = browser_page.open_notebook(page, lab, name)
    notebook.run(RUNS_WITHIN_S)
    notebook.picture(pictures / f"{name.removesuffix('.ipynb')}.png")
    assert notebook.failures() == []
