"""Programs that tests start: ranks, and processes with faults."""
