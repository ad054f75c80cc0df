"""Plans drawn: NICs over time, predicted and simulated, and bytes from host to host."""

from collections.abc import Mapping

from reshard_lab.errors import ReshardError, check_type, short
from reshard_lab.planning import Plan
from reshard_lab.planning.nics import Gantt, Traffic, traffic
from reshard_lab.plots import svg
from reshard_lab.plots.nic_rows import NicRows, TaskSpan, nic_rows_svg, row_name
from reshard_lab.plots.time_axis import instant
from reshard_lab.simulation import Timeline
from reshard_lab.units import device_list, format_bytes, format_seconds

MOST_HOSTS = 16
"""More hosts than this are not drawn: nobody could read the numbers."""
_CELL_WIDE, _CELL_HIGH, _SIZE, _LEFT, _GAP = 74.0, 30.0, 11, 84.0, 40.0
_PAGE = 1080.0
_LEGEND = (
    "A bar is a unit task on a NIC, numbered; "
    "the share of the time in which the NIC lies idle stands at the right."
)
_FROM_PLAN = "plan.gantt() makes one"


def gantt(chart: Gantt, caption: str | None = None) -> svg.Figure:
    """``chart`` (see ``Plan.gantt``) as a figure; its table is ``chart.to_frame()``."""
    return _figure(_gantt_rows(check_type("chart", chart, Gantt, _FROM_PLAN)), caption)


def gantts(
    charts: Mapping[str, Gantt], moment_s: float | None = None, caption: str | None = None
) -> svg.Figure:
    """Several plans by name, one below the other on one time axis, as a figure.

    moment_s:
        a time that is marked: bars under way then have a thick outline, those to come are empty.
    """
    check_type("charts", charts, Mapping, "give them as {name: plan.gantt()}")
    if not charts:
        raise ReshardError("no plan to draw; give at least one, as {name: plan.gantt()}")
    plans = {
        str(name): _gantt_rows(check_type(f"chart {short(name)}", chart, Gantt, _FROM_PLAN))
        for name, chart in charts.items()
    }
    words = caption or (
        "On one time axis, each with its lower bound (dashed): "
        + "; ".join(f"{name}, {format_seconds(rows.end_s)}" for name, rows in plans.items())
        + f". {_LEGEND}"
    )
    alt = " ".join(f"{name}: {rows.alt}" for name, rows in plans.items())
    if moment_s is not None:
        moment = format_seconds(instant("moment_s", moment_s))
        words += f" At {moment} (the upright line): thick, under way; dotted, still to come."
        alt += f" {moment} is marked."
    return svg.Figure(nic_rows_svg(plans, alt, moment_s), words, alt)


def draw_timeline(timeline: Timeline, caption: str | None = None) -> svg.Figure:
    """``timeline`` as a figure, a row a NIC and direction; its table is ``timeline.to_frame()``."""
    check_type("timeline", timeline, Timeline, "reshard_lab.simulate makes one")
    columns, end_s, plan = timeline.columns, timeline.duration_s, timeline.plan
    spans, idle = {}, {}
    for use in sorted(timeline.nic_use(), key=lambda u: (u.direction == "rx", u.nic)):
        name = row_name(timeline.cluster.nic_text(use.nic), use.direction)
        own = columns[f"{use.direction}_nic"] == use.nic
        values = (columns[key][own].tolist() for key in ("start_s", "end_s", "unit"))
        spans[name] = [TaskSpan(*row) for row in zip(*values, strict=True)]
        idle[name] = use.idle_s / end_s if end_s else 0.0
    inside, carries = bool((columns["tx_nic"] < 0).any()), f"{len(plan.unit_tasks)} unit tasks"
    rows = NicRows(spans, idle, end_s, plan.lower_bound_s, inside, "simulated", carries)
    return _figure(rows, caption)


def _figure(rows: NicRows, caption: str | None) -> svg.Figure:
    words = caption or (
        f"{rows.how.capitalize()} {format_seconds(rows.end_s)}; lower bound "
        f"{format_seconds(rows.bound_s)} (dashed). {_LEGEND}"
    )
    return svg.Figure(nic_rows_svg({"": rows}, rows.alt), words, rows.alt)


def _gantt_rows(chart: Gantt) -> NicRows:
    """NIC sides that send, by NIC, then those that receive."""
    spans: dict[tuple[str, int], list[TaskSpan]] = {}
    for d in chart.deliveries:
        if d.sender_nic is not None:
            for key in [("tx", d.sender_nic), *(("rx", nic) for nic in d.receiver_nics)]:
                spans.setdefault(key, []).append(TaskSpan(d.start_s, d.end_s, d.task))
    order = sorted(spans, key=lambda k: (k[0] == "rx", k[1]))
    rows = {row_name(chart.nics[nic], side): spans[side, nic] for side, nic in order}
    idle = {row_name(chart.nics[i.nic], i.side): i.share for i in chart.idle}
    inside = any(d.sender_nic is None for d in chart.deliveries)
    ends = chart.makespan_s, chart.lower_bound_s
    carries = f"{len({d.task for d in chart.deliveries})} unit tasks "
    carries += "in the order of the plan" if chart.ordered else "side by side, sharing the NICs"
    return NicRows(rows, idle, *ends, inside, "predicted", carries)


