"""The script that makes the environment for `make demo` says what it does before it does it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
STUB = """#!/bin/sh
# A Python that creates environments with itself in them and installs nothing.
echo "$0 $*" >>"$CALLS"
case "$*" in
  --version) echo "Python 3.99.0" ;;
  "-m venv --clear "*) mkdir -p "$4/bin" "$4/site" && cp "$0" "$4/bin/python" ;;
  *purelib*) echo "$(dirname "$0")/../site" ;;
esac
"""


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """Return the path of such a Python."""
    path = tmp_path / "python"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


def made(venv: Path, kind: str, stub: Path) -> tuple[list[str], list[str]]:
    """Run the script; return the lines that it writes, and the calls of Python."""
    calls = stub.with_name("calls")
    calls.write_text("")
    env = os.environ | {
        "PYTHON": str(stub),
        "CALLS": str(calls),
        "UV": "",
        "XDG_CACHE_HOME": str(stub.parent),
    }
    done = subprocess.run(  # noqa: S603 - our own script
        [ROOT / "scripts/make_venv", venv, kind],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines(), calls.read_text().splitlines()


@pytest.mark.parametrize("kind", ["run", "dev"])
def test_the_first_line_says_what_takes_long(tmp_path: Path, stub: Path, kind: str) -> None:
    """It comes before the environment is made; where all is there, nothing is said and installed."""
    venv = tmp_path / "new"
    said, calls = made(venv, kind, stub)
    assert f"being installed into {venv}" in said[0]
    assert any("-m pip" in one for one in calls)
    said, calls = made(venv, kind, stub)
    assert said == []
    assert not any("-m pip" in one or "-m venv" in one for one in calls)


def test_what_was_downloaded_is_installed_without_an_index(tmp_path: Path, stub: Path) -> None:
    """A second environment takes the packages of the first; the program runs from the tree."""
    _, calls = made(tmp_path / "first", "run", stub)
    assert [one for one in calls if "-m pip" in one and " download " in one]
    _, calls = made(tmp_path / "second", "run", stub)
    assert not [one for one in calls if "-m pip" in one and " download " in one]
    (install,) = (one for one in calls if " install " in one)
    assert f"--no-index --find-links {tmp_path}/sparktop/wheels --require-hashes" in install
    assert (tmp_path / "second/site/sparktop-tree.pth").read_text() == f"{ROOT}\n"
    assert "from sparktop.cli import program" in (tmp_path / "second/bin/sparktop").read_text()


def test_a_terminal_shows_how_far_the_installation_is(tmp_path: Path, stub: Path) -> None:
    """`make install` and `make demo` share the code: packages are counted, and the build has its seconds."""
    ours, theirs = pty.openpty()
    env = os.environ | {"PYTHON": str(stub), "CALLS": str(tmp_path / "calls"), "UV": ""}
    with subprocess.Popen(  # noqa: S603 - our own script
        [ROOT / "scripts/make_venv", tmp_path / "new", "program"],
        env=env | {"XDG_CACHE_HOME": str(tmp_path)},
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        while chunk := read_terminal(ours):
            shown += chunk
    os.close(ours)
    assert process.returncode == 0
    for part in (rb"downloading: \d+ of \d+ packages \(\d+ s\)\r", rb"building sparktop \(\d+ s\)\r"):
        assert re.search(part, shown), shown


def read_terminal(descriptor: int) -> bytes:
    """Return the next bytes of a terminal; none once nobody writes to it any more."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
