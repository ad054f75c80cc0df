"""Measured against predicted on an emulated cluster: figures 5, 6 and 8, and what they must hold.

python benchmarks/run.py emulated           # measures: the paper's repeats, some 20 minutes
python benchmarks/emulated.py out           # the same marks for tables that reproduce wrote
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

import pandas as pd
from report import report

from reshard_lab.paper.reproduce import reproduce
from reshard_lab.runtime.network import refused

LEAST_FLOW = 2**20
"""Bytes; figures of smaller flows are printed, not held."""


def flow_bytes(row: pd.Series) -> float:
    """Bytes of the smallest piece that crosses a NIC on its own."""
    parts = {"local_allgather": row.devices, "global_allgather": row.devices * row.hosts}
    alpa = row.devices if row.hosts == 1 else 1
    return row["nbytes"] / parts.get(row.method, alpa if row.method == "alpa" else 1)


def figure5_marks(table: pd.DataFrame, nic_Bps: float) -> list[bool]:
    """Measured over the exact closed form, and the rate of broadcasts."""
    held = table[table.apply(flow_bytes, axis=1) >= LEAST_FLOW]
    marks = []
    for method, rows in held.groupby("method", sort=False):
        ratio = rows.measured_over_predicted
        most = 1.25 if method == "global_allgather" else 1.10
        text = f"{ratio.min():.3f} to {ratio.max():.3f} of the closed form (0.95 to {most})"
        marks.append(report(str(method), bool(ratio.between(0.95, most).all()), text))
    rate = table["nbytes"] / table.measured_s / nic_Bps
    for hosts, least in ((1, 0.95), (4, 0.92)):
        lowest = rate[(table.method == "broadcast") & (table.hosts == hosts)].min()
        text = f"{lowest:.3f} of the NIC's rate (at least {least})"
        marks.append(report(f"broadcast to {hosts} host{'s' * (hosts > 1)}", lowest >= least, text))
    return marks


def suite_marks(table: pd.DataFrame, paper: str) -> list[bool]:
    """Order of methods, ours against the paper's, measured over simulated."""
    wrong = []
    for case, rows in table.groupby("case"):
        for a, b in itertools.permutations(rows.itertuples(), 2):
            if b.predicted_s > 1.25 * a.predicted_s and b.measured_s <= a.measured_s:
                wrong.append(f"case {case}: {b.method} before {a.method}")
    by = table.pivot(index="case", columns="method", values="measured_s")
    ours = by["auto"] / by[paper]
    ratio = table.measured_over_simulated
    far = table[~ratio.between(0.9, 1.25)]
    which = ", ".join(
        f"case {r.case} {r.method} {r.measured_over_simulated:.2f}" for r in far.itertuples()
    )
    return [
        report("order of methods", not wrong, "; ".join(wrong) or "as predicted"),
        report("auto", bool((ours <= 1.05).all()), f"{ours.max():.3f} of {paper} at most (1.05)"),
        report(
            "simulated",
            far.empty,
            f"{ratio.min():.3f} to {ratio.max():.3f} of it (0.9 to 1.25)"
            + (f"; outside: {which}" if which else ""),
        ),
    ]


def order_mark(figure8: pd.DataFrame) -> bool:
    """Two tasks that share a NIC do not run together, even on different devices of its host."""
    rows = figure8[figure8.case == 9].set_index("method")
    ratio = rows.measured_s["naive"] / rows.measured_s["auto"]
    text = f"a bad order takes {ratio:.2f} of a good one (1.5 predicted; 1.35 to 1.65)"
    return report("case 9", 1.35 <= ratio <= 1.65, text)


def marks(folder: Path) -> int:
    """All marks, for the tables in ``folder``; returns how many are missed."""
    tables = {
        name: pd.read_csv(folder / f"{name}.csv") for name in ("figure5", "figure6", "figure8")
    }
    first = tables["figure5"].iloc[0]
    print(first.label)
    print(f"median of {first.runs} runs")
    held = [*figure5_marks(tables["figure5"], first["nbytes"] / first.predicted_s)]
    print("figure 6")
    held += suite_marks(tables["figure6"], "broadcast")
    print("figure 8")
    held += [*suite_marks(tables["figure8"], "ensemble"), order_mark(tables["figure8"])]
    spread = [(t.slowest_s - t.fastest_s) / t.measured_s for t in tables.values()]
    print(
        f"  spread of runs, (slowest - fastest) / median: median {pd.concat(spread).median():.1%}"
    )
    return len(held) - sum(held)


def main() -> int:
    """Measure, and print the marks; returns how many are missed."""
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_dir():
        return marks(Path(sys.argv[1]))
    reason = refused()
    if reason is not None:
        print(f"skipped, no emulated cluster here: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        reproduce(folder, "full", "emulated", quiet=True)
        return marks(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
