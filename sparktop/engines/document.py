"""Parsing of JSON answers: every result is clean text, a number in a plausible range, or None."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparktop.engines.error import PageError
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

MAX_MODELS = 64
"""Models read from one answer; an API reseller may list hundreds."""
_MOST = 2**40
"""Above any context length and any number of slots; larger numbers are discarded as invalid."""

Answers = Mapping[str, object]
"""The parsed JSON of each route that answered."""


def parse(body: bytes) -> object:
    """Parse a JSON body.

    Raises:
        PageError: the body is not JSON, or is nested too deeply to parse.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise PageError(FailureKind.MALFORMED, "an answer that is not JSON") from error


def entries(found: object, key: str) -> list[Mapping[str, object]] | None:
    """Return the objects of the list under `key`; [] where it is null, None where there is no such list."""
    if not isinstance(found, dict) or key not in found:
        return None
    listed = found[key]
    if listed is None:
        return []
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else None


def field(found: object, *path: str) -> object:
    """Return the value under nested keys; None when a key of the path is missing."""
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found


def words(found: object, limit: int = 200) -> str | None:
    """Return the string cleaned for display; None when it is not a string or is empty."""
    return clean(found, limit) or None if isinstance(found, str) else None


def count(found: object) -> int | None:
    """Return an integer above 0; None for anything else and for numbers of 2**40 and more."""
    known = isinstance(found, int) and not isinstance(found, bool) and 0 < found < _MOST
    return found if known and isinstance(found, int) else None


def first_model(found: object) -> tuple[str | None, int | None]:
    """Return the first served name and its maximum context (tokens) from a `/v1/models` answer."""
    models = field(found, "data")
    first = models[0] if isinstance(models, list) and models else None
    name = field(first, "id")
    if not isinstance(name, str):
        return None, None
    return words(name), count(field(first, "max_model_len"))


def identify(answers: Answers) -> EngineIdentity:
    """Parse `/version` and `/v1/models` in the form that vLLM and TensorRT-LLM share."""
    model, max_model_len = first_model(answers.get("/v1/models"))
    return EngineIdentity(words(field(answers.get("/version"), "version"), 60), model, max_model_len)
