"""The lane itself: it sees what is wrong, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import browser_checks
import browser_lab
import browser_page
import browser_view
import pytest

from support import leftovers

SHEET = """<!doctype html><title>a sheet</title>
<body style="margin:0;background:#fff"><div class="jp-OutputArea-output">{}</div>"""
DRAWING = (
    '<figure style="margin:0"><svg xmlns="http://www.w3.org/2000/svg" width="200" height="100" '
    'viewBox="0 0 200 100" role="img" aria-label="a drawing that is here to be looked at">'
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path d="M0 6 6 0" stroke="#000"/></pattern></defs>{}</svg></figure>'
)
YELLOW = '<rect x="10" y="10" width="100" height="40" fill="#F0E442"/>'
BLUE = YELLOW.replace("#F0E442", "#0072B2")
HATCH = YELLOW.replace("#F0E442", "url(#hatch)")
WORD = '<text x="20" y="35" font-size="14">word</text>'


def seen(page, html):
    page.set_content(SHEET.format(html))
    return browser_checks.unreadable(page)


def drawn(page, html):
    page.set_content(SHEET.format(html))
    return [what for drawing in browser_checks.drawings(page) for what in drawing["found"]]


@pytest.mark.parametrize(
    "parts",
    [
        WORD,
        YELLOW + WORD,
        BLUE + WORD.replace("<text", '<text fill="#ffffff"'),
        YELLOW + HATCH + YELLOW.replace("100", "60") + WORD,  # on a plate
        WORD + WORD.replace("35", "52"),
        # A dark shape that only its box would have below the word.
        '<polygon points="10,10 110,10 110,12" fill="#000"/>' + WORD,
    ],
)
def test_a_readable_drawing_passes(page, parts):
    assert drawn(page, DRAWING.format(parts)) == []


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (YELLOW + WORD.replace("<text", '<text fill="#ffffff"'), "has a contrast of 1.3"),
        (BLUE + WORD, "has a contrast of 4.0"),
        (WORD.replace("<text", '<text fill="#999999"'), "has a contrast of 2.8"),
        (WORD.replace("<text", '<text fill-opacity="0.3"'), "has a contrast of 2.1"),
        (YELLOW + HATCH + WORD, "is on a hatch"),
        (WORD + YELLOW, "is covered by a shape"),
        (WORD.replace('x="20"', 'x="180"'), "is cut off by the edge"),
        (WORD.replace("14", "7"), "is 7.0 pixels high"),
        (WORD + WORD.replace("35", "38"), "overlap"),
        (WORD + '<g transform="rotate(90 30 30)">' + WORD + "</g>", "overlap"),
    ],
)
def test_what_is_hard_to_read_in_a_drawing_is_found(page, parts, says):
    found = drawn(page, DRAWING.format(parts))
    assert len(found) == 1, found
    assert says in found[0]


def test_drawings_in_images_are_looked_at_as_large_as_they_are_shown(page):
    from reshard_lab.plots import svg

    words = "a drawing with a single word"
    document = svg.document(200, 60, [svg.label(10, 20, "word")], words)
    shown = svg.Figure(document, "a caption", words)._repr_html_()
    assert seen(page, shown) == []
    assert "is 6.0 pixels high" in drawn(page, shown.replace("max-width:100%", "width:100px"))[0]
    assert "its alt text is" in drawn(page, shown.replace(f'alt="{words}"', 'alt=""'))[0]


@pytest.mark.parametrize(
    ("html", "says"),
    [
        ('<img src="data:image/png;base64,iVBORw0KGgo=">', "image-alt"),
        ('<p style="color:#aaa">pale words</p>', "color-contrast"),
        ('<input type="text">', "label"),
        ("<select><option>one</option></select>", "select-name"),
        ('<svg role="img" width="9" height="9"></svg>', "svg-img-alt"),
    ],
)
def test_axe_looks_at_what_is_around_the_drawings(page, html, says):
    assert says in "".join(seen(page, html))


def test_a_control_without_a_label_is_found(page):
    row = '<div class="jupyter-widgets"><label class="widget-label">{}</label>{}</div>'
    handle = '<div class="noUi-handle" role="slider" aria-valuenow="1" tabindex="0"></div>'
    assert seen(page, row.format("width", handle)) == []
    assert "no label is shown" in "".join(seen(page, row.format("", handle)))


def test_a_label_that_is_cut_is_found(page):
    look = "display:inline-block;overflow:hidden;white-space:nowrap;width:{}px"
    label = f'<label class="widget-label" style="{look}">how many hosts</label>'
    row = f'<div class="jupyter-widgets">{label}<input aria-label="hosts"></div>'
    assert seen(page, row.format(200)) == []
    assert seen(page, row.format(50)) == ['"how many hosts" is cut']


@pytest.mark.parametrize("raw", ["the end. ## Next", "**bold", "[a](b.html)", "$x$", "`code"])
def test_markdown_that_was_not_set_is_found(page, raw):
    prose = '<div class="jp-MarkdownOutput"><p>{}</p></div>'
    page.set_content(SHEET.format(prose.format("<b>set</b>, case #3 of 2*3 (see <code>**</code>)")))
    assert browser_checks.unset(page) == []
    page.set_content(SHEET.format(prose.format(raw)))
    assert len(browser_checks.unset(page)) == 1


def test_what_goes_wrong_in_a_notebook_is_found(lab, page):
    cells = [
        "print('fine')",
        "import sys; print('a warning', file=sys.stderr)",
        "1 / 0",
        "print('never reached')",
    ]
    notebook = browser_page.open_notebook(page, lab, lab.write("wrong.ipynb", *cells))
    notebook.run(60)
    first, second, third = notebook.failures()
    assert first.startswith("import sys") and "a warning" in first
    assert second.startswith("1 / 0: ZeroDivisionError")
    assert third.startswith("print('never reached')") and third.endswith("did not run")


TOY = """
from reshard_lab.plots import svg
from reshard_lab.widgets import controls, panel

