"""What a simulated plan did: every transmission with its start and its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reshard_lab.cluster import Cluster
from reshard_lab.errors import need
from reshard_lab.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from reshard_lab.planning import Plan
    from reshard_lab.simulation.path import PathStep
    from reshard_lab.simulation.staging import Staging


class Transmission(NamedTuple):
    """One row of a timeline: a chunk of a hop, or all chunks of it."""

    operation: str
    """``"network"`` (over NICs), ``"inside"`` (within a host) or ``"copy"`` (within a device)."""
    task: int
    """Index of the tensor in ``Plan.tasks``."""
    unit: int
    """Index of the unit task in ``Plan.units``."""
    transfer: int
    hop: int
    first_chunk: int
    stop_chunk: int
    """One past the last chunk."""
    source: int
    destination: int
    tx_nic: int
    """NIC that sends, numbered over all hosts; -1 where none takes part."""
    rx_nic: int
    start_s: float
    """Its latency starts here."""
    end_s: float
    nbytes: int


class NicUse(NamedTuple):
    """What one NIC did in one direction."""

    host: int
    nic: int
    direction: str
    """``"tx"`` or ``"rx"``."""
    nbytes: int
    busy_s: float
    """Time with at least one transmission under way."""
    idle_s: float
    """The rest of the plan's duration."""
    utilisation: float
    """Bytes carried over what the NIC could have carried in the plan's duration."""


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """The simulation of one plan: columns of equal length, one entry a transmission.

    Rows are in order of transfer, hop and chunk. Made by ``simulate``; read-only.
    """

    plan: Plan
    cluster: Cluster
    """What it was simulated on."""
    resolution: str
    """``"chunks"`` (a row a chunk) or ``"fluid"`` (a row a hop)."""
    columns: Mapping[str, np.ndarray]
    """The fields of ``Transmission`` as arrays."""
    alone_s: np.ndarray
    """Seconds each row would take with its ports to itself."""
    cause: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The row that each one had to wait for last; -1 = none."""
    held: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Whether a row ended a chunk after the hop before it did, its data coming in no sooner."""

    @property
    def duration_s(self) -> float:
        """From the start of the plan to the end of its last transmission."""
        return float(self.columns["end_s"].max(initial=0.0))

    def __len__(self) -> int:
        return len(self.columns["start_s"])

    def __iter__(self) -> Iterator[Transmission]:
        columns = [self.columns[name].tolist() for name in Transmission._fields]
        return map(Transmission._make, zip(*columns, strict=True))

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        return need("pandas", "notebooks", "a table").DataFrame(dict(self.columns))

    def nic_use(self) -> tuple[NicUse, ...]:
        """Bytes, busy and idle time of every NIC that carries something, in each direction."""
        made = []
        for direction, name in (("tx", "tx_nic"), ("rx", "rx_nic")):
            nics = self.columns[name]
            order = np.lexsort((self.columns["start_s"], nics))
            order = order[nics[order] >= 0]
            for group in np.split(order, np.flatnonzero(np.diff(nics[order])) + 1):
                if len(group):
                    made.append(self._use(direction, int(nics[group[0]]), group))
        return tuple(sorted(made))

    def _use(self, direction: str, nic: int, rows: np.ndarray) -> NicUse:
        start, end = self.columns["start_s"][rows], self.columns["end_s"][rows]
        covered = np.concatenate(([0.0], np.maximum.accumulate(end)[:-1]))
        busy = float(np.maximum(end - np.maximum(start, covered), 0.0).sum())
        nbytes = int(self.columns["nbytes"][rows].sum())
        host = self.cluster.host_of_nic(nic)
        could = self.cluster.host_nic_Bps[host] * self.duration_s
        idle = max(self.duration_s - busy, 0.0)
        return NicUse(host, nic, direction, nbytes, busy, idle, nbytes / could if could else 0.0)

    def critical_path(self) -> tuple[PathStep, ...]:
        """The transmissions that made the duration, first to last, and what each waited for."""
        from reshard_lab.simulation.path import critical_path

        return critical_path(self)

    def staging(self) -> dict[int, Staging]:
        """Bytes every device stages over time (see ``Plan.peak_bytes``), for those that do."""
        from reshard_lab.simulation.staging import staging

        return staging(self)

    def to_chrome_trace(self, path: str | Path | None = None) -> str:
        """The timeline as JSON for Perfetto or chrome://tracing, also written to ``path``."""
        from reshard_lab.simulation.trace import chrome_trace

        return chrome_trace(self, path)

    def __repr__(self) -> str:
        return (
            f"Timeline({len(self)} transmissions in {format_seconds(self.duration_s)}, "
            f"{self.resolution})"
        )
