"""The file format of recordings: records with checksums, in Zstandard frames (RFC 8878), written and read.

A record is a line of JSON, its head, and a body:

    {"k":"page","s":"backend:spark-a","m":5120.25,"w":1764000000.5,…,"n":65798,"c":3735928559}
    <65,798 bytes>

`k` is the kind, `s` the label of the source, `m` monotonic seconds, `w` Unix seconds, `n` the length of the
body in bytes, `c` the CRC-32 of the head before `,"c"` and of the body. A line feed follows the body.

A frame has the records of about a minute. Reading survives a file that was cut off, NUL bytes after a power
cut and flipped bits: the records before the damage are returned, and reading continues at the next frame.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from types import ModuleType

from msgspec import Struct

from sparktop.errors import OutputError
from sparktop.model.instant import Instant

MAX_HEAD_BYTES = 64 << 10
"""A head with hundreds of targets fits; all others are below 1 KiB."""
MAX_BODY_BYTES = 4 << 20
_CHECKSUM = b',"c":'
_OWN = frozenset({"k", "s", "m", "w", "n", "c"})


class RecordKind(StrEnum):
    """The kinds of records; a reader skips kinds that it does not know."""

    HEAD = "head"
    """First of a frame: schema, version, machine, targets, settings, identities, and the announced state."""
    PAGE = "page"
    """A metrics page as received."""
    NODE = "node"
    ROUTER = "router"
    FLEET = "fleet"
    """The servers that a Prometheus scrapes, by its aggregates."""
    RANKS = "ranks"
    """What NCCL answered about the ranks of a backend, or that it is asked."""
    FAIL = "fail"
    IDENTITY = "identity"
    WATCH = "watch"
    """A target added or removed, or a changed setting."""
    TICK = "tick"
    """A judgement."""
    SELF = "self"
    NOTE = "note"
    STARTS = "starts"
    """Earlier starts of servers."""
    SWEEP = "sweep"
    """Own load begins or ends."""
    SWEEP_VIEW = "sweep-view"
    """What the board shows of a sweep, running or finished; an empty body if it shows none any more."""
    MARK = "mark"
    """A moment that the user marked."""
    LAG = "lag"
    """Readings that were dropped because the disk did not keep up."""
    END = "end"
    """Last of a recording that was stopped on purpose."""


class RecordError(Exception):
    """Bytes that are not a record; the message is one clean line."""


class Record(Struct, frozen=True):
    """One record: its kind and time, the source that it is about, fields, and a body of bytes."""

    kind: str
    instant: Instant
    source: str | None = None
    """Label of the source, such as "backend:spark-a"."""
    fields: Mapping[str, object] = {}
    body: bytes = b""


def encode(record: Record) -> bytes:
    """Return the bytes of a record.

    Raises:
        RecordError: head or body exceed the limits.
    """
    head: dict[str, object] = {"k": record.kind}
    if record.source is not None:
        head["s"] = record.source
    head |= {"m": record.instant.at, "w": record.instant.wall.timestamp(), **record.fields}
    head["n"] = len(record.body)
    start = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()[:-1]
    line = start + _CHECKSUM + str(zlib.crc32(record.body, zlib.crc32(start))).encode() + b"}\n"
    if len(line) > MAX_HEAD_BYTES or len(record.body) > MAX_BODY_BYTES:
        raise RecordError(f"a {record.kind} record of {len(line) + len(record.body)} bytes is too large")
    return b"".join((line, record.body, b"\n"))


def decode(text: bytes | bytearray, start: int = 0) -> tuple[Record, int] | int:
    """Return the record at `start` of `text` and the position after it.

    If the record is incomplete, return the length in bytes that `text` must reach before decoding it again.

    Raises:
        RecordError: the bytes are not a record.
    """
    newline = text.find(b"\n", start, start + MAX_HEAD_BYTES)
    if newline < 0:
        if len(text) - start >= MAX_HEAD_BYTES:
            raise RecordError("a head without an end")
        return len(text) + 1
    line = bytes(text[start:newline])
    checksum_at = line.rfind(_CHECKSUM)
    try:
        head = json.loads(line)
        length, at, wall = head["n"], float(head["m"]), float(head["w"])
        kind, source, checksum = head["k"], head.get("s"), head["c"]
        if not isinstance(length, int) or not 0 <= length <= MAX_BODY_BYTES or not math.isfinite(at):
            raise RecordError("a head with an implausible length or time")
        if not isinstance(kind, str) or not isinstance(source, str | None):
            raise RecordError("a head with an implausible kind or source")
        instant = Instant(at, datetime.fromtimestamp(wall, UTC))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        raise RecordError("a head that is not JSON of a record") from None
    end = newline + 1 + length
    if len(text) < end + 1:
        return end + 1
    body = bytes(text[newline + 1 : end])
    if zlib.crc32(body, zlib.crc32(line[:checksum_at])) != checksum or text[end : end + 1] != b"\n":
        raise RecordError("a record whose checksum is wrong")
    fields = {name: value for name, value in head.items() if name not in _OWN}
    return Record(kind, instant, source, fields, body), end + 1


_ID_BYTES, _SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)
"""Bytes of a dictionary's ID and of the content's size in a header, by their flags (RFC 8878, 3.1.1.1.1)."""
MAGIC = b"\x28\xb5\x2f\xfd"
SUFFIX = ".rec.zst"


def is_meant_as_recording(name: str, start: bytes) -> bool:
    """Return whether a file is a recording by how it begins, or by its name: the beginning may be damaged."""
    return start.startswith(MAGIC) or name.endswith(SUFFIX)


EMPTY_LAST_BLOCK = b"\x01\x00\x00"
"""Ends a frame after any complete block, because frames have no checksum of their own."""
MAX_WINDOW_LOG = 24
"""A frame that needs a window above 16 MiB is refused."""
WINDOW_LOG, _SMALL_WINDOW_LOG, _SMALL_TABLE_LOG = 22, 20, 16
"""Powers of 2: a window of 4 MiB, or where a second of readings takes less than 1 MiB one of that with small
tables of matches: it saves 5 MiB of memory, because successive pages of a server resemble each other most."""
_BLOCK_HEADER, _LONGEST_HEADER, _MAX_BLOCK = 3, 18, 128 << 10
"""Bytes of a block's header, of the longest header of a frame, and of the largest block (RFC 8878, 3.1.1)."""
_RLE, _RESERVED = 1, 3
"""Block types (RFC 8878, 3.1.1.2.2): one byte that is repeated, and a type that no file has."""
_STILL_S = 10.0
"""Seconds without a change after which an unlocked file counts as abandoned; a writer writes each second."""
_SEARCHED_FIRST, _SEARCHED_AT_ONCE = 1 << 12, 1 << 20
"""Bytes read in the first and in the longest step of a search: most searches end at once."""
MOST_DAMAGE = 1_000
"""Damaged parts that are kept: a file may have one every four bytes."""


