"""Plan x cluster -> timeline: a flow-level, event-driven network simulator."""

from reshard_lab.simulation.calibration import Calibration, ComparedRun, FittedParameter, calibrate
from reshard_lab.simulation.simulator import RESOLUTIONS, Timeline, one_sender, simulate
from reshard_lab.simulation.timeline import NicUse, PathStep, Staging, Transmission

__all__ = [
    "RESOLUTIONS",
    "Calibration",
    "ComparedRun",
    "FittedParameter",
    "NicUse",
    "PathStep",
    "Staging",
    "Timeline",
    "Transmission",
    "calibrate",
    "one_sender",
    "simulate",
]
