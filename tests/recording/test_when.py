"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sparktop.errors import UsageError
from sparktop.recording.when import TimeContext, read_time, require_within, time_words

BERLIN = ZoneInfo("Europe/Berlin")
END = datetime(2026, 11, 23, 0, 30, tzinfo=UTC)
FRAME = TimeContext(END - timedelta(hours=6), END, END + timedelta(days=1), BERLIN)
DAY = TimeContext(END + timedelta(hours=18), END + timedelta(hours=19), END + timedelta(days=1), BERLIN)


def local(text: str) -> datetime:
    """Return a local time of Berlin in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m ago", 600),
        ("1h30m", 5400),
        ("-90s", 90),
        ("1 Day", 86400),
        ("NOW", 0),
    ],
)
def test_durations_count_back_from_the_end(text: str, seconds: float) -> None:
    """A duration counts back from the end, with or without "ago" or a minus sign."""
    assert read_time(text, FRAME) == END - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("start", "2026-11-22 19:30"),
        ("01:03", "2026-11-23 01:03"),
        ("01:31", "2026-11-23 01:31"),
        ("19:31", "2026-11-22 19:31"),
        ("17:30", "2026-11-22 17:30"),
        ("today 00:10", "2026-11-24 00:10"),
        ("Yesterday 14:00:05", "2026-11-23 14:00:05"),
        ("2026-11-22 14:00", "2026-11-22 14:00"),
        ("2026-11-22T14:00Z", "2026-11-22 15:00"),
        ("2026-11-22 14:00 -05:00", "2026-11-22 20:00"),
    ],
)
def test_times_of_day_are_local(text: str, wanted: str) -> None:
    """A time of day alone is the last before the end, outside of the span the nearest; a zone counts."""
    assert read_time(text, FRAME) == local(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "25:00",
        "12",
        "2026-02-30 10:00",
        "10m 5",
        "9" * 40 + "d",
        "\x1b[31m",
    ],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    """The refusal is one line without control characters."""
    with pytest.raises(UsageError, match="is not a time: write it like 10m ago") as error:
        read_time(text, FRAME)
    assert str(error.value).isprintable()


def test_a_moment_outside_is_said_with_both_ends() -> None:
    """The message names the first and the last moment with the zone of the times."""
    with pytest.raises(
        UsageError, match=r"2026-11-22 12:00:00 CET is before what is kept: 2026-11-22 19:30:00 CET to"
    ):
        require_within(read_time("2026-11-22 12:00", FRAME), FRAME)
    with pytest.raises(UsageError, match=r"^21:00:00 is after what is kept: 19:30:00 to 20:30:00$"):
        require_within(read_time("2026-11-23 21:00", DAY), DAY)
    assert require_within(END, FRAME) == END
    assert time_words(END, ZoneInfo("America/New_York")) == "2026-11-22 19:30:00 EST"
