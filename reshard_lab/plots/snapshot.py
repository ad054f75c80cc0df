"""Who holds how much of a unit task at one moment, and what is on its way to whom."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError
from reshard_lab.plots import svg
from reshard_lab.simulation.timeline import MovingPart, Snapshot

LEFT, WIDE = 168.0, 640.0
"""Left edge and width of what is right of the names, shared with the picture over time."""
MOST_HOSTS, MOST_DEVICES = 8, 8
_TOP, _HIGH, _LANE, _GAP, _SIZE = 8.0, 42.0, 24.0, 26.0, 10
_SENDER = 116.0
_HELD = "#56B4E9"
_COMING = {"fill": "#E69F00", "stroke_dasharray": "2 1.5"}


class DeviceBox(NamedTuple):
    """Where a device stands."""

    left: float
    top: float
    width: float
    row: int
    """Row of its host among the receivers; -1 for a sender."""

    @property
    def middle(self) -> float:
        """Height of its middle."""
        return self.top + _HIGH / 2

    @property
    def centre(self) -> float:
        """Its middle from left to right."""
        return self.left + self.width / 2


def device_boxes(
    cluster: Cluster, moving: Sequence[MovingPart]
) -> tuple[dict[int, DeviceBox], float]:
    """Where every device stands, those that only send at the left, and the height of all.

    Raises ReshardError for more than can be read.
    """
    takes = sorted({p.destination for p in moving})
    senders = sorted({p.source for p in moving} - set(takes))
    rows: dict[int, list[int]] = {}
    for device in takes:
        rows.setdefault(cluster.host_of(device), []).append(device)
    across = max(map(len, rows.values()), default=1)
    if len(rows) > MOST_HOSTS or len(senders) > MOST_HOSTS or across > MOST_DEVICES:
        raise ReshardError(
            f"a picture of a delivery shows up to {MOST_HOSTS} receiving hosts of {MOST_DEVICES} "
            f"devices, not {len(rows)} of {across}; draw fewer"
        )
    high = len(rows) * (_HIGH + _LANE)
    gap = _GAP if across <= 4 else _GAP / 2
    width = min(150.0, (WIDE - 50 - (across - 1) * gap) / across)
    top = _TOP + 8 + _LANE
    boxes = {
        device: DeviceBox(LEFT + i * (width + gap), top + r * (_HIGH + _LANE), width, r)
        for r, devices in enumerate(rows.values())
        for i, device in enumerate(devices)
    }
    stack = len(senders) * (_HIGH + 10)
    first = top + max(0.0, (high - _LANE - stack) / 2)
    for i, device in enumerate(senders):
        boxes[device] = DeviceBox(12, first + i * (_HIGH + 10), _SENDER, -1)
    return boxes, max(high, _LANE + stack) + 8


def snapshot_parts(cluster: Cluster, boxes: Mapping[int, DeviceBox], now: Snapshot) -> list[str]:
    """The picture of one moment, with the devices in their ``boxes``."""
    nbytes = max((stop for ranges in now.held.values() for _, stop in ranges), default=1)
    words = "Blue: the bytes that a device holds; dashed: those on their way, with their number."
    parts = [svg.label(12, _TOP + 10, words, _SIZE, font_style="italic")]
    for device, box in boxes.items():
        coming = [p for p in now.moving if p.destination == device]
        parts += _device(device, box, now.held.get(device, ()), coming, nbytes)
        words = f"host {cluster.host_of(device)}"
        if box.row < 0:
            parts.append(svg.label(box.left, box.top - 5, words, _SIZE))
        elif device == max(d for d, other in boxes.items() if other.row == box.row):
            parts.append(svg.label(box.left + box.width + 8, box.middle + 4, words, _SIZE))
    for p in now.moving:
        parts += _arrow(boxes[p.source], boxes[p.destination], str(p.number))
    return parts


def _device(
    device: int,
    box: DeviceBox,
    held: Sequence[tuple[int, int]],
    coming: Sequence[MovingPart],
    nbytes: int,
) -> list[str]:
    """A box with the device's name, a strip of the unit task's bytes, and its share of them."""
    x, wide = box.left + 5, box.width - 10
    scale = wide / nbytes
    strip = box.top + 17
    parts = [
        svg.rect(box.left, box.top, box.width, _HIGH, rx=4, fill=svg.PAPER, stroke=svg.INK),
        svg.label(x, box.top + 12, f"device {device}", _SIZE),
    ]
    ink: dict[str, object] = {"stroke": svg.INK, "stroke_width": 0.7}
    for first, stop in held:
        parts.append(svg.rect(x + first * scale, strip, (stop - first) * scale, 10, fill=_HELD))
    for p in coming:
        left, long = x + p.first * scale, (p.stop - p.first) * scale
        parts.append(svg.rect(left, strip, long, 10, **ink | _COMING))
    parts.append(svg.rect(x, strip, wide, 10, fill="none", **ink))
    # Rounded down, so that 100% means all.
    share = sum(stop - first for first, stop in held) / nbytes
    parts.append(svg.label(x, box.top + 38, f"{int(100 * share + 1e-9)}%", _SIZE))
    return parts


def _arrow(a: DeviceBox, b: DeviceBox, words: str) -> list[str]:
    """An arrow from one device to another around the boxes between, with a number."""
    if a.row == b.row and 0 < b.left - a.left <= a.width + _GAP:
        y, start, end = a.middle, a.left + a.width, b.left
        points = [(start, y), (end, y)]
        tip = [(end, y), (end - 7, y - 4), (end - 7, y + 4)]
        at = (start + end - 6) / 2, y - 5
    else:
        lane = b.top - _LANE / 2 + 2
        bus = LEFT - 14.0
        if a.row < 0:
            points = [(a.left + a.width, a.middle), (bus, a.middle), (bus, lane)]
        else:
            below = a.top + _HIGH + _LANE / 2 - 4
            points = [(a.centre, a.top + _HIGH), (a.centre, below)]
            if b.row != a.row + 1:
                points += [(bus, below), (bus, lane)]
            else:
                lane = below
        points += [(b.centre, lane), (b.centre, b.top)]
        tip = [(b.centre, b.top), (b.centre - 4, b.top - 7), (b.centre + 4, b.top - 7)]
        at = b.centre + 9, lane - 3 if lane - 3 > b.top - 6 else b.top - 6
    style = {"fill": "none", "stroke": svg.INK, "stroke_width": 1.6}
    plate = svg.text_width(words, _SIZE)
    return [
        f"<polyline{svg.attributes(points=svg.points(points), **style)}/>",
        f"<polygon{svg.attributes(points=svg.points(tip))}/>",
        svg.rect(at[0] - plate / 2, at[1] - 8, plate, 10, fill=svg.PAPER, fill_opacity=0.85),
        svg.label(*at, words, _SIZE, "middle"),
    ]
