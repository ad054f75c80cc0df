"""Pictures taken apart: where their texts and rectangles stand, and whether all can be read."""

import re
import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import NamedTuple

SVG = "{http://www.w3.org/2000/svg}"


class Rect(NamedTuple):
    """A rectangle on the page."""

    left: float
    top: float
    right: float
    bottom: float
    style: dict

    def inside(self, other: "Rect", slack: float = 0.6) -> bool:
        return (
            other.left - slack <= self.left
            and self.right <= other.right + slack
            and other.top - slack <= self.top
            and self.bottom <= other.bottom + slack
        )

    def covers(self, other: "Rect") -> bool:
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide > 0.5 and high > 0.5


class Page(NamedTuple):
    """A parsed picture."""

    page: Rect
    rects: list[Rect]
    texts: list[tuple[str, Rect]]

    def words(self) -> list[str]:
        return [words for words, _ in self.texts]


@lru_cache(maxsize=4096)
def width_of(words: str, size: float, bold: bool) -> float:
    """True width in DejaVu Sans, the widest of the fonts asked for, from the font itself."""
    from matplotlib import font_manager, ft2font

    weight = "bold" if bold else "normal"
    path = font_manager.findfont(
        font_manager.FontProperties(family="DejaVu Sans", weight=weight), fallback_to_default=False
    )
    font = ft2font.FT2Font(path)
    font.set_size(size, 72)
    font.set_text(words, 0)
    return font.get_width_height()[0] / 64


def read(picture: str) -> Page:
    """Where every rectangle and every text of a picture stands."""
    root = ET.fromstring(picture)
    page = Rect(0, 0, float(root.get("width")), float(root.get("height")), {})
    rects: list[Rect] = []
    texts: list[tuple[str, Rect]] = []

    def walk(node: ET.Element, dx: float, dy: float) -> None:
        moved = re.match(r"translate\((\S+) (\S+)\)", node.get("transform", ""))
        if moved:
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        for child in node:
            tag = child.tag.removeprefix(SVG)
            if tag in ("defs", "title") or child.get("width") == "100%":
                continue
            if tag == "rect":
                x, y = float(child.get("x")), float(child.get("y"))
                box = [x, y, x + float(child.get("width")), y + float(child.get("height"))]
                rects.append(placed(child, box, dx, dy))
            if tag == "text":
                texts.append((child.text, text_rect(child, dx, dy)))
            walk(child, dx, dy)

    walk(root, 0, 0)
    return Page(page, rects, texts)


def text_rect(node: ET.Element, dx: float, dy: float) -> Rect:
    """The ink of a text: capitals are 0.73 of the size high, tails 0.24."""
    size = float(node.get("font-size"))
    wide = width_of(node.text, size, node.get("font-weight") == "bold")
    x, y = float(node.get("x")), float(node.get("y"))
    left = x - {"start": 0, "middle": wide / 2, "end": wide}[node.get("text-anchor")]
    return placed(node, [left, y - 0.73 * size, left + wide, y + 0.24 * size], dx, dy)


def placed(node: ET.Element, box: list[float], dx: float, dy: float) -> Rect:
    """A box after the turn of its element, and moved with its group."""
    turned = re.match(r"rotate\(-90 (\S+) (\S+)\)", node.get("transform", ""))
    if turned:
        cx, cy = float(turned[1]), float(turned[2])
        box = [cx + box[1] - cy, cy - (box[2] - cx), cx + box[3] - cy, cy - (box[0] - cx)]
    return Rect(box[0] + dx, box[1] + dy, box[2] + dx, box[3] + dy, dict(node.attrib))


def assert_readable(picture: str) -> Page:
    """Nothing leaves the page, no text covers another, no label leaves the cell it stands in."""
    page = read(picture)
    for rect in page.rects:
        assert rect.inside(page.page), rect
    for words, box in page.texts:
        assert box.inside(page.page), words
    for i, (words, box) in enumerate(page.texts):
        for other, second in page.texts[i + 1 :]:
            assert not box.covers(second), (words, other)
    return page


def contrast(one: str, two: str) -> float:
    """Contrast ratio of two colours by the rule of WCAG 2."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(two)))
    return (high + 0.05) / (low + 0.05)


def bars(drawn: str) -> list[tuple[float, float, float]]:
    """(x, y, width) of the outlined rectangles."""
    return [
        tuple(float(r.get(key)) for key in ("x", "y", "width"))
        for r in ET.fromstring(drawn).iter(f"{SVG}rect")
        if r.get("stroke")
    ]
