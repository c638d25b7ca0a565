"""When the requests of an open-loop level are due: times drawn before the level, whatever the server does.

All times are drawn from a seed, so that every target of a sweep sees the same arrivals. Gaps come from a
gamma distribution of mean 1 / rate and shape b, whose coefficient of variation is 1 / √b: b = 1 is a Poisson
process, b < 1 is bursty, and b = ∞ is constant (as in `vllm bench serve --request-rate --burstiness`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import accumulate

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.text import clean
from sparktop.typed import split_range

LEAST_RATE, MOST_RATE = 0.001, 10_000.0
"""Smallest and largest rate of a level, in requests per second."""
MOST_ARRIVALS = 1_000_000
"""Largest number of requests that a level may draw."""
_LEAST_SHAPE, _MOST_SHAPE = 0.01, 1000.0
"""Smallest and largest shape of the gamma distribution that may be given."""
_TRAIN_LENGTH = 8.0
"""Mean number of requests in a train."""
_TRAIN_GAP_S = (0.1, 2.0)
"""Least and most seconds between two requests of a train."""
_SHAPES = {"poisson": 1.0, "constant": math.inf, "bursty": 0.25}
"""Shapes by name. The gaps of a recorded chat service had a coefficient of variation of 1.09 (Azure 2023,
conversations), so that Poisson is right for chat."""
AUTO = "auto"
"""Stands for the search for the highest rate that a target keeps up with."""
TRAINS = "trains"
"""Trains of requests: Poisson starts, geometric length of mean 8, gaps of 0.1 to 2 s, as agents send them."""


Pattern = float | None
"""Shape of the gamma distribution of gaps; None for trains."""


def mean_per_s(rate: LoadPoint) -> float:
    """Return the mean requests per second of a level at `rate`."""
    return (rate.value + last_per_s(rate)) / 2


def last_per_s(rate: LoadPoint) -> float:
    """Return the requests per second at the end of a level at `rate`."""
    return rate.value if rate.rises_to is None else rate.rises_to


def check_arrivals(pattern: Pattern, rate: LoadPoint, duration_s: float) -> None:
    """Check that a level has arrivals, and not too many.

    Raises:
        UsageError: the level would have fewer than one or more than `MOST_ARRIVALS` requests.
    """
    expected = mean_per_s(rate) * duration_s
    if expected > MOST_ARRIVALS:
        raise UsageError(
            f"{rate.words} /s for {duration_s:g} s are {expected:,.0f} requests: "
            f"at most {MOST_ARRIVALS:,} fit"
        )
    if expected < 1 and pattern is not None:
        needed = math.ceil(1 / mean_per_s(rate))
        raise UsageError(f"{rate.words} /s for {duration_s:g} s is less than one request: make it {needed} s")


def parse_pattern(text: str) -> Pattern:
    """Return the pattern `poisson`, `constant`, `bursty`, `trains` or `gamma:B`.

    Raises:
        UsageError: the text is none of these; the message says what is allowed.
    """
    if text == TRAINS:
        return None
    if text in _SHAPES:
        return _SHAPES[text]
    kind, colon, number = text.partition(":")
    if kind != "gamma" or not colon:
        raise UsageError(f"must be {', '.join(_SHAPES)}, {TRAINS} or gamma:B")
    try:
        shape = float(number)
    except ValueError:
        shape = math.nan
    if not _LEAST_SHAPE <= shape <= _MOST_SHAPE:
        raise UsageError(
            f"gamma:B needs a shape B from {_LEAST_SHAPE:g} to {_MOST_SHAPE:g}; 1 is Poisson, less is bursty"
        )
    return shape


def rates_or_auto(text: str) -> tuple[LoadPoint, ...]:
    """Return the rates of a list such as "0.5,1,2" or "0.5..4" (one level whose rate rises).

    For "auto", the search for the highest, there is no rate.

    Raises:
        UsageError: a part is not a rate in requests per second within `LEAST_RATE` and `MOST_RATE`, or stands
            twice.
    """
    if text.strip() == AUTO:
        return ()
    rates = tuple(_parse_rate(part.strip()) for part in text.split(","))
    twice = next((rate for number, rate in enumerate(rates) if rate in rates[:number]), None)
    if twice is not None:
        raise UsageError(f"{twice.words} stands twice")
    return rates


def _parse_rate(text: str) -> LoadPoint:
    """Return the rate of a text such as "0.5", or the rise of one such as "0.5..4"."""
    first_text, last_text = split_range(text)
    words = [first_text] if last_text is None else [first_text, last_text]
    ends = []
    for word in words:
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not LEAST_RATE <= number <= MOST_RATE:
            raise UsageError(
                f"{clean(word, 40) or 'an empty text'} is not a rate: write requests per second from "
                f"{LEAST_RATE:g} to {MOST_RATE:,.0f}, as in 0.5,1,2 or 0.5..4"
            )
        ends.append(number)
    if last_text is not None and ends[0] == ends[1]:
        raise UsageError(f"{clean(text, 40)} stays the same: write {ends[0]:g}")
    return LoadPoint(LoadKind.RATE, ends[0], None if last_text is None else ends[1])


def due_times(pattern: Pattern, rate: LoadPoint, duration_s: float, seed: str) -> list[float]:
    """Return the times in seconds, ascending from 0 to `duration_s`, at which requests are due.

    Their number is the rate's mean times the duration, rounded: the gaps are stretched to fit. Given the
    number, this is exactly a Poisson process where the pattern is Poisson. Trains are not stretched, so that
    their number varies.
    """
    expected = mean_per_s(rate) * duration_s
    dice = random.Random(seed)  # noqa: S311 - a load, not a secret
    if pattern is None:
        return _draw_trains(rate, duration_s, dice)
    count = round(expected)
    if count == 0:
        return []
    if math.isinf(pattern):
        return [_arrival_time(rate, duration_s, (number + 0.5) * expected / count) for number in range(count)]
    arrival_times = list(accumulate(_draw_gap(pattern, dice) for _ in range(count + 1)))
    stretch = expected / arrival_times.pop()
    return [_arrival_time(rate, duration_s, passed_time * stretch) for passed_time in arrival_times]


def later_times(pattern: Pattern, rate: LoadPoint, from_s: float, seed: str) -> Iterator[float]:
    """Yield times in seconds from `from_s` on without end, at the rate at which a level ends.

    They keep the load on until the measured requests have ended, so trains are not needed: those have the
    gaps of a Poisson process here.
    """
    dice = random.Random(seed)  # noqa: S311 - as above
    at = from_s
    while True:
        at += _draw_gap(_SHAPES["poisson"] if pattern is None else pattern, dice) / last_per_s(rate)
        yield at


def _draw_gap(shape: float, dice: random.Random) -> float:
    """Return a gap of mean 1."""
    return 1.0 if math.isinf(shape) else dice.gammavariate(shape, 1 / shape)


def _arrival_time(rate: LoadPoint, duration_s: float, expected: float) -> float:
    """Return the time by which `expected` requests are expected; the inverse of the integral of the rate."""
    rise = (last_per_s(rate) - rate.value) / duration_s
    if rise == 0:
        return expected / rate.value
    # Solve per_s * t + rise * t² / 2 = expected; this form is stable for a small rise.
    root = math.sqrt(max(0.0, rate.value**2 + 2 * rise * expected))
    return min(duration_s, 2 * expected / (rate.value + root))


def _draw_trains(rate: LoadPoint, duration_s: float, dice: random.Random) -> list[float]:
    """Return the times of all requests of trains, ascending; trains start as a Poisson process."""
    mean_train_s = _TRAIN_LENGTH * sum(_TRAIN_GAP_S) / 2
    peak = max(rate.value, last_per_s(rate))
    times: list[float] = []
    train_at = -2 * mean_train_s  # trains that began earlier reach into the level
    while True:
        train_at += dice.expovariate(peak / _TRAIN_LENGTH)
        if train_at >= duration_s:
            break
        share = max(0.0, train_at) / duration_s
        mean_per_s = rate.value + (last_per_s(rate) - rate.value) * share
        if dice.random() * peak <= mean_per_s:
            due_s = train_at
            times.append(due_s)
            while dice.random() >= 1 / _TRAIN_LENGTH:
                due_s += dice.uniform(*_TRAIN_GAP_S)
                times.append(due_s)
    return sorted(due_s for due_s in times if 0 <= due_s < duration_s)
