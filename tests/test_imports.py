"""`import reshard_lab` stays light: of all third-party libraries it loads numpy alone."""

import subprocess
import sys

HEAVY = ["IPython", "cupy", "ipywidgets", "jax", "matplotlib", "ortools", "pandas"]
HEAVY += ["joblib", "safetensors", "scipy", "torch", "tqdm"]


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
    import tomllib
    from pathlib import Path

    from packaging.requirements import Requirement

    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    optional = {
        Requirement(line).name for extra in extras.keys() - {"test"} for line in extras[extra]
    }
    not_imported = {"jupyterlab"}
    renamed = {"cupy-cuda12x": "cupy"}
    assert {renamed.get(name, name) for name in optional - not_imported} <= set(HEAVY)
