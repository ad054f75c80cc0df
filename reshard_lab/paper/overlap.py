"""The four overlap levels of section 4, measured: paced compute, real tensors, emulated NICs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from reshard_lab.errors import ReshardError, check_int, check_number, must_be, need
from reshard_lab.paper.measuring import fastest_emulation
from reshard_lab.paper.pipelines import FIGURE9, Level
from reshard_lab.runtime import EmulatedCluster
from reshard_lab.training import Paced, TrainingRun, Transformer, train
from reshard_lab.training.resolve import default_stages
from reshard_lab.units import format_bytes, format_seconds, parse_seconds

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (
    FIGURE9[0]._replace(name="0 blocking"),
    FIGURE9[1]._replace(name="1 overlapped", about="1F1B, transfers overlap with compute"),
    FIGURE9[2]._replace(name="2 eager"),
    Level("3 signal", "signal", "eager_1f1b", True, False, "as level 2, but no data: the bound"),
)
"""The levels of the authors' artifact: the first three bars of figure 9, and their bound."""
_HIDDEN = 512
_SAMPLES = 2  # of a microbatch: one a device, on stages that cut samples
_TOKEN_BYTES = _SAMPLES * _HIDDEN * 4
_LONGEST = 2**16  # tokens


def overlap_levels(
    transfer: float = 0.4,
    *,
    stages: int = 4,
    microbatches: int = 8,
    forward_s: float | str = 0.1,
    backward_s: float | str | None = None,
    repeats: int = 3,
    warmup: int = 1,
    on: EmulatedCluster | None = None,
) -> pd.DataFrame:
    """Steps of a pipeline at the four overlap levels, measured beside their simulation (section 4).

    Stages of two devices, a host each, behind emulated NICs, by turns data- and
    operator-parallel. Compute is paced: a sleep of ``forward_s`` a forward and ``backward_s``
    (default: twice that) a backward, as these processors are too slow to show overlap. What moves
    is real: activations and gradients whose transfer takes about ``transfer`` times ``forward_s``.

    repeats, warmup:
        steps measured and left out, of each level.
    on:
        an open EmulatedCluster of as many hosts as stages, two devices each; default: one with
        NICs of 400 Mbit/s, or 200 where the machine does not carry that.

    One row a level: ``simulated_s`` (transfers take what their plans predict on the emulated
    cluster), ``measured_s`` (median), ``fastest_s``, ``slowest_s``, ``ratio`` of measured to
    simulated, ``transfer_s`` (predicted, of the broadcast) and its ratio to ``forward_s``,
    ``verified`` (every tensor came whole; never under signal) and ``label``.
    """
    pd = need("pandas", "notebooks", "a table of overlap levels")
    ahead = parse_seconds(forward_s, "forward_s")
    back = 2 * ahead if backward_s is None else parse_seconds(backward_s, "backward_s")
    check_number("transfer", transfer, above=0, expected="a share of forward_s above 0")
    check_int("stages", stages, 2), check_int("microbatches", microbatches, 1)
    check_int("repeats", repeats, 1), check_int("warmup", warmup)
    if not (on is None or isinstance(on, EmulatedCluster)):
        raise must_be("on", "an open EmulatedCluster", on)
    runs = []
    with fastest_emulation(stages, 2) if on is None else nullcontext(on) as place:
        nbytes = transfer * ahead * place.cluster.nic_Bps
        sequence = round(nbytes / _TOKEN_BYTES)
        if not 2 <= sequence <= _LONGEST:
            raise ReshardError(
                f"a transfer of {format_seconds(transfer * ahead)} moves {format_bytes(nbytes)} "
                f"here; give a transfer (times forward_s) that moves between "
                f"{format_bytes(2 * _TOKEN_BYTES)} and {format_bytes(_LONGEST * _TOKEN_BYTES)}"
            )
        model = Transformer(blocks=stages, hidden=_HIDDEN, sequence=sequence)
        for level in LEVELS:
            how = {key: getattr(level, key) for key in ("strategy", "overlap", "delay_weights")}
            run = train(
                model,
                level.schedule,
                stages=default_stages(stages, model),
                microbatches=microbatches,
                batch=_SAMPLES * microbatches,
                **how,
                where=place,
                compute=Paced(ahead, back),
                steps=repeats,
                warmup=warmup,
            )
            runs.append(run)
    # Of level 0, for all: level 3 sends next to nothing; the question is the same.
    moved = min(e.end_s - e.start_s for e in runs[0].simulated.events if e.tensor)
    return pd.DataFrame([_row(*row, moved, ahead) for row in zip(LEVELS, runs, strict=True)])


def _row(level: Level, run: TrainingRun, moved: float, ahead: float) -> dict[str, Any]:
    simulated = run.simulated.makespan_s
    return {
        "level": level.name,
        **{key: getattr(level, key) for key in ("about", "schedule", "overlap", "strategy")},
        "simulated_s": simulated,
        "measured_s": run.median_s,
        "fastest_s": run.min_s,
        "slowest_s": max(run.times_s),
        "ratio": run.median_s / simulated,
        "runs": len(run.times_s),
        "transfer_s": moved,
        "transfer": moved / ahead,
        "verified": run.verified,
        "cpu_share": run.environment["cpu_share"],
        "label": run.label,
    }
