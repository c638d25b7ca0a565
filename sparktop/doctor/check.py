"""One check: what was looked at, how it stands, what was seen and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sparktop import __version__
from sparktop.model.text import clean

SCHEMA = "sparktop.doctor/1"
_NAME, _SENTENCE = 80, 400
"""Characters."""


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    """It works, and it will bite."""
    FAIL = "fail"
    SKIP = "skip"
    """Not checked, or not there and not needed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    message: str
    """What was seen."""
    advice: str = ""
    """What to do; "" where nothing is to be done."""


def failed(checks: Iterable[Check]) -> bool:
    """Tell whether any check failed."""
    return any(one.status is Status.FAIL for one in checks)


def to_text(checks: Iterable[Check]) -> str:
    """Give a line for each check, clean of whatever a server put into it."""
    return "".join(f"{_line(one)}\n" for one in checks)


def _line(check: Check) -> str:
    word = "FAIL" if check.status is Status.FAIL else check.status.value
    seen = f"{word:<4}  {clean(check.name, _NAME)}: {clean(check.message, _SENTENCE)}"
    return f"{seen} — {clean(check.advice, _SENTENCE)}" if check.advice else seen


def to_json(checks: Sequence[Check], now: datetime) -> dict[str, object]:
    """Give all checks as plain values; no advice is null."""
    return {
        "schema": SCHEMA,
        "taken_at": now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sparktop": __version__,
        "failed": sum(one.status is Status.FAIL for one in checks),
        "checks": [
            {
                "name": clean(one.name, _NAME),
                "status": one.status.value,
                "message": clean(one.message, _SENTENCE),
                "advice": clean(one.advice, _SENTENCE) or None,
            }
            for one in checks
        ],
    }
