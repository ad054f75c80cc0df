"""Run notebooks and store what their cells give now: `python tools/notebooks.py notebooks/*.ipynb`.

What would differ in every run is not stored: times of execution, the random numbers of widgets,
the version of Python. A cell that fails, or that writes warnings, stops the run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TIMEOUT_S = 600
WIDGET = "application/vnd.jupyter.widget-view+json"
"""Holds the number of a widget that ends with the kernel; the text beside it is kept."""


def run(path: Path) -> None:
    """Run the notebook at ``path`` in the environment of this script, and write it back."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    tidy(notebook, path.name)
    nbformat.write(notebook, path)


def tidy(notebook: nbformat.NotebookNode, name: str) -> None:
    """Leave out what no two runs share; raises ValueError for a cell that wrote a warning."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise ValueError(f"{name}, cell {cell.id} wrote a warning: {output.text}")
            output.get("data", {}).pop(WIDGET, None)


if __name__ == "__main__":
    for given in map(Path, sys.argv[1:]):
        print(given)
        run(given)
