"""The controls of an explorer: each carries its label, and says what it takes."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from reshard_lab.errors import ReshardError, check_bool, check_int, need, short


def ipywidgets() -> Any:
    """The library of controls, or the error that says how to install it."""
    return need("ipywidgets", "notebooks", "an explorer")


def text(description: str, value: str) -> Any:
    """A field of text; it takes effect on Enter, or when it is left."""
    if not isinstance(value, str):
        raise ReshardError(
            f"{description} must be text, as it stands in the field, not {short(value)}"
        )
    return _control("Text", description, value, continuous_update=False)


def menu(description: str, options: Sequence[Any], value: Any, width: str = "16em") -> Any:
    """A choice of one of ``options`` (or of pairs of a label and a value)."""
    values = _values(options)
    if value not in values:
        raise ReshardError(
            f"{description} cannot be {short(value)}; it is one of {', '.join(map(str, values))}"
        )
    return _control("Dropdown", description, value, width, options=options)


def slider(
    description: str, value: int, least: int, most: int, step: int = 1, width: str = "24em"
) -> Any:
    """A whole number from ``least`` to ``most``, drawn anew while it moves."""
    check_int(description, value, least, most)
    return _control("IntSlider", description, value, width, min=least, max=most, step=step)


def fine_slider(description: str, value: Any, most: float) -> Any:
    """A number to the tenth, from 0 to ``most``, drawn anew while it moves."""
    if not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ReshardError(f"{description} must be from 0 to {most:g}, not {short(value)}")
    limits = {"min": 0.0, "max": most, "step": 0.1, "readout_format": ".1f"}
    return _control("FloatSlider", description, value, "24em", **limits)


def checkbox(description: str, value: bool) -> Any:
    """Yes or no."""
    return _control("Checkbox", description, check_bool(description, value), indent=False)


def _control(kind: str, description: str, value: Any, width: str = "16em", **traits: Any) -> Any:
    look = {"style": {"description_width": "initial"}, "layout": {"width": width}}
    traits |= {"description": description, "value": value, **look}
    return getattr(ipywidgets(), kind)(**traits)


def player(control: Any) -> Any:
    """Buttons that move ``control``, in the browser, a step at a time."""
    widgets = ipywidgets()
    play = widgets.Play(min=control.min, max=control.max, interval=700, show_repeat=False)
    # The first of the two gives the other its value when they are shown.
    widgets.jslink((control, "value"), (play, "value"))
    for end in ("min", "max"):
        widgets.dlink((control, end), (play, end))
    return play


def column(heading: str, group: Mapping[str, Any], play: Any = None) -> Any:
    """Controls below their heading, and the buttons that play one of them."""
    words = [ipywidgets().HTML(f"<b>{escape(heading)}</b>")] if heading else []
    rows = [*words, *group.values(), *([play] if play is not None else [])]
    return ipywidgets().VBox(rows, layout={"margin": "0 16px 0 0"})


def put(name: str, control: Any, value: Any) -> None:
    """Set ``control``, called ``name``; ReshardError for a value beyond it."""
    try:
        control.value = value
        taken = bool(control.value == value)
    except (need("traitlets", "notebooks", "an explorer").TraitError, TypeError, ValueError):
        taken = False  # traitlets fails to say what is wrong with a tuple
    if taken:
        return
    allowed = ""
    if hasattr(control, "options"):
        allowed = f"; it offers {', '.join(map(str, _values(control.options)))}"
    elif hasattr(control, "max"):
        allowed = f"; it goes from {control.min} to {control.max}"
    raise ReshardError(f"control {name!r} cannot be {short(value)}{allowed}")


def _values(options: Sequence[Any]) -> list[Any]:
    """What a menu of ``options`` gives."""
    return [one[1] if isinstance(one, tuple) else one for one in options]
