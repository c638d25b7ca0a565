"""Durations as text: one spelling, and ranges that contain their exact values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.graphics.numbers import duration_words, range_words

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def test_a_duration_as_a_person_says_it() -> None:
    """Seconds, minutes with seconds, hours with minutes; an unknown duration is shown as such."""
    shown = [duration_words(seconds) for seconds in (None, 0.2, 59.4, 60, 207, 3600, 5000)]
    assert shown == ["–", "0 s", "59 s", "1 min", "3 min 27 s", "1 h", "1 h 23 min"]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((3, 8), "up to 10 s"),
        ((12, 31), "10 to 35 s"),
        ((42, 95), "40 s to 2 min"),
        ((4, 95), "up to 2 min"),
        ((125, 230), "2 to 4 min"),
        ((120, 180), "2 to 3 min"),
        ((180, 180), "3 min"),
        ((3500, 7300), "50 min to 2 h 10 min"),
        ((270_010, 270_090), "3 d 3 h"),
    ],
)
def test_a_range_as_a_person_says_it(ends: tuple[float, float], words: str) -> None:
    """The unit is written once if both ends share it."""
    assert range_words(*ends) == words


@given(st.floats(0, 50_000), st.floats(1, 20))
def test_a_range_in_words_is_never_narrower(least_s: float, factor: float) -> None:
    """Both ends of a range are rounded outwards, by a minute at most, or by ten above an hour and a half."""
    most_s = max(1.0, least_s * factor)
    low, _, high = range_words(least_s, most_s).removeprefix("up to ").rpartition(" to ")
    unit = high.split()[-1]
    assert seconds(high) >= most_s - (3600 if "d" in high else 0.5)
    assert seconds(high) <= most_s + max(60, 600 * (most_s >= 5400)) + 5
    if low:
        assert seconds(low if low[-1].isalpha() else f"{low} {unit}") <= least_s


def seconds(words: str) -> float:
    """Return the seconds of a text such as "1 h 20 min"."""
    parts = words.split()
    return sum(int(count) * UNITS[unit] for count, unit in zip(parts[::2], parts[1::2], strict=True))
