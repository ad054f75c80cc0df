"""What the README shows runs, and says what it is said to say."""

import importlib.util
import re

import numpy as np
import pytest

import reshard_lab as rl
from support.paths import ROOT


def test_the_example_runs(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "box=((0, 1), (0, 4)), nbytes=16, senders=(0,), receivers=(4, 5)" in printed
    upper = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(names["pieces"][4], upper)
    np.testing.assert_array_equal(names["pieces"][5], upper)


def test_links_to_files_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.fixture(scope="module")
def drawn():
    """The tool that draws the pictures."""
    path = ROOT / "tools" / "readme_pictures.py"
    spec = importlib.util.spec_from_file_location("readme_pictures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_what_the_tool_draws(drawn):
    readme = (ROOT / "README.md").read_text()
    pictures = drawn.pictures()
    assert len(pictures) == 3
    for name, figure in pictures.items():
        assert figure.svg == (ROOT / "docs" / "pictures" / name).read_text(), "run make pictures"
        assert f"(docs/pictures/{name})" in readme


def test_the_answer_is_what_was_predicted_and_measured(drawn):
    text = " ".join((ROOT / "README.md").read_text().split())
    bad, good = (rl.plan(drawn.question(), "broadcast", s, chunks=32) for s in drawn.METHODS)
    assert f"lies idle: {1e3 * bad.makespan_s:.0f} ms." in text
    assert f"best order takes {1e3 * good.makespan_s:.0f} ms" in text
    assert good.makespan_s == pytest.approx(good.lower_bound_s)
    assert f'`plan.optimal` is `"{good.optimal}"`' in text
    table = drawn.paper.recorded("figure8").frame
    seconds = table[table["case"] == 9].set_index("method")["measured_s"]
    naive, auto = (1e3 * seconds[method] for method in drawn.METHODS)
    assert f"400 Mbit/s: {naive:.0f} ms and {auto:.0f} ms, medians" in text
    assert set(table["runs"]) == {10}
