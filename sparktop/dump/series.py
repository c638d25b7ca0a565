"""Samples of many metrics, collected in the order of time and read back metric by metric.

OpenMetrics wants all samples of a metric in one place. Their text is gathered in memory up to
`MAX_WAITING_BYTES` and then moved to a temporary file as a chain of pieces per metric, so that memory grows
with the number of metrics and not with the length of a recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from msgspec import Struct, field

MAX_WAITING_BYTES = 16 << 20
_LINK = 16
"""Bytes before each piece in the file: offset of the metric's piece before (plus 1; 0: none), and length."""


class Metric(Struct):
    """The samples of one metric: those in memory, and where its newest piece in the file begins."""

    waiting: list[bytes] = field(default_factory=list)
    piece: int = 0
    """Offset of the newest piece plus 1; 0 while there is none."""


class Spool:
    """The collected samples of all metrics; all must be added before any are read."""

    def __init__(self, file: IO[bytes]) -> None:
        """Collect in `file`, an empty temporary file."""
        self._file = file
        self._length = 0
        self._waiting_bytes = 0
        self._metrics: list[Metric] = []

    def metric(self) -> Metric:
        """Return a new metric without samples."""
        found = Metric()
        self._metrics.append(found)
        return found

    def add(self, metric: Metric, line: bytes) -> None:
        """Add a line of text to a metric."""
        metric.waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._move()

    def _move(self) -> None:
        for metric in self._metrics:
            if not metric.waiting:
                continue
            piece = b"".join(metric.waiting)
            metric.waiting.clear()
            self._file.write(metric.piece.to_bytes(8, "big") + len(piece).to_bytes(8, "big") + piece)
            metric.piece = self._length + 1
            self._length += _LINK + len(piece)
        self._waiting_bytes = 0

    def text(self, metric: Metric) -> Iterator[bytes]:
        """Yield the lines of a metric in pieces, in the order in which they were added."""
        chain: list[tuple[int, int]] = []
        link = metric.piece
        while link:
            self._file.seek(link - 1)
            head = self._file.read(_LINK)
            chain.append((link - 1 + _LINK, int.from_bytes(head[8:], "big")))
            link = int.from_bytes(head[:8], "big")
        for offset, length in reversed(chain):
            self._file.seek(offset)
            yield self._file.read(length)
        yield b"".join(metric.waiting)
