"""JSON answers: whatever they hold, what comes out is clean text, sane numbers or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparktop.engines.error import PageError
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

MAX_MODELS = 64
"""Models taken from one answer; a reseller lists hundreds."""
_MOST = 2**40
"""Above any context length and number of slots: a larger number is no answer."""

Answers = Mapping[str, object]
"""The parsed answer of each route that gave one."""


def parse(body: bytes) -> object:
    """Give the value that a JSON body holds.

    Raises:
        PageError: it is none, or one nested without end.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise PageError(FailureKind.MALFORMED, "an answer that is no JSON") from error


def entries(found: object, key: str) -> list[Mapping[str, object]] | None:
    """Give the objects of the list under `key`; None when there is no such list (null is an empty one)."""
    if not isinstance(found, dict) or key not in found:
        return None
    listed = found[key]
    if listed is None:
        return []
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else None


def field(found: object, *path: str) -> object:
    """Give what lies under nested keys; None when a step of the path is missing."""
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found


def words(found: object, limit: int = 200) -> str | None:
    """Give clean text; None for what is none, and for nothing."""
    return clean(found, limit) or None if isinstance(found, str) else None


def count(found: object) -> int | None:
    """Give a whole number above 0; None for what is none or absurd."""
    known = isinstance(found, int) and not isinstance(found, bool) and 0 < found < _MOST
    return found if known and isinstance(found, int) else None


def first_model(found: object) -> tuple[str | None, int | None]:
    """Give the first served name and its maximum context (tokens) of a `/v1/models` answer."""
    models = field(found, "data")
    first = models[0] if isinstance(models, list) and models else None
    name = field(first, "id")
    if not isinstance(name, str):
        return None, None
    return words(name), count(field(first, "max_model_len"))


def identify(answers: Answers) -> EngineIdentity:
    """Read `/version` and `/v1/models` as vLLM and TensorRT-LLM answer them."""
    model, max_model_len = first_model(answers.get("/v1/models"))
    return EngineIdentity(words(field(answers.get("/version"), "version"), 60), model, max_model_len)
