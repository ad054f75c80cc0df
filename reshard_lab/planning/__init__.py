"""Plans: built, verified, explained, saved."""

from __future__ import annotations

from reshard_lab.planning.build import plan
from reshard_lab.planning.record import Plan, PlannedUnit, Verified

__all__ = ["Plan", "PlannedUnit", "Verified", "plan"]
