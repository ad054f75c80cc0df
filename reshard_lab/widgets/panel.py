"""The frame of every explorer: labelled controls, a picture, its numbers, errors in place.

An explorer is made of two things: controls, and a function from their values to a ``View``. A
change of a control draws anew and replaces the picture in one assignment, so the old one stays
until the new one is there. Where the values cannot be drawn, the error's text appears between
controls and picture, and the last good picture stays.

In a notebook an explorer also carries its picture as plain HTML and a line of text, the same in
every run, for pages without widgets. JupyterLab prefers the widget even where no kernel has one
any more, as in a notebook opened again; ``Explorer.figure`` is what stays there.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

from reshard_lab.errors import ReshardError, check_choice, need
from reshard_lab.plots.svg import Figure, html_table, size_of
from reshard_lab.widgets import controls

MOST_ROWS = 512
"""Of a table in the page."""
_TWO_LINES = 40
"""Pixels of two lines of text, which numbers and captions have room for."""
_SMALLEST_TEXT = 9.0
"""Pixels that text in a picture keeps: where the page is too narrow for it, the picture scrolls."""


@dataclass(frozen=True)
class View:
    """What an explorer shows for one setting of its controls."""

    figure: Figure
    table: Sequence[Sequence[object]]
    """The data behind the picture: a head, then rows of the same length."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Numbers to read at a glance, by name."""
    notes: Sequence[str] = ()
    """Sentences under the picture."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Traits that controls get with this view, such as ``{"step": {"max": 9}}``."""


