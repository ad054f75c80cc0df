"""Bytes from host to host as a matrix, with what every NIC sends and takes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reshard_lab.errors import ReshardError, check_type, short
from reshard_lab.planning import Plan
from reshard_lab.planning.explain import device_list
from reshard_lab.planning.nics import Traffic, traffic
from reshard_lab.plots import svg
from reshard_lab.units import format_bytes, format_seconds

MOST_HOSTS = 16
"""More hosts than this are not drawn: nobody could read the numbers."""
_CELL_WIDE, _CELL_HIGH, _SIZE, _LEFT, _GAP = 74.0, 30.0, 11, 84.0, 40.0
_PAGE = 1080.0
_LIGHT, _DARK = (255, 255, 255), (0, 114, 178)  # of Okabe and Ito's blue


def draw_traffic(plans: Plan | Traffic | Mapping[str, Plan | Traffic]) -> svg.Figure:
    """Host-to-host bytes of a plan as a figure, or of several by name on one scale of colours.

    A row is a host that sends, a column one that takes in. What stays within a host is in
    brackets, and uses no NIC. The busiest sides of NICs are outlined. The picture's table is
    ``planning.nics.traffic(plan).to_frame()``.
    """
    shown = _read(plans)
    caption = (
        "Bytes from host (row) to host (column): darker is more, what is in brackets stays within "
        "a host. Outlined: the busiest sides of NICs, which no order of the transfers can beat."
    )
    alt = " ".join(_alt(name, t) for name, t in shown.items())
    return svg.Figure(_svg(shown, alt), caption, alt)


def _read(plans: Plan | Traffic | Mapping[str, Plan | Traffic]) -> dict[str, Traffic]:
    named = dict(plans) if isinstance(plans, Mapping) else {"": plans}
    if not named:
        raise ReshardError("there is no plan to draw; give one, or several by name")
    shown = {}
    for name, one in named.items():
        if not isinstance(one, Traffic):
            one = traffic(check_type(f"plan {short(name)}" if name else "plan", one, Plan))
        shown[str(name)] = one
    for name, t in shown.items():
        if len(t.hosts) > MOST_HOSTS:
            raise ReshardError(
                f"a traffic matrix shows up to {MOST_HOSTS} hosts, but {name or 'the plan'} has "
                f"{len(t.hosts)}; use traffic(plan).to_frame() instead"
            )
    return shown


def _svg(shown: Mapping[str, Traffic], alt: str) -> str:
    crossing = [n for t in shown.values() for (a, b), n in t.nbytes.items() if a != b]
    most = max(crossing, default=0)
    parts: list[str] = []
    x = y = wide = 0.0
    row_high = 0.0
    for name, t in shown.items():
        across, high, drawn = _matrix(name, t, most)
        if x and x + _GAP + across > _PAGE:
            x, y = 0.0, y + row_high + 12
            row_high = 0.0
        x += _GAP if x else 0.0
        parts.append(svg.moved(x, y, drawn))
        x += across
        wide, row_high = max(wide, x), max(row_high, high)
    return svg.document(wide + 12, y + row_high + 8, parts, alt)


def _matrix(name: str, t: Traffic, most: int) -> tuple[float, float, list[str]]:
    """Width, height and parts of one plan's matrix."""
    top = 66.0 if name else 46.0
    right = _LEFT + len(t.hosts) * _CELL_WIDE
    bottom = top + len(t.hosts) * _CELL_HIGH
    busiest = {(load.host, load.side) for load in t.bottlenecks}
    parts = [svg.label(12, 18, name, 12, font_weight="bold")]
    parts.append(svg.label((_LEFT + right) / 2, top - 26, "to", _SIZE, "middle"))
    parts.append(svg.label(12, top - 8, "from", _SIZE))
    for i, host in enumerate(t.hosts):
        x, y = _LEFT + i * _CELL_WIDE, top + i * _CELL_HIGH
        parts.append(svg.label(x + _CELL_WIDE / 2, top - 8, f"host {host}", _SIZE, "middle"))
        parts.append(svg.label(_LEFT - 8, y + _CELL_HIGH / 2 + 4, f"host {host}", _SIZE, "end"))
        for j, other in enumerate(t.hosts):
            parts += _cell(_LEFT + j * _CELL_WIDE, y, t, (host, other), most)
        parts += _sum(right + 8, y, t.sent(host), (host, "tx") in busiest)
        parts += _sum(x, bottom + 8, t.received(host), (host, "rx") in busiest)
    parts.append(svg.label(right + 8 + _CELL_WIDE / 2, top - 8, "sends", _SIZE, "middle"))
    parts.append(svg.label(_LEFT - 8, bottom + 8 + _CELL_HIGH / 2 + 4, "takes in", _SIZE, "end"))
    width = max(right + 8 + _CELL_WIDE + 4, 380.0)
    words, y = svg.note(12, bottom + 8 + _CELL_HIGH + 6, _busiest(t), width - 12, _SIZE)
    parts += words
    return width, y, parts


def _cell(x: float, y: float, t: Traffic, ends: tuple[int, int], most: int) -> list[str]:
    nbytes = t.nbytes.get(ends, 0)
    inside = ends[0] == ends[1]
    ground = _LIGHT if inside else shade(nbytes, most)
    style = {"fill": "#" + bytes(ground).hex(), "stroke": svg.INK, "stroke_width": 0.7}
    parts = [svg.rect(x, y, _CELL_WIDE, _CELL_HIGH, **style)]
    if nbytes:
        words = f"({format_bytes(nbytes)})" if inside else format_bytes(nbytes)
        middle = x + _CELL_WIDE / 2, y + _CELL_HIGH / 2 + 4
        parts.append(svg.label(*middle, words, _SIZE - 1, "middle", fill=ink_on(ground)))
    return parts


def _sum(x: float, y: float, nbytes: int, marked: bool) -> list[str]:
    """What a host sends or takes in over the network; the busiest has a thick outline."""
    middle = x + _CELL_WIDE / 2, y + _CELL_HIGH / 2 + 4
    weight = "bold" if marked else None
    parts = [svg.label(*middle, format_bytes(nbytes), _SIZE - 1, "middle", font_weight=weight)]
    if marked:
        style = {"fill": "none", "stroke": svg.INK, "stroke_width": 2.5}
        parts.append(svg.rect(x + 1, y + 1, _CELL_WIDE - 2, _CELL_HIGH - 2, **style))
    return parts


def shade(nbytes: float, most: float) -> tuple[int, int, int]:
    """Red, green and blue from white (0) to blue (``most``), in proportion.

    >>> shade(0, 10), shade(10, 10)
    ((255, 255, 255), (0, 114, 178))
    """
    share = nbytes / most if most else 0.0
    red, green, blue = (
        round(light + (dark - light) * share) for light, dark in zip(_LIGHT, _DARK, strict=True)
    )
    return red, green, blue


def ink_on(ground: Sequence[int]) -> str:
    """Black or white, whichever stands out more (relative luminance of WCAG 2)."""
    shares = [c / 255 for c in ground]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return svg.INK if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else svg.PAPER


def _busiest(t: Traffic) -> str:
    """The bottlenecks in a sentence."""
    if not t.bottlenecks:
        return "Nothing crosses the network."
    sides = []
    for side, does in (("tx", "sends"), ("rx", "takes in")):
        hosts = [load.host for load in t.bottlenecks if load.side == side]
        if hosts:
            plural = "hosts" if len(set(hosts)) > 1 else "host"
            sides.append(f"what a NIC of {plural} {device_list(sorted(set(hosts)))} {does}")
    first = t.bottlenecks[0]
    return (
        f"Busiest: {' and '.join(sides)}, {format_bytes(first.nbytes)}: "
        f"{format_seconds(first.seconds)} at full rate; the plan takes "
        f"{format_seconds(t.makespan_s)}."
    )


def _alt(name: str, t: Traffic) -> str:
    lines = [f"host {a} to host {b}: {format_bytes(n)}" for (a, b), n in t.nbytes.items() if a != b]
    text = "; ".join(lines[:12]) + ("; and so on" if len(lines) > 12 else "")
    head = f"{name}: bytes from host to host" if name else "Bytes from host to host"
    return f"{head}: {text or 'none'}. {_busiest(t)}"
