"""Times as people write them: "10m ago", "12:03", "yesterday 14:00", ISO 8601 with a zone.

Times of day are local unless a zone is written. A local time that a change of the clocks makes ambiguous or
impossible is refused.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from msgspec import Struct

from sparktop.errors import UsageError
from sparktop.model.text import clean
from sparktop.typed import duration_s

EXAMPLES = "10m ago, 12:03, yesterday 14:00, 2026-11-22 14:00, start or end"
# "today 14:30", "2026-11-30 14:30:05.5", "14:30": day, time.
_CLOCK = re.compile(
    r"(?:(today|yesterday|\d{4}-\d\d-\d\d)(?:[ t]\s*|$))?(\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?)?"
)
# "2026-11-30T14:30:05+01:00", in lower case.
_ISO_ZONED = re.compile(r"(\d{4}-\d\d-\d\d[ t]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?) ?(z|[+-]\d\d:?\d\d)")
_MOST_TEXT = 60
"""Characters of a time that cannot be read which the error repeats."""


class TimeContext(Struct, frozen=True):
    """What typed times refer to: the time span of a recording, the present and the time zone."""

    start: datetime
    end: datetime
    """Durations are counted back from here: the present, or the end of a recording."""
    now: datetime
    """Decides what today and yesterday are."""
    zone: tzinfo | None = None
    """The zone of local times; None for the system's."""


def read_time(text: str, span: TimeContext) -> datetime:
    """Return the moment (UTC) that `text`, a time typed by the user, means in a recording of that time span.

    "10m", "10m ago" and "-10m" count back from the end of the span. A time of day without a date is the last
    such time before the end of the span, or the first after it where the span has none and this is nearer.
    The moment may lie outside the span: see `require_within`.

    Raises:
        UsageError: the text is not a time, or a local time that is ambiguous or does not exist.
    """
    words = " ".join(text.lower().split()).replace(" utc", "z")
    if words in {"start", "begin", "beginning"}:
        return span.start
    if words in {"end", "now"}:
        return span.end
    ago_s = duration_s(words.removesuffix("ago").strip().removeprefix("-").strip())
    zoned = _ISO_ZONED.fullmatch(words)
    try:
        if ago_s is not None:
            return span.end - timedelta(seconds=ago_s)
        if zoned is not None:
            return datetime.fromisoformat(f"{zoned[1]}{zoned[2]}".upper()).astimezone(UTC)
        moment = _local_time(words, span)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise UsageError(f"'{clean(text, _MOST_TEXT)}' is not a time: write it like {EXAMPLES}")
    return moment


def time_words(moment: datetime, zone: tzinfo | None = None) -> str:
    """Return a moment as local time with its zone: "2026-11-22 14:00:00 CET"."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def require_within(moment: datetime, span: TimeContext) -> datetime:
    """Return the moment if it is within the time span of a recording.

    Raises:
        UsageError: it is before the start or after the end of the span.
    """
    if span.start <= moment <= span.end:
        return moment
    side = "before" if moment < span.start else "after"
    times = [at.astimezone(span.zone) for at in (moment, span.start, span.end)]
    is_one_day = len({f"{at:%Y-%m-%d %Z}" for at in times}) == 1
    named, start, end = (f"{at:%H:%M:%S}" if is_one_day else time_words(at, span.zone) for at in times)
    raise UsageError(f"{named} is {side} what is kept: {start} to {end}")


def _local_time(words: str, span: TimeContext) -> datetime | None:
    """Return the moment (UTC) of a local date, time of day, or both; None for other words."""
    match = _CLOCK.fullmatch(words)
    if match is None or not words:
        return None
    day, clock = match.groups()
    if clock is None and not (day or "")[:1].isdigit():
        return None  # "yesterday" alone is a whole day
    hour, _, rest = (clock or "0:00").partition(":")
    clock_time = time.fromisoformat(f"{int(hour):02}:{rest}")
    if day is not None:
        today = span.now.astimezone(span.zone).date()
        named = {"today": today, "yesterday": today - timedelta(days=1)}.get(day)
        return _only_instant(datetime.combine(named or date.fromisoformat(day), clock_time), span)
    start, end = (at.astimezone(span.zone).replace(tzinfo=None) for at in (span.start, span.end))
    following = datetime.combine(end.date(), clock_time)
    if following <= end:
        following += timedelta(days=1)
    last = following - timedelta(days=1)
    is_following_nearer = following - end < start - last  # only where `last` is before the span
    return _only_instant(following if is_following_nearer else last, span)


def _only_instant(local: datetime, span: TimeContext) -> datetime:
    """Return the one moment at which clocks of the zone show `local`.

    Raises:
        UsageError: there are two such moments or none, because the clocks are changed then.
    """
    instants: set[datetime] = set()
    for fold in (0, 1):
        utc = local.replace(tzinfo=span.zone, fold=fold).astimezone(UTC)
        if utc.astimezone(span.zone).replace(tzinfo=None, fold=0) == local:
            instants.add(utc)
    if len(instants) == 1:
        return instants.pop()
    local_text = f"{local:%Y-%m-%d %H:%M}"
    if not instants:
        raise UsageError(f"there was no {local_text} here: the clocks were put forward over it")
    first = min(instants).astimezone(span.zone)
    raise UsageError(
        f"{local_text} happened twice here: write the zone too, like {first.isoformat(' ', 'minutes')}"
    )
