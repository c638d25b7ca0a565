"""Recordings of a rehearsal, and handmade ones, to be dumped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparktop.model.instant import Instant
from sparktop.model.targets import BackendTarget, Watch
from sparktop.recording.frames import FrameWriter, Record, RecordKind, encode
from sparktop.recording.recorder import Recorder
from sparktop.recording.records import first_head, record_of_head
from sparktop.store import Store
from stage.rehearsal import START, Outage, Rehearsal

PLAYED_S = 30.0
OUTAGE_S = 20.0


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record half a minute of two backends and two nodes; the first backend is gone after 20 seconds."""
    path = tmp_path_factory.mktemp("dump") / "dump.rec.zst"
    outage = Outage(0, OUTAGE_S)
    recorder = Recorder(Rehearsal(nodes=2, outage=outage).watch, next_path=lambda _: path)
    live = Rehearsal(nodes=2, journal=recorder, outage=outage)
    recorder.start(live.store)
    live.play(PLAYED_S)
    recorder.stop("quit")
    return path


def instant(at: float) -> Instant:
    """Return the instant `at` seconds after the start of a rehearsal."""
    return Instant(at, datetime.fromtimestamp(START.timestamp() + at, UTC))


def page(at: float, text: str, source: str = "backend:a") -> Record:
    """Return the record of a metrics page of vLLM."""
    return Record(RecordKind.PAGE, instant(at), source, {"engine": "vllm", "at": at}, text.encode("latin-1"))


def written(path: Path, records: Sequence[Record], *, names: Sequence[str] = ("a", "b")) -> Path:
    """Write a recording of one frame that watches backends of these names."""
    watch = Watch(backends=tuple(BackendTarget(name, "http://127.0.0.1:1") for name in names))
    head = record_of_head(instant(0.0), first_head(watch, Store(watch)))
    frame = FrameWriter(3)
    path.write_bytes(frame.add(b"".join(encode(one) for one in (head, *records))) + frame.end())
    return path
