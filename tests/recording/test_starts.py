"""Earlier starts in a recording: a replay knows what the viewer knew, without its files."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.model.instant import Instant
from sparktop.model.snapshot import PastStart
from sparktop.recording.frames import Kind
from sparktop.recording.records import call_of, record_of
from sparktop.store.store import Call, Change

NOW = Instant(5.0, datetime(2026, 11, 23, 14, 7, tzinfo=UTC))
ONE = PastStart("h", "vllm", "m", 280.0, {"weights": 40.0}, "boot", warm=True, ended_at=5.0)


def test_earlier_starts_are_recorded() -> None:
    """A recorded call is read back as it was made."""
    call = Call(Change.LEARN_STARTS, ((ONE,),))
    record = record_of(NOW, call)
    assert record is not None
    assert record.kind == Kind.STARTS
    assert call_of(record) == call
