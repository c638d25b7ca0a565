"""Tags and notes on results: no written remark gets lost."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.errors import OutputError
from sparktop.sweep.history.remarks import FILE_NAME, Remark, RemarkFile, tags_of


def remark_file(folder: Path) -> RemarkFile:
    return RemarkFile(folder / FILE_NAME, pause=lambda _: None)


def test_tags_and_note_come_back_from_the_disk(tmp_path: Path) -> None:
    """Another program that reads the same folder finds what was written."""
    assert remark_file(tmp_path).write("1.json", tags=("night", "#fans"), note=" fans\toff ") is None
    assert remark_file(tmp_path).all() == {"1.json": Remark(("night", "fans"), "fans off")}


def test_one_of_both_may_be_changed(tmp_path: Path) -> None:
    """A new note keeps the tags, new tags keep the note; with both empty the remark is removed."""
    file = remark_file(tmp_path)
    file.write("1.json", tags=("a",), note="n")
    file.write("1.json", note="m")
    file.write("1.json", tags=("b",))
    assert file.all() == {"1.json": Remark(("b",), "m")}
    file.write("1.json", tags=(), note="")
    assert file.all() == {}


def test_two_programs_keep_each_others_remarks(tmp_path: Path) -> None:
    """Each reads the file again before it writes: what the other one wrote meanwhile stays."""
    one, other = remark_file(tmp_path), remark_file(tmp_path)
    assert one.all() == other.all() == {}
    one.write("1.json", note="first")
    other.write("2.json", note="second")
    assert one.all() == other.all() == {"1.json": Remark((), "first"), "2.json": Remark((), "second")}


@pytest.mark.outside
def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Eight writers of ten remarks each leave eighty: the lock lets one at a time read and write."""
    together = Barrier(8)

    def write(name: int) -> None:
        file = RemarkFile(tmp_path / FILE_NAME)
        together.wait(10)
        for number in range(10):
            file.write(f"{name}-{number}.json", note="n")

    threads = [Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(remark_file(tmp_path).all()) == 80


def test_keys_of_other_versions_stay(tmp_path: Path) -> None:
    """What a newer version wrote beside tags and notes is still there after a change."""
    path = tmp_path / FILE_NAME
    path.write_text(
        json.dumps({"schema": "x/9", "stars": [1], "files": {"1.json": {"stars": 5, "note": "a"}, "2": 7}})
    )
    remark_file(tmp_path).write("1.json", note="b")
    told = json.loads(path.read_text())
    assert told == {"schema": "x/9", "stars": [1], "files": {"1.json": {"stars": 5, "note": "b"}, "2": 7}}


@pytest.mark.parametrize("text", ["{", "[1]", '{"files": []}', "\udcff", '{"files": {"a": {"note": NaN'])
def test_a_broken_file_is_told_and_kept(tmp_path: Path, text: str) -> None:
    """The problem is a line, not an error; the next remark puts the file aside instead of overwriting it."""
    path = tmp_path / FILE_NAME
    path.write_bytes(text.encode(errors="surrogateescape"))
    file = remark_file(tmp_path)
    assert file.all() == {}
    assert "remarks cannot be read" in (file.problem or "")
    told = file.write("1.json", note="new")
    assert told is not None
    assert f"{FILE_NAME}.bad" in told
    assert (tmp_path / f"{FILE_NAME}.bad").read_bytes() == text.encode(errors="surrogateescape")
    assert file.problem is None
    assert file.all() == {"1.json": Remark((), "new")}


def test_a_second_broken_file_gets_another_name(tmp_path: Path) -> None:
    """What was put aside before is not written over either."""
    (tmp_path / f"{FILE_NAME}.bad").write_text("old")
    (tmp_path / FILE_NAME).write_text("{")
    remark_file(tmp_path).write("1.json", note="n")
    assert (tmp_path / f"{FILE_NAME}.bad").read_text() == "old"
    assert (tmp_path / f"{FILE_NAME}.bad-2").read_text() == "{"


def test_a_program_that_keeps_the_lock_is_told(tmp_path: Path) -> None:
    """A remark that cannot be written in two seconds is a line with its reason; nothing is changed."""
    waits: list[float] = []
    file = RemarkFile(tmp_path / FILE_NAME, pause=waits.append)
    with (tmp_path / ".remarks.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="another sparktop keeps the remarks"):
            file.write("1.json", note="n")
    assert sum(waits) == pytest.approx(2.0)
    assert not (tmp_path / FILE_NAME).exists()


def test_remarks_on_what_is_gone_are_dropped(tmp_path: Path) -> None:
    """Forgetting removes the remarks of these files and no others."""
    file = remark_file(tmp_path)
    file.write("1.json", note="a")
    file.write("2.json", note="b")
    file.forget(["1.json", "9.json"])
    assert remark_file(tmp_path).all() == {"2.json": Remark((), "b")}


@given(words=st.text(max_size=300))
@settings(max_examples=60)
def test_tags_are_short_clean_words(words: str) -> None:
    """Whatever was typed becomes at most twelve different words without blanks or control characters."""
    tags = tags_of(words)
    assert len(tags) == len(set(tags)) <= 12
    assert all(tag and len(tag) <= 24 and tag.isprintable() and " " not in tag for tag in tags)