def draw(wide):
    if blinking and "toy" in globals():
        toy.picture.value = ""
        __import__("time").sleep(1)
    words = f"a box that is {wide} pixels wide"
    drawn = svg.document(200, 60, [svg.rect(5, 5, wide, 50, fill=svg.fill(0))], words)
    return panel.View(svg.Figure(drawn, words, words), [["wide"], [wide]])

toy = panel.Explorer("toy", {"": {"wide": controls.slider("width", 50, 10, 90)}}, draw)
toy
"""


@pytest.mark.parametrize("blinking", [False, True])
def test_a_picture_that_blinks_is_seen(lab, page, blinking):
    name = lab.write("toy.ipynb", f"blinking = {blinking}", TOY)
    browser_page.open_notebook(page, lab, name).run(60)
    toy = browser_view.explorer(page)
    toy.watch()
    toy.press("width", "ArrowRight")
    assert bool(toy.blinks()) == blinking


def test_explorers_are_told_apart_however_many_there_are(lab, page):
    second = TOY.replace("toy", "other").replace('"width"', '"second"')
    name = lab.write("toys.ipynb", "blinking = False", TOY, second)
    browser_page.open_notebook(page, lab, name).run(60)
    first, other = (browser_view.explorer(page, number) for number in range(2))
    assert (first.control("width").count(), first.control("second").count()) == (1, 0)
    assert (other.control("width").count(), other.control("second").count()) == (0, 1)
    before = first.drawing()
    other.press("second", "ArrowRight")
    assert first.drawing() == before
    assert other.root.locator("xpath=following::figure").count() == 0


KILLED = """
import sys, pathlib
sys.path[:0] = [{here!r}, {tests!r}]
import browser_lab
with browser_lab.server(pathlib.Path({private!r})) as running:
    print(running.url, flush=True)
    sys.stdin.read()
"""


def test_the_server_ends_with_whoever_started_it(browser, tmp_path):
    here = Path(browser_lab.__file__).parent
    script = KILLED.format(here=str(here), tests=str(here.parent), private=str(tmp_path))
    starter = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert starter.stdout.readline().startswith(b"http://127.0.0.1:")
        family = leftovers.below(starter.pid)
        assert family
        os.kill(starter.pid, signal.SIGKILL)
        starter.wait()
        assert leftovers.gone(family, browser_lab.ENDS_WITHIN_S)
    finally:
        starter.kill()
        starter.stdin.close()
        starter.stdout.close()


def test_a_server_that_does_not_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(browser_lab, "CONFIG", "raise SystemExit('no such luck')\n")
    with pytest.raises(RuntimeError, match="did not start"), browser_lab.server(tmp_path):
        pass
