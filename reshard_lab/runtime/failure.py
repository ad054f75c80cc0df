"""Saying which device made a run fail, what it did last, and what it wrote."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from reshard_lab.planning import Plan
from reshard_lab.runtime.protocol import Position

_VERB = {"copy": "copying", "send": "sending", "recv": "receiving"}
_TAIL = 2000  # characters of stderr that a message repeats


class Evidence(NamedTuple):
    """What is known of a failed run just before its processes are ended."""

    waiting: tuple[int, ...]
    """Devices that had not finished."""
    reports: tuple[dict[str, Any], ...]
    """``exit`` and ``error`` events, in the order in which they came."""
    timeout_s: float
    """Longest time without a report that was allowed."""
    positions: dict[int, Position]
    """By device, also of those that are not to blame."""
    stderr: dict[int, str]
    """By device, the end of what it wrote."""


LastOperation = Callable[[int, Position | None], str]
"""What a device was doing, in words."""


def explain_stop(what: str, seen: Evidence, last: LastOperation) -> str:
    """The message of the error: who failed, how, at what step, with the end of its stderr."""
    exits = {e["device"]: e["code"] for e in seen.reports if e["event"] == "exit"}
    errors = {e["device"]: e for e in seen.reports if e["event"] == "error"}
    own = [d for d, e in errors.items() if e["kind"] == "own"]
    late = not errors or any(e["kind"] == "late" for e in errors.values())
    silent = [d for d in seen.waiting if d not in errors]
    if exits:
        blamed = [f"device {d} died ({_how(code)})" for d, code in exits.items()]
        devices = list(exits)
    elif own:
        blamed, devices = [f"device {d} failed: {errors[d]['text']}" for d in own], own
    elif silent and late:
        devices = silent
        blamed = [f"device {d} hangs: no sign of it within {seen.timeout_s:g} s" for d in silent]
    else:
        devices = list(errors)
        blamed = [f"device {d} failed: {e['text']}" for d, e in errors.items()]
    lines = [f"{what} was stopped"]
    for device, text in zip(devices, blamed, strict=True):
        lines.append(f"{text}; {last(device, seen.positions.get(device))}")
        if tail := seen.stderr.get(device, "").strip()[-_TAIL:]:
            lines.append(f"stderr of device {device}:\n{tail}")
    return "\n".join(lines)


def last_operation(plan: Plan, device: int, position: Position | None) -> str:
    """What a device was doing, lane by lane."""
    if position is None or position.repeat == 0:
        return "it had not begun"
    steps = plan.programs.get(device, ())
    doing = []
    for lane, (index, done) in position.lanes.items():
        step = steps[index]
        total = 1 if lane == "copy" else plan.transfers[step.transfer].messages
        way = {"copy": "", "send": f" to device {step.peer}", "recv": f" from device {step.peer}"}
        doing.append(
            f"{_VERB[lane]} transfer {step.transfer}{way[lane]} (step {index + 1} of {len(steps)}, "
            f"{done} of {total} messages done)"
        )
    what = " and ".join(doing) or "none yet"
    return f"last operation, in repeat {position.repeat} (warm-ups counted): {what}"


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
