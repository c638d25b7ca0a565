"""The reader that is sent over ssh: which modules it holds, and that they suffice there."""

from __future__ import annotations

import ast
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.sources.decode import WireError, decode, decode_ranks
from sparktop.sources.ssh_remote import reader_bundle
from tests.agent.agent_process import ROOT, environment, ran
from tests.sources.ssh.pythons import VERSIONS, python

NEWER_THAN_310 = frozenset(
    {
        "StrEnum",
        "UTC",
        "timeout",
        "timeout_at",
        "TaskGroup",
        "Runner",
        "Self",
        "assert_never",
        "tomllib",
        "batched",
    }
)
"""Names of the standard library that Python 3.10 lacks, as far as they are near at hand here."""
STAND_INS = frozenset({"sparktop/stopping.py"})
IMPORT_ALL = """
import sys
sys.path[:] = [sys.argv[1], *[one for one in sys.path if not one.endswith("-packages")]]
for name in sys.argv[2:]:
    __import__(name)
print(*sorted(name for name in sys.modules if name.split(".")[0] == "sparktop"))
"""


def sources() -> dict[str, str]:
    """Return every file of the zip file, by name."""
    with zipfile.ZipFile(io.BytesIO(reader_bundle().data)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def own() -> dict[str, str]:
    """Return the modules of this package in it, by path."""
    return {name: text for name, text in sources().items() if name.startswith("sparktop/")}


def module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.outside
def test_its_modules_load_without_any_package(tmp_path: Path) -> None:
    """In a Python without site packages every module loads from the file, and brings no other of ours."""
    file = tmp_path / "reader.pyz"
    file.write_bytes(reader_bundle().data)
    names = sorted(module(path) for path in own())
    command = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(file), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)  # noqa: S603 - fixed
    assert done.stdout.split() == names


def test_it_is_the_source_as_it_stands_here() -> None:
    """Each file is that of this installation; pynvml's licence travels with it."""
    for name, text in own().items():
        assert text == (ROOT / name).read_text(encoding="utf-8"), name
    stand_in = {"msgspec/__init__.py", "msgspec/structs.py"}
    assert set(sources()) - set(own()) == {"__main__.py", "pynvml.py", *stand_in}
    assert "Redistribution and use in source and binary forms" in sources()["pynvml.py"]


def test_it_keeps_to_python_310() -> None:
    """Syntax and names are those of Python 3.10, but in the two modules that stand in for newer ones."""
    for name, text in {**own(), "__main__.py": sources()["__main__.py"]}.items():
        tree = ast.parse(text, feature_version=(3, 10))
        if name in STAND_INS:
            continue
        newer = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("sparktop")
            for alias in node.names
        } | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert newer & NEWER_THAN_310 == set(), name


@pytest.mark.process
def test_it_is_printed_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    """`--print-bundle` writes the file that is sent, `--digest` its SHA-256, in any process and locale."""
    said = [ran(tmp_path, "--print-bundle", "--digest", PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert said == [(0, f"{reader_bundle().sha256}\n", "")] * 2
    done = subprocess.run(
        [sys.executable, "-m", "sparktop", "agent", "--print-bundle"],
        env=environment(tmp_path),
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == reader_bundle().data
    assert hashlib.sha256(done.stdout).hexdigest() == reader_bundle().sha256


def test_arguments_that_contradict_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says which; and no zip file goes to a terminal, which it would leave unusable."""
    assert main(["agent", "--print-bundle", "--insecure"]) == 2
    assert "goes without other arguments" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["agent", "--print-bundle"]) == 2


@pytest.mark.process
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_it_runs_with_each_python(version: str, tmp_path: Path) -> None:
    """As a program it greets, answers with a sample and about ranks, and ends with its input."""
    file = tmp_path / "reader.pyz"
    file.write_bytes(reader_bundle().data)
    done = subprocess.run(  # noqa: S603 - our own program
        [python(version), "-I", "-S", "-B", str(file)],
        input=b'{"processes": true}\n{"ranks": true}\n',
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    hello, answer, ranks = done.stdout.splitlines()
    assert decode(hello).samples == ()
    (sample,) = decode(answer).samples
    assert sample.memory.total_bytes
    assert sample.processes is not None
    with pytest.raises(WireError, match="no RAS thread of NCCL listens"):
        decode_ranks(ranks)
    assert done.stderr == b""
    assert list(tmp_path.iterdir()) == [file]