def draw_traffic(plans: Plan | Traffic | Mapping[str, Plan | Traffic]) -> svg.Figure:
    """Host-to-host bytes of a plan as a figure, or of several by name on one scale of colours.

    A row is a host that sends, a column one that takes in. What stays within a host is in
    brackets, and uses no NIC. The busiest sides of NICs are outlined. The picture's table is
    ``planning.nics.traffic(plan).to_frame()``.
    """
    shown = _read_traffic(plans)
    caption = (
        "Bytes from host (row) to host (column): darker is more, what is in brackets stays within "
        "a host. Outlined: the busiest sides of NICs, which no order of the transfers can beat."
    )
    alt = " ".join(_traffic_alt(name, t) for name, t in shown.items())
    return svg.Figure(_traffic_svg(shown, alt), caption, alt)


def _read_traffic(plans: Plan | Traffic | Mapping[str, Plan | Traffic]) -> dict[str, Traffic]:
    named = dict(plans) if isinstance(plans, Mapping) else {"": plans}
    if not named:
        raise ReshardError("there is no plan to draw; give one, or several by name")
    shown = {}
    for name, one in named.items():
        if not isinstance(one, Traffic):
            one = traffic(check_type(f"plan {short(name)}" if name else "plan", one, Plan))
        if len(one.hosts) > MOST_HOSTS:
            raise ReshardError(
                f"a traffic matrix shows up to {MOST_HOSTS} hosts, but {name or 'the plan'} has "
                f"{len(one.hosts)}; use traffic(plan).to_frame() instead"
            )
        shown[str(name)] = one
    return shown


def _traffic_svg(shown: Mapping[str, Traffic], alt: str) -> str:
    pairs = (item for t in shown.values() for item in t.nbytes.items())
    most = max((n for (a, b), n in pairs if a != b), default=0)
    parts: list[str] = []
    x = y = wide = row_high = 0.0
    for name, t in shown.items():
        across, high, drawn = _matrix(name, t, most)
        if x and x + _GAP + across > _PAGE:
            x, y, row_high = 0.0, y + row_high + 12, 0.0
        x += _GAP if x else 0.0
        parts.append(svg.moved(x, y, drawn))
        x += across
        wide, row_high = max(wide, x), max(row_high, high)
    return svg.document(wide + 12, y + row_high + 8, parts, alt)


def _matrix(name: str, t: Traffic, most: int) -> tuple[float, float, list[str]]:
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
    return width, y, parts + words


def _cell(x: float, y: float, t: Traffic, ends: tuple[int, int], most: int) -> list[str]:
    nbytes = t.nbytes.get(ends, 0)
    inside = ends[0] == ends[1]
    ground = svg.PAPER if inside else shade(nbytes, most)
    style = {"fill": ground, "stroke": svg.INK, "stroke_width": 0.7}
    parts = [svg.rect(x, y, _CELL_WIDE, _CELL_HIGH, **style)]
    if nbytes:
        words = f"({format_bytes(nbytes)})" if inside else format_bytes(nbytes)
        parts.append(_words(x, y, words, fill=svg.ink_on(ground)))
    return parts


def _words(x: float, y: float, words: str, **style: object) -> str:
    """``words`` in the middle of a cell."""
    middle, baseline = x + _CELL_WIDE / 2, y + _CELL_HIGH / 2 + 4
    return svg.label(middle, baseline, words, _SIZE - 1, "middle", **style)


def _sum(x: float, y: float, nbytes: int, marked: bool) -> list[str]:
    """What a host sends or takes in over the network; the busiest has a thick outline."""
    parts = [_words(x, y, format_bytes(nbytes), font_weight="bold" if marked else None)]
    if marked:
        style = {"fill": "none", "stroke": svg.INK, "stroke_width": 2.5}
        parts.append(svg.rect(x + 1, y + 1, _CELL_WIDE - 2, _CELL_HIGH - 2, **style))
    return parts


def shade(nbytes: float, most: float) -> str:
    """From white (0) to blue (``most``), in proportion.

    >>> shade(0, 10), shade(10, 10)
    ('#ffffff', '#0072b2')
    """
    share = nbytes / most if most else 0.0
    mixed = (round(255 + (dark - 255) * share) for dark in bytes.fromhex(svg.BLUE[1:]))
    return f"#{bytes(mixed).hex()}"


def _busiest(t: Traffic) -> str:
    if not t.bottlenecks:
        return "Nothing crosses the network."
    sides = []
    for side, does in (("tx", "sends"), ("rx", "takes in")):
        hosts = sorted({load.host for load in t.bottlenecks if load.side == side})
        if hosts:
            plural = "s" * (len(hosts) > 1)
            sides.append(f"what a NIC of host{plural} {device_list(hosts)} {does}")
    first = t.bottlenecks[0]
    return (
        f"Busiest: {' and '.join(sides)}, {format_bytes(first.nbytes)}: "
        f"{format_seconds(first.seconds)} at full rate; the plan takes "
        f"{format_seconds(t.makespan_s)}."
    )


def _traffic_alt(name: str, t: Traffic) -> str:
    lines = [f"host {a} to host {b}: {format_bytes(n)}" for (a, b), n in t.nbytes.items() if a != b]
    text = "; ".join(lines[:12]) + ("; and so on" if len(lines) > 12 else "")
    head = f"{name}: bytes from host to host" if name else "Bytes from host to host"
    return f"{head}: {text or 'none'}. {_busiest(t)}"
