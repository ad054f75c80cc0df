"""The few pieces of SVG that the pictures are made of, and the figure that carries one.

Everything is a function from numbers to text, so the same record gives the same bytes.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from reshard_lab.errors import ReshardError, check_type, short, write_text

FONT = "'DejaVu Sans', Verdana, Arial, sans-serif"
COLORS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
"""Okabe and Ito's colours; the eighth is the black of outlines and text."""
INK, GREY, PAPER = "#000000", "#5f5f5f", "#ffffff"
BLUE = COLORS[4]
_HATCHES = (
    "",
    '<path d="M0 6 6 0" stroke="#000" stroke-opacity=".45"/>',
    '<path d="M0 0 6 6" stroke="#000" stroke-opacity=".45"/>',
    '<path d="M0 3H6" stroke="#000" stroke-opacity=".45"/>',
    '<path d="M3 0V6" stroke="#000" stroke-opacity=".45"/>',
    '<circle cx="3" cy="3" r="1.2" fill-opacity=".5"/>',
)

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, repr=False)
class Figure:
    """A picture with its caption and the words that stand for it where it cannot be seen.

    In a notebook it shows as a figure; elsewhere it prints as one line.
    """

    svg: str
    caption: str
    alt: str
    rows: Sequence[Sequence[str]] = ()
    """The values shown, under a row of heads; empty where a table stands beside it anyway."""

    def __post_init__(self) -> None:
        for name in ("caption", "alt"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise ReshardError(
                    f"a figure needs {name} text, not {short(text)}; say what the picture shows"
                )
            object.__setattr__(self, name, printable(text))

    def save(self, path: str | Path) -> Path:
        """Write the SVG to ``path``."""
        return write_text("picture", path, self.svg)

    def _repr_html_(self) -> str:
        summary = "<details><summary>The values</summary>"
        values = f"{summary}{html_table(self.rows)}</details>" if self.rows else ""
        # An image keeps its alt text and shows in notebooks that are not trusted.
        return (
            f'<figure style="margin:0"><img alt="{escape(self.alt)}" style="max-width:100%" '
            f'src="data:image/svg+xml,{quote(self.svg)}">'
            f"<figcaption>{escape(self.caption)}</figcaption>{values}</figure>"
        )

    def __repr__(self) -> str:
        return f"Figure({self.caption!r})"


def stacked(*figures: Figure) -> Figure:
    """``figures`` below each other, their captions and alt texts one after another."""
    if not figures:
        raise ReshardError("there is no figure to stack; give at least one")
    parts, width, y = [], 0.0, 0.0
    for i, one in enumerate(figures):
        check_type(f"figure {i}", one, Figure, "plots.draw_pipeline and the like make one")
        wide, high = size_of(one.svg)
        body = one.svg.partition("</defs>")[2].partition("/>")[2].removesuffix("</svg>")
        parts.append(moved(0, y, [body]))
        width, y = max(width, wide), y + high + 10
    alt = " ".join(one.alt for one in figures)
    caption = " ".join(one.caption for one in figures)
    return Figure(document(width, y - 10, parts, alt), caption, alt)


def size_of(svg: str) -> tuple[float, float]:
    """Width and height of a ``document`` in pixels."""
    wide, high = (svg.partition(f'{side}="')[2].partition('"')[0] for side in ("width", "height"))
    return float(wide), float(high)


def html_table(rows: Sequence[Sequence[object]], style: str = "") -> str:
    """``rows``, the first of them the head, as an HTML table; ``style`` is that of every cell."""
    own = attributes(style=style or None)
    head = "".join(f'<th scope="col"{own}>{_escaped(str(name))}</th>' for name in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td{own}>{_escaped(str(value))}</td>' for value in row)}</tr>"
        for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def printable(words: str) -> str:
    """``words`` with a sign in place of every character that XML cannot hold, such as Escape.

    >>> printable("a\\x1b[1mb")
    'a�[1mb'
    """
    return _NOT_XML.sub("\ufffd", words)


def _escaped(words: str, quote: bool = False) -> str:
    return escape(printable(words), quote)


def fill(index: int) -> str:
    """Colour of slice ``index``; after seven they repeat, under a hatch (see ``hatch``)."""
    return COLORS[index % len(COLORS)]


def hatch(index: int) -> str:
    """Fill of the hatch that tells slice ``index`` from the others of its colour, or ``""``."""
    number = index // len(COLORS) % len(_HATCHES)
    return f"url(#hatch{number})" if number else ""


def ink_on(ground: str) -> str:
    """Black or white, whichever stands out more on ``"#rrggbb"`` (relative luminance of WCAG 2)."""
    shares = [c / 255 for c in bytes.fromhex(ground[1:])]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else PAPER


def number(value: float) -> str:
    """A coordinate, to the hundredth of a pixel.

    >>> number(2.0), number(1 / 3)
    ('2', '0.33')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def attributes(**given: object) -> str:
    """Attributes as they stand in a tag; underscores become hyphens, None is left out."""
    text = ""
    for key, value in given.items():
        if value is not None:
            shown = number(value) if isinstance(value, (int, float)) else _escaped(str(value), True)
            text += f' {key.strip("_").replace("_", "-")}="{shown}"'
    return text


def rect(x: float, y: float, width: float, height: float, **style: object) -> str:
    """A rectangle."""
    return f"<rect{attributes(x=x, y=y, width=width, height=height, **style)}/>"


def inner_outline(x: float, y: float, width: float, height: float, thick: float) -> str:
    """A line ``thick`` pixels wide along the edges of a rectangle, inside of them."""
    inside = x + thick / 2, y + thick / 2, width - thick, height - thick
    return rect(*inside, fill="none", stroke=INK, stroke_width=thick)


def cell(x: float, y: float, width: float, height: float, index: int) -> str:
    """An outlined rectangle in the colour, and under the hatch, of slice ``index``."""
    drawn = rect(x, y, width, height, fill=fill(index), stroke=INK)
    if hatch(index):
        drawn += rect(x, y, width, height, fill=hatch(index))
    return drawn


def line(x1: float, y1: float, x2: float, y2: float, **style: object) -> str:
    """A straight line."""
    return f"<line{attributes(x1=x1, y1=y1, x2=x2, y2=y2, **{'stroke': INK, **style})}/>"


def moved(x: float, y: float, parts: Iterable[str]) -> str:
    """``parts``, drawn around the origin, at (x, y)."""
    return f'<g transform="translate({number(x)} {number(y)})">{"".join(parts)}</g>'


def upright(x: float, y: float) -> str:
    """The transform that turns words around (x, y), to be read from below."""
    return f"rotate(-90 {number(x)} {number(y)})"


def path(shape: str, **style: object) -> str:
    """A path; ``shape`` is its ``d``."""
    return f"<path{attributes(d=shape, **style)}/>"


def arrow(x: float, y: float, length: float) -> str:
    """An arrow to the right, its middle line at ``y``."""
    tip = x + length
    head = points([(tip, y), (tip - 8, y - 5), (tip - 8, y + 5)])
    return line(x, y, tip - 8, y, stroke_width=2) + f'<polygon points="{head}"/>'


def points(corners: Iterable[tuple[float, float]]) -> str:
    """Corners as the attribute of a polyline or polygon."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in corners)


def label(
    x: float, y: float, words: str, size: float = 12, anchor: str = "start", **style: object
) -> str:
    """A line of text with its baseline at ``y`` (nothing for no words)."""
    if not words:
        return ""
    own = attributes(x=x, y=y, font_size=size, text_anchor=anchor, **style)
    return f"<text{own}>{_escaped(words)}</text>"


def centred(
    x: float, y: float, words: str, size: float, index: int, turn: str | None = None
) -> list[str]:
    """``words`` around a point inside slice ``index``, on a plate where a hatch would cross."""
    parts = []
    if hatch(index):
        wide, high = text_width(words, size), size + 1
        plate = {"fill": fill(index), "transform": turn}
        parts.append(rect(x - wide / 2, y - high / 2, wide, high, **plate))
    style = {"fill": ink_on(fill(index)), "transform": turn}
    return [*parts, label(x, y + 0.36 * size, words, size, "middle", **style)]


def text_width(words: str, size: float = 12) -> float:
    """Pixels that ``words`` take at most, in the widest of the fonts asked for."""
    return sum(0.33 if c in " .,:;'[]()|" else 0.68 for c in words) * size * 1.04


def widest(lines: Iterable[str], size: float = 12) -> float:
    """Width of the longest of ``lines``."""
    return max((text_width(words, size) for words in lines), default=0.0)


def note(x: float, y: float, words: str, width: float, size: float = 10) -> tuple[list[str], float]:
    """``words`` in lines of ``width`` pixels, longer words alone, and where they end."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else ""
        if longer and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    parts = [label(x, y + 15 * i, s, size, font_style="italic") for i, s in enumerate(lines, 1)]
    return parts, y + 15 * len(lines)


def document(width: float, height: float, parts: Sequence[str], alt: str) -> str:
    """The whole SVG: white ground, the hatches, ``parts`` in order, ``alt`` as its title."""
    hatches = "".join(
        f'<pattern id="hatch{i}" width="6" height="6" patternUnits="userSpaceOnUse">{lines}'
        "</pattern>"
        for i, lines in enumerate(_HATCHES)
        if lines
    )
    size = f'width="{number(width)}" height="{number(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {number(width)} {number(height)}" font-family="{FONT}" role="img">'
        f"<title>{_escaped(alt)}</title><defs>{hatches}</defs>"
        f'<rect width="100%" height="100%" fill="{PAPER}"/>{"".join(parts)}</svg>'
    )
