"""What is left of a recording after a crash, a power cut or a bad disk."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparktop.recording.frames import Damage, FrameReader, RecordKind, load_zstd
from sparktop.recording.rescue import Checked, check
from tests.recording.conftest import A_FRAME, FRAMES, Made, instant, read


def complete(made: Made, length: int) -> int:
    """Return how many records are complete in the first `length` bytes."""
    return sum(end <= length for end in made.ends)


def test_an_undamaged_file_is_read_whole(made: Made, tmp_path: Path) -> None:
    """All records, no damage; any Zstandard reader reads it, too."""
    found, reader = read(tmp_path / "a", made.data)
    assert found == made.records
    assert (reader.damage, reader.open_frame, reader.good_end) == ([], False, len(made.data))
    frame = load_zstd().ZstdDecompressor()
    assert b"num_requests_running" in frame.decompress(made.data)
    assert frame.eof


def test_a_file_cut_at_any_byte_of_its_last_records_loses_no_complete_one(made: Made, tmp_path: Path) -> None:
    """At each byte of the last three records; what is torn is not reported as damage while it may grow."""
    for length in range(made.ends[-4], len(made.data)):
        found, reader = read(tmp_path / "a", made.data[:length])
        assert found == made.records[: complete(made, length)]
        assert reader.damage == []


@pytest.mark.parametrize("seed", range(60))
def test_no_change_of_bytes_makes_a_false_record(made: Made, tmp_path: Path, seed: int) -> None:
    """Flipped, changed, lost and added bytes cost at most the rest of the frames that they touch."""
    rng = random.Random(seed)  # noqa: S311 - dice of a test
    data, touched = bytearray(made.data), set[int]()
    for _ in range(rng.choice((1, 1, 1, 8))):
        index = rng.randrange(len(data))
        touched.add(complete(made, index) // A_FRAME)
        match rng.randrange(4):
            case 0:
                data[index] ^= 1 << rng.randrange(8)
            case 1:
                data[index] = rng.randrange(256)
            case 2 if len(touched) == 1:
                del data[index : index + rng.randrange(1, 50)]
            case _ if len(touched) == 1:
                data[index:index] = rng.randbytes(rng.randrange(1, 50))
    found, reader = read(tmp_path / "a", bytes(data))
    kept = {record.fields["index"] for record in found}
    assert all(
        record == made.records[record.fields["index"]]  # type: ignore[call-overload]  # an int in `made`
        for record in found
    )
    if len(touched) == 1:
        frame = touched.pop()
        others = {index for index in range(len(made.records)) if index // A_FRAME not in {frame, frame + 1}}
        assert others <= kept
    assert len(found) == len(made.records) or reader.damage or reader.open_frame


@pytest.mark.parametrize("step", [1, 1000])
def test_a_growing_file_is_followed_through_every_torn_header_and_block(
    made: Made, tmp_path: Path, step: int
) -> None:
    """However few bytes arrive at a time, each record is read once, and torn ones do not count as damage."""
    first = made.ends[A_FRAME - 1] - 300
    (file := tmp_path / "a").write_bytes(made.data[:first])
    with file.open("rb") as opened, file.open("ab") as writer:
        reader = FrameReader(opened.fileno())
        following = reader.follow()
        found = []
        for start in range(first, first + 600, step):
            writer.write(made.data[start : min(start + step, first + 600)])
            writer.flush()
            while (located := next(following)) is not None:
                found.append(located[0])
    assert found == made.records[: complete(made, first + 600)]
    assert reader.damage == []


# What the check says of a damaged file.


def test_a_check_names_the_time_that_damage_cost(made: Made, tmp_path: Path) -> None:
    """Of four frames the second is broken in its middle, and the last is cut off at its end."""
    data = bytearray(made.data[: made.ends[-2] + 5])
    data[made.ends[60] + 5] ^= 0xFF
    path = tmp_path / "a"
    path.write_bytes(data)
    os.utime(path, (0, 0))
    found = check(path)
    assert found.lost == [(instant(60.0), instant(80.0))]
    assert (found.first, found.last, found.frames) == (instant(0.0), instant(158.0), FRAMES)
    assert (found.kinds, found.unreadable) == ({RecordKind.PAGE: 140}, 140)
    assert (len(found.damage), found.torn_bytes, found.is_abandoned) == (1, 5, True)


PLACE = Damage(1000, "bad")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"size": 0}, "it is empty: nothing was written\n"),
        ({"frames": 1}, ": 5,000 bytes, 1 frame\nrecords: none\nend: none: cut off\nnothing is damaged\n"),
        ({"end": "quit", "kinds": Counter(b=2, a=1000)}, ", 0 frames\nrecords: 1,000 a, 2 b\nend: quit\n"),
        ({"damage": [PLACE] * 20}, "\ndamaged at byte 1,000: bad\nall else was read\n"),
        ({"damage": [PLACE] * 21}, "\ndamaged at 1 further places\nall else was read\n"),
        ({"damage": [PLACE] * 1000}, "\ndamaged at 980 or more further places\n"),
        (
            {"torn_bytes": 7, "is_abandoned": False},
            "\nthe last 7 bytes are not complete: still being written\n",
        ),
        ({"unreadable": 2}, "\n2 records cannot be used by this version\nall else was read\n"),
        ({"lost": [(None, None)]}, "\nnothing could be read at all\n"),
        ({"lost": [(instant(0), None)]}, "\nnothing could be read after 2025-"),
        ({"lost": [(None, instant(0))]}, "\nnothing could be read before 2025-"),
        ({"lost": [(instant(0), instant(2000))]}, " (2,000 s)\nall outside of these times was read\n"),
        ({"lost": [(None, instant(0))] * 21}, "\nnothing could be read in 1 further spans\nall outside of"),
    ],
)
def test_a_check_is_told_in_lines(facts: dict[str, Any], words: str) -> None:
    """At most 20 of a kind are listed one by one; nothing that lost data is called undamaged."""
    said = Checked(**{"path": Path("a"), "size": 5000, **facts}).text()
    assert words in said
    assert ("nothing is damaged" in said) == (facts.keys() <= {"frames", "end", "kinds"})