def load_zstd() -> ModuleType:
    """Return the module for Zstandard: Python's own from 3.14 on, else that of the package backports.zstd.

    Raises:
        OutputError: the package is not installed.
    """
    try:
        return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError as error:
        message = "recordings need the Python package backports.zstd (Python 3.14 has its own)"
        raise OutputError(f"{message}: install sparktop anew") from error


class FrameWriter:
    """Compresses the records of one frame."""

    def __init__(self, level: int, *, small: bool = False) -> None:
        """Begin a frame of compression level `level` (1 to 19), of few servers if `small`."""
        zstd = load_zstd()
        parameter = zstd.CompressionParameter
        options: dict[int, int] = {
            parameter.compression_level: level,
            parameter.window_log: _SMALL_WINDOW_LOG if small else WINDOW_LOG,
            parameter.checksum_flag: 0,
        }
        if small:
            options |= dict.fromkeys((parameter.hash_log, parameter.chain_log), _SMALL_TABLE_LOG)
        self._compressor = zstd.ZstdCompressor(options=options)

    def add(self, text: bytes) -> bytes:
        """Compress `text`; return bytes for the file, from which all of `text` can be read back at once."""
        return bytes(self._compressor.compress(text, self._compressor.FLUSH_BLOCK))

    def end(self) -> bytes:
        """Return the bytes that end the frame."""
        return bytes(self._compressor.flush(self._compressor.FLUSH_FRAME))


