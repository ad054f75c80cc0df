"""Every notebook, opened and run in a browser, and looked at."""

import browser_checks
import browser_lab
import browser_page
import pytest

NAMES = sorted(path.name for path in (browser_lab.ROOT / "notebooks").glob("*.ipynb"))
RUNS_WITHIN_S = 300


@pytest.fixture(scope="module", params=NAMES)
def ran(request, lab, browser):
    """A notebook on a page of its own, all of it run."""
    size = {"width": browser_page.WIDTH, "height": browser_page.HEIGHT}
    context = browser.new_context(viewport=size)
    notebook = browser_page.open_notebook(context.new_page(), lab, request.param)
    notebook.run(RUNS_WITHIN_S)
    yield notebook
    context.close()


def test_notebook_runs_without_errors(ran, pictures):
    ran.picture(pictures / f"{ran.name.removesuffix('.ipynb')}.png")
    assert ran.failures() == []


def test_notebook_can_be_read(ran):
    assert browser_checks.unreadable(ran.page) == []
    assert browser_checks.unset(ran.page) == []
