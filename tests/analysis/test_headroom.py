"""Trends of free memory: what counts as a trend, what as noise, and when the limit is reached."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from sparktop.analysis.headroom import headroom, trend
from sparktop.model.node import MemoryReading
from sparktop.model.series import HistoryTable, Series
from sparktop.panels.machine.detail import memory_section
from sparktop.panels.parts.text import row_text
from tests.known import known

START = 5000.0
GIB = 2**30


def series(points: Iterable[tuple[float, float | None]]) -> Series:
    history = HistoryTable(("value",))
    for at, value in points:
        history.append(START + at, {"value": value})
    return history.series()["value"]


def line(value: Callable[[float], float | None], seconds: int = 120, step: int = 2) -> Series:
    return series((at, value(at)) for at in range(0, seconds + 1, step))


@pytest.mark.parametrize("jumps_at", [20, 80])
def test_a_jump_is_no_trend(jumps_at: int) -> None:
    """Memory that a model allocates in a moment is not a trend."""
    dice = random.Random(jumps_at)  # noqa: S311 - noise, no secret
    found = trend(line(lambda at: (60 if at < jumps_at else 20) + dice.gauss(0, 0.02)), START + 120)
    assert found is None or abs(found.slope_bytes_per_s or 0.0) < 0.001 * GIB


def test_a_gap_is_not_bridged() -> None:
    """A step between two level stretches, across a gap or missing samples, is not a trend."""

    def value(at: float) -> float | None:
        return None if 50 <= at < 70 else 40 if at < 50 else 30

    assert known(trend(line(value), START + 120)).slope_bytes_per_s is None
    absent = series((at, value(at)) for at in range(0, 121, 2) if value(at) is not None)
    assert known(trend(absent, START + 120)).slope_bytes_per_s is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(30, "not known yet"), (40, "no steady rise or fall seen")], ids=str
)
def test_the_first_half_minute_shows_no_trend_and_no_rest(seconds: int, words: str) -> None:
    """What was not seen long enough to be judged is not called steady."""
    found = trend(line(lambda _: 40.0, seconds), START + seconds)
    memory = MemoryReading(total_bytes=64 * GIB, headroom_bytes=40 * GIB)
    rows = memory_section(memory, headroom(found, 40.0, 8 * GIB), 60).rows
    assert any(row_text(row).split(maxsplit=1) == ["trend", words] for row in rows)


def test_the_limit_comes_at_the_pace_of_the_fall() -> None:
    """From 20 GiB to a limit of 8 GiB at 6 GiB a minute it takes two minutes; a rise never reaches it."""
    falling = trend(line(lambda at: 32 - 0.1 * at), START + 120)
    rising = trend(line(lambda at: 32 + 0.1 * at), START + 120)
    told = headroom(falling, 20.0, 8 * GIB)
    assert told.until_limit_s == pytest.approx(120)
    assert told.slope_bytes_per_s == pytest.approx(-0.1 * GIB)
    assert (told.limit_bytes, round(told.window_s or 0)) == (8 * GIB, 58)
    assert headroom(falling, 7.0, 8 * GIB).until_limit_s == 0
    assert headroom(rising, 20.0, 8 * GIB).until_limit_s is None
    assert headroom(falling, None, 8 * GIB).until_limit_s is None
    assert headroom(falling, 20.0, None).until_limit_s is None
    assert headroom(None, 20.0, 8 * GIB).slope_bytes_per_s is None
