"""The four overlap levels measured on an emulated cluster, and what they must hold.

python benchmarks/run.py overlap            # some three minutes
"""

from __future__ import annotations

import pandas as pd
from report import report

from reshard_lab.paper.overlap import overlap_levels
from reshard_lab.runtime.network import refused

TRANSFERS = (0.4, 0.8)
"""Seconds of a transfer over those of a forward."""
MOST_OFF = 0.10
"""Of its simulation, that a measured step may be off."""


def marks(table: pd.DataFrame) -> list[bool]:
    """The order of the levels, each against its simulation, and what moved between stages."""
    blocking, overlapped, eager, signal = table.measured_s
    share = float(table.transfer.iloc[0])
    off = (table.ratio - 1).abs()
    return [
        report("c", 0.3 <= share <= 1.0, f"{share:.2f} of a forward (0.3 to 1.0)"),
        report("overlap", overlapped < blocking, f"{overlapped:.3f} s under {blocking:.3f} s"),
        report("eager-1F1B", eager < overlapped, f"{eager:.3f} s under {overlapped:.3f} s"),
        report("signal", signal < table.measured_s[:3].min(), f"{signal:.3f} s, the fastest"),
        report(
            "simulated",
            bool((off <= MOST_OFF).all()),
            f"{table.ratio.min():.3f} to {table.ratio.max():.3f} of it (0.9 to 1.1)",
        ),
        report("tensors", bool(table.verified[:3].all()), "every one came whole (levels 0 to 2)"),
    ]


def main() -> int:
    """Measure, and print the marks; returns how many are missed."""
    reason = refused()
    if reason is not None:
        print(f"skipped, no emulated cluster here: {reason}")
        return 0
    held = []
    for transfer in TRANSFERS:
        table = overlap_levels(transfer)
        print(table.label.iloc[0])
        print(f"median of {table.runs.iloc[0]} steps (fastest to slowest), against simulated")
        for row in table.itertuples():
            print(
                f"  {row.level:12} {row.measured_s:6.3f} s ({row.fastest_s:.3f} to "
                f"{row.slowest_s:.3f}), {row.simulated_s:6.3f} s simulated: {row.ratio:.3f}; "
                f"cores {row.cpu_share:.0%} busy"
            )
        held += marks(table)
    return len(held) - sum(held)


if __name__ == "__main__":
    raise SystemExit(main())
