"""The result of one check, and its text and JSON forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sparktop import __version__
from sparktop.model.text import clean

SCHEMA = "sparktop.doctor/1"
_NAME, _SENTENCE = 80, 400
"""Most characters of a check's name, and of its message or its advice."""


class Status(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARN = "warn"
    """What was checked works now, but is likely to cause trouble."""
    FAIL = "fail"
    SKIP = "skip"
    """Nothing was checked, or what should be checked is absent and not needed."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    message: str
    """What was observed, for the user."""
    advice: str = ""
    """What the user can do about the observation; "" where nothing is needed."""


def failed(checks: Iterable[Check]) -> bool:
    """Return True if any check failed."""
    return any(check.status is Status.FAIL for check in checks)


def to_text(checks: Iterable[Check]) -> str:
    """Return the checks as text, a line for each, without control characters that a server may have sent."""
    return "".join(f"{_line(check)}\n" for check in checks)


def _line(check: Check) -> str:
    word = "FAIL" if check.status is Status.FAIL else check.status.value
    seen = f"{word:<4}  {clean(check.name, _NAME)}: {clean(check.message, _SENTENCE)}"
    return f"{seen} — {clean(check.advice, _SENTENCE)}" if check.advice else seen


def to_json(checks: Sequence[Check], now: datetime) -> dict[str, object]:
    """Return the report of the checks as JSON-ready values, in the schema `SCHEMA`.

    `now` is the time of the report. The advice of a check is null if it is empty.
    """
    return {
        "schema": SCHEMA,
        "taken_at": now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sparktop": __version__,
        "failed": sum(check.status is Status.FAIL for check in checks),
        "checks": [
            {
                "name": clean(check.name, _NAME),
                "status": check.status.value,
                "message": clean(check.message, _SENTENCE),
                "advice": clean(check.advice, _SENTENCE) or None,
            }
            for check in checks
        ],
    }
