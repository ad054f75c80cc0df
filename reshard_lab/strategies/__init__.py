"""The four strategies for one unit task, and the baselines (sections 3.1 and 5)."""

from reshard_lab.strategies.phases import alpa_cuts
from reshard_lab.strategies.timing import PAPER, STRATEGIES, closed_form_s

__all__ = ["PAPER", "STRATEGIES", "alpa_cuts", "closed_form_s"]
