"""Rules of this repository that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parent.parent
SHORTEST_REASON = 5
EXCEPTION = re.compile(
    r"#\s*(?:noqa\b(?::\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?|type:\s*ignore\b(?:\[[\w, -]+\])?)(.*)"
)
EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})
# Put together here, so that this file does not hold what it forbids.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("anaconda", "org"),
        ("rubygems", "org"),
    )
)


@cache
def tracked() -> tuple[Path, ...]:
    """Return every file that is committed or could be; without git, all files below the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=20).stdout  # noqa: S603 - fixed
        names = [name for name in out.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return tuple(ROOT / name for name in sorted(names) if (ROOT / name).is_file())


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


class Function(NamedTuple):
    """A function of a file: its first line, and whether it has a docstring."""

    path: Path
    name: str
    line: int
    documented: bool


class Found(NamedTuple):
    """What the rules need of the files of tests: each is parsed once, and no tree is kept."""

    functions: list[Function]
    sleeps: list[tuple[Path, int]]
    """Where `sleep` of the time module is called or imported."""


@cache
def found() -> Found:
    whole = Found([], [])
    tests = (path for path in python_files() if path.is_relative_to(ROOT / "tests"))
    for path in tests:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                documented = ast.get_docstring(node, clean=False) is not None
                whole.functions.append(Function(path, node.name, node.lineno, documented))
            elif isinstance(node, ast.Attribute | ast.ImportFrom) and is_sleep(node):
                whole.sleeps.append((path, node.lineno))
    return whole


def is_sleep(node: ast.Attribute | ast.ImportFrom) -> bool:
    """Return whether the node refers to `time.sleep` or imports it."""
    if isinstance(node, ast.Attribute):
        return node.attr == "sleep" and isinstance(node.value, ast.Name) and node.value.id == "time"
    return node.module == "time" and any(alias.name == "sleep" for alias in node.names)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_the_rules_look_at_the_whole_repository() -> None:
    """The list of files contains the package, the tests and the build's own files."""
    names = {str(path.relative_to(ROOT)) for path in tracked()}
    assert {"sparktop/__init__.py", "tests/test_house_rules.py", "pyproject.toml", "Makefile"} <= names


def test_no_module_has_an_empty_name() -> None:
    """No file or folder is called utils, helpers, common or manager: a name states what is inside."""
    empty = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if EMPTY_NAMES & {part.lower() for part in path.relative_to(ROOT).with_suffix("").parts}
    ]
    assert empty == []


def test_every_test_states_a_fact() -> None:
    """Each test function has a docstring."""
    silent = [
        f"{where(one.path, one.line)} {one.name}"
        for one in found().functions
        if one.name.startswith("test_") and not one.documented
    ]
    assert silent == []


def test_no_test_sleeps() -> None:
    """No test calls `time.sleep`: it waits for an event, or moves a fake clock."""
    sleeping = [where(path, line) for path, line in found().sleeps]
    assert sleeping == []


def test_no_file_names_a_package_registry() -> None:
    """No file names a package registry: the machine's own settings decide where packages come from."""
    hosts = [host.encode() for host in REGISTRY_HOSTS]
    naming = []
    for path in tracked():
        words = path.read_bytes().lower()
        naming += [f"{path.relative_to(ROOT)}: {host.decode()}" for host in hosts if host in words]
    assert naming == []


def without_reason(lines: list[str]) -> Iterator[int]:
    """Yield the line numbers of lint exceptions without a reason beside them or in a comment above."""
    explained = False
    for number, line in enumerate(lines, 1):
        beside = EXCEPTION.search(line)
        explained = line.lstrip().startswith("#") or (explained and beside is not None)
        if beside and not explained and len(beside[1].strip(" #-:;,.")) < SHORTEST_REASON:
            yield number


def test_every_exception_from_a_rule_has_its_reason() -> None:
    """Each `noqa` and `type: ignore` has a reason beside it or in the comment above it."""
    bare = [
        where(path, number)
        for path in python_files()
        for number in without_reason(path.read_text(encoding="utf-8").splitlines())
    ]
    assert bare == []


def test_a_name_is_defined_once_in_a_module() -> None:
    """No module of the package defines a name twice: the second would win unnoticed."""
    twice: list[str] = []
    for path in python_files():
        if path.relative_to(ROOT).parts[0] != "sparktop":
            continue
        seen: set[str] = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in _defined(node):
                twice += [f"{path.relative_to(ROOT)}: {name}"] * (name in seen)
                seen.add(name)
    assert not twice


def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines; those of conditions are alternatives."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [] if node.decorator_list else [name]
        case ast.Assign(targets=targets):
            return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []
