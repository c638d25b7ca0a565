"""Answers of the Prometheus HTTP API: checked, and without anything that a query did not ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.http.failure import AnswerError
from sparktop.values import dataclass

MOST_SERIES = 200_000
"""Most series of one answer."""
_MOST_LABEL_CHARACTERS = 1024
_LINE_BYTES = 160
Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels, and its samples as (Unix time in seconds, value as written)."""

    labels: Labels
    samples: Sequence[tuple[float, str]]

    @property
    def value(self) -> float | None:
        """The newest value; None where it is not a finite number."""
        try:
            found = float(self.samples[-1][1]) if self.samples else math.nan
        except (TypeError, ValueError):
            return None
        return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one query."""

    series: tuple[Series, ...] = ()
    scalar: float | None = None
    warnings: tuple[str, ...] = ()
    """Clean lines, such as that some stores of Thanos did not answer."""


def data_of(body: bytes) -> object:
    """Return the data of a successful answer.

    Raises:
        AnswerError: the body is not one.
    """
    return _parsed(body)["data"]


def read_answer(body: bytes) -> Answer:
    """Return the series of an answer to a query.

    Series whose labels are not text are left out.

    Raises:
        AnswerError: the body is not an answer, or has more than `MOST_SERIES` series.
    """
    parsed = _parsed(body)
    data, warned = parsed["data"], parsed.get("warnings")
    warnings = tuple(clean(one, 200) for one in warned[:3]) if isinstance(warned, list) else ()
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind == "scalar" and isinstance(result, list) and len(result) == 2:  # noqa: PLR2004 - time and value
        return Answer((), Series({}, [(0.0, result[1])]).value, warnings)
    if kind not in {"vector", "matrix"} or not isinstance(result, list):
        raise _not_an_answer()
    if len(result) > MOST_SERIES:
        message = f"{len(result):,} series in one answer: name fewer servers by selector"
        raise AnswerError(FailureKind.TOO_LARGE, message)
    found = (_series(one, "values" if kind == "matrix" else "value") for one in result)
    return Answer(tuple(one for one in found if one is not None), None, warnings)


def _series(one: object, key: str) -> Series | None:
    if not isinstance(one, dict) or not isinstance(labels := one.get("metric"), dict):
        return None
    samples = one.get(key)
    if not isinstance(samples, list) or not samples:
        return None
    if key == "value":
        samples = [samples]
    try:
        if labels and max(map(len, labels.values())) > _MOST_LABEL_CHARACTERS:
            return None
        for at, text in samples:
            if not (isinstance(at, (int, float)) and isinstance(text, str)):
                return None
    except (TypeError, ValueError):
        return None
    return Series(labels, samples)


def trouble_in(body: bytes) -> str:
    """Return the error message in an answer without success, as one clean line; "" if there is none.

    Prometheus writes it in JSON; Mimir and proxies in a line of plain text, such as "no org id".
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = {"error": _line(body)}
    said = found.get("error") if isinstance(found, dict) else None
    return clean(said, 160) if isinstance(said, str) else ""


def _line(body: bytes) -> str:
    """Return a body that is one line of text; "" for pages and anything longer."""
    text = body[: _LINE_BYTES + 1].decode(errors="replace").strip()
    return "" if len(body) > _LINE_BYTES or any(mark in text for mark in "<{[\n\ufffd") else text


def _parsed(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise _not_an_answer() from None
    if not isinstance(found, dict) or found.get("status") != "success" or "data" not in found:
        said = trouble_in(body) if isinstance(found, dict) else ""
        raise AnswerError(FailureKind.MALFORMED, said) if said else _not_an_answer()
    return found


def _not_an_answer() -> AnswerError:
    return AnswerError(
        FailureKind.MALFORMED, "the answer is not one of the Prometheus HTTP API: is the URL right?"
    )
