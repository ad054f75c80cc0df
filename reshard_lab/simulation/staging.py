"""Memory that devices stage scattered data in, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from reshard_lab.simulation.timeline import Timeline


class Staging(NamedTuple):
    """Bytes one device stages: ``nbytes[i]`` from ``times_s[i]`` on, nothing before."""

    times_s: tuple[float, ...]
    nbytes: tuple[int, ...]

    @property
    def peak_nbytes(self) -> int:
        """The most that is staged at once."""
        return max(self.nbytes, default=0)


def staging(timeline: Timeline) -> dict[int, Staging]:
    """``{device: Staging}`` for every device that stages anything.

    An end of a hop holds its buffers from the hop's first byte to its last.
    """
    column = timeline.columns
    spans: dict[tuple[int, int], tuple[float, float]] = {}
    for key, start, end in zip(
        zip(column["transfer"].tolist(), column["hop"].tolist(), strict=True),
        column["start_s"].tolist(),
        column["end_s"].tolist(),
        strict=True,
    ):
        first, last = spans.get(key, (start, end))
        spans[key] = min(first, start), max(last, end)
    changes: dict[int, list[tuple[float, int]]] = {}
    for staged in timeline.plan.staged_ends():
        start, end = spans[staged.transfer, staged.hop]
        changes.setdefault(staged.device, []).extend(
            ((start, staged.nbytes), (end, -staged.nbytes))
        )
    return {device: _levels(changes[device]) for device in sorted(changes)}


def _levels(changes: list[tuple[float, int]]) -> Staging:
    times, amounts = np.array(sorted(changes)).T
    distinct, first = np.unique(times, return_index=True)
    level = np.cumsum(amounts)[np.append(first[1:], len(times)) - 1]
    return Staging(tuple(distinct.tolist()), tuple(int(n) for n in level))
