"""Numbers of fixed width: a number that does not fit moves to a coarser unit, never to a wrong value.

Every number is right-aligned in exactly `width` cells. An unknown one (None, NaN, infinite) is "–". A value
other than zero never reads as zero: it is "<0.1" or "<1". If not even one digit fits, "…" is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

UNKNOWN = "–"
"""Shown for an unknown number."""
TOO_WIDE = "…"
"""Shown for a number without room."""
MINUS = "−"
"""Sign of negative numbers."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit and the precision of numbers in it."""

    factor: float
    """Base units per unit."""
    suffixes: tuple[str, ...]
    """Suffixes of the number: the best first, then shorter ones."""
    steps: tuple[tuple[float, int], ...]
    """(below, decimals), ascending: numbers under `below` have this many decimals; the last `below` ends
    the unit."""


_MOST_PREFIXED = 1e21
"""From here on, no prefix leaves at most three digits before the point."""
_MOST_DAYS = 9999
_THREE_DIGITS = ((10.0, 2), (100.0, 1), (1000.0, 0))


def _thousands(suffix: str, short: str) -> tuple[_Unit, ...]:
    return tuple(
        _Unit(1000.0**power, (f"{prefix}{suffix}", f"{prefix}{short}".strip()), _THREE_DIGITS)
        for power, prefix in enumerate("kMGTPE", start=1)
    )


_COUNT = (_Unit(1.0, ("",), ((10_000.0, 0),)), *_thousands("", ""))
_RATE = (_Unit(1.0, ("",), ((100.0, 1), (100_000.0, 0))), *_thousands("", ""))
_PERCENT = (_Unit(1.0, ("%",), ((1000.0, 0),)), *_thousands("%", "%"))
_MHZ = (
    _Unit(1.0, (" MHz", "MHz", "M"), ((10_000.0, 0),)),
    _Unit(1e3, (" GHz", "GHz", "G"), _THREE_DIGITS),
)
_SECONDS = (
    _Unit(1e-6, (" µs", "µs"), ((100.0, 0),)),
    _Unit(1e-3, (" ms", "ms"), ((10.0, 1), (1000.0, 0))),
    _Unit(1.0, (" s", "s"), ((10.0, 2), (1000.0, 0))),
    _Unit(60.0, (" min", "min", "m"), ((600.0, 0),)),
    _Unit(3600.0, (" h", "h"), ((1000.0, 0),)),
    _Unit(86_400.0, (" d", "d"), ((100_000.0, 0),)),
)
_BYTES = (
    _Unit(1.0, (" B", "B"), ((1000.0, 0),)),
    *(
        _Unit(1024.0**power, (f" {prefix}iB", f"{prefix}iB", prefix), ((1000.0, 1),))
        for power, prefix in enumerate("KMGTPE", start=1)
    ),
)
_BYTES_PER_S = (
    _Unit(1.0, (" B/s", "B/s"), ((1000.0, 0),)),
    *(
        _Unit(1000.0**power, (f" {prefix}B/s", f"{prefix}B/s", prefix), ((1000.0, 1),))
        for power, prefix in enumerate("kMGTPE", start=1)
    ),
)


