"""One JupyterLab and one Chromium for all tests of this folder."""

import os
from pathlib import Path

import browser_lab
import browser_page
import pytest

HERE = Path(__file__).parent
PICTURES = browser_lab.ROOT / "out" / "screenshots"


def pytest_collection_modifyitems(items):
    """Every test of this folder drives the browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser():
    """The browser; tests skip where there is none, except in CI, which is to have one."""
    executable = browser_lab.browser_path()
    if executable is None:
        reason = f"no Chromium: none of {', '.join(browser_lab.BROWSERS)} is on the path"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with browser_lab.chromium(executable) as opened:
        yield opened


@pytest.fixture(scope="session")
def lab(browser, tmp_path_factory):
    """The server."""
    with browser_lab.server(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def page(browser):
    """An empty page with cookies of its own."""
    size = {"width": browser_page.WIDTH, "height": browser_page.HEIGHT}
    context = browser.new_context(viewport=size)
    yield context.new_page()
    context.close()


@pytest.fixture
def pictures():
    """Folder of the screenshots."""
    return PICTURES
