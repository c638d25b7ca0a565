"""Text, bars and half cells have exactly the width in cells that was requested.

Figures have a fixed width and are never wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sparktop.graphics import numbers
from sparktop.graphics.cells import bar, cell_width, fit, segments
from sparktop.graphics.numbers import count_words, duration_words, range_words

TEXT = st.text(alphabet="abc…é日本한ｱ👍\u0301\u093e\u200b ", max_size=12)


@pytest.mark.parametrize(
    "first", [0x20, 0xA1, 0x370, 0x900, 0x1100, 0x2010, 0x2500, 0x2800, 0x3041, 0xAC00, 0x1F300]
)
def test_widths_agree_with_the_library_that_lays_out_the_screen(first: int) -> None:
    """For many scripts the width equals that computed by Rich."""
    for char in map(chr, range(first, first + 95)):
        if char.isprintable():
            assert cell_width(char) == cell_len(char), hex(ord(char))


@given(TEXT, st.integers(-1, 14), st.sampled_from(["left", "right", "center"]))
def test_fit_gives_exactly_the_width(
    text: str, width: int, align: Literal["left", "right", "center"]
) -> None:
    """Any text gets the requested width, and is complete if it fits."""
    fitted = fit(text, width, align)
    assert cell_width(fitted) == max(0, width)
    if 0 < width >= cell_width(text):
        assert text in fitted


def test_bars_end_in_eighths() -> None:
    """A bar is exact to an eighth of a cell, and an unknown value looks different from 0."""
    assert bar(0.55, 10) == ("█████▌", "····")
    assert bar(1 / 80, 10) == ("▏", "·········")
    assert bar(1, 3) == ("███", "")
    assert bar(0, 3) == ("", "···")
    assert bar(None, 3) == ("", "–––")


@given(
    st.lists(st.floats(0, 1e308) | st.floats(0, 10) | st.just(math.nan), max_size=6),
    st.floats(0, 1e308) | st.floats(0, 50),
    st.integers(0, 30),
)
def test_segments_fill_the_width(parts: list[float], total: float, width: int) -> None:
    """The cells add up to the width, and each part above 0 has at least one if there are enough."""
    widths = segments(parts, total, width)
    assert len(widths) == len(parts) + 1
    assert sum(widths) == width
    assert min(widths) >= 0
    largest = max([part for part in parts if part > 0] + [total], default=0.0)
    visible = [index for index, part in enumerate(parts) if part > 0 and part / largest > 0]
    assert sum(widths[index] > 0 for index in visible) >= min(len(visible), width)


Figure = Callable[[float | None, int], str]
Units = Mapping[str, Fraction | int]
DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {name: 1024**power for power, name in enumerate(["", "K", "M", "G", "T", "P", "E"])}
SECONDS: Units = {
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": 1,
    "min": 60,
    "m": 60,
    "h": 3600,
    "d": 86_400,
}
FIGURES: dict[str, tuple[Figure, Units]] = {
    "count": (numbers.count, DECIMAL),
    "rate": (numbers.rate, DECIMAL),
    "percent": (numbers.percent, {f"{name} %".strip(): factor for name, factor in DECIMAL.items()}),
    "data": (
        numbers.data,
        {"B": 1} | BINARY | {f"{name}iB": factor for name, factor in BINARY.items() if name},
    ),
    "data_rate": (numbers.data_rate, DECIMAL | {f"{name}B/s": factor for name, factor in DECIMAL.items()}),
    "duration": (numbers.duration, SECONDS),
    "clock": (numbers.clock, DECIMAL),
    "clock_mhz": (numbers.clock_mhz, {"MHz": 1, "GHz": 1000, "M": 1, "G": 1000}),
}
SHOWN = re.compile(
    r" *(?P<sign>[<>]?)(?P<minus>−?)(?P<digits>\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)"
    r"(?:e(?P<power>-?\d+))? ?(?P<unit>\D*)"
)
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e7, 1e7),
    st.floats(0, 200),
    st.integers(0, 2_000_000).map(float),
)


def holds(text: str, value: float, units: Units) -> bool:
    """Return whether `text` is `value` rounded to its last digit."""
    match = SHOWN.fullmatch(text)
    assert match, text
    digits, power = match["digits"].replace(",", ""), int(match["power"] or 0)
    last = Fraction(10) ** (power - len(digits.partition(".")[2])) * units[match["unit"]]
    shown = Fraction(digits) * Fraction(10) ** power * units[match["unit"]] * (-1 if match["minus"] else 1)
    exact = Fraction(value)
    if match["sign"] == "<":
        return 0 < exact < shown
    if match["sign"] == ">":
        return shown < exact < 0
    # The tolerance allows for the float's own rounding of a number halfway.
    return abs(exact - shown) <= last / 2 * (1 + Fraction(1, 10**6)) and (exact == 0) == (shown == 0)


@pytest.mark.parametrize("name", FIGURES)
@settings(max_examples=30, deadline=None)
@given(value=FLOATS, width=st.integers(0, 12))
@example(value=999_960.0, width=5)
@example(value=-0.0, width=5)
@example(value=5e-324, width=4)
@example(value=1.7e308, width=6)
def test_every_figure_fits_and_is_true(name: str, value: float, width: int) -> None:
    """A figure has exactly its width, and a shown number is the value's rounding."""
    figure, units = FIGURES[name]
    text = figure(value, width)
    assert len(text) == width
    if text.strip() not in {"", numbers.TOO_WIDE}:
        assert holds(text, value, units), text


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_unknown_is_a_dash(name: str, value: float | None) -> None:
    """Missing values, NaN and infinity are a dash at the right, never a number."""
    assert FIGURES[name][0](value, 5) == "    –"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (numbers.count(0), "    0"),
        (numbers.count(9999), "9,999"),
        (numbers.count(12_345), "12.3k"),
        (numbers.count(-7), "   −7"),
        (numbers.rate(0.0), "   0.0"),
        (numbers.rate(45_678), "45,678"),
        (numbers.percent(7.2), "  7 %"),
        (numbers.data(512), "   512 B"),
        (numbers.duration(81), "   81 s"),
        (numbers.duration(1.23), " 1.23 s"),
        (numbers.duration(0.0), " 0.0 ms"),
        (numbers.count(9999.6), "10.0k"),
        (numbers.count(1234, 3), " 1k"),
        (numbers.rate(0.02), "  <0.1"),
        (numbers.rate(99.96), "   100"),
        (numbers.rate(9_999.6, 5), "10.0k"),
        (numbers.percent(0.2), " <1 %"),
        (numbers.data(121.6 * 2**30, 9), "121.6 GiB"),
        (numbers.data(121.6 * 2**30), " 122 GiB"),
        (numbers.data_rate(12.34e6), "12.3 MB/s"),
        (numbers.duration(0.0094), " 9.4 ms"),
        (numbers.duration(0.9996), " 1.00 s"),
        (numbers.duration(1000), " 17 min"),
        (numbers.clock_mhz(2418), "2418 MHz"),
        (numbers.clock_mhz(2418, 4), "2GHz"),
    ],
)
def test_figures_read_as_expected(text: str, shown: str) -> None:
    """A figure changes to the next unit according to its rounded value."""
    assert text == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0.9, "0 s"),
        (59.9, "59 s"),
        (150, "2 min"),
        (3900, "1 h 5 min"),
        (2 * 86_400 + 3 * 3600, "2 d 3 h"),
        (-4, "−4 s"),
        (1e300, ">9999 d"),
    ],
)
def test_an_age_counts_full_units(seconds: float | None, shown: str) -> None:
    """An age is given in its two largest units, rounded down."""
    assert numbers.age(seconds) == shown


