"""The files that say what to install agree with each other, and the wheel carries its data."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Extras that `make` does not install; constraints.txt says nothing about them.
UNPINNED_EXTRAS = {"gpu", "jax"}
# What conda-forge calls a distribution that the package index serves under another name.
PIP_NAME = {"pytorch": "torch", "cupy": "cupy-cuda12x"}
FIXED_CONDA = {"jupyterlab", "ipywidgets", "matplotlib", "pandas", "numpy", "cupy", "pytorch"}
ENVIRONMENTS = ["environment.yml", "environment-cpu.yml"]


def requirements(extras: set[str]) -> dict[str, Requirement]:
    """Direct requirements by canonical name: the required ones and those of `extras`."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(r.name): r for r in parsed}


def pins() -> dict[str, Version]:
    """Version by canonical name, as constraints.txt pins it."""
    versions = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, separator, version = text.partition("==")
        assert separator, f"constraints.txt: {line!r} is not of the form name==version"
        key = canonicalize_name(name)
        assert key not in versions, f"constraints.txt pins {key} twice"
        versions[key] = Version(version)
    return versions


def environment(file: str) -> tuple[dict[str, SpecifierSet], list[str]]:
    """What conda installs, by conda's names, and what pip installs after it."""
    document = yaml.safe_load((ROOT / file).read_text())
    assert document["channels"] == ["conda-forge"]
    conda: dict[str, SpecifierSet] = {}
    pip: list[str] = []
    for entry in document["dependencies"]:
        if isinstance(entry, dict):
            pip += entry["pip"]
        else:
            parsed = Requirement(entry)
            assert parsed.name not in conda, f"{file} lists {parsed.name} twice"
            conda[parsed.name] = parsed.specifier
    return conda, pip


def test_every_direct_dependency_is_pinned_within_its_range():
    pinned = pins()
    for name, requirement in requirements(
        PROJECT["optional-dependencies"].keys() - UNPINNED_EXTRAS
    ).items():
        assert name in pinned, f"{name} is in pyproject.toml and not in constraints.txt"
        assert pinned[name] in requirement.specifier, f"{name}=={pinned[name]}, not {requirement}"


def test_only_numpy_and_scipy_are_required():
    assert requirements(set()).keys() == {"numpy", "scipy"}


def test_installed_versions_are_the_pinned_ones():
    if not (Path(sys.prefix) / ".stamp").exists():
        pytest.skip("this environment was not built by make, so it follows no pins")
    differing = {}
    for name, pinned in pins().items():
        try:
            installed = Version(Version(version(name)).public)
        except PackageNotFoundError:
            continue
        if installed != pinned:
            differing[name] = f"{installed}, pinned {pinned}"
    assert not differing


def test_pins_install_on_the_lowest_python():
    """A pin that needs a later 3.11 makes pip search for minutes, then give up."""
    lowest = SpecifierSet(PROJECT["requires-python"])
    floor = Version(next(iter(lowest)).version + ".0")
    for name, pinned in pins().items():
        try:
            needs = metadata(name).get("Requires-Python") or ""
        except PackageNotFoundError:
            continue
        assert floor in SpecifierSet(needs), f"{name}=={pinned} needs Python {needs}"


@pytest.mark.parametrize("file", ENVIRONMENTS)
def test_conda_asks_for_what_pyproject_asks_for(file):
    conda, pip = environment(file)
    known = requirements(PROJECT["optional-dependencies"].keys())
    assert conda.pop("python") == SpecifierSet(PROJECT["requires-python"])
    assert conda.pop("pip") == SpecifierSet()
    for name, specifier in conda.items():
        pip_name = PIP_NAME.get(name, name)
        assert pip_name in known, f"{file} lists {name}, which pyproject.toml does not know"
        assert specifier == known[pip_name].specifier, f"{file}: {name}"
    # What conda does not bring comes through the same extras as in the Makefile.
    assert pip == ["-e .[notebooks,run,solve,test]"]
    assert "EXTRAS := notebooks,run,solve,test\n" in (ROOT / "Makefile").read_text()


def test_conda_lists_the_fixed_packages():
    conda, _ = environment("environment.yml")
    assert conda.keys() >= FIXED_CONDA | {"python", "scipy"}


def test_the_cpu_environment_differs_by_cupy_alone():
    full, full_pip = environment("environment.yml")
    cpu, cpu_pip = environment("environment-cpu.yml")
    del full["cupy"]
    assert cpu == full
    assert cpu_pip == full_pip


def test_python_floor_is_the_same_everywhere():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert settings["ruff"]["target-version"] == "py311"
    assert settings["mypy"]["python_version"] == "3.11"
    assert "version_info < (3, 11)" in (ROOT / "Makefile").read_text()


def test_versions_agree():
    import reshard_lab

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert getattr(reshard_lab, "__version__", PROJECT["version"]) == PROJECT["version"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, unpacked: what a plain `pip install` lays down, with no checkout around it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_wheel_carries_types_presets_and_license(wheel):
    info = f"reshard_lab-{PROJECT['version']}.dist-info"
    assert {path.name for path in wheel.iterdir()} == {"reshard_lab", info}
    assert (wheel / "reshard_lab" / "py.typed").exists()
    assert (wheel / info / "licenses" / "LICENSE").exists()
    presets = {path.name for path in (ROOT / "data" / "clusters").glob("*.json")}
    packed = {path.name for path in (wheel / "reshard_lab" / "_data" / "clusters").iterdir()}
    assert presets
    assert presets <= packed


def test_presets_and_recorded_results_load_from_a_wheel(wheel, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import reshard_lab as rl\n"
        "from reshard_lab.paper import recorded\n"
        "print(rl.__file__, rl.Cluster.preset('p3.8xlarge', hosts=4), recorded('figure5').label)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))
