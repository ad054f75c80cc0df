"""What a reader may be unable to see: contrast, missing words for pictures, text that is cut.

axe-core looks at the HTML that the library puts into outputs. It sees nothing inside of drawings,
so those are looked at by the script beside this module.
"""

from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT

DRAWINGS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
OUTPUTS = ".jp-OutputArea-output"
SMALLEST_TEXT = 9
"""Pixels of height of the letters in a drawing, as shown."""

RULES = (
    "aria-allowed-attr",
    "aria-input-field-name",
    "aria-toggle-field-name",
    "aria-valid-attr",
    "aria-valid-attr-value",
    "button-name",
    "color-contrast",
    "image-alt",
    "input-button-name",
    "label",
    "link-name",
    "role-img-alt",
    "scope-attr-valid",
    "scrollable-region-focusable",
    "select-name",
    "svg-img-alt",
)
# ipywidgets gives no name to the handle of a slider and the buttons of its player, and no way to
# add one. The label beside a handle is read by people, and `unlabelled` sees that it is there.
NOT_OURS = ".noUi-handle, .widget-play button"
AXE = """async ([inside, without, rules]) => {
    const included = [...document.querySelectorAll(inside)].filter(node => node.offsetHeight);
    if (!included.length) return [];
    const exclude = [...document.querySelectorAll(without)];
    const answer = await axe.run({ include: included, exclude },
        { runOnly: { type: "rule", values: rules }, resultTypes: ["violations"] });
    return answer.violations.flatMap(v => v.nodes.map(node =>
        `${v.id}: ${node.html.slice(0, 200)}: ${node.failureSummary.split("\\n").pop().trim()}`));
}"""
LOOK = """([inside, smallest]) =>
    [...document.querySelectorAll(inside)].flatMap(node => window.unreadable(node, smallest))"""
UNLABELLED = """inside => [...document.querySelectorAll(inside)].flatMap(node =>
    [...node.querySelectorAll("input, select, textarea, .noUi-handle")].filter(control => {
        const row = control.closest(".jupyter-widgets, .jp-OutputArea-output");
        const words = [...row.querySelectorAll(".widget-label, .widget-label-basic")];
        return !words.some(label => label.offsetWidth && label.innerText.trim().length > 1);
    }).map(control => `no label is shown beside ${control.outerHTML.slice(0, 200)}`))"""

CUT = """inside => [...document.querySelectorAll(inside)].flatMap(node =>
    [...node.querySelectorAll(".widget-label, .widget-label-basic > span, select, figcaption")]
        .filter(words => words.clientWidth && words.scrollWidth > words.clientWidth + 1)
        .map(words => `${JSON.stringify(words.innerText)} is cut`))"""

UNSET = """() => [...document.querySelectorAll(
    ".jp-MarkdownOutput p, .jp-MarkdownOutput li, .jp-MarkdownOutput td")].flatMap(block => {
    const words = block.cloneNode(true);
    words.querySelectorAll("code, .MathJax, mjx-container").forEach(node => node.remove());
    const raw = words.textContent.match(/(^|\\s)#{1,6}\\s|[*]{2}|`|\\]\\(|[$].*[$]/);
    return raw ? [`${JSON.stringify(raw[0])} is left of markdown in: ${words.textContent}`] : [];
})"""


def axe(page, inside: str = OUTPUTS, rules=RULES) -> list[str]:
    """Violations of axe's ``rules`` in all elements that match ``inside``."""
    page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE, [inside, NOT_OURS, list(rules)])


def unlabelled(page, inside: str = OUTPUTS) -> list[str]:
    """Controls that show no label."""
    return page.evaluate(UNLABELLED, inside)


def drawings(page, inside: str = OUTPUTS) -> list[dict]:
    """Every drawing: its words, and what was found that is hard to read in it."""
    page.evaluate(DRAWINGS)
    return page.evaluate(LOOK, [inside, SMALLEST_TEXT])


def cut(page, inside: str = OUTPUTS) -> list[str]:
    """Labels of controls, menus and captions that are longer than the room for them."""
    return page.evaluate(CUT, inside)


def unset(page) -> list[str]:
    """Prose in which signs of markdown are left that were meant to be set."""
    return page.evaluate(UNSET)


def unreadable(page, inside: str = OUTPUTS) -> list[str]:
    """All that was found."""
    seen = drawings(page, inside)
    return [*axe(page, inside), *unlabelled(page, inside), *cut(page, inside)] + [
        f"drawing {drawing['words'][:60]!r}: {what}"
        for drawing in seen
        for what in drawing["found"]
    ]
