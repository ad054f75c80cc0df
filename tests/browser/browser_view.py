"""An explorer in an open notebook: its controls by their labels, its picture, and what it does."""

from dataclasses import dataclass
from pathlib import Path

CHANGES_WITHIN_MS = 10_000

PICTURE = "figure > svg"
CHANGED = """([root, before]) => {
    const svg = root.querySelector("figure > svg");
    return svg && svg.outerHTML !== before;
}"""
# The height of the picture, and where what follows it begins, at every frame that is shown.
WATCH = """root => {
    const seen = window.seen = { heights: [], tops: [] };
    const step = () => {
        if (window.seen !== seen) return;
        const figure = root.querySelector("figure");
        const after = figure?.closest(".jupyter-widgets")?.nextElementSibling;
        seen.heights.push(figure?.querySelector("svg")?.getBoundingClientRect().height ?? 0);
        seen.tops.push(after ? after.offsetTop : 0);
        requestAnimationFrame(step);
    };
    step();
}"""
SEEN = """() => new Promise(done => requestAnimationFrame(() => {
    const seen = window.seen;
    window.seen = null;
    done(seen);
}))"""
LAYOUT = """root => {
    const output = root.closest(".jp-OutputArea-output");
    const bottom = part => root.querySelector(part).getBoundingClientRect().bottom;
    const words = Math.max(bottom("figcaption"), bottom("figure > svg") + 40);
    return {
        page: document.documentElement.scrollWidth,
        explorer: root.scrollWidth,
        output: output.clientWidth,
        below: bottom("figure") - words,
    };
}"""
# From the press of a key to the first change of the drawing in the document, in milliseconds.
TIME = """root => {
    const took = window.took = [];
    let pressed = null;
    document.addEventListener("keydown", () => { pressed = performance.now(); }, true);
    const drawn = () => root.querySelector("figure > svg");
    let last = drawn();
    new MutationObserver(() => {
        const now = drawn();
        if (!now || now === last) return;
        if (pressed !== null && now.outerHTML !== last.outerHTML) {
            took.push(performance.now() - pressed);
            pressed = null;
        }
        last = now;
    }).observe(root, { childList: true, subtree: true });
}"""


@dataclass(frozen=True)
class Explorer:
    """The widgets that one cell shows."""

    page: object
    root: object
    """Locator of the outermost box."""

    def control(self, label: str, which: int = 0):
        """What takes the keys of a control, by its label, of several alike the one numbered."""
        name = self.page.locator(f'> .widget-label:text-is("{label}")')
        row = self.root.locator(".jupyter-widgets").filter(has=name).nth(which)
        return row.locator("input, select, .noUi-handle").first

    def drawing(self) -> str:
        """The picture's SVG."""
        return self.root.locator(PICTURE).evaluate("svg => svg.outerHTML")

    def words(self, part: str) -> str:
        """Text of the ``part`` of the explorer, a CSS selector."""
        return self.root.locator(part).inner_text()

    def press(self, label: str, key: str, which: int = 0) -> None:
        """Press a key in a control and wait until the picture is another one.

        A menu is opened for it: in one that is not, JupyterLab takes letters and arrows for its
        commands.
        """
        control = self.control(label, which)
        control.focus()
        before = self.drawing()
        menu = control.evaluate("control => control.tagName === 'SELECT'")
        for one in ("Space", key, "Enter") if menu else (key,):
            self.page.keyboard.press(one)
        self.changed(before)

    def write(self, label: str, words: str, which: int = 0) -> None:
        """Put ``words`` into a field of text and press Enter."""
        field = self.control(label, which)
        field.fill(words)
        field.press("Enter")

    def changed(self, before: str) -> None:
        """Wait until the picture differs from ``before``."""
        root = self.root.element_handle()
        self.page.wait_for_function(CHANGED, arg=[root, before], timeout=CHANGES_WITHIN_MS)

    def layout(self) -> dict[str, float]:
        """Widths of the page, the explorer and the output around it, each with what overflows it,
        and the empty room below a caption of two lines, in pixels."""
        return self.root.evaluate(LAYOUT)

    def watch(self) -> None:
        """Look at the picture in every frame from now on."""
        self.root.evaluate(WATCH)

    def blinks(self) -> list[str]:
        """What was seen since ``watch`` but the old picture and the new one; ends the watch."""
        found = []
        for what, frames in self.page.evaluate(SEEN).items():
            low, high = sorted((frames[0], frames[-1]))
            if low <= 0 or min(frames) < low - 1 or max(frames) > high + 1:
                found.append(f"{what} from {min(frames)} to {max(frames)}, not {low} to {high}")
        return found

    def timed(self) -> None:
        """Take the time from the press of a key to the changed drawing, from now on."""
        self.root.evaluate(TIME)

    def times_ms(self) -> list[float]:
        """The times taken, in milliseconds."""
        return self.page.evaluate("window.took")

    def picture(self, path: Path) -> Path:
        """Save a picture of the explorer, in a window that is high enough for all of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        size = self.page.viewport_size
        tall = self.root.evaluate("root => Math.ceil(root.getBoundingClientRect().height)")
        self.page.set_viewport_size({**size, "height": tall + size["height"]})
        self.root.screenshot(path=path)
        self.page.set_viewport_size(size)
        return path


def explorer(page, number: int = 0) -> Explorer:
    """Explorer ``number`` among those that the open notebook shows, when it is there."""
    boxes = ".jp-OutputArea-output .jupyter-widgets:not(.jupyter-widgets .jupyter-widgets)"
    root = page.locator(boxes).nth(number)
    root.locator(PICTURE).wait_for(timeout=CHANGES_WITHIN_MS)
    return Explorer(page, root)
