"""The start time of another tool's benchmark, from its result file."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sparktop.sweep.compare.imports.reading import number, part, words

_TEXTS = (("start_time",), ("timestamp",), ("date",))
"""Keys under which aiperf, llama-benchy and `vllm bench serve` write the start time."""
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")


def started_at(data: object) -> datetime | None:
    """Return the start time of a benchmark in UTC, from the JSON value of its result file; None if unknown.

    A time without a time zone is local time.
    """
    first = part(data, 0) if isinstance(data, list) else data
    for path in _TEXTS:
        text = words(first, *path)
        if text is not None and (found := _parsed(text)) is not None:
            return found
    seconds = number(first, "benchmarks", 0, "start_time")  # guidellm
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _parsed(text: str) -> datetime | None:
    compact = _COMPACT.fullmatch(text)
    plain = "{}-{}-{}T{}:{}:{}".format(*compact.groups()) if compact else text.replace(" ", "T", 1)
    try:
        return datetime.fromisoformat(plain).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