def _known(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _spellings(size: float, unit: _Unit, *, finest: bool) -> Iterator[str]:
    """Yield the ways to write `size` in `unit`, the best first; none if it is too large for the unit."""
    number = size / unit.factor
    most = next((d for below, d in unit.steps if float(f"{number:.{d}f}") < below), None)
    if most is None:
        return
    for suffix in unit.suffixes:
        for decimals in range(most, -1, -1):
            digits = f"{number:.{decimals}f}"
            if size == 0.0 or float(digits) != 0.0:
                yield digits + suffix
            elif finest:
                yield f"<{10.0**-decimals:.{decimals}f}{suffix}"


def _negative(text: str) -> str:
    return f">{MINUS}{text[1:]}" if text[0] == "<" else MINUS + text


def _figure(value: float | None, width: int, units: tuple[_Unit, ...]) -> str:
    """Format `value` in the first of `units` that fits in `width` cells.

    Otherwise in e notation or as "…".
    """
    if width <= 0:
        return ""
    known = _known(value)
    if known is None:
        return UNKNOWN.rjust(width)
    size = abs(known)
    for unit in units:
        for text in _spellings(size, unit, finest=unit is units[0]):
            shown = _negative(text) if known < 0 else text
            if len(shown) <= width:
                return shown.rjust(width)
    base = next(unit for unit in units if unit.factor == 1.0)
    mantissa, _, exponent = f"{known:.0e}".replace("-", MINUS, 1 if known < 0 else 0).partition("e")
    for suffix in base.suffixes:
        text = f"{mantissa}e{int(exponent)}{suffix}"
        if len(text) <= width:
            return text.rjust(width)
    return TOO_WIDE.rjust(width)


def count(value: float | None, width: int = 5) -> str:
    """Format a count: an integer up to 9999, then 12.3k, 1.23M."""
    return _figure(value, width, _COUNT)


def rate(value: float | None, width: int = 6) -> str:
    """Format a rate per second: one decimal below 100, an integer up to 99 999, then 123k, 1.23M."""
    return _figure(value, width, _RATE)


def percent(value: float | None, width: int = 4) -> str:
    """Format a percentage (0 to 100, not 0 to 1) as an integer."""
    return _figure(value, width, _PERCENT)


def data(value: float | None, width: int = 8) -> str:
    """Format bytes in KiB, MiB, GiB (1024): one decimal where it fits ("121.6 GiB" needs 9 cells)."""
    return _figure(value, width, _BYTES)


def data_rate(bytes_per_s: float | None, width: int = 9) -> str:
    """Format bytes per second in kB/s, MB/s, GB/s (1000): one decimal where it fits."""
    return _figure(bytes_per_s, width, _BYTES_PER_S)


def duration(seconds: float | None, width: int = 7) -> str:
    """Format a latency: "50 µs", "9.4 ms", "123 ms", "1.23 s", "81 s", "17 min"."""
    return _figure(seconds, width, _SECONDS[1:] if seconds == 0 else _SECONDS)


def clock_mhz(value: float | None, width: int = 8) -> str:
    """Format a clock rate in MHz, in GHz if that does not fit."""
    return _figure(value, width, _MHZ)


def tick(value: float | None) -> str:
    """Format the label of a point on an axis, as short as three digits allow: "0.5", "2.5", "25k"."""
    known = _known(value)
    if known is None:
        return UNKNOWN
    size, prefix = abs(known), ""
    rounded = float(f"{size:.3g}")
    for power, name in enumerate("kMGTPE", start=1):
        if 1000.0**power <= rounded < _MOST_PREFIXED:
            size, prefix = abs(known) / 1000.0**power, name
    digits = f"{size:.3g}"
    sign = MINUS if known < 0 else ""
    return sign + digits + prefix


_AGES = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def age(seconds: float | None) -> str:
    """Format an age: "3 s", "2 min", "1 h 5 min", "2 d 3 h"; complete units, never rounded up."""
    known = _known(seconds)
    if known is None:
        return UNKNOWN
    whole = int(abs(known))
    sign = MINUS if known < 0 and whole else ""
    if whole >= (_MOST_DAYS + 1) * 86_400:
        return f"<{sign}{_MOST_DAYS} d" if sign else f">{_MOST_DAYS} d"
    for index, (name, unit_s) in enumerate(_AGES):
        if whole >= unit_s:
            text = f"{whole // unit_s} {name}"
            rest = whole % unit_s // _AGES[index + 1][1] if name in {"d", "h"} else 0
            return sign + text + (f" {rest} {_AGES[index + 1][0]}" if rest else "")
    return "0 s"
