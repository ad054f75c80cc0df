"""Two dimensions of a tensor as a rectangle on the page: cuts, pieces, elements."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from reshard_lab.boxes import Box, box_volume
from reshard_lab.errors import ReshardError, check_int, check_type
from reshard_lab.plots import svg

_CELLS = 16  # up to so many elements a side are drawn one by one
_LINE = 4.0  # thickness of the outline of a marked box
_NUMBERED = 64  # and up to so many in all carry their row-major number

PageRect = tuple[float, float, float, float]
"""``x, y, width, height`` on the page."""


@dataclass(frozen=True)
class Plane:
    """The plane of a tensor that is drawn, and its size in pixels."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    """The dimensions drawn, down and across; one or none for tensors of fewer than two."""
    width: float
    height: float
    at: tuple[int, ...]
    """Index of the plane in every dimension; those drawn do not count."""

    @property
    def rows(self) -> int:
        """Elements down."""
        return self.shape[self.axes[0]] if len(self.axes) == 2 else 1

    @property
    def columns(self) -> int:
        """Elements across."""
        return self.shape[self.axes[-1]] if self.axes else 1

    @property
    def element(self) -> tuple[float, float]:
        """Width and height of an element in pixels."""
        return self.width / max(self.columns, 1), self.height / max(self.rows, 1)

    def rect(self, box: Box, x: float, y: float) -> PageRect:
        """Where ``box`` is on the page, with the corner of the plane at (x, y)."""
        top, bottom = box[self.axes[0]] if len(self.axes) == 2 else (0, 1)
        left, right = box[self.axes[-1]] if self.axes else (0, 1)
        across, down = self.element
        size = (right - left) * across, (bottom - top) * down
        return x + left * across, y + top * down, *size

    def meets(self, box: Box) -> bool:
        """Whether any element of ``box`` lies in the plane."""
        hidden = ((d, edges) for d, edges in enumerate(box) if d not in self.axes)
        return box_volume(box) > 0 and all(lo <= self.at[d] < hi for d, (lo, hi) in hidden)


def plane(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    width: float,
    height: float,
    unit: float,
    at: tuple[int, ...] = (),
) -> Plane:
    """The plane at index ``at`` (none given = all 0), fitted into ``width`` × ``height``.

    An element is at most ``unit`` wide. Proportions are kept for few elements, and up to 2 to 1
    for many.
    """
    rough = Plane(shape, axes, width, height, at or (0,) * len(shape))
    rows, columns = max(rough.rows, 1), max(rough.columns, 1)
    if rows <= _CELLS and columns <= _CELLS:
        side = min(unit, width / columns, height / rows)
        return replace(rough, width=max(side * columns, 24.0), height=max(side * rows, 24.0))
    aspect = min(max(columns / rows, 0.5), 2.0)
    wide = min(width, height * aspect)
    return replace(rough, width=wide, height=wide / aspect)


def choose_axes(
    shape: tuple[int, ...], boxes: Iterable[Box], axes: Sequence[int] | None
) -> tuple[int, ...]:
    """The dimensions to draw: ``axes``, or the two cut into most parts; ties go to the lower."""
    if axes is not None:
        check_type("axes", axes, Sequence, "give two dimensions, such as (0, 1)")
        chosen = tuple(check_int("axis", a) for a in axes)
        if len(chosen) != min(2, len(shape)) or len(set(chosen)) < len(chosen):
            raise ReshardError(
                f"axes {axes!r} do not choose a plane of shape {shape}; "
                f"give {min(2, len(shape))} different dimensions"
            )
        for a in chosen:
            if a >= len(shape):
                raise ReshardError(
                    f"axis {a} is not in shape {shape}; its dimensions are 0 to {len(shape) - 1}"
                )
        return chosen
    intervals = [set(along) for along in zip(*boxes, strict=True)] or [set() for _ in shape]
    order = sorted(range(len(shape)), key=lambda d: (-len(intervals[d]), d))
    return tuple(sorted(order[:2]))


def cut_up(
    frame: Plane, x: float, y: float, slices: Sequence[tuple[Box, str]], marked: Box | None
) -> tuple[list[str], bool]:
    """The whole plane in its coloured slices, and whether a label fitted into every one.

    A ``marked`` box is outlined, and labels keep clear of the line.
    """
    parts = [svg.rect(x, y, frame.width, frame.height, fill="none", stroke=svg.INK)]
    names: list[str] = []
    complete = True
    line = None if marked is None else frame.rect(marked, x, y)
    for index, (box, words) in enumerate(slices):
        if frame.meets(box):
            rect = frame.rect(box, x, y)
            name = _fitted(words, rect, index, line)
            parts.append(svg.cell(*rect, index))
            names += name
            complete = complete and bool(name)
    if marked is not None:
        parts.append(outline(frame, x, y, marked, _LINE))
    ticks = _ticks(frame, x, y, [box for box, _ in slices if frame.meets(box)])
    return parts + names + ticks, complete


def outline(frame: Plane, x: float, y: float, box: Box, thick: float) -> str:
    """A thick line around ``box``, just inside of its edges; nothing if it is empty."""
    if not box_volume(box):
        return ""
    rect = frame.rect(box, x, y)
    return svg.inner_outline(*rect, min(thick, rect[2] / 2, rect[3] / 2))


def piece(frame: Plane, x: float, y: float, box: Box, index: int) -> list[str]:
    """The plane with ``box`` filled in; small tensors show each element, numbered in the box."""
    parts = [svg.rect(x, y, frame.width, frame.height, fill=svg.PAPER, stroke=svg.INK)]
    if box_volume(box):
        parts.append(svg.cell(*frame.rect(box, x, y), index))
    if frame.rows > _CELLS or frame.columns > _CELLS:
        return parts
    across, down = frame.element
    faint = {"stroke_width": 0.5, "stroke_opacity": 0.5}
    for i in range(1, frame.columns):
        parts.append(svg.line(x + i * across, y, x + i * across, y + frame.height, **faint))
    for i in range(1, frame.rows):
        parts.append(svg.line(x, y + i * down, x + frame.width, y + i * down, **faint))
    few = frame.rows * frame.columns <= _NUMBERED
    if len(frame.shape) <= 2 and few and across >= 13 and down >= 11:
        rows, columns = (((0, 1), *box)[-2:]) if box else ((0, 1), (0, 1))
        for r, c in itertools.product(range(*rows), range(*columns)):
            at = x + (c + 0.5) * across, y + (r + 0.5) * down
            parts += svg.centred(*at, str(r * frame.columns + c), 10 if across >= 16 else 9, index)
    return parts


def _fitted(words: str, cell: PageRect, index: int, line: PageRect | None) -> list[str]:
    """``words`` in a cell at the largest size that fits, upright if they must; or nothing.

    Where there is no room beside an outline at ``line``, they stand on it, on a plate.
    """
    _, _, wide, high = cell
    for size in (12, 10, 9):
        length = svg.text_width(words, size) + 4
        turned = not (length <= wide and size + 1 <= high)
        if turned and (length > high or size + 1 > wide):
            continue
        room = (size + 1, length) if turned else (length, size + 1)
        clear = (at for at in _spots(cell, room) if line is None or not _crosses(at, line))
        spot = next(clear, None)
        left, top, _, _ = spot or next(_spots(cell, room))
        middle, centre = left + room[0] / 2, top + room[1] / 2
        turn = svg.upright(middle, centre) if turned else None
        plate = [] if spot else [svg.rect(left, top, *room, fill=svg.fill(index))]
        return [*plate, *svg.centred(middle, centre, words, size, index, turn)]
    return []


def _spots(cell: PageRect, room: tuple[float, float]) -> Iterator[PageRect]:
    """Where something of the size ``room`` can stand in a cell: in the middle, then elsewhere."""
    left, top, wide, high = cell
    spare = wide - room[0], high - room[1]
    for across, down in ((0.5, 0.5), (0.5, 0.2), (0.5, 0.8), (0.2, 0.5), (0.8, 0.5), (0.2, 0.2)):
        yield left + across * spare[0], top + down * spare[1], *room


def _crosses(one: PageRect, line: PageRect) -> bool:
    """Whether ``one`` touches the outline at ``line``: not if it is outside, or well inside."""
    (x, y, wide, high), (left, top, width, height) = one, line
    right, bottom = left + width, top + height
    outside = x >= right or x + wide <= left or y >= bottom or y + high <= top
    across = left + _LINE <= x and x + wide <= right - _LINE
    down = top + _LINE <= y and y + high <= bottom - _LINE
    return not outside and not (across and down)


def _ticks(frame: Plane, x: float, y: float, boxes: Sequence[Box]) -> list[str]:
    """Names of the dimensions, and where they are cut, as many as fit."""
    parts = []
    across, down = frame.element
    if frame.axes:
        axis = frame.axes[-1]
        edges = _spaced(boxes, axis, frame.columns, across, across=True)
        parts += [svg.label(x + e * across, y - 4, str(e), 10, "middle") for e in edges]
        parts.append(svg.label(x + frame.width / 2, y - 18, f"dim {axis}", 11, "middle"))
    if len(frame.axes) == 2:
        axis = frame.axes[0]
        edges = _spaced(boxes, axis, frame.rows, down, across=False)
        parts += [svg.label(x - 4, y + e * down + 3.5, str(e), 10, "end") for e in edges]
        at = x - 10 - svg.text_width(str(frame.rows), 10), y + frame.height / 2
        parts.append(svg.label(*at, f"dim {axis}", 11, "middle", transform=svg.upright(*at)))
    return parts


def _spaced(boxes: Sequence[Box], axis: int, end: int, scale: float, across: bool) -> list[int]:
    """Both ends of the axis and the cuts between that leave room for each other's labels."""
    shown = [0, end] if end else [0]

    def room(edge: int, other: int) -> bool:
        length = svg.text_width(f"{edge}{other}", 10) / 2 + 4 if across else 11
        return abs(edge - other) * scale >= length

    for edge in sorted({e for box in boxes for e in box[axis]}):
        if all(room(edge, other) for other in shown):
            shown.append(edge)
    return sorted(shown)
