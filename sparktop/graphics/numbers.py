"""Numbers as text of a fixed width, and durations.

A number that does not fit is shown in a coarser unit, never cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

# Every number is right-aligned in exactly `width` cells. Counts and rates have a comma before each group of
# three digits, as all numbers on screens and in reports. Where it does not fit, four digits stand without
# one, and more are shortened ("24.1k"). Clock rates have no commas. An unknown number (None, NaN, infinite)
# is "–". A number other than zero is never shown as zero but as "<0.1" or "<1". If not even one digit fits,
# the text is "…".


UNKNOWN = "–"
"""Shown for an unknown number."""
TOO_WIDE = "…"
"""Shown where there is no room for a number."""
MINUS = "−"
"""Sign of negative numbers."""


class _Unit(Struct, frozen=True):
    """A unit, such as ms, and the number of decimals of values in this unit."""

    factor: float
    """Size of this unit in base units: 0.001 for ms, because durations are in seconds."""
    suffixes: tuple[str, ...]
    """Spellings of the unit after a number: the preferred one first, then shorter ones."""
    steps: tuple[tuple[float, int], ...]
    """Ascending pairs (limit, decimals): the first limit above a number determines its decimals. A number at
    or above the last limit is written in a larger unit."""
    has_commas: bool = False
    """Whether the digits of a number from 1,000 on are grouped by commas."""


_MOST_PREFIXED = 1e21
"""From this number on, more than three digits before the point remain with every prefix."""
_MOST_DAYS = 9999
_COMMAS_FROM, _ONLY_COMMAS_FROM = 999.5, 9999.5
"""From these numbers on, digits of units with commas have one; and are not shown without, to fit, either."""
_WHOLE_FROM, _WITH_EXPONENT = 1000.0, 1e9
"""From these numbers on, a figure of a sweep has no decimals, and an exponent."""
_THREE_DIGITS = ((10.0, 2), (100.0, 1), (1000.0, 0))
"""Decimals by value: below 10 two, below 100 one, below 1,000 none."""


def _metric_units(suffix: str, short: str) -> tuple[_Unit, ...]:
    return tuple(
        _Unit(1000.0**power, (f"{prefix}{suffix}", f"{prefix}{short}".strip()), _THREE_DIGITS)
        for power, prefix in enumerate("kMGTPE", start=1)
    )


_COUNT = (_Unit(1.0, ("",), ((10_000.0, 0),), has_commas=True), *_metric_units("", ""))
_RATE = (_Unit(1.0, ("",), ((100.0, 1), (100_000.0, 0)), has_commas=True), *_metric_units("", ""))
_PERCENT = (_Unit(1.0, (" %",), ((1000.0, 0),)), *_metric_units(" %", " %"))
_MHZ = (_Unit(1.0, (" MHz", "MHz", "M"), ((10_000.0, 0),)), _Unit(1e3, (" GHz", "GHz", "G"), _THREE_DIGITS))
_CLOCK = (_Unit(1.0, ("",), ((10_000.0, 0),)), *_metric_units("", ""))
_SECONDS = (
    _Unit(1e-6, (" µs", "µs"), ((100.0, 0),)),
    _Unit(1e-3, (" ms", "ms"), ((10.0, 1), (1000.0, 0))),
    _Unit(1.0, (" s", "s"), ((10.0, 2), (1000.0, 0))),
    _Unit(60.0, (" min", "min", "m"), ((600.0, 0),)),
    _Unit(3600.0, (" h", "h"), ((1000.0, 0),)),
    _Unit(86_400.0, (" d", "d"), ((100_000.0, 0),)),
)


def _byte_units(smallest: str, prefixes: str, suffix: str, base: float) -> tuple[_Unit, ...]:
    larger = (
        _Unit(base**power, (f" {prefix}{suffix}", f"{prefix}{suffix}", prefix), ((1000.0, 1),))
        for power, prefix in enumerate(prefixes, start=1)
    )
    return (_Unit(1.0, (f" {smallest}", smallest), ((1000.0, 0),)), *larger)


_BYTES = _byte_units("B", "KMGTPE", "iB", 1024.0)
_BYTES_PER_S = _byte_units("B/s", "kMGTPE", "B/s", 1000.0)


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _spellings(size: float, unit: _Unit, *, finest: bool) -> Iterator[str]:
    """Yield the texts for `size` (in base units) in the unit `unit`: the preferred text, then shorter ones.

    Yield nothing if the number is too large for the unit. `finest` is whether `unit` is the smallest unit: a
    number that would be rounded to 0 is then written as "<0.1" or "<1", and is left out otherwise.
    """
    number = size / unit.factor
    most_decimals = _decimals(number, unit.steps)
    if most_decimals is None:
        return
    for suffix in unit.suffixes:
        for decimals in range(most_decimals, -1, -1):
            digits = f"{number:.{decimals}f}"
            if size == 0.0 or float(digits) != 0.0:
                if unit.has_commas and number >= _COMMAS_FROM:
                    yield f"{number:,.{decimals}f}"
                if not unit.has_commas or number < _ONLY_COMMAS_FROM:
                    yield digits + suffix
            elif finest:
                yield f"<{10.0**-decimals:.{decimals}f}{suffix}"


def _decimals(number: float, steps: tuple[tuple[float, int], ...]) -> int | None:
    """Return the decimals of the first of `steps` whose limit is above the rounded `number`; None if none is.

    Rounding changes a number by less than 1: only a number near a limit is rounded to be compared.
    """
    for limit, decimals in steps:
        if number < limit - 1 or (number < limit and float(f"{number:.{decimals}f}") < limit):
            return decimals
    return None


def _number_text(value: float | None, width: int, units: tuple[_Unit, ...]) -> str:
    """Format `value` in `width` cells, in the first of `units` in which the text fits.

    If no unit fits, return "…"; for None, NaN and infinity "–".
    """
    if width <= 0:
        return ""
    finite = _finite_or_none(value)
    if finite is None:
        return UNKNOWN.rjust(width)
    size = abs(finite)
    for unit in units:
        for text in _spellings(size, unit, finest=unit is units[0]):
            number_text = text
            if finite < 0:
                number_text = f">{MINUS}{text[1:]}" if text[0] == "<" else MINUS + text
            if len(number_text) <= width:
                return number_text.rjust(width)
    return TOO_WIDE.rjust(width)


def count(value: float | None, width: int = 5) -> str:
    """Format a count in `width` cells: an integer up to 9,999, then "12.3k", "1.23M"; "–" for None."""
    return _number_text(value, width, _COUNT)


_OFTEN_PER_S = 10.0
"""From so many a second on, `often` counts by the second."""


def rate(value: float | None, width: int = 6) -> str:
    """Format a rate per second in `width` cells, without a unit; "–" for None.

    The number has one decimal below 100 and is an integer up to 99,999. Above, it is "123k", "1.23M".
    """
    return _number_text(value, width, _RATE)


def often(per_s: float | None) -> str:
    """Format how often something rare happens, with its unit: "48/min", from 10/s on "12/s"; "–" for None."""
    finite = _finite_or_none(per_s)
    if finite is None:
        return UNKNOWN
    if finite >= _OFTEN_PER_S:
        return f"{count(finite).strip()}/s"
    return f"{'<1' if 0 < 60 * finite < 1 else f'{60 * finite:.0f}'}/min"


def percent(value: float | None, width: int = 5) -> str:
    """Format a percentage, given as 0 to 100, as an integer such as "42 %" in `width` cells; "–" for None."""
    return _number_text(value, width, _PERCENT)


def data(value: float | None, width: int = 8) -> str:
    """Format a number of bytes in B, KiB, MiB, GiB (1024) in `width` cells; "–" for None.

    The number has one decimal if there is space for it ("121.6 GiB" needs 9 cells).
    """
    return _number_text(value, width, _BYTES)


def data_rate(bytes_per_s: float | None, width: int = 9) -> str:
    """Format bytes per second in B/s, kB/s, MB/s, GB/s (1000) in `width` cells; "–" for None.

    The number has one decimal if there is space for it.
    """
    return _number_text(bytes_per_s, width, _BYTES_PER_S)


def decimal(value: float | None, decimals: int) -> str:
    """Format a figure of a sweep, on screens as in reports: "12.3", "1,234"; "–" for None.

    It has `decimals` decimals below 1,000, none from there on, and an exponent from 1e9 on.
    """
    finite = _finite_or_none(value)
    if finite is None:
        return UNKNOWN
    if abs(finite) >= _WITH_EXPONENT:
        return f"{finite:.3g}"
    return f"{finite:,.{decimals if abs(finite) < _WHOLE_FROM else 0}f}"


def milliseconds(value: float | None) -> str:
    """Format a latency of a sweep, given in ms: "84 ms", "1,117 ms"; "–" for None."""
    return UNKNOWN if _finite_or_none(value) is None else f"{decimal(value, 0)} ms"


def duration(seconds: float | None, width: int = 7) -> str:
    """Format seconds in `width` cells: "50 µs", "9.4 ms", "123 ms", "1.23 s", "81 s", "17 min".

    "–" for None.
    """
    return _number_text(seconds, width, _SECONDS[1:] if seconds == 0 else _SECONDS)


def clock_mhz(value: float | None, width: int = 8) -> str:
    """Format a clock rate given in MHz in `width` cells, in GHz if MHz does not fit; "–" for None."""
    return _number_text(value, width, _MHZ)


def clock(mhz: float | None, width: int = 5) -> str:
    """Format a clock rate in MHz without its unit in `width` cells, such as "2406"; "–" for None."""
    return _number_text(mhz, width, _CLOCK)


def tick(value: float | None, digits: int = 3) -> str:
    """Format the number at a tick of an axis with at most `digits` digits: "0.5", "2.5", "25k".

    "–" for None.
    """
    finite = _finite_or_none(value)
    if finite is None:
        return UNKNOWN
    size, prefix = abs(finite), ""
    rounded = float(f"{size:.{digits}g}")
    for power, name in enumerate("kMGTPE", start=1):
        if 1000.0**power <= rounded < _MOST_PREFIXED:
            size, prefix = abs(finite) / 1000.0**power, name
    sign = MINUS if finite < 0 else ""
    return f"{sign}{size:.{digits}g}{prefix}"


def signed(value: float, decimals: int = 0) -> str:
    """Format a finite number with its sign: "+4.2", "−36"."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


