"""Access to values in other tools' JSON files: missing values and those of a wrong type are unknown.

A path is a sequence of object keys and list indices that leads from `data` to a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from sparktop.model.load import Level, LoadKind, LoadMode, LoadPoint
from sparktop.model.sweep import Value, value_of
from sparktop.model.text import clean
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel
from sparktop.sweep.plan.arrivals import LEAST_RATE, MOST_RATE
from sparktop.sweep.result.results import LARGEST, MOST_CONCURRENCY


class ImportFormatError(Exception):
    """A result file lacks a value that is required; the message states which one and how to obtain it."""


Json = Mapping[str, object]
"""A JSON object."""


def value_at(data: object, *path: str | int) -> object:
    """Return the value at a path of keys and indices; None if the path does not exist."""
    for step in path:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, Mapping) else None
        else:
            data = data[step] if isinstance(data, list) and -len(data) <= step < len(data) else None
    return data


def object_at(data: object, *path: str | int) -> Json:
    """Return the JSON object at a path; an empty mapping if there is no object."""
    value = value_at(data, *path)
    return value if isinstance(value, Mapping) else {}


def list_at(data: object, *path: str | int) -> Sequence[object]:
    """Return the list at a path; an empty sequence if there is no list."""
    value = value_at(data, *path)
    return value if isinstance(value, list) else ()


def number_at(data: object, *path: str | int) -> float | None:
    """Return the number at a path; None if there is none, or if it is infinite or implausibly large."""
    return finite_number(value_at(data, *path))


def finite_number(value: object) -> float | None:
    """Return a JSON number as float; None for other types, infinite and implausibly large values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) <= LARGEST else None


def count_at(data: object, *path: str | int) -> int | None:
    """Return the non-negative integer at a path; None if there is no such number."""
    number = number_at(data, *path)
    return int(number) if number is not None and number == int(number) and number >= 0 else None


def concurrency_at(data: object, *path: str | int) -> int | None:
    """Return the concurrency at a path; None unless it is an integer from 1 to `MOST_CONCURRENCY`."""
    count = count_at(data, *path)
    return count if count is not None and 1 <= count <= MOST_CONCURRENCY else None


def rate_at(data: object, *path: str | int) -> LoadPoint | None:
    """Return the requests per second at a path as a point; None unless it is a rate that a sweep may have."""
    per_s = number_at(data, *path)
    return None if per_s is None or not LEAST_RATE <= per_s <= MOST_RATE else LoadPoint(LoadKind.RATE, per_s)


def text_at(data: object, *path: str | int) -> str | None:
    """Return the text at a path without control characters; None if there is no text or it is empty."""
    value = value_at(data, *path)
    return clean(value) or None if isinstance(value, str) else None


def numbers_at(data: object, *path: str | int) -> tuple[float, ...]:
    """Return the finite numbers in the list at a path; other entries are left out."""
    numbers = map(finite_number, list_at(data, *path))
    return tuple(number for number in numbers if number is not None)


def run_value(value: float | None, scale: float = 1.0) -> Value | None:
    """Return the value of a metric from a single run, multiplied by `scale`; None for None."""
    return None if value is None else value_of(value * scale, (value * scale,))


def without_unknown(figures: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return a copy without metrics that are None, or 0: tools write that where no request was completed."""
    return {name: figure for name, figure in figures.items() if figure is not None and figure.mean > 0}


def run_values(
    data: object, fields: Mapping[str, str], *leaf: str, scale: float = 1.0
) -> dict[str, Value | None]:
    """Return values of a single run, by our name of the metric; `fields` has ours by the tool's name.

    Each number is below the tool's name at the path `leaf`, and is multiplied by `scale`.
    """
    return {ours: run_value(number_at(data, their_name, *leaf), scale) for their_name, ours in fields.items()}


def rounded_at(data: object, *path: str | int) -> int | None:
    """Return the number at a path, such as a mean of tokens, as an integer; None if there is none."""
    number = number_at(data, *path)
    return None if number is None else round(number)


def run_level(
    point: LoadPoint,
    figures: Mapping[str, Value | None],
    prompt_tokens: int | None,
    output_tokens: int | None,
    *,
    failed: object = None,
) -> SeriesLevel:
    """Return a level of a single run; with `failed`, it has the warning that requests failed."""
    load, validity = Level("", point, prompt_tokens, output_tokens), ("errors",) if failed else ()
    return SeriesLevel(load=load, figures=without_unknown(figures), runs=1, validity=validity)


AT_RATES = "at rates"
"""End of the name of a series at rates, where there is another one."""


def by_axis(series: LevelSeries) -> list[LevelSeries]:
    """Return `series` split so that all levels of a part are on one axis.

    Levels at a rate get the shape of an open loop and, beside others, a name of their own. Definitions are
    kept for the metrics that a part has.
    """
    rates = tuple(level for level in series.levels if level.load.point.kind is LoadKind.RATE)
    other_levels = tuple(level for level in series.levels if level.load.point.kind is not LoadKind.RATE)
    name = f"{series.name} {AT_RATES}" if other_levels else series.name
    series_by_axis = [replace(series, levels=other_levels)] if other_levels or not rates else []
    if rates:
        series_by_axis.append(replace(series, name=name, levels=rates, shape=LoadMode.OPEN))
    for index, a_series in enumerate(series_by_axis):
        used_metrics = a_series.metrics()
        own_definitions = {key: text for key, text in a_series.definitions.items() if key in used_metrics}
        series_by_axis[index] = replace(a_series, definitions=own_definitions)
    return series_by_axis


_TIME_KEYS = ("start_time", "timestamp", "date")
"""Keys under which aiperf, llama-benchy and `vllm bench serve` write the start time."""
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
"""A time as `vllm bench serve` writes it: 20260322-180405."""


def started_at(data: object) -> datetime | None:
    """Return the start time of a benchmark in UTC, from the JSON value of its result file; None if unknown.

    A time without a time zone is local time.
    """
    entry = value_at(data, 0) if isinstance(data, list) else data
    for key in _TIME_KEYS:
        text = text_at(entry, key)
        time = _parse_time(text) if text is not None else None
        if time is not None:
            return time
    seconds = number_at(entry, "benchmarks", 0, "start_time")  # guidellm
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _parse_time(text: str) -> datetime | None:
    compact = _COMPACT.fullmatch(text)
    iso_text = compact.expand(r"\1-\2-\3T\4:\5:\6") if compact else text.replace(" ", "T", 1)
    try:
        return datetime.fromisoformat(iso_text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
