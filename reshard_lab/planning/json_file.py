"""Plans as JSON, with a schema version."""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from reshard_lab.cluster import Cluster
from reshard_lab.errors import (
    ReshardError,
    check_bool,
    check_choice,
    check_int,
    check_path,
    os_errors,
    write_text,
)
from reshard_lab.layout import Layout
from reshard_lab.mesh import Mesh
from reshard_lab.planning.record import PlannedUnit, PlanRecord, ScheduledDelivery, nics_of
from reshard_lab.resharding import ReshardingTask, lower_bound_s
from reshard_lab.scheduling import METHODS
from reshard_lab.strategies import STRATEGIES
from reshard_lab.transfer import Transfer

SCHEMA = "reshard_lab.plan"
VERSION = 2
_UNKNOWN = "a plan file of version 1 does not say what it waits for"
T = TypeVar("T")


def dump(plan: PlanRecord, path: str | Path | None = None, programs: bool = False) -> str:
    """See ``Plan.to_json``."""
    data: dict[str, Any] = {"schema": SCHEMA, "version": VERSION}
    data["cluster"] = plan.cluster.to_dict()
    data["tasks"] = [
        {"shape": t.shape, "dtype": t.dtype, "src": _layout_dict(t.src), "dst": _layout_dict(t.dst)}
        for t in plan.tasks
    ]
    same = ("strategy", "scheduler", "chunks", "seed", "makespan_s", "optimal", "notes", "ordered")
    data |= {name: getattr(plan, name) for name in same}
    data["deliveries"] = [
        (d.task, d.sender, d.receivers, d.nbytes, d.start_s, d.end_s, d.why)
        for d in plan.deliveries
    ]
    data |= {"units": plan.units, "transfers": plan.transfers}
    if check_bool("programs", programs):
        data["programs"] = {str(device): steps for device, steps in plan.programs.items()}
    text = json.dumps(data)
    if path is not None:
        write_text("plan file", path, text)
    return text


def load(path: str | Path) -> dict[str, Any]:
    """The fields of the plan in the file at ``path``.

    Raises ReshardError if the file holds no plan or is newer than this release.
    """
    source = check_path("plan file to read", path)
    where = f"plan file {str(source)!r}"
    with os_errors(f"read {where}"):
        content = source.read_bytes()
    try:
        data = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ReshardError(f"{where} does not hold a plan: it is nested too deep") from None
    except ValueError as error:
        raise ReshardError(f"{where} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ReshardError(f"{where} does not hold a plan (schema {SCHEMA!r} expected)")
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise ReshardError(f"{where} has version {version!r}; a whole number is expected")
    if version > VERSION:
        raise ReshardError(
            f"{where} has version {version}, this release reads up to {VERSION}; "
            "update reshard_lab or save the plan again with this release"
        )
    try:
        return _fields(data)
    except ReshardError as error:
        raise ReshardError(f"{where}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ReshardError(f"{where} is damaged: {reason}") from None


def _layout_dict(layout: Layout) -> dict[str, Any]:
    return {"mesh": layout.mesh.array().tolist(), "spec": str(layout.spec), "rule": layout.rule}


def _layout(data: dict[str, Any]) -> Layout:
    return Layout(Mesh(data["mesh"]), data["spec"], data["rule"])


def _fields(data: dict[str, Any]) -> dict[str, Any]:
    cluster = Cluster(**data["cluster"])
    tasks = tuple(
        ReshardingTask(t["shape"], t["dtype"], _layout(t["src"]), _layout(t["dst"]), cluster)
        for t in data["tasks"]
    )
    units = tuple(
        PlannedUnit(_int(t), _int(u), _int(sender), float(start), float(duration))
        for t, u, sender, start, duration in data["units"]
    )
    expected = [(t, u) for t, task in enumerate(tasks) for u in range(len(task.unit_tasks))]
    if [(u.task, u.unit) for u in units] != expected:
        raise ReshardError(f"its units do not match the {len(expected)} unit tasks of its tensors")
    makespan_s = float(data["makespan_s"])
    for i, unit in enumerate(units):
        if unit.sender not in tasks[unit.task].unit_tasks[unit.unit].senders:
            raise ReshardError(f"unit task {i} is sent by device {unit.sender}, no holder of it")
        if not (0 <= unit.start_s < math.inf and 0 <= unit.duration_s < math.inf):
            raise ReshardError(
                f"unit task {i} starts at {unit.start_s} s and lasts {unit.duration_s} s"
            )
    last = max((u.start_s + u.duration_s for u in units), default=0.0)
    if not abs(makespan_s - last) <= 1e-9 * last:
        raise ReshardError(
            f"its makespan is {makespan_s:g} s, but its last unit ends at {last:g} s"
        )
    bound = 0.0 if data["strategy"] == "signal" else lower_bound_s(tasks)
    if makespan_s < bound * (1 - 1e-9):
        raise ReshardError(
            f"its makespan is {makespan_s:g} s, below its lower bound of {bound:g} s"
        )
    optimal = data["optimal"]
    if optimal is not None:
        check_choice("value of 'optimal'", optimal, ("fluid", "unsplit"))
    old = data["version"] == 1
    rows = [(*row, _UNKNOWN) for row in data["stretches"]] if old else data["deliveries"]
    return {
        "tasks": tasks,
        "strategy": check_choice("strategy", data["strategy"], STRATEGIES),
        "scheduler": check_choice("scheduler", data["scheduler"], METHODS),
        "chunks": check_int("chunks", data["chunks"], 1),
        "seed": check_int("seed", data["seed"]),
        "units": units,
        "transfers": tuple(_transfer(row) for row in data["transfers"]),
        "makespan_s": makespan_s,
        "optimal": optimal,
        "notes": tuple(_typed(note, str) for note in data["notes"]),
        "ordered": _typed(data["ordered"], bool),
        "deliveries": tuple(_delivery(row, units, cluster) for row in rows),
    }


def _delivery(row: Any, units: tuple[PlannedUnit, ...], cluster: Cluster) -> ScheduledDelivery:
    """One delivery's time: of a unit task there is, between devices there are, not backwards."""
    task, sender, receivers, nbytes, start, end, why = row
    number, size, sender = _ints((task, nbytes, sender))
    receivers, start, end = _ints(receivers), float(start), float(end)
    known = all(0 <= device < cluster.size for device in (sender, *receivers))
    if not (0 <= number < len(units) and known and size >= 0 and 0 <= start <= end < math.inf):
        raise ReshardError(
            f"{row} is no delivery of its {len(units)} unit tasks on devices 0 to "
            f"{cluster.size - 1}"
        )
    return ScheduledDelivery(
        *(start, end, units[number].task, number, sender, receivers),
        *(*nics_of(sender, receivers, cluster), size, _typed(why, str)),
    )


def _transfer(row: list[Any]) -> Transfer:
    number, unit, box, span, path, nbytes, chunks, stage, after = row
    number, unit, nbytes, chunks, stage = map(_int, (number, unit, nbytes, chunks, stage))
    box, span = tuple(map(_pair, box)), None if span is None else _pair(span)
    return Transfer(number, unit, box, span, _ints(path), nbytes, chunks, stage, _ints(after))


def _typed(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} where {kind.__name__} is expected")
    return value


def _int(value: Any) -> int:
    return _typed(value, int)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(map(_int, values))


def _pair(values: Any) -> tuple[int, int]:
    lo, hi = _ints(values)
    return lo, hi
