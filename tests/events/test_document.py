"""An event as JSON: all keys, and clean text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparktop.events import SCHEMA, event_document
from sparktop.model.event import Event, Phase, Severity

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS = {
    *("schema", "sparktop", "simulated", "dropped", "at", "severity", "subject", "message", "id", "kind"),
    *("phase", "worst", "duration_s", "count", "span_s", "per_minute", "values"),
}


def read(event: Event, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of the function
    document = event_document(event, simulated=more.pop("simulated", False), **more)
    assert document.endswith(b"}\n")
    assert document.count(b"\n") == 1
    result: dict[str, Any] = json.loads(document)
    return result


def test_a_flapping_source_has_its_count_and_its_rate() -> None:
    """Seven outages in four minutes have the count 7 and a rate of 1.5 per minute."""
    event = Event(
        NOON,
        Severity.CRITICAL,
        "spark-a",
        "down 7 times in 4 min: nothing listens",
        {"failures": 3, "limit_failures": 3, "window_s": 2.0, "odd": float("nan")},
        5.0,
        "backend:spark-a:unreachable",
        Phase.BEGIN,
        count=7,
        span_s=240.0,
    )
    seen = read(event, simulated=True, dropped=2)
    assert seen.keys() == KEYS
    assert (seen["schema"], seen["simulated"], seen["dropped"]) == (SCHEMA, True, 2)
    assert (seen["kind"], seen["id"], seen["phase"]) == (
        "unreachable",
        "backend:spark-a:unreachable",
        "begin",
    )
    assert (seen["count"], seen["span_s"], seen["per_minute"]) == (7, 240.0, 1.5)
    assert (seen["at"], seen["severity"]) == ("2026-01-01T12:00:00.000Z", "critical")
    assert seen["values"] == {"failures": 3, "limit_failures": 3, "window_s": 2.0, "odd": None}


def test_a_plain_event_has_every_key() -> None:
    """A single event has all keys; unknown values and its rate are null."""
    seen = read(Event(NOON, Severity.INFO, "discovery", "found nothing"))
    assert seen.keys() == KEYS
    assert [seen[key] for key in ("id", "kind", "phase", "worst", "duration_s", "span_s", "per_minute")] == [
        None
    ] * 7


@given(st.text(max_size=2000), st.text(max_size=2000))
def test_hostile_text_is_one_clean_line(subject: str, message: str) -> None:
    """With control characters, escape sequences, markup and bidi marks, the document stays one line."""
    hostile = f"\x1b]52;c;aGk=\a\x1b[31m[red]{message}\u202e\n\x00"
    seen = read(
        Event(NOON, Severity.INFO, subject, hostile, {hostile: hostile}, about=f"backend:{subject}:x")
    )
    texts = (seen["subject"], seen["message"], seen["id"], *seen["values"], *seen["values"].values())
    assert all(char.isprintable() for text in texts for char in text)
    assert len(seen["message"]) <= 1000
