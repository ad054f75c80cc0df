"""The four strategies for one unit task, and the baselines (sections 3.1 and 5)."""

from __future__ import annotations

from reshard_lab.strategies.phases import (
    Chain,
    Delivery,
    Payload,
    Phase,
    Receivers,
    Ring,
    Sends,
    alpa_cuts,
    receivers_of,
)
from reshard_lab.strategies.timing import (
    PAPER,
    STRATEGIES,
    chunk_count,
    closed_form_s,
    make_phases,
    phases_s,
)

__all__ = [
    "PAPER",
    "STRATEGIES",
    "Chain",
    "Delivery",
    "Payload",
    "Phase",
    "Receivers",
    "Ring",
    "Sends",
    "alpa_cuts",
    "chunk_count",
    "closed_form_s",
    "make_phases",
    "phases_s",
    "receivers_of",
]