_MINUTE_S, _HOUR_S = 60, 3600
_LARGE_UNITS = (("d", 86_400, "h", _HOUR_S), ("h", _HOUR_S, "min", _MINUTE_S))
"""Units of an age, each with its seconds and with the smaller unit of the rest."""


def age(seconds: float | None) -> str:
    """Format an age given in seconds: "3 s", "2 min", "1 h 5 min", "2 d 3 h"; "–" for None.

    The last unit shown is rounded down.
    """
    finite = _finite_or_none(seconds)
    if finite is None:
        return UNKNOWN
    whole_s = int(abs(finite))
    sign = MINUS if finite < 0 and whole_s else ""
    if whole_s >= (_MOST_DAYS + 1) * 86_400:
        return f"<{sign}{_MOST_DAYS} d" if sign else f">{_MOST_DAYS} d"
    for name, unit_s, small_name, small_s in _LARGE_UNITS:
        if whole_s >= unit_s:
            rest = whole_s % unit_s // small_s
            return f"{sign}{whole_s // unit_s} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{sign}{whole_s // _MINUTE_S} min" if whole_s >= _MINUTE_S else f"{sign}{whole_s} s"


_HOURS_FROM_S = 5400
"""From here on, the upper end of a range is written with hours."""
_FAR_APART, _LEAST_LOW_S, _SHORT_STEP_S = 4, 10, 5
"""Ratio of the ends of a range above which they are far apart, the step of a lower end below a minute where
the other is above it, and that of both below a minute."""


