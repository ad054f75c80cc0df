"""The notebooks: what they store, how they are written, and the answers to their exercises.

That their cells run, and that the deterministic ones give what is stored, is tested by nbval
(`make test`). Here is what nbval does not see: a stripped notebook passes it, having compared
nothing.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MEASURING = ("05", "06", "08", "09")
"""What these print is a measurement or depends on the machine; all others are compared."""
MOST_LINES, MOST_WORDS = 15, 2000
ANSWERS = {
    # 4 columns over mesh axis 1; ceil(10/4) = 3, and 3, 3, 2, 2; axis 1 cuts, axis 0 replicates.
    "01": [(2, 4), ((9, 10), (8, 10)), (2, 0)],
    # a half and a quarter; cuts at 3, 6, 9 and at 4, 8; each host takes 8 x 8 x 4 B for half of it.
    "02": [4, 6, 2 * 8 * 8 * 4 - 8 * 8 * 4],
    # A·B; 1 + (A - 1)/K; all but send/recv, whose four copies share the one NIC.
    "03": [3 * 4, 1 + 5 / 50, 3],
    # 5, 3, then 4, 3, 3 on the other; half of 18, as 5 + 4 and 3 · 3; 8 rows of ceil(6/4) columns.
    "04": [4 + 3 + 3, 9, 1.6],
    # nine copies through 10 Gbit/s; one a host; 0.2 s and a twentieth of it for the second host.
    "05": [1.11, 3, 210],
    # twice the hosts, twice the copies; a chain twice as long ends little later; the receivers take
    # in as much as before.
    "06": [2, 1, 1.0],
    # 2 · 8 - 1; 3 + 2 · (1 - 1/2); 16 + 3 slots of 3 s.
    "07": [15, 4.0, 57],
    # 8 · 1024 · 2560 · 2 B; layers 10 to 13; (3 + 2 · 0.5)/3.
    "08": [40, 4, 1.33],
    # a host of 4 and two of them; 4 · 200/10; 100 chunks, 7 hops.
    "09": [12, 80, 700],
}
MISTAKES = {
    # axis 0 cut; the rules the other way round; axis 0 taken to cut.
    "01": [(0, 2), ((8, 10), (9, 10)), (0, 1)],
    # every source slice with every destination slice; four times three; what one host gets.
    "02": [8, 12, 8 * 8 * 4 // 2],
    # a copy a host; the paper's formula, which rounds up by 2 % here; all four.
    "03": [3, 1 + 6 / 50, 4],
    # half of the work; load balance once more; what the senders need.
    "04": [9, 10, 1.2],
    # a copy a host; a copy a device; the paper's formula, which counts the first host too.
    "05": [10 / 3, 9, 220],
    # a copy for each of the new devices; twice the hosts, twice the time; twice the senders.
    "06": [4, 2, 0.5],
    # 1F1B; transfers not shared by the two on the way; nothing to fill or drain.
    "07": [8, 5.0, 48],
    # a byte a number; the skips of the 1B model; one transfer in place of two.
    "08": [20, 5, 3.5 / 3],
    # those that receive; one NIC; a hop a device.
    "09": [8, 20, 800],
}
"""What a learner may well predict."""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list:
    return [c for c in read(path).cells if c.cell_type == "code"]


def number(path: Path) -> str:
    return path.name[:2]


every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def test_all_notebooks_are_there_and_tested_in_one_lane():
    assert [number(p) for p in NOTEBOOKS] == [f"{n:02}" for n in range(1, len(NOTEBOOKS) + 1)]
    text = (ROOT / "Makefile").read_text()
    lanes = dict(re.findall(r"^(STRICT|MEASURING) := \$\(wildcard (.*)\)$", text, re.M))
    named = {lane: {number(p) for p in ROOT.glob(names)} for lane, names in lanes.items()}
    assert named["MEASURING"] == set(MEASURING) & {number(p) for p in NOTEBOOKS}
    assert named["STRICT"] == {number(p) for p in NOTEBOOKS} - set(MEASURING)


@every_notebook
def test_cells_are_short_and_hold_no_logic(path):
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= MOST_LINES
        defines = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If)
        assert not any(isinstance(n, defines) for n in ast.walk(ast.parse(cell.source)))


@every_notebook
def test_every_cell_that_should_have_an_output_stores_one(path):
    cells = code_cells(path)
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        last = ast.parse(cell.source).body[-1]
        assert bool(cell.outputs) == isinstance(last, (ast.Expr, ast.Try)), cell.source
        for output in cell.outputs:
            assert output.output_type in ("execute_result", "display_data", "stream")
            assert output.get("name", "stdout") == "stdout"


@every_notebook
def test_nothing_is_stored_that_no_two_runs_share(path):
    notebook, text = read(path), path.read_text(encoding="utf-8")
    for machine in (str(ROOT), "/home/", "/root", "/tmp", "site-packages", "Warning", " at 0x"):
        assert machine not in text
    assert "widget-view" not in text
    assert notebook.metadata.keys() == {"kernelspec", "language_info"}
    assert [c.id for c in notebook.cells] == [f"c{i:02}" for i in range(1, len(notebook.cells) + 1)]
    assert not any(c.metadata.keys() - {"tags"} for c in notebook.cells)  # times of a run


@every_notebook
def test_notebooks_say_what_they_are_about_and_how_long_they_take(path):
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith(f"# {int(number(path))}. ")
    minutes = "five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    assert re.search(rf"\b({minutes})\s+minutes\b", first.source)
    assert re.search(r"\b([Ss]ection|[Ff]igure)s? \d", first.source)
    words = " ".join(c.source for c in read(path).cells if c.cell_type == "markdown").split()
    assert len(words) < MOST_WORDS  # 15 minutes


@every_notebook
def test_headings_stand_on_lines_of_their_own(path):
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            assert not re.search(r"[^\n#]#{1,3} ", cell.source), cell.source
            assert all(len(line) <= 110 for line in cell.source.splitlines())


@every_notebook
def test_links_between_notebooks_lead_somewhere(path):
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", cell.source):
                assert (path.parent / target).exists(), target


@every_notebook
def test_exercises_have_the_answers_worked_out_by_hand(path):
    """Each notebook ends in three exercises, which stand on their own after the imports."""
    cells = code_cells(path)
    assert not any("teaching.predict" in c.source for c in cells[:-3])
    for (call, names), answer in zip(exercises(path), ANSWERS[number(path)], strict=True):
        for prediction, right in ((answer, True), ("nonsense", False)):
            verdict = put(call, names, prediction)
            assert verdict.right is right, (ast.unparse(call), verdict)


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if number(p) in MISTAKES], ids=number)
def test_mistakes_are_told_a_hint_and_not_the_answer(path):
    mistakes, answers = MISTAKES[number(path)], ANSWERS[number(path)]
    for (call, names), mistake, answer in zip(exercises(path), mistakes, answers, strict=True):
        verdict = put(call, names, mistake)
        assert verdict.right is False, (ast.unparse(call), verdict)
        (hint,) = (ast.literal_eval(k.value) for k in call.keywords if k.arg == "hint")
        assert hint[1:] in verdict.text
        assert not re.search(rf"(?<![\d.]){re.escape(str(answer))}(?![\d.])", hint)


def exercises(path: Path) -> Iterator[tuple[ast.Call, dict[str, object]]]:
    """Each exercise's call of ``predict``, and the names it uses, which its cell has set."""
    cells = code_cells(path)
    names: dict[str, object] = {}
    exec(cells[0].source, names)
    for cell in cells[-3:]:
        *before, last = ast.parse(cell.source).body
        assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
        assert ast.unparse(last).startswith("teaching.predict(...,")
        exec(compile(ast.Module(before, []), path.name, "exec"), names)
        yield last.value, names


def put(call: ast.Call, names: dict[str, object], prediction: object) -> Any:
    """The verdict on ``prediction`` in place of the dots."""
    return eval(ast.unparse(call).replace("...", repr(prediction), 1), names)
