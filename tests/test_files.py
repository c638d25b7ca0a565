"""Locations of the user's files, and files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktop.commands.output import write_file
from sparktop.errors import OutputError
from sparktop.files import SHARED, BaseFolder, find_folder, folder_of, write_whole
from sparktop.sweep.result.store import save
from tests.sweep.made_results import made_sweep


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.parametrize("place", BaseFolder)
@pytest.mark.parametrize(
    ("base", "home", "found"),
    [
        ("/x", "/home/ana", "/x/sparktop"),
        ("", "/home/ana", "/home/ana/{}/sparktop"),
        ("x", "/home/ana", "/home/ana/{}/sparktop"),
        ("", "", None),
        ("x", "ana", None),
    ],
)
def test_every_place_follows_one_rule(place: BaseFolder, base: str, home: str, found: str | None) -> None:
    """A location is that of an absolute variable, else the default below HOME; relative paths are ignored."""
    variable, default = place.value
    env = {variable: base, "HOME": home}
    assert find_folder(env, place) == (Path(found.format(default)) if found else None)
    assert folder_of(env, place) == (find_folder(env, place) or Path("/", default, "sparktop"))


def test_a_written_file_is_private(tmp_path: Path) -> None:
    """A written file is readable by its owner only, whatever the old mode; no other file is left."""
    path = tmp_path / "view.json"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o644)
    write_whole(path, "é")
    assert path.read_bytes() == "é".encode()
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["view.json"]


def test_the_umask_rules_a_shared_file(tmp_path: Path) -> None:
    """A file that the user asked for has the mode that the umask gives to any new file."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "out.json", b"{}", SHARED)
    finally:
        os.umask(before)
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o640


def kept(path: Path, text: str) -> None:
    """Save a sweep whose target has this name."""
    save(path, made_sweep((text, [])))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_whole, "No space left on device: '{}'$"),
        (write_file, "{}: cannot be written: No space left on device$"),
        (kept, "{}: cannot be written: No space left on device$"),
    ],
)
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], None], message: str
) -> None:
    """After a failed write the old content remains, no other file is left, and the error names the file."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "x.json"
    write(path, "old –")
    before = path.read_text(encoding="utf-8")
    assert "old –" in before
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((OSError, OutputError), match=message.format(path)):
        write(path, "new")
    assert path.read_text(encoding="utf-8") == before
    assert names(tmp_path) == ["x.json"]


def test_a_folder_that_is_not_there_is_an_error_about_the_file(tmp_path: Path) -> None:
    """A missing folder raises the error type and file name that a plain write would raise."""
    path = tmp_path / "none" / "x.json"
    with pytest.raises(FileNotFoundError, match=rf"'{path}'$"):
        write_whole(path, "new")