class Damage(Struct, frozen=True):
    """A part of a file that could not be read."""

    offset: int
    """Where in the file it begins, in bytes."""
    reason: str
    may_grow: bool = False
    """Whether the missing bytes may still be written."""


LocatedRecord = tuple[Record, int]
"""A record, and the offset in the file of the frame that it is in."""


class FrameReader:
    """Reads the records of one file; the file may grow meanwhile."""

    def __init__(self, descriptor: int) -> None:
        """Read from an open file; the descriptor is never closed here, and its position never used."""
        self._descriptor = descriptor
        self.damage: list[Damage] = []
        """What was found damaged so far, in file order; at most the first `MOST_DAMAGE` parts."""
        self.good_end = 0
        """Offset after the last block that was read well."""
        self.open_frame = False
        """Whether the frame at `good_end` has no end yet."""

    def size(self) -> int:
        """Return the present length of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def is_abandoned(self) -> bool:
        """Return whether no process writes the file: it is not locked, and has not changed for some time.

        Without the second condition, a file that is being copied from elsewhere would count as abandoned.
        """
        if time.time() - os.fstat(self._descriptor).st_mtime < _STILL_S:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError:  # also where a file system has no locks: then it is not known
            return False
        return True

    def frames(self) -> Iterator[int]:
        """Yield the offset of each frame, reading only frame and block headers; stop at the first damage."""
        offset, size = 0, self.size()
        while offset < size:
            start = self._offset_of_blocks(offset)
            if start is None:
                return
            yield offset
            offset = start
            last = False
            while not last:
                block = self._read_block_header(offset)
                if isinstance(block, Damage):
                    return
                length, last = block
                offset += length

    def starts(self) -> Iterator[int]:
        """Yield each offset at which a frame may begin, also after damage.

        A frame's first bytes may also occur by chance within another frame.
        """
        offset = self._find_magic(0)
        while offset is not None:
            yield offset
            offset = self._find_magic(offset + 1)

    def records(self, start: int = 0) -> Iterator[LocatedRecord]:
        """Yield the records of the file, from the first frame that begins at or after the offset `start`.

        End at the present end of the file; parts that cannot be read are added to `damage`.
        """
        return (located for located in self._read_frames(start, waits=False) if located is not None)

    def first(self, frame: int) -> Record | None:
        """Return the first record of the frame at the offset `frame`; None if no frame can be read there."""
        located = next(self._read_frame(frame, waits=False), None)
        return None if located is None else located[0]

    def follow(self, start: int = 0) -> Iterator[LocatedRecord | None]:
        """Yield the records from the first frame at or after the offset `start` on, without end.

        Yield None each time the file has no further complete record yet.
        """
        return self._read_frames(start, waits=True)

    def _read_frames(self, start: int, *, waits: bool) -> Iterator[LocatedRecord | None]:
        """Yield the records of all frames from `start` on; with `waits`, None while there is nothing new.

        Bytes between the end of one frame and the beginning of the next are damage. It is reported once, and
        with `waits` only after another frame follows.
        """
        offset, reported = start, False
        in_frame: Damage | None = (
            None  # of the frame that was read last, in which reading goes on at `offset`
        )
        while True:
            frame = self._find_magic(offset)
            damage = in_frame
            if damage is None and offset < (self.size() if frame is None else frame):
                damage = Damage(offset, "bytes that are not a frame", waits)
            if damage is not None and not reported and (frame is not None or not damage.may_grow):
                if len(self.damage) < MOST_DAMAGE:
                    self.damage.append(damage)
                reported = True
            if frame is not None:
                ended = yield from self._read_frame(frame, waits=waits)
                in_frame = ended if isinstance(ended, Damage) else None
                offset, reported = (ended.offset if isinstance(ended, Damage) else ended), False
            elif waits:
                yield None
            else:
                return

    def _read_frame(self, frame: int, *, waits: bool) -> Generator[LocatedRecord | None, None, int | Damage]:
        """Yield the records of a frame; return its end, or why and where reading ended before it.

        With `waits`, yield None as long as the header or the next block is incomplete at the end of the file,
        because a process may still be writing it.
        """
        zstd = load_zstd()
        while (offset := self._offset_of_blocks(frame)) is None:
            torn = frame + _LONGEST_HEADER > self.size()
            if waits and torn:
                yield None
                continue
            return Damage(frame + 1, "a frame's header is torn or invalid", may_grow=torn)
        window = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
        decompressor = zstd.ZstdDecompressor(options=window)
        self.open_frame, self.good_end = True, offset
        text, last, needed = bytearray(), False, 0
        try:
            decompressor.decompress(os.pread(self._descriptor, offset - frame, frame))
            while not last:
                block = self._read_block_header(offset)
                if isinstance(block, Damage):
                    if waits and block.may_grow and self._find_magic(offset) is None:
                        yield None
                        continue
                    return block
                length, last = block
                text += decompressor.decompress(os.pread(self._descriptor, length, offset))
                if len(text) >= needed:
                    needed = yield from self._take_complete(text, frame)
                offset += length
                self.good_end = offset
        except (zstd.ZstdError, EOFError):
            return Damage(offset + 1, "a block cannot be decompressed")
        except RecordError as error:
            return Damage(offset + 1, str(error))
        self.open_frame = False
        return offset

    @staticmethod
    def _take_complete(text: bytearray, frame: int) -> Generator[LocatedRecord, None, int]:
        """Yield each complete record in `text`, then remove the bytes of these records from `text`.

        Return the length that the remaining `text` must reach before another record can be complete.
        """
        position, needed = 0, 0
        while position < len(text):
            decoded = decode(text, position)
            if isinstance(decoded, int):
                needed = decoded - position
                break
            record, position = decoded
            yield record, frame
        del text[:position]
        return needed

    def _offset_of_blocks(self, offset: int) -> int | None:
        """Return the offset of the first block of the frame at `offset`.

        None if there is no whole header, or one that asks for what these files never have: a checksum.
        """
        head = os.pread(self._descriptor, _LONGEST_HEADER, offset)
        if len(head) < 6 or not head.startswith(MAGIC):  # noqa: PLR2004 - magic, descriptor and window
            return None
        descriptor = head[4]
        # 0x20: single segment; 0x0C: a reserved bit and the flag for a checksum (RFC 8878, 3.1.1.1.1).
        single = bool(descriptor & 0x20)
        dictionary_bytes = _ID_BYTES[descriptor & 3]
        size_bytes, window_bytes = _SIZE_BYTES[descriptor >> 6], 1
        if single:
            size_bytes, window_bytes = max(1, size_bytes), 0
        length = 5 + window_bytes + dictionary_bytes + size_bytes
        return offset + length if len(head) >= length and not descriptor & 0x0C else None

    def _read_block_header(self, offset: int) -> tuple[int, bool] | Damage:
        """Return (length in bytes, whether it is the frame's last) of the block at `offset`.

        Return the damage if the block is incomplete or invalid.
        """
        head = os.pread(self._descriptor, _BLOCK_HEADER, offset)
        value = int.from_bytes(head, "little")
        kind, size = value >> 1 & 3, value >> 3
        if len(head) == _BLOCK_HEADER and value == 0:
            return Damage(offset, "NUL bytes, as a power cut leaves them")
        if kind == _RESERVED or size > _MAX_BLOCK:
            return Damage(offset, "a block's header is invalid")
        length = _BLOCK_HEADER + (1 if kind == _RLE else size)
        if offset + length > self.size():
            return Damage(offset, "the last block is torn", may_grow=True)
        return length, bool(value & 1)

    def _find_magic(self, start: int) -> int | None:
        """Return the offset of the first bytes of a frame at or after `start`; None if there are none."""
        offset, overlap, step = start, b"", _SEARCHED_FIRST
        while chunk := os.pread(self._descriptor, step, offset):
            found_at = (overlap + chunk).find(MAGIC)
            if found_at >= 0:
                return offset - len(overlap) + found_at
            overlap = (overlap + chunk)[-len(MAGIC) + 1 :]
            offset, step = offset + len(chunk), min(2 * step, _SEARCHED_AT_ONCE)
        return None
