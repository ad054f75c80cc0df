"""Plan x cluster -> timeline: a flow-level, event-driven network simulator."""

from __future__ import annotations

from reshard_lab.simulation.calibration import Calibration, Compared, Fitted, calibrate
from reshard_lab.simulation.path import PathStep
from reshard_lab.simulation.simulator import RESOLUTIONS, simulate
from reshard_lab.simulation.staging import Staging
from reshard_lab.simulation.timeline import NicUse, Timeline, Transmission

__all__ = [
    "RESOLUTIONS",
    "Calibration",
    "Compared",
    "Fitted",
    "NicUse",
    "PathStep",
    "Staging",
    "Timeline",
    "Transmission",
    "calibrate",
    "simulate",
]
