"""Plans: built, verified, explained, saved."""

from reshard_lab.planning.build import Plan, plan
from reshard_lab.planning.nics import Gantt
from reshard_lab.planning.record import PlannedUnit, ScheduledDelivery
from reshard_lab.planning.verify import Verified

__all__ = ["Gantt", "Plan", "PlannedUnit", "ScheduledDelivery", "Verified", "plan"]
