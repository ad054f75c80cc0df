"""The house: short modules, no cycles, one meaning a name, and the glossary that lists them."""

import ast
import dataclasses
import importlib
import io
import keyword
import pkgutil
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "reshard_lab"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in SOURCES}
MOST_LINES = 300
MOST_REPEATED = 7
"""Lines of code that may stand twice, names, numbers and texts apart."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


def imports(tree: ast.AST) -> set[str]:
    """Modules of the package that ``tree`` imports, for types too."""
    targets = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reshard_lab"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            targets |= (names & MODULES.keys()) or {node.module}
        elif isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names} & MODULES.keys()
    return targets


def test_modules_are_short():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {str(path): n for path, n in lengths.items() if n > MOST_LINES}


def test_no_import_of_the_package_inside_a_function():
    """Such an import hides a cycle. Heavy libraries may load where they are used."""
    inside = [
        f"{module_name(path)}.{function.name}"
        for path, tree in TREES.items()
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and imports(function)
    ]
    assert not inside


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that import each other, found by removing all that can be loaded first."""
    left = {name: set(needs) for name, needs in graph.items()}
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    while unused := [n for n in left if not any(n in needs for needs in left.values())]:
        for name in unused:
            del left[name]
    return [sorted(left)] if left else []


def test_no_cycle_between_modules():
    graph = {name: imports(TREES[path]) - {name} for name, path in MODULES.items()}
    for name in [n for n, path in MODULES.items() if path.name == "__init__.py"]:
        for other, needs in graph.items():  # what imports a package's face needs all of it
            if name in needs and other.startswith(f"{name}."):
                pytest.fail(f"{other} imports {name}, the face above it")
    assert not cycles(graph)


def test_a_cycle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_class_names_are_unique():
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(module_name(path))
    assert not {name: where for name, where in places.items() if len(where) > 1}


# ---- the glossary of docs/architecture.md


def glossary() -> tuple[str, set[str]]:
    """The glossary's text, and the identifiers it lists as retired."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("\n## Glossary\n")[2].partition("\n## ")[0]
    kept, _, retired = section.partition("\n### Retired\n")
    assert kept and retired, "docs/architecture.md has a section Glossary with a part Retired"
    return kept, set(re.findall(r"`(\w+)`", retired))


def public_records() -> set[str]:
    """Frozen records that a package lists among its public names."""
    records = set()
    packages = [name for _, name, is_package in pkgutil.iter_modules([str(PACKAGE)]) if is_package]
    for name in ("", *(f".{p}" for p in packages)):
        face = importlib.import_module(f"reshard_lab{name}")
        for public in getattr(face, "__all__", ()):
            value = getattr(face, public)
            fields = dataclasses.is_dataclass(value) or hasattr(value, "_fields")
            if isinstance(value, type) and fields:
                records.add(public)
    return records


def test_every_public_record_is_in_the_glossary():
    kept, _ = glossary()
    assert len(public_records()) > 20
    assert not {record for record in public_records() if f"`{record}`" not in kept}


def test_what_the_glossary_names_is_there():
    """Its second column: classes, functions, constants and attributes of the package."""
    kept, _ = glossary()
    column = "".join(row.split("|")[2] for row in kept.splitlines() if row.startswith("|"))
    code = "\n".join(path.read_text() for path in SOURCES)
    names = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", column)}
    defined = r"(?m)^ *(?:class |def )?{}\b *(?:\(|:|=)"
    assert len(names) > 60
    assert not {name for name in names if not re.search(defined.format(name), code)}


def test_retired_identifiers_name_nothing():
    _, retired = glossary()
    assert len(retired) > 30
    named = defaultdict(set)
    for path, tree in TREES.items():
        named[path.stem].add(module_name(path))
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                named[node.name.lstrip("_")].add(module_name(path))
    assert not {name: sorted(where) for name, where in named.items() if name in retired}


# ---- nothing stands twice


def code_lines(text: str) -> list[tuple[int, str]]:
    """Lines of code with names, numbers and texts made equal; imports and lone signs left out."""
    lines: dict[int, list[str]] = defaultdict(list)
    kinds = {tokenize.NUMBER: "0", tokenize.STRING: "''"}
    skip = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in skip:
            continue
        is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        word = "n" if is_name else kinds.get(token.type, token.string)
        lines[token.start[0]].append(word)
    result = []
    for number, words in sorted(lines.items()):
        line = " ".join(words)
        if re.search(r"\w", line) and words[0] not in ("from", "import") and line != "''":
            result.append((number, line))
    return result


def repeated(files: dict[str, str]) -> list[str]:
    """Runs of more than ``MOST_REPEATED`` lines of code that stand in two places."""
    size = MOST_REPEATED + 1
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    runs = []
    for name, text in files.items():
        lines = code_lines(text)
        reported = -size
        for at in range(len(lines) - size + 1):
            run = tuple(line for _, line in lines[at : at + size])
            if len(set(run)) <= size // 2:
                continue  # a table: rows of one shape
            first = seen.setdefault(run, (name, at))
            apart = first[0] != name or at - first[1] >= size
            if apart and at - reported >= size:
                reported = at
                runs.append(f"{first[0]} ~ {name}:{lines[at][0]}")
    return runs


def test_nothing_stands_twice():
    files = [*SOURCES, *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    files += ROOT.glob("tools/*.py")
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if "oracles" not in path.parts
    }
    assert not repeated(texts)


def test_a_run_that_stands_twice_is_found():
    body = "".join(f"    a{i} = b[{i}] {sign} c\n" for i, sign in enumerate("+-*/%@&|^"))
    texts = {"one": f"def f():\n{body}", "two": f"def g():\n{body.replace('c', 'other')}"}
    assert repeated(texts) == ["one ~ two:1"]
    assert not repeated({"one": texts["one"]})
