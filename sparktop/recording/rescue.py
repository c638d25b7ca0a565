"""Verification of a recording, and a copy of everything in it that can be read."""

from __future__ import annotations

import os
import stat
from collections import Counter
from pathlib import Path

from msgspec import Struct, field

from sparktop.errors import OutputError, UsageError
from sparktop.model.instant import Instant
from sparktop.model.text import clean, reason_of
from sparktop.recording.frames import (
    MOST_DAMAGE,
    Damage,
    FrameReader,
    FrameWriter,
    RecordError,
    RecordKind,
    encode,
)
from sparktop.recording.records import call_of

_LEVEL = 6
"""Compression level of the copy, as of a recording of few servers."""
_LISTED = 20
"""Damaged parts, and spans of time without a record, that `Checked.text` lists one by one."""


Edges = tuple[Instant | None, Instant | None]
"""Time of the last record before damage and of the first after it; None at the file's beginning and end."""


def _lost_span(edges: Edges) -> str:
    """Return the span of which no record could be read as a line: damage costs up to the next frame."""
    before, after = edges
    if before is not None and after is not None:
        times = f"between {_local_time(before)} and {_local_time(after)}"
        return f"nothing could be read {times} ({(after.wall - before.wall).total_seconds():,.0f} s)"
    if before is not None:
        return f"nothing could be read after {_local_time(before)}"
    return (
        "nothing could be read at all"
        if after is None
        else f"nothing could be read before {_local_time(after)}"
    )


def _local_time(instant: Instant) -> str:
    return f"{instant.wall.astimezone():%Y-%m-%d %H:%M:%S}"


class Checked(Struct):
    """The result of `check`: the contents of a recording and what is damaged in it."""

    path: Path
    size: int
    kinds: Counter[str] = field(default_factory=Counter)
    """Number of readable records by kind."""
    frames: int = 0
    first: Instant | None = None
    last: Instant | None = None
    damage: list[Damage] = []
    lost: list[Edges] = []
    """What each damaged part, or several in succession, cost; of the first `MOST_DAMAGE` parts."""
    unreadable: int = 0
    """Records whose checksum is right but whose content cannot be used."""
    torn_bytes: int = 0
    """Bytes at the end that are not a complete block."""
    is_abandoned: bool = True
    """Whether no process writes the file any more."""
    end: str | None = None
    """Reason of the end; None for a recording that still goes on or was cut off."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged or unreadable."""
        return not self.damage and not self.unreadable and not self.torn_bytes

    def text(self) -> str:
        """Return the result as lines of text."""
        frames = "frame" if self.frames == 1 else "frames"
        lines = [f"{clean(self.path, 300)}: {self.size:,} bytes, {self.frames} {frames}"]
        if self.first is not None and self.last is not None:
            lines.append(
                f"from {_local_time(self.first)} to {_local_time(self.last)} {self.last.wall.astimezone():%Z}"
            )
        counts = ", ".join(f"{count:,} {clean(kind, 20)}" for kind, count in sorted(self.kinds.items()))
        lines.append(f"records: {counts or 'none'}")
        ending = "cut off" if self.is_abandoned else "still being written"
        lines.append(f"end: {self.end or f'none: {ending}'}")
        listed = self.damage[:_LISTED]
        lines += [f"damaged at byte {part.offset:,}: {clean(part.reason, 100)}" for part in listed]
        if len(self.damage) > _LISTED:
            or_more = " or more" if len(self.damage) >= MOST_DAMAGE else ""
            lines.append(f"damaged at {len(self.damage) - _LISTED}{or_more} further places")
        if self.torn_bytes:
            lines.append(f"the last {self.torn_bytes:,} bytes are not complete: {ending}")
        if self.unreadable:
            lines.append(f"{self.unreadable} records cannot be used by this version")
        lines += map(_lost_span, self.lost[:_LISTED])
        if (more := len(self.lost) - _LISTED) > 0:
            lines.append(f"nothing could be read in {more} further spans")
        if any(edge is not None for edges in self.lost for edge in edges):
            lines.append("all outside of these times was read")
        elif not self.lost:
            whole = "nothing is damaged" if self.size else "it is empty: nothing was written"
            lines.append(whole if self.is_whole else "all else was read")
        return "\n".join(lines) + "\n"


def _open_file(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"{clean(path, 300)}: cannot be read: {reason_of(error)}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a device may never end
        os.close(descriptor)
        raise UsageError(f"{clean(path, 300)} is not a regular file")
    return descriptor


def check(path: Path) -> Checked:
    """Read all of a recording.

    Raises:
        UsageError: the path is not a regular file, or it cannot be opened.
    """
    descriptor = _open_file(path)
    try:
        reader = FrameReader(descriptor)
        checked, newest_frame, damaged = Checked(path, reader.size()), -1, 0
        for record, frame in reader.records():
            if len(reader.damage) > damaged:
                damaged = len(reader.damage)
                checked.lost.append((checked.last, record.instant))
            checked.frames += frame != newest_frame
            newest_frame = frame
            checked.kinds[record.kind] += 1
            checked.first, checked.last = checked.first or record.instant, record.instant
            if record.kind == RecordKind.END:
                checked.end = clean(record.fields.get("reason", ""), 100)
            try:
                call_of(record)
            except RecordError:
                checked.unreadable += 1
        if len(reader.damage) > damaged:
            checked.lost.append((checked.last, None))
        checked.damage, checked.is_abandoned = reader.damage, reader.is_abandoned()
        checked.torn_bytes = reader.size() - reader.good_end if reader.open_frame else 0
    except OSError as error:
        raise UsageError(f"{clean(path, 300)}: cannot be read: {reason_of(error)}") from None
    finally:
        os.close(descriptor)
    return checked


def rescue(path: Path, output: Path) -> int:
    """Copy all readable records of `path` to the new file `output`; return the number of records.

    Records that shared a frame share one in the new file, too.

    Raises:
        UsageError: `path` cannot be opened.
        OutputError: `output` exists or cannot be written.
    """
    descriptor = _open_file(path)
    count, newest_frame, writer = 0, -1, None
    try:
        with output.open("xb") as file:
            output.chmod(0o600)
            for record, frame in FrameReader(descriptor).records():
                if writer is None or frame != newest_frame:
                    file.write(writer.end() if writer is not None else b"")
                    writer, newest_frame = FrameWriter(_LEVEL), frame
                file.write(writer.add(encode(record)))
                count += 1
            file.write(writer.end() if writer is not None else b"")
    except OSError as error:
        raise OutputError(f"{clean(output, 300)}: cannot be written: {reason_of(error)}") from None
    finally:
        os.close(descriptor)
    return count
