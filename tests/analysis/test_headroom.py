"""Trends of free memory: what counts as a trend, what as noise, and when the limit is reached."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.analysis.headroom import headroom, trend
from sparktop.model.series import HistoryTable, Series

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import headroom as headroom_study

pytestmark = pytest.mark.long

START = 5000.0
GIB = 2**30


def series(points: Iterable[tuple[float, float | None]]) -> Series:
    history = HistoryTable(("value",))
    for at, value in points:
        history.append(START + at, {"value": value})
    return history.series()["value"]


def line(value: Callable[[float], float | None], seconds: int = 120, step: int = 2) -> Series:
    return series((at, value(at)) for at in range(0, seconds + 1, step))


@given(st.floats(0, 500), st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_what_stays_the_same_has_no_trend(value: float, points: int) -> None:
    """A constant value has no trend, however long it is observed."""
    assert trend(series((at, value) for at in range(points)), START + points) is None


@given(st.floats(0.004, 0.5), st.sampled_from((-1, 1)), st.integers(0, 2**32), st.floats(0.0, 0.15))
@settings(max_examples=60, deadline=None)
def test_a_line_with_noise_is_found_within_its_error(
    slope: float, sign: int, seed: int, noise: float
) -> None:
    """The slope of a noisy line is found within four standard errors, with the right sign."""
    rising, dice = sign * slope, random.Random(seed)  # noqa: S311 - noise, no secret
    found = trend(line(lambda at: 50 + rising * at + dice.gauss(0, noise)), START + 120)
    if found is None:
        # Means of 2.5 samples have 0.63 of the noise, the steps between them 0.9: a slope that changes the
        # value by less than the noise in 5 s looks like a random walk within two minutes.
        assert 5 * slope < noise
        return
    # Of least squares over a minute: the root of the squared distances of 31 points from the middle is 98 s.
    assert abs(found.slope - rising) <= 4 * noise / 98 + 1e-6
    assert found.low <= found.slope <= found.high
    assert found.low * found.high > 0


@pytest.mark.parametrize("name", headroom_study.DRIFT_FREE)
def test_memory_without_a_drift_is_seldom_taken_for_a_trend(name: str) -> None:
    """Memory without a drift (noise, walks, sawtooth, waves) is rarely taken for a trend."""
    runs = 16 if "walk" in name else 3  # one false trend of a walk lasts for much of a run
    shares = [
        headroom_study.claimed_share(headroom_study.DRIFT_FREE[name], seed, length_s=1800.0)
        for seed in range(runs)
    ]
    assert sum(shares) / len(shares) <= headroom_study.MOST_CLAIMED


@pytest.mark.parametrize("name", headroom_study.NOISES)
def test_a_leak_of_a_gigabyte_a_minute_is_found(name: str) -> None:
    """A leak of 1 GiB a minute is found within 100 s with 0.1 GiB of noise, within 6 min with 0.3 GiB."""
    limit_s = 360 if "0.3 GiB" in name else 100
    for seed in (11, 12, 13):
        after_s = headroom_study.found_after_s(headroom_study.NOISES[name], 1.0, seed)
        assert after_s is not None
        assert after_s <= limit_s


def test_a_leak_that_follows_other_use_is_found() -> None:
    """A leak is found though free memory was lower before, until a server ended."""

    def value(at: float) -> float:
        return 10.0 if at < 300 else 110.0 if at < 600 else 110.0 - (at - 600) / 60

    assert trend(line(value, seconds=700), START + 700) is not None


@pytest.mark.parametrize("jumps_at", [20, 40, 60, 80, 100])
def test_a_jump_is_no_trend(jumps_at: int) -> None:
    """Memory that a model allocates in a moment is not a trend."""
    dice = random.Random(jumps_at)  # noqa: S311 - noise, no secret
    found = trend(line(lambda at: (60 if at < jumps_at else 20) + dice.gauss(0, 0.02)), START + 120)
    assert found is None or abs(found.slope) < 0.001


def test_a_gap_is_not_bridged() -> None:
    """A step between two level stretches, across a gap or missing samples, is not a trend."""

    def value(at: float) -> float | None:
        return None if 50 <= at < 70 else 40 if at < 50 else 30

    assert trend(line(value), START + 120) is None
    absent = series((at, value(at)) for at in range(0, 121, 2) if value(at) is not None)
    assert trend(absent, START + 120) is None


def test_stretches_between_gaps_count_together() -> None:
    """A line with repeated gaps is a trend, with its slope."""
    found = trend(line(lambda at: None if at % 40 == 38 else 50 - 0.1 * at), START + 120)
    assert found is not None
    assert found.slope == pytest.approx(-0.1)
    assert found.window_s == pytest.approx(60, abs=6)


def test_half_a_minute_is_too_short() -> None:
    """With too few points there is no trend; a minute suffices for a clear line."""
    assert trend(line(lambda at: 50 - at, seconds=28), START + 28) is None
    assert trend(line(lambda at: 50 - at, seconds=60), START + 60) is not None


def test_slow_sampling_looks_further_back() -> None:
    """With one sample in 40 s the shortest window is ten minutes, so that it has enough points."""
    slow = line(lambda at: 50 - 0.01 * at, seconds=600, step=40)
    assert trend(slow, START + 600) is None
    found = trend(slow, START + 600, interval_s=40)
    assert found is not None
    assert found.slope == pytest.approx(-0.01)


def test_what_is_older_than_the_window_does_not_count() -> None:
    """A fall that ended three minutes ago is not a trend any more."""
    assert trend(line(lambda at: max(20, 50 - at), seconds=300), START + 300) is None


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
