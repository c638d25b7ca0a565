"""What is left of a recording after a crash, a power cut or a bad disk."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from sparktop.recording import frames
from sparktop.recording.frames import (
    EMPTY_LAST_BLOCK,
    MAGIC,
    MOST_DAMAGE,
    SMALL_WINDOW_LOG,
    FrameReader,
    FrameWriter,
    Record,
    decode,
    encode,
)
from sparktop.recording.player import Recording
from sparktop.recording.records import Head, record_of_head
from sparktop.recording.zstandard import ZstdDecompressor
from tests.recording.conftest import A_FRAME, Made, read


def complete(made: Made, length: int) -> int:
    """Return how many records are complete in the first `length` bytes."""
    return sum(end <= length for end in made.ends)


def test_an_undamaged_file_is_read_whole(made: Made, tmp_path: Path) -> None:
    """All records, no damage; any Zstandard reader reads it, too."""
    found, reader = read(tmp_path / "a", made.data)
    assert found == made.records
    assert (reader.damage, reader.open_frame, reader.good_end) == ([], False, len(made.data))
    frame = ZstdDecompressor()
    assert b"num_requests_running" in frame.decompress(made.data)
    assert frame.eof


def test_a_file_cut_at_any_byte_of_its_last_records_loses_no_complete_one(made: Made, tmp_path: Path) -> None:
    """At each byte of the last three records; what is torn is not reported as damage while it may grow."""
    for length in range(made.ends[-4], len(made.data)):
        found, reader = read(tmp_path / "a", made.data[:length])
        assert found == made.records[: complete(made, length)]
        assert reader.damage == []


@pytest.mark.parametrize("seed", range(40))
def test_nul_bytes_at_the_end_are_a_power_cut(made: Made, tmp_path: Path, seed: int) -> None:
    """Whatever was synced before is read; NUL bytes give no record."""
    rng = random.Random(seed)  # noqa: S311 - dice of a test
    length = rng.randrange(made.ends[A_FRAME], len(made.data))
    found, _ = read(tmp_path / "a", made.data[:length] + bytes(rng.randrange(1, 9000)))
    assert found == made.records[: complete(made, length)]


@pytest.mark.parametrize("seed", range(200))
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


def test_a_frame_appended_after_a_torn_one_is_read(made: Made, tmp_path: Path) -> None:
    """The torn block may claim more bytes than there are: the next frame begins within them."""
    torn = made.data[: made.ends[10] - 20]
    found, reader = read(tmp_path / "a", torn + made.data)
    assert found == made.records[:10] + made.records
    assert len(reader.damage) == 1


def test_an_ended_torn_frame_is_valid_again(made: Made, tmp_path: Path) -> None:
    """Cut after the last complete block and ended by an empty one, any Zstandard reader accepts it."""
    _, reader = read(tmp_path / "a", made.data[: made.ends[7] - 9])
    repaired = made.data[: reader.good_end] + EMPTY_LAST_BLOCK
    frame = ZstdDecompressor()
    frame.decompress(repaired)
    assert frame.eof


def test_a_frame_that_wants_a_gigabyte_is_refused(made: Made, tmp_path: Path) -> None:
    """A window of 2^30 bytes is not allocated; reading goes on behind it."""
    bomb = MAGIC + bytes([0x00, (30 - 10) << 3]) + (2 << 1 | 1 | 4 << 3).to_bytes(3, "little") + b"abcd"
    found, reader = read(tmp_path / "a", bomb + made.data)
    assert found == made.records
    assert [one.offset for one in reader.damage] == [7]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_growing_file_is_followed_through_every_torn_header_and_block(
    made: Made, tmp_path: Path, step: int
) -> None:
    """However few bytes arrive at a time, each record is read once, and torn ones do not count as damage."""
    first = made.ends[A_FRAME - 1] - 300
    (file := tmp_path / "a").write_bytes(made.data[:first])
    with file.open("rb") as opened, file.open("ab") as writer:
        reader = FrameReader(opened.fileno())
        following = reader.following()
        found = []
        for start in range(first, first + 600, step):
            writer.write(made.data[start : min(start + step, first + 600)])
            writer.flush()
            while (located := next(following)) is not None:
                found.append(located.record)
    assert found == made.records[: complete(made, first + 600)]
    assert reader.damage == []


def test_following_reports_damage_at_the_end(made: Made, tmp_path: Path) -> None:
    """A block that cannot be decompressed is reported once, although the file may still grow."""
    (file := tmp_path / "a").write_bytes(made.data[:-40] + bytes(range(200, 240)))
    with file.open("rb") as opened:
        reader = FrameReader(opened.fileno())
        following = reader.following()
        while next(following) is not None:
            pass
        assert [next(following) for _ in range(3)] == [None] * 3
        assert len(reader.damage) == 1


def test_a_file_of_nothing_but_frame_beginnings_is_read_in_a_few_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that reads a MiB for each takes minutes, and a list of them all is larger than the file."""
    data, count = MAGIC * 20_000, 0

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal count
        found = os.pread(descriptor, length, offset)
        count += len(found)
        return found

    monkeypatch.setattr(frames, "os", SimpleNamespace(pread=pread, fstat=os.fstat))
    found, reader = read(tmp_path / "a", data)
    assert (found, len(reader.damage)) == ([], MOST_DAMAGE)
    assert count < 2_000 * len(data)


def test_a_recording_before_many_frame_beginnings_is_opened_in_a_few_passes(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each beginning only its own frame is read, not all that follows."""
    head = record_of_head(made.records[0].instant, Head())
    frame, count = FrameWriter(3), 0
    data = frame.add(encode(head)) + frame.end() + MAGIC * 5_000
    (tmp_path / "a").write_bytes(data)

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal count
        count += 1
        return os.pread(descriptor, length, offset)

    monkeypatch.setattr(frames, "os", SimpleNamespace(pread=pread, fstat=os.fstat))
    assert len(Recording([tmp_path / "a"]).frames) == 1
    assert count < 10 * 5_000


def test_a_record_in_blocks_of_one_byte_is_decoded_a_few_times(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of a record states its length: until that many bytes are there, nothing is parsed again."""
    calls = 0

    def counted(text: bytes, start: int = 0) -> tuple[Record, int] | int:
        nonlocal calls
        calls += 1
        return decode(text, start)

    monkeypatch.setattr(frames, "decode", counted)
    text = encode(replace(made.records[0], body=bytes(3_000)))
    blocks = b"".join((1 << 3).to_bytes(3, "little") + bytes([byte]) for byte in text)
    found, reader = read(tmp_path / "a", MAGIC + bytes([0, 12 << 3]) + blocks + EMPTY_LAST_BLOCK)
    assert ([record.body for record in found], reader.damage) == ([bytes(3_000)], [])
    assert calls < len(text) - 2_900


def test_a_small_window_is_written_into_the_frame_and_reads_the_same() -> None:
    """A reader reserves what the frame asks for: 1 MiB; older parts of the frame are still read."""
    dice = random.Random(1)  # noqa: S311 - bytes that do not compress
    parts = [dice.randbytes(100_000) for _ in range(30)]
    frame = FrameWriter(6, SMALL_WINDOW_LOG)
    data = b"".join(frame.add(part) for part in parts) + frame.end()
    assert data.startswith(MAGIC)
    assert 10 + (data[5] >> 3) == SMALL_WINDOW_LOG == 20
    assert ZstdDecompressor().decompress(data) == b"".join(parts)
