"""What imports what: the package loads numpy alone, and its floors stay in order."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from support.paths import ROOT

HEAVY = ["IPython", "cupy", "ipywidgets", "jax", "matplotlib", "ortools", "pandas"]
HEAVY += ["joblib", "psutil", "resvg_py", "safetensors", "scipy", "torch", "tqdm"]


def loaded_by(statement: str) -> set[str]:
    """Top-level modules present in a fresh interpreter after `statement`."""
    code = (
        f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_numpy_and_nothing_heavier():
    loaded = loaded_by("import reshard_lab")
    assert "numpy" in loaded
    assert not loaded & set(HEAVY)


def test_every_library_of_an_extra_is_covered():
    """A new optional dependency has to join the list above."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    optional = {
        Requirement(line).name for extra in extras.keys() - {"test"} for line in extras[extra]
    }
    not_imported = {"jupyterlab"}
    renamed = {"cupy-cuda12x": "cupy", "resvg-py": "resvg_py"}
    assert {renamed.get(name, name) for name in optional - not_imported} <= set(HEAVY)


def floors() -> dict[str, int]:
    """Height of every module by name, from the table in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| modules, top floor first |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {
        name: -height for height, row in enumerate(rows) for name in re.findall(r"`(\w+)`", row)
    }


def imported_modules(path: Path) -> set[str]:
    """Parts of reshard_lab that the file imports, at its top or in a function."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: import from reshard_lab by its full name"
            module = node.module or ""
            if module == "reshard_lab":
                modules |= {alias.name for alias in node.names}
            elif module.startswith("reshard_lab."):
                modules.add(module.split(".")[1])
        elif isinstance(node, ast.Import):
            modules |= {
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("reshard_lab.")
            }
    return modules


RECORDS = {"Measurement", "TrainingRun", "to_frame"}
"""All that pictures know of the floors that carry plans out: two records, and rows of the first."""


def test_pictures_and_explorers_import_nothing_that_runs():
    imported: list[str] = []
    package = ROOT / "reshard_lab"
    for path in (*package.glob("plots/*.py"), *package.glob("widgets/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                imported += [alias.name for alias in node.names]
    above = [name for name in imported if re.match(r"reshard_lab\.(runtime|training)\b", name)]
    assert {name.rpartition(".")[2] for name in above} == RECORDS


def test_pictures_and_explorers_load_nothing_heavier_than_numpy():
    loaded = loaded_by("import reshard_lab.plots, reshard_lab.widgets")
    assert "numpy" in loaded and not loaded & set(HEAVY)


def test_modules_import_from_their_own_floor_or_below():
    height = floors()
    package = ROOT / "reshard_lab"
    wrong = []
    for path in sorted(package.rglob("*.py")):
        part = path.relative_to(package).with_suffix("").parts[0]
        if part == "__init__":
            continue  # the public names, gathered from every floor
        assert part in height, f"{part} has no floor in docs/architecture.md"
        wrong += [
            f"{path.relative_to(ROOT)} imports {other}, which is above it"
            for other in imported_modules(path)
            if height.get(other, height[part]) > height[part]  # a public name has no floor
        ]
    assert not wrong