def count_words(count: float, noun: str) -> str:
    """Return a count with its noun, in the plural but for 1: "1 server", "1,024 requests"."""
    return f"{count:,.0f} {noun}{'' if round(count) == 1 else 's'}"


def duration_words(seconds: float | None) -> str:
    """Format a duration to the second: "24 s", "3 min 5 s", from an hour on "1 h 2 min"; "–" if unknown."""
    if seconds is None:
        return UNKNOWN
    total_s = round(seconds)
    if total_s >= _HOUR_S:
        return age(total_s)
    minutes, left_s = divmod(total_s, _MINUTE_S)
    if not minutes:
        return f"{total_s} s"
    return f"{minutes} min {left_s} s" if left_s else f"{minutes} min"


def middle_s(least_s: float, most_s: float) -> float:
    """Return the seconds that stand for a range of durations: the geometric mean, of ends above some seconds.

    Of ends that are near or short it is at most the mean.
    """
    return min((least_s + most_s) / 2, math.sqrt(max(least_s, _LEAST_LOW_S) * most_s))


def range_words(least_s: float, most_s: float) -> str:
    """Format a range of durations, rounded outwards: "20 to 35 s", "40 s to 2 min", "2 to 4 min".

    Return a single duration if both ends round to the same one. Ends that are far apart say nothing, nor does
    one that rounds to 0: then it is their middle, "about 4 min", and up to 10 s "up to 10 s".
    """
    is_from_zero = least_s < _SHORT_STEP_S and most_s > _LEAST_LOW_S
    if is_from_zero or most_s > _FAR_APART * max(least_s, _LEAST_LOW_S):
        middle = middle_s(least_s, most_s)
        step_s = _LEAST_LOW_S if middle < _MINUTE_S else _MINUTE_S
        return f"about {duration_words(step_s * round(middle / step_s))}"
    step_s = low_step_s = _SHORT_STEP_S
    if most_s > _MINUTE_S:
        step_s = low_step_s = _MINUTE_S if most_s < _HOURS_FROM_S else _LEAST_LOW_S * _MINUTE_S
        low_step_s = _LEAST_LOW_S if least_s < _MINUTE_S else step_s
    low_s = math.floor(least_s / low_step_s) * low_step_s
    high = duration_words(max(step_s, math.ceil(most_s / step_s) * step_s))
    low = duration_words(low_s)
    if low == high or not low_s:
        return high if low_s else f"up to {high}"
    is_one_unit = low.split()[1:] == high.split()[1:]
    return f"{low.split()[0] if is_one_unit else low} to {high}"
