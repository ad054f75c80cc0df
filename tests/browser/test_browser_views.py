"""Every explorer in a browser: its keys, its errors, its picture that never blinks."""

from dataclasses import dataclass

import browser_checks
import browser_lab
import browser_page
import browser_view
import pytest

RUNS_WITHIN_S = 120
NARROW = 700
"""Pixels: a page beside another one."""
LARGE = """
cluster = rl.Cluster(hosts=4, devices_per_host=4)
src = rl.Layout(cluster.mesh((2, 4)), "S01R")
dst = rl.Layout(cluster.mesh((2, 4), first_host=2), "RS01")
large = rl.ReshardingTask((64, 64), "float32", src, dst, cluster)  # 16 devices, 64 unit tasks
"""
SETUP = f"""
import reshard_lab as rl
from reshard_lab import widgets
{LARGE}
"""
RESULTS = str(browser_lab.ROOT / "data" / "results")
MEASURED = f"""
import pandas as pd
files = {{f"figure {{n}}": f"{RESULTS}/figure{{n}}.csv" for n in "568"}}
tables = {{name: pd.read_csv(path) for name, path in files.items()}}
widgets.measurement_explorer(tables)
"""


@dataclass(frozen=True)
class Case:
    """An explorer and what is done to it."""

    name: str
    code: str
    keys: tuple[tuple[str, str], ...]
    """Label of a control and a key that changes the picture, one after the other."""
    bad: tuple[str, str, str] | None = None
    """A field, what is written into it, and words of the error that it makes."""
    plays: str | None = None
    """Label of the slider that the play button moves."""


CASES = (
    Case(
        "layout_explorer",
        "widgets.layout_explorer()",
        (("unit task", "ArrowRight"), ("unit task", "End")),
        ("spec", "S0S0", "spec 'S0S0' uses mesh axis 0 twice"),
    ),
    Case(
        "plan_explorer",
        "widgets.plan_explorer()",
        (("chunks", "ArrowLeft"), ("chunks", "Home"), ("scheduler", "ArrowDown")),
        ("mesh", "2x", "mesh '2x'"),
        "step",
    ),
    Case(
        "strategy_explorer",
        "widgets.strategy_explorer()",
        (("A: receiving hosts", "ArrowRight"), ("strategy", "ArrowUp")),
        ("size", "64 elephants", "64 elephants"),
        "moment (of 48)",
    ),
    Case(
        "traffic_explorer",
        "widgets.traffic_explorer()",
        (("strategy", "ArrowDown"), ("compare with", "End")),
    ),
    Case(
        "measurement_explorer",
        MEASURED,
        (("show", "ArrowDown"), ("figure", "ArrowDown")),
    ),
    Case(
        "pipeline_explorer",
        "widgets.pipeline_explorer()",
        (("stages", "ArrowRight"), ("microbatches", "ArrowLeft"), ("schedule", "ArrowUp")),
        ("t_F: a forward", "soon", "soon"),
    ),
)


def of(cases):
    """For each of ``cases``; the tests of one case use one page."""
    return pytest.mark.parametrize("shown", list(cases), indirect=True, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def shown(request, lab, browser):
    """A case, its explorer on a page of its own, and the notebook that shows it."""
    case = request.param
    size = {"width": browser_page.WIDTH, "height": browser_page.HEIGHT}
    context = browser.new_context(viewport=size)
    page = context.new_page()
    name = lab.write(f"{case.name}.ipynb", SETUP, case.code)
    notebook = browser_page.open_notebook(page, lab, name)
    notebook.run(RUNS_WITHIN_S)
    yield case, browser_view.explorer(page), notebook
    context.close()


def made(case):
    """The controls of the same explorer, made here: where they begin when nobody moves them."""
    from reshard_lab import widgets

    return eval(case.code, {"widgets": widgets}).controls.values()


@of(CASES)
def test_explorer_shows_itself(shown, pictures):
    case, explorer, notebook = shown
    assert notebook.failures() == []
    explorer.picture(pictures / f"{case.name}.png")
    assert browser_checks.unreadable(explorer.page) == []


@of(CASES)
def test_explorer_can_be_read_in_the_dark(shown, pictures):
    case, explorer, _ = shown
    with browser_page.dark(explorer.page):
        explorer.picture(pictures / f"{case.name}_dark.png")
        assert browser_checks.unreadable(explorer.page) == []


@of(CASES)
def test_explorer_can_be_read_in_a_narrow_page(shown, pictures):
    case, explorer, notebook = shown
    with browser_page.wide(explorer.page, NARROW):
        seen = explorer.layout()
        explorer.picture(pictures / f"{case.name}_narrow.png")
        found = browser_checks.unreadable(explorer.page)
    assert seen["page"] <= NARROW and seen["explorer"] <= seen["output"]
    assert seen["below"] <= 1
    assert found == [] and notebook.failures() == []


@of(case for case in CASES if case.plays)
def test_scrubber_stands_where_the_kernel_put_it(shown):
    case, explorer, _ = shown
    value = next(c.value for c in made(case) if c.description == case.plays)
    assert value > 0
    assert float(explorer.control(case.plays).get_attribute("aria-valuenow")) == value


@of(CASES)
def test_keys_change_the_picture_and_it_never_blinks(shown):
    case, explorer, notebook = shown
    for label, key in case.keys:
        explorer.watch()
        explorer.press(label, key)
        assert explorer.blinks() == []
    assert notebook.failures() == []


@of(case for case in CASES if case.bad)
def test_bad_input_is_answered_in_place_and_the_picture_stays(shown, pictures):
    case, explorer, _ = shown
    label, words, error = case.bad
    good, before = explorer.control(label).input_value(), explorer.drawing()
    explorer.write(label, words)
    alert = explorer.root.locator("[role=alert]")
    alert.locator("div").wait_for(timeout=browser_view.CHANGES_WITHIN_MS)
    assert error in alert.inner_text()
    assert explorer.drawing() == before
    explorer.picture(pictures / f"{case.name}_error.png")
    assert browser_checks.unreadable(explorer.page) == []
    explorer.write(label, good)
    alert.locator("div").wait_for(state="detached", timeout=browser_view.CHANGES_WITHIN_MS)


@of(case for case in CASES if case.plays)
def test_scrubber_steps_and_plays(shown, pictures):
    case, explorer, _ = shown
    handle = explorer.control(case.plays)
    handle.focus()
    explorer.page.keyboard.press("Home")
    explorer.press(case.plays, "ArrowRight")
    assert float(handle.get_attribute("aria-valuenow")) == 1
    explorer.picture(pictures / f"{case.name}_step.png")
    before = explorer.drawing()
    play = explorer.root.locator(".widget-play button").first
    play.focus()
    explorer.page.keyboard.press("Enter")
    explorer.changed(before)
    assert float(handle.get_attribute("aria-valuenow")) > 1
    explorer.page.keyboard.press("Enter")  # the same button pauses


@of(CASES)
def test_data_table_is_there_on_request(shown, pictures):
    case, explorer, notebook = shown
    box = explorer.root.get_by_label("show the data table")
    box.focus()
    explorer.page.keyboard.press("Space")
    explorer.root.locator("table").wait_for(timeout=browser_view.CHANGES_WITHIN_MS)
    explorer.picture(pictures / f"{case.name}_table.png")
    assert browser_checks.axe(explorer.page) == []
    assert notebook.failures() == []
