"""Pictures below each other as one."""

from __future__ import annotations

from reshard_lab.errors import ReshardError, check_type
from reshard_lab.plots import svg

_GAP = 10.0


def stacked(*figures: svg.Figure) -> svg.Figure:
    """``figures`` below each other, their captions and alt texts one after another."""
    parts: list[str] = []
    width = y = 0.0
    if not figures:
        raise ReshardError("there is no figure to stack; give at least one")
    for number, one in enumerate(figures):
        check_type(f"figure {number}", one, svg.Figure, "plots.draw_pipeline and the like make one")
        head, _, rest = one.svg.partition(">")
        wide, high = (float(head.partition(f'{side}="')[2].partition('"')[0]) for side in _SIDES)
        body = rest.partition("</defs>")[2].partition("/>")[2].removesuffix("</svg>")
        parts.append(f'<g transform="translate(0 {svg.number(y)})">{body}</g>')
        width, y = max(width, wide), y + high + _GAP
    alt = " ".join(one.alt for one in figures)
    drawn = svg.document(width, y - _GAP, parts, alt)
    return svg.figure(drawn, " ".join(one.caption for one in figures), alt)


_SIDES = "width", "height"
