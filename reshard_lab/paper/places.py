"""Where figures are measured: on an emulated cluster where that is allowed, else on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_choice
from reshard_lab.paper.compare import Fit, fit_one_transfer
from reshard_lab.units import format_rate

if TYPE_CHECKING:
    from reshard_lab.paper.compare import Measure
    from reshard_lab.paper.figures import Make
    from reshard_lab.planning import Plan
    from reshard_lab.runtime import EmulatedCluster, Measurement

T = TypeVar("T")
HOSTS, DEVICES_PER_HOST = 5, 4
"""Hold every point of figure 5 and every case of table 2."""
NICS = ("400Mbit", "200Mbit")
"""Speeds to emulate, the first that the machine carries; above, two cores make the times."""
PLACES = ("emulated", "local")
IDLE = 0.12
"""Share of the cores that others may keep busy."""
_LOOK_S, _PATIENCE_S = 0.5, 3600.0
_LIMIT = 0.9  # share of the cores from which they may make the times


class Place(NamedTuple):
    """Somewhere to measure plans, and what to predict with."""

    name: str
    """``"emulated"`` or ``"local"``."""
    measure: Measure
    make: Make
    """The cluster to plan for."""
    predicted: str
    """What predictions rest on, in words."""
    caution: str
    """What predictions do not know, in words; may be empty."""
    about: dict[str, Any]
    """The same in numbers."""


def find_place(name: str | None) -> tuple[str, str]:
    """The place called ``name`` (None: the best that this machine allows), and why, in words."""
    from reshard_lab.runtime.network import refused

    if name is not None:
        return check_choice("place to measure", name, PLACES), ""
    reason = refused()
    if reason is None:
        return "emulated", ""
    return "local", f"Not on an emulated cluster: {reason}."


@contextmanager
def opened(
    name: str, why: str, nbytes: int, repeats: int, warmup: int, patient: bool = False
) -> Iterator[tuple[Place, list[Measurement]]]:
    """The place, its processes running, and a list of what will have been measured.

    nbytes:
        of the transfer that speeds are fitted from where they are not known.
    patient:
        measure while no other program keeps the cores busy (see ``when_idle``).
    """
    done: list[Measurement] = []
    calm = when_idle if patient else _at_once
    with emulated(patient=patient) if name == "emulated" else _local() as pool:
        run = calm(lambda made: pool.run(made, repeats=repeats, warmup=warmup))

        def measure(made: Plan) -> Measurement:
            done.append(run(made))
            return done[-1]

        if name == "emulated":
            yield _on_emulated(pool, measure), done
        else:
            yield _on_loopback(fit_one_transfer(measure, nbytes), why, measure), done


def label_of(place: Place, done: Sequence[Measurement]) -> tuple[dict[str, Any], str]:
    """The environment of all that was measured, and in words what was measured where.

    Backend, link, machine, how busy the cores were at most, and what predictions rest on: what
    stands on every table and picture.
    """
    environment = dict(done[-1].environment)
    shares = [m.environment["cpu_share"] for m in done]
    known = [share for share in shares if share is not None]
    most = max(known) if len(known) == len(shares) else None
    environment["cpu_share"] = most
    busy = "how busy the cores were is not known"
    if most is not None:
        busy = f"cores busy {most:.0%} at most"
        busy += " (there they may have made the times)" * (most > _LIMIT)
    words = (
        f"Measured: {environment['link']}, {environment['cpu']}, {busy}; every result checked. "
        f"Predicted: {place.predicted}. {place.caution}"
    )
    return environment, words.strip()


def when_idle(work: Callable[..., T]) -> Callable[..., T]:
    """``work``, done while the cores are idle otherwise, and done again if they are not after it.

    What counts is whether others keep the cores busy, never what was measured. Raises ReshardError
    if they do for more than an hour.
    """
    from reshard_lab.runtime.measure import cpu_share, cpu_ticks

    def busy() -> float:
        before = cpu_ticks()
        time.sleep(_LOOK_S)
        after = cpu_ticks()
        if before is None or after is None:
            raise ReshardError("this system does not say how busy its cores are: no --patient here")
        return cpu_share([[b - a for a, b in zip(before, after, strict=True)]]) or 0.0

    def patiently(*given: Any) -> T:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            if busy() > IDLE or busy() > IDLE:
                continue
            made = work(*given)
            if busy() <= 2 * IDLE:  # what was measured last may still be checked
                return made
        raise ReshardError(f"other programs keep the cores busy for {_PATIENCE_S / 60:.0f} minutes")

    return patiently


def _at_once(work: Callable[..., T]) -> Callable[..., T]:
    return work


@contextmanager
def emulated(
    hosts: int = HOSTS, devices_per_host: int = DEVICES_PER_HOST, patient: bool = False
) -> Iterator[EmulatedCluster]:
    """The fastest emulated cluster of ``NICS`` that the machine carries.

    patient:
        look what it carries while no other program keeps the cores busy (see ``when_idle``).
    """
    from reshard_lab.runtime.emulated import EmulatedCluster, SlowError
    from reshard_lab.runtime.network import need_namespaces

    need_namespaces()
    calm = when_idle if patient else _at_once
    with ExitStack() as stack:

        def entered(nic: str) -> EmulatedCluster | SlowError:
            stack.close()  # an attempt that others disturbed
            try:
                return stack.enter_context(EmulatedCluster(hosts, devices_per_host, nic=nic))
            except SlowError as error:
                return error

        for nic in NICS:
            found = calm(entered)(nic)
            if isinstance(found, EmulatedCluster):
                break
        else:
            raise SlowError(
                f"no speed of {', '.join(NICS)} can be emulated here: {found}; or wait for the "
                "cores to be idle (--patient), or measure over loopback (--where local)"
            )
        yield found


def _local() -> Any:
    from reshard_lab.runtime import Pool

    return Pool(devices=16)


def _on_emulated(cluster: Any, measure: Measure) -> Place:
    described: Cluster = cluster.cluster
    share = cluster.probe.share
    return Place(
        "emulated",
        measure,
        lambda hosts, devices: described,
        f"NICs of {format_rate(described.nic_Bps)}, all else free (on entry the NICs carried "
        f"{share:.0%} of that, all at once)",
        "",
        {"nic_Bps": described.nic_Bps, "nic_share": share},
    )


def _on_loopback(fit: Fit, why: str, measure: Measure) -> Place:
    caution = "Here every link is carried by the same cores, which such a prediction does not know."
    return Place(
        "local",
        measure,
        fit.cluster,
        f"a cluster fitted from one measured transfer ({fit})",
        f"{caution} {why}".strip(),
        {"nbytes": fit.nbytes, "seconds": fit.seconds, "bandwidth_Bps": fit.bandwidth_Bps},
    )