class Explorer:
    """``groups`` of controls, and the view that ``draw`` makes of their values.

    groups:
        ``{heading: {name of a control: its widget}}``; an empty heading is not shown.
    draw:
        called with the value of every control by its name; raises ``ReshardError`` on bad ones.
    play:
        name of an ``IntSlider`` among the controls that gets buttons to play and stop.

    Every control needs a ``description``. Setting the value of a control draws anew; ``set``
    changes several with one drawing, and ``close`` ends it. Raises ``ReshardError`` if the first
    view cannot be drawn; later ones show the text of the error in place.
    """

    def __init__(
        self,
        title: str,
        groups: Mapping[str, Mapping[str, Any]],
        draw: Callable[..., View],
        play: str | None = None,
    ) -> None:
        widgets = controls.ipywidgets()
        self.title = title
        self.controls: dict[str, Any] = {
            name: control for group in groups.values() for name, control in group.items()
        }
        for name, control in self.controls.items():
            if not getattr(control, "description", ""):
                raise ReshardError(f"control {name!r} has no label; give it a description")
        self._draw = draw
        self._muted = False
        self._room = 1.0, 0.0, 0.0
        self.player: Any = controls.player(self.controls[play]) if play is not None else None
        self.error, self.facts, self.picture, self.notes, self.table = (
            widgets.HTML() for _ in range(5)
        )
        self.error.layout.min_height = "30px"  # room for a line, so that nothing moves
        self.picture.layout.overflow = "auto"  # not the figure: a new one would scroll back
        self.picture.tabbable = True  # for the arrow keys that scroll it
        self.show_table = widgets.Checkbox(description="show the data table", indent=False)
        shown = [
            controls.column(heading, group, self.player if play in group else None)
            for heading, group in groups.items()
        ]
        bar = widgets.Box(shown, layout={"flex_flow": "row wrap", "align_items": "flex-start"})
        rows = [bar, self.error, self.facts, self.picture, self.notes, self.show_table, self.table]
        self.box = widgets.VBox(rows)
        self._show(self._drawn())
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self.show_table.observe(lambda _: self._show_table(), names="value")

    @property
    def figure(self) -> Figure:
        """The picture shown, for ``plots.export``."""
        return self.view.figure

    def to_frame(self) -> Any:
        """The data behind the picture as a pandas DataFrame."""
        head, *rows = self.view.table
        return need("pandas", "notebooks", "a table").DataFrame(rows, columns=list(head))

    def set(self, **values: Any) -> None:
        """Give several controls a value, and draw once.

        Raises ReshardError for a value that a control cannot have; then none has changed.
        """
        for name in values:
            check_choice("control", name, self.controls)
        before = {name: self.controls[name].value for name in values}
        with self._quiet():
            try:
                for name, value in values.items():
                    controls.put(name, self.controls[name], value)
            except Exception:
                for name, was in before.items():
                    self.controls[name].value = was
                raise
        self._changed()

    def close(self) -> None:
        """Stop playing, and take the controls and the picture off the page.

        ``figure`` and ``to_frame`` stay, and a cell shows the picture alone.
        """
        if self.player is not None:
            self.player.playing = False
            self.player.close()
        for part in (*self.controls.values(), *self.box.children, self.box):
            part.close()

    def _changed(self, _: object = None) -> None:
        """Draw with the controls as they are now."""
        if self._muted:
            return
        try:
            self._show(self._drawn())
        except ReshardError as error:
            self.error.value = _error_html(str(error))

    def _drawn(self) -> View:
        """The view of the controls' values, which its settings may change once."""
        values = self._values()
        view = self._draw(**values)
        with self._quiet():
            for name, traits in view.settings.items():
                for trait, value in traits.items():
                    setattr(self.controls[name], trait, value)
        now = self._values()
        return view if now == values else self._draw(**now)

    def _values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    def _show(self, view: View) -> None:
        self.view, self.error.value = view, _error_html("")
        facts = [f"<b>{escape(k)}</b>&nbsp;{escape(v)}" for k, v in view.facts.items()]
        span = '<span style="display:inline-block">'  # a number is not torn from its name
        line = f" ·</span> {span}".join(facts)
        lines = "".join(f"<li>{escape(note)}</li>" for note in view.notes)
        room = f"line-height:{_TWO_LINES / 2}px;min-height:{_TWO_LINES}px"
        self.facts.value = f'<div aria-live="polite" style="{room}">{span}{line}</span></div>'
        self.picture.value = self._picture_html()
        self.notes.value = f'<ul style="margin:0;line-height:1.5">{lines}</ul>' if lines else ""
        self._show_table()

    def _picture_html(self) -> str:
        """The figure inline, as an image would flicker.

        Its hatches get names of their own: those of a hidden picture would not be drawn here. The
        empty element keeps the room of the tallest picture so far, so that what is below stays
        where it is; a picture less than half as high lets the room go.
        """
        figure = self.view.figure
        _, _, rest = figure.svg.partition("<svg ")
        head, _, tail = rest.partition("<title>")
        body, name = tail.partition("</title>")[2], f"hatch-{self.picture.model_id}-"
        body = body.replace('id="hatch', f'id="{name}').replace("url(#hatch", f"url(#{name}")
        own_wide, own_high, own_least = own = _sizes(figure.svg)
        if not own_high <= self._room[1] <= 2 * own_high:
            self._room = own
        wide, high, least = self._room
        room = f"clamp({least * high:.0f}px,{100 * high / wide:.2f}%,{high:.0f}px)"
        size = f"max-width:100%;height:auto;min-width:{own_least * own_wide:.0f}px"
        return (  # the width is one that the picture does not stretch, so that the caption fits
            '<figure style="margin:0;display:flow-root;width:0;min-width:100%">'
            f'<div style="float:left;padding-top:{room};margin-bottom:{_TWO_LINES}px"></div>'
            f'<svg style="display:block;{size}" aria-label="{escape(figure.alt)}" {head}{body}'
            f'<figcaption style="line-height:{_TWO_LINES / 2}px">'
            f"{escape(figure.caption)}</figcaption></figure>"
        )

    def _show_table(self) -> None:
        shown = self.show_table.value
        self.table.value = table_html(self.view.table, self.title) if shown else ""

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        before, self._muted = self._muted, True
        try:
            yield
        finally:
            self._muted = before

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        # Front ends take the widget where they can run it, else the picture, else the line.
        own = {"text/plain": repr(self), "text/html": self.figure._repr_html_()}
        widget = self.box._repr_mimebundle_  # None once it is closed
        return {**((widget() if widget else None) or {}), **own}

    def __repr__(self) -> str:
        return f"Explorer({self.title!r}: {self.figure.caption})"


def table_html(rows: Sequence[Sequence[object]], title: str = "data") -> str:
    """``rows``, the first of them the head, as an HTML table that scrolls when it is long.

    It shows the first ``MOST_ROWS``, and says so; ``to_frame`` and ``plots.export`` have them all.
    """
    if not rows:
        return ""
    count = len(rows) - 1
    cut = f"<p>The first {MOST_ROWS} of {count} rows; to_frame() has them all.</p>"
    table = html_table(rows[: MOST_ROWS + 1], "text-align:left;padding:2px 10px")
    return (
        f'<div role="region" aria-label="data of the {escape(title)}" tabindex="0" '
        f'style="max-height:22em;overflow:auto;line-height:1.4">{table}'
        f"{cut if count > MOST_ROWS else ''}</div>"
    )


def _error_html(words: str) -> str:
    """The line for errors: an alert, which is read out as it comes into the page."""
    look = "background:#fff;color:#000;border-left:6px solid #D55E00;padding:2px 8px"
    inner = f'<div style="{look}">Not drawn: {escape(words)}</div>' if words else ""
    return f'<div role="alert" style="line-height:1.4">{inner}</div>'


def _sizes(svg: str) -> tuple[float, float, float]:
    """Width and height of a picture, and the part of them that its text needs to be read."""
    smallest = min(map(float, re.findall(r'font-size="([0-9.]+)"', svg)), default=math.inf)
    return *size_of(svg), min(1.0, _SMALLEST_TEXT / smallest)
