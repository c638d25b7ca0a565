"""Parsing of JSON responses: every result is clean text, a number in a plausible range, or None."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparktop.engines.exposition import PageError
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

MAX_MODELS = 64
"""Models read from one answer; an API reseller may list hundreds."""
_MOST = 2**40
"""More than any context length (tokens) and any number of requests at once; larger numbers are discarded."""
_VERSIONS = {"/version": "version", "/v1/version": "release", "/api/version": "version"}
"""The key of the version by route: of vLLM and many others, of a NIM, and of Ollama."""

Answers = Mapping[str, object]
"""By route: the parsed JSON of its response; a route without a valid response is absent."""


def parse(body: bytes) -> object:
    """Parse a JSON body.

    Raises:
        PageError: the body is not JSON, or is nested too deeply to parse.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise PageError(FailureKind.MALFORMED, "an answer that is not JSON") from error


def entries(document: object, key: str) -> list[Mapping[str, object]] | None:
    """Return the objects in the list under `key` of the JSON object `document`; other elements are skipped.

    Return [] if the value is null, and None if `document` is no object or has no list under `key`.
    """
    if not isinstance(document, dict) or key not in document:
        return None
    items = document[key]
    if items is None:
        return []
    return [entry for entry in items if isinstance(entry, dict)] if isinstance(items, list) else None


def field(document: object, *path: str) -> object:
    """Return the value in nested JSON objects under the keys `path`; None when a key is missing."""
    for key in path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def words(document: object, limit: int = 200) -> str | None:
    """Return a JSON string cleaned for display, at most `limit` characters; None if empty or not a string."""
    return clean(document, limit) or None if isinstance(document, str) else None


def count(document: object) -> int | None:
    """Return `document` if it is an integer above 0 and below 2**40, else None."""
    if not isinstance(document, int) or isinstance(document, bool):
        return None
    return document if 0 < document < _MOST else None


def amount(document: object, most: float) -> float | None:
    """Return `document` as a float if it is a number from 0 to `most`, else None."""
    if not isinstance(document, int | float) or isinstance(document, bool):
        return None
    return float(document) if 0 <= document <= most else None


def first_model(document: object) -> tuple[str | None, int | None]:
    """Return the name and the maximum context (tokens) of the first model in a `/v1/models` response.

    A value that the response does not report is None.
    """
    models = field(document, "data")
    model = models[0] if isinstance(models, list) and models else None
    name = field(model, "id")
    if not isinstance(name, str):
        return None, None
    return words(name), count(field(model, "max_model_len"))


def listed_models(document: object) -> tuple[str, ...] | None:
    """Return the names in a `/v1/models` response; None if it lists none, or more than any server serves."""
    models = field(document, "data")
    if not isinstance(models, list) or len(models) > MAX_MODELS:
        return None
    ids = (words(field(model, "id")) for model in models)
    return tuple(name for name in ids if name is not None) or None


def identify(answers: Answers) -> EngineIdentity:
    """Return version, model and context length of a server; a value that was not reported is None.

    `answers` has the parsed responses by route; those of `_VERSIONS` and of `/v1/models` are used.
    """
    model, max_model_len = first_model(answers.get("/v1/models"))
    versions = (words(field(answers.get(route), key), 60) for route, key in _VERSIONS.items())
    return EngineIdentity(next((version for version in versions if version), None), model, max_model_len)
