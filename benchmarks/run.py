"""Run the benchmarks and print their figures: all of them, or those named.

python benchmarks/run.py            # every module here that has main()
python benchmarks/run.py planning   # benchmarks/planning.py
python benchmarks/run.py --list
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import platform
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def found() -> list[str]:
    """Names of the modules beside this one that define ``main``."""
    names = []
    for path in sorted(HERE.glob("*.py")):
        defined = {
            n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)
        }
        if "main" in defined and path.stem != "run":
            names.append(path.stem)
    return names


def main() -> int:
    """Run what the arguments ask for; returns 1 if any benchmark missed what it must hold."""
    names = found()
    parser = argparse.ArgumentParser(description="Run the benchmarks and print their figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    args = parser.parse_args()
    if args.list:
        print("\n".join(names))
        return 0
    unknown = [name for name in args.names if name not in names]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(names)}")
    sys.path.insert(0, str(HERE))
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"Python {platform.python_version()}")
    missed = []
    for name in args.names or names:
        print(f"\n== {name}", flush=True)
        start = time.perf_counter()
        if importlib.import_module(name).main():
            missed.append(name)
        print(f"({time.perf_counter() - start:.1f} s)", flush=True)
    if missed:
        print(f"\nmissed their marks: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
