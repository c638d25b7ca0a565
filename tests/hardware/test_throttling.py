"""Reasons why a GPU runs slower than it could."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.gpu import GpuReader, reason_words, throttle_fields
from tests.hardware.fake_driver import FIELDS_AT_0, FakeDriver, gb10

SECOND_NS = 10**9


def shares(
    readings: list[tuple[float, int | None]], field: int = 74, driver: str = "580.126.09"
) -> list[float | None]:
    """Return the throttled share of the reason of `field` at each reading of its counter."""
    fake = FakeDriver(gb10(), driver=driver)
    reader = GpuReader(Path("/nonexistent"), fake)
    found = []
    for now, count in readings:
        fake.gpus[0]["fields"] = {**FIELDS_AT_0, field: count}
        (gpu,) = reader.read(now).gpus
        found.append(gpu.throttled_percent.get(throttle_fields(driver)[field]))
    return found


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("software power cap",)),
        (0x21, ("software thermal",)),
        (0x48, ("hardware slowdown", "hardware thermal")),
        (0x1FE, 8),
        (0x80000, ("reason 0x80000",)),
    ],
)
def test_reasons_are_words(bits: int, words: tuple[str, ...] | int) -> None:
    """Each bit is named; idle is not a reason, and an unknown bit is shown by its value."""
    found = reason_words(bits)
    assert (len(found) if isinstance(words, int) else found) == words


def test_a_counter_in_another_unit_has_no_share() -> None:
    """A counter that grows by more than 100 % has another unit, and is unknown from then on."""
    picoseconds = SECOND_NS * 1000
    readings = [(0.0, 0), (1.0, picoseconds), (2.0, picoseconds + picoseconds // 4000)]
    assert shares(list(readings)) == [None, None, None]


@pytest.mark.parametrize(
    ("driver", "numbers"),
    [
        ("610.43.02", {74, 76, 269, 270, 271}),
        ("580.126.09", {74, 76, 269, 270, 271}),
        ("580.82.07", {74, 76, 269, 270, 271}),
        ("580.76.05", {74, 75, 76}),
        ("580.65.06", {74, 76, 251, 252, 253}),
        ("575.57.08", {74, 76, 251, 252, 253}),
        ("570.124.06", {74, 75, 76}),
        ("garbage", {74, 75, 76}),
        (None, {74, 75, 76}),
    ],
)
def test_the_counters_numbers_belong_to_the_driver(driver: str | None, numbers: set[int]) -> None:
    """The numbers of the fields depend on the driver's version."""
    fields = throttle_fields(driver)
    assert set(fields) == numbers
    assert len(set(fields.values())) == len(fields)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=6))
def test_a_share_is_a_share(counts: list[int]) -> None:
    """Whatever a driver counts, a share is None or between 0 and 100."""
    found = shares([(float(second), count) for second, count in enumerate(counts)])
    assert all(share is None or 0.0 <= share <= 100.0 for share in found)
