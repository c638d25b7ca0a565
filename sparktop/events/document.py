"""An event as JSON: in snapshots, and with schema "sparktop.event/1" for a hook program or a webhook.

Every key is always present; unknown values are null.
"""

from __future__ import annotations

import json

from sparktop import __version__
from sparktop.model.event import Event
from sparktop.model.plain import json_time, plain

SCHEMA = "sparktop.event/1"
_MINUTE_S = 60.0


def event_json(event: Event) -> dict[str, object]:
    """Return an event as a dictionary for JSON; its texts may still contain control characters."""
    rate = None if not event.span_s else (event.count - 1) * _MINUTE_S / event.span_s
    return {
        "at": json_time(event.at),
        "severity": event.severity.value,
        "subject": event.subject,
        "message": event.message,
        "id": event.about,
        "kind": event.kind,
        "phase": None if event.phase is None else event.phase.value,
        "worst": None if event.worst is None else event.worst.value,
        "duration_s": event.duration_s,
        "count": event.count,
        "span_s": event.span_s,
        "per_minute": rate,
        "values": event.values,
    }


def event_document(event: Event, *, simulated: bool, dropped: int = 0) -> bytes:
    """Return an event as one line of JSON in UTF-8.

    `simulated` is whether anything watched is simulated, `dropped` the number of events that the receiver
    did not get before this one, because it was too slow.
    """
    head = {"schema": SCHEMA, "sparktop": __version__, "simulated": simulated, "dropped": dropped}
    body = plain({**head, **event_json(event)})
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode() + b"\n"
