"""Results are written completely or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sparktop.commands.output import tell, write_file
from sparktop.errors import OutputError


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The file has the new text, and no other file is left beside it."""
    path = tmp_path / "x.json"
    path.write_text("old", encoding="utf-8")
    write_file(path, "new –")
    assert path.read_text(encoding="utf-8") == "new –"
    assert os.listdir(tmp_path) == ["x.json"]  # noqa: PTH208 - hidden files too, by name


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing fails the old text stays, no file is left beside it, and the error is one line."""
    path = tmp_path / "x.json"
    path.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"x\.json: cannot be written: No space left on device$"):
        write_file(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_messages_are_clean_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of a message begins with the program's name and has no escape sequences."""
    tell("one\x1b[31m\ntwo")
    assert capsys.readouterr().err == "sparktop: one [31m\nsparktop: two\n"


@pytest.mark.process
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [["config", "--default"], ["agent", "--print-bundle"]])
def test_a_result_that_is_cut_off_is_an_error(command: list[str], unbuffered: str, tmp_path: Path) -> None:
    """If standard output takes only a part, the exit code is 1, with and without a buffer."""
    path = tmp_path / "out"
    with path.open("wb") as out:
        done = subprocess.run(  # noqa: S603 - this program
            [sys.executable, "-m", "sparktop", *command],
            stdout=out,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "HOME": str(tmp_path)},
            timeout=60,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        )
    assert (done.returncode, path.stat().st_size) == (1, 4096)
    assert b"sparktop: standard output" in done.stderr
    assert b"File too large" in done.stderr
