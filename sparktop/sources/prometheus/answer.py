"""Answers of the Prometheus HTTP API: checked, and without anything that a query did not ask for.

Its series are parsed one by one, so that 10,000 of them are read in steps and need not all be kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.steps import Steps

MOST_SERIES = 200_000
"""Most series of one answer."""
_MOST_LABEL_CHARACTERS = 1024
_LINE_BYTES = 160
_SIMPLE = r'"\w+"\s*:\s*(?:"\w*"|true|false)\s*,\s*'
_OPENING = re.compile(
    rf'\s*\{{\s*(?:{_SIMPLE})*"data"\s*:\s*\{{\s*"resultType"\s*:\s*"(vector|matrix)"\s*,\s*"result"\s*:\s*\[',
    re.ASCII,
)
"""An answer up to its first series, as all servers with this API write it."""
_KEYS = {"vector": "value", "matrix": "values"}
_SPACE = re.compile(r"[ \t\n\r]+")
_decoded = json.JSONDecoder().raw_decode
Labels: TypeAlias = Mapping[str, str]


class Series(Struct, frozen=True):
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


class Answer(Struct, frozen=True):
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
    try:
        return _checked(json.loads(body))["data"]
    except (ValueError, RecursionError):
        raise _not_an_answer() from None


def answer_steps(body: bytes, add: Callable[[Series], None]) -> Steps[Answer]:
    """Parse an answer to a query: call `add` with each of its series in turn, and return the rest of it.

    Series whose labels are not text are left out. After an error, what was added is of no use.

    Raises:
        AnswerError: the body is not an answer, or has more than `MOST_SERIES` series.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        opened = _OPENING.match(text)
        if opened is not None:
            end = yield from _read_series(text, opened.end(), opened[1], add)
            text = text[: opened.end()] + text[end:]
        parsed = _checked(json.loads(text))
    except (ValueError, RecursionError):
        raise _not_an_answer() from None
    data, warned = parsed["data"], parsed.get("warnings")
    warnings = tuple(clean(one, 200) for one in warned[:3]) if isinstance(warned, list) else ()
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind == "scalar" and isinstance(result, list) and len(result) == 2:  # noqa: PLR2004 - time and value
        return Answer((), Series({}, [(0.0, result[1])]).value, warnings)
    key = _KEYS.get(kind) if isinstance(kind, str) else None
    if key is None or not isinstance(result, list):
        raise _not_an_answer()
    if opened is not None and (kind != opened[1] or result):
        raise _not_an_answer()  # a member repeats
    if len(result) > MOST_SERIES:
        raise _too_many(len(result))
    for one in result:
        if (found := _series(one, key)) is not None:
            add(found)
        yield
    return Answer((), None, warnings)


def _read_series(text: str, at: int, kind: str, add: Callable[[Series], None]) -> Steps[int]:
    """Parse the series of a list, the first of which begins at `at`; return where the list ends."""
    count, key = 0, _KEYS[kind]
    at = _after_space(text, at)
    more = text[at : at + 1] != "]"
    while more:
        one, at = _decoded(text, at)
        count += 1
        if count <= MOST_SERIES and (found := _series(one, key)) is not None:
            add(found)
        yield
        at = _after_space(text, at)
        more = text[at : at + 1] == ","
        at = _after_space(text, at + 1) if more else at
    if count > MOST_SERIES:
        raise _too_many(count)
    return at


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


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
        return _error_in(json.loads(body))
    except (ValueError, RecursionError):
        return clean(_line(body), 160)


def _error_in(answer: object) -> str:
    said = answer.get("error") if isinstance(answer, dict) else None
    return clean(said, 160) if isinstance(said, str) else ""


def _line(body: bytes) -> str:
    """Return a body that is one line of text; "" for pages and anything longer."""
    text = body[: _LINE_BYTES + 1].decode(errors="replace").strip()
    return "" if len(body) > _LINE_BYTES or any(mark in text for mark in "<{[\n\ufffd") else text


def _checked(answer: object) -> dict[str, object]:
    """Return an answer that reports success and has data."""
    if not isinstance(answer, dict) or answer.get("status") != "success" or "data" not in answer:
        said = _error_in(answer)
        raise AnswerError(FailureKind.MALFORMED, said) if said else _not_an_answer()
    return answer


def _too_many(count: int) -> AnswerError:
    message = f"{count:,} series in one answer: name fewer servers by selector"
    return AnswerError(FailureKind.TOO_LARGE, message)


def _not_an_answer() -> AnswerError:
    return AnswerError(
        FailureKind.MALFORMED, "the answer is not one of the Prometheus HTTP API: is the URL right?"
    )
