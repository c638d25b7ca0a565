"""Recordings made by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparktop.model.instant import Instant
from sparktop.model.snapshot import Snapshot
from sparktop.recording.frames import FrameReader, FrameWriter, Record, RecordKind, encode
from sparktop.report.json_snapshot import to_json

START_S = 1_764_000_000.0
FRAMES, A_FRAME = 4, 40


class Made:
    """The bytes of a recording, and where each record is complete."""

    def __init__(self) -> None:
        """Write `FRAMES` frames of pages that compress little."""
        rng = random.Random(7)  # noqa: S311 - dice of a test
        self.records = [
            Record(
                RecordKind.PAGE,
                instant(float(index)),
                "backend:spark-a",
                {"index": index},
                rng.randbytes(60) + b"vllm:num_requests_running 3.0\n" * 20,
            )
            for index in range(FRAMES * A_FRAME)
        ]
        self.data, self.ends = b"", list[int]()
        for start in range(0, len(self.records), A_FRAME):
            frame = FrameWriter(3)
            for record in self.records[start : start + A_FRAME]:
                self.data += frame.add(encode(record))
                self.ends.append(len(self.data))
            self.data += frame.end()


def instant(at: float) -> Instant:
    """Return the instant `at` seconds after the start."""
    return Instant(at, datetime.fromtimestamp(START_S + at, UTC))


def read(path: Path, data: bytes) -> tuple[list[Record], FrameReader]:
    """Return the records of a file with this content, and its reader."""
    path.write_bytes(data)
    with path.open("rb") as file:
        reader = FrameReader(file.fileno())
        return [record for record, _ in reader.records()], reader


def comparable(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON of a snapshot without what describes the viewer itself."""
    return {name: value for name, value in to_json(snapshot).items() if name not in {"self", "sparktop"}}


@pytest.fixture(scope="session")
def made() -> Made:
    """A recording of four frames."""
    return Made()
