"""Field types of a result file's models: cleaned text, finite or missing numbers, counts and times."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

from sparktop.model.text import clean

LARGEST = 1e15
"""Larger numbers are not plausible measurements; as bytes, this is a petabyte."""
MOST_CONCURRENCY = 1_000_000
_TEXT_LIMIT = 400
_DEEPEST = 8


def _clean(value: object) -> object:
    return clean(value, _TEXT_LIMIT) if isinstance(value, str) else value


def _finite(value: object) -> object:
    if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= LARGEST):
        return None
    return value


def _clean_tree(value: object, depth: int = 0) -> object:
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {clean(key): _clean_tree(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_clean_tree(one, depth + 1) for one in value]
    return _finite(_clean(value))


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Text = Annotated[str, BeforeValidator(_clean)]
Number = Annotated[float | None, BeforeValidator(_finite)]
"""A number that may be missing: None where the value is unknown, not finite, or beyond ±`LARGEST`."""
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=int(LARGEST))]
Time = Annotated[datetime, PlainSerializer(_utc, return_type=str, when_used="json")]
Tree = Annotated[dict[str, JsonValue], BeforeValidator(_clean_tree)]


class Part(BaseModel):
    """Base model of every object in a result file: frozen, unknown keys ignored.

    A model can also be validated from any object whose attributes have the names of its fields.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, from_attributes=True)
