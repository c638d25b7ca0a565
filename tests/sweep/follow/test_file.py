"""A file or pipe that grows: read from its beginning on, and from its beginning again when it is another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktop.sweep.follow.file import MOST_AT_ONCE, FileTail

FIRST, SECOND = b'{"ts":1}\n' * 3, b'{"ts":2}\n' * 9


def all_of(tail: FileTail) -> bytes:
    """Read until nothing more comes."""
    found = b""
    while data := tail.read().data:
        found += data
    return found


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """It says so, and reads it as soon as it is there, empty at first."""
    path = tmp_path / "p"
    tail = FileTail(path)
    assert tail.read().waits == "there is no such file yet"
    path.touch()
    assert tail.read().waits == "there is nothing in it yet"
    path.write_bytes(FIRST)
    piece = tail.read()
    assert (piece.data, piece.waits, piece.anew) == (FIRST, None, None)
    tail.close()


def test_what_is_appended_is_given_once(tmp_path: Path) -> None:
    """The whole file comes out, and nothing twice."""
    path = tmp_path / "p"
    path.write_bytes(FIRST)
    tail = FileTail(path)
    assert all_of(tail) == FIRST
    with path.open("ab") as file:
        file.write(SECOND)
    assert all_of(tail) == SECOND
    assert tail.read().data == b""
    tail.close()


def test_a_large_file_comes_in_pieces(tmp_path: Path) -> None:
    """A read takes no longer if the file is longer."""
    path = tmp_path / "p"
    path.write_bytes(b"x" * (2 * MOST_AT_ONCE + 5))
    tail = FileTail(path)
    assert [len(tail.read().data) for _ in range(4)] == [MOST_AT_ONCE, MOST_AT_ONCE, 5, 0]
    tail.close()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("cut", "it was cut"),
        ("longer", "it was written anew"),
        ("replaced", "another file stands in its place"),
    ],
)
def test_a_file_that_is_another_now_is_read_from_its_beginning(tmp_path: Path, how: str, why: str) -> None:
    """If the file was cut, overwritten with more or replaced, what was read before is discarded."""
    path = tmp_path / "p"
    path.write_bytes(FIRST)
    tail = FileTail(path)
    assert all_of(tail) == FIRST
    if how == "cut":
        path.write_bytes(SECOND[:9])
    elif how == "longer":
        path.write_bytes(SECOND)
    else:
        (tmp_path / "q").write_bytes(SECOND)
        (tmp_path / "q").rename(path)
    piece = tail.read()
    assert piece.anew == why
    assert piece.data == (SECOND[:9] if how == "cut" else SECOND)
    assert tail.read().anew is None
    tail.close()


def test_a_file_that_is_taken_away_is_read_to_its_end(tmp_path: Path) -> None:
    """Its writer may still write to it."""
    path = tmp_path / "p"
    path.write_bytes(FIRST)
    tail = FileTail(path)
    with path.open("ab") as file:
        tail.read()
        path.unlink()
        file.write(SECOND)
    assert tail.read().data == SECOND
    tail.close()


def test_a_pipe_gives_what_is_written_and_waits_for_nobody(tmp_path: Path) -> None:
    """Without a writer or data, a read returns at once; one writer may follow another."""
    path = tmp_path / "p"
    os.mkfifo(path)
    tail = FileTail(path)
    assert tail.read().waits == "no program writes into the pipe"
    for data in (FIRST, SECOND):
        with path.open("wb", buffering=0) as writer:
            assert tail.read().waits == "nothing came through the pipe yet"
            writer.write(data)
            assert tail.read().data == data
    assert tail.read().waits == "no program writes into the pipe"
    tail.close()


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    """A folder or a device is refused with the reason."""
    assert "cannot be read" in (FileTail(tmp_path).read().waits or "") or "neither" in (
        FileTail(tmp_path).read().waits or ""
    )
    assert FileTail(Path("/dev/null")).read().waits == "it is neither a file nor a pipe"