def test_a_duration_as_a_person_says_it() -> None:
    """Seconds, minutes with seconds, hours with minutes; an unknown duration is shown as such."""
    shown = [duration_words(seconds) for seconds in (None, 0.2, 59.4, 60, 207, 3600, 5000)]
    assert shown == ["–", "0 s", "59 s", "1 min", "3 min 27 s", "1 h", "1 h 23 min"]


def test_a_count_with_its_noun() -> None:
    """The noun is in the plural but for what is shown as 1; thousands are grouped."""
    shown = [count_words(count, "more row") for count in (0, 1, 1.4, 1.6, 2048)]
    assert shown == ["0 more rows", "1 more row", "1 more row", "2 more rows", "2,048 more rows"]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((12, 31), "10 to 35 s"),
        ((20, 20), "20 s"),
        ((60, 60), "1 min"),
        ((1, 3), "up to 5 s"),
        ((10, 95), "about 30 s"),
        ((9, 88), "about 30 s"),
        ((4, 61), "about 20 s"),
        ((4, 41), "about 20 s"),
        ((1, 11), "about 10 s"),
        ((1, 9), "up to 10 s"),
        ((30, 120), "30 s to 2 min"),
        ((12, 130), "about 40 s"),
        ((40, 1600), "about 4 min"),
        ((125, 230), "2 to 4 min"),
        ((3500, 7300), "50 min to 2 h 10 min"),
    ],
)
def test_a_range_as_a_person_says_it(ends: tuple[float, float], words: str) -> None:
    """The unit is written once if both ends share it."""
    assert range_words(*ends) == words
