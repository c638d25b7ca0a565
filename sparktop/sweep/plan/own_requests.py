"""What a user adds to each request: fields of its body, and headers. Texts in them may be secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from sparktop.errors import UsageError
from sparktop.model.text import clean

MOST_BYTES = 256 << 10
MOST_HEADERS = 32
_LONGEST_VALUE = 8192
_DIGITS = 8
HIDDEN = "…"
"""Stands for a text that may be a secret."""
_OWN_FIELDS = {
    "model": "--model names it",
    "messages": "--prompts gives your own",
    "prompt": "--prompts gives your own",
    "max_tokens": "--tg says how many",
    "max_completion_tokens": "--tg says how many",
    "stream": "it measures streams",
    "stream_options": "it counts tokens by them",
    "return_token_ids": "it counts tokens by them",
    "n": "it measures one answer a request",
    "best_of": "it measures one answer a request",
}
"""Fields of a body that the sweep sets itself, with what to do instead, or why."""
_OWN_HEADERS = {
    "authorization": "--api-key-env gives a key to the target that it is for",
    "host": "it follows from the URL",
    "content-length": "it follows from the body",
    "content-type": "bodies are JSON",
    "transfer-encoding": "bodies are sent whole",
    "accept-encoding": "answers are timed as they come",
    "connection": "connections are kept",
}
_HEADER = re.compile(r"[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})[ \t]*[=:][ \t]*(.*?)[ \t]*", re.DOTALL)


def parse_extra_body(text: str) -> Mapping[str, Any]:
    """Return the fields of a JSON object, which are added to the body of each request.

    Raises:
        UsageError: the text is not such an object, or has a field that the sweep sets itself.
    """
    try:
        found = json.loads(text) if len(text) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("--extra-body: must be a JSON object, as in '{\"temperature\": 0}'")
    return checked_body(found)


def checked_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `body` if it can be added to the body of each request.

    Raises:
        UsageError: it has a field that the sweep sets itself, or a value that JSON cannot hold.
    """
    for name, why in _OWN_FIELDS.items():
        if name in body:
            raise UsageError(f"--extra-body: the sweep sets {name} itself: {why}")
    try:
        text = json.dumps(body, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UsageError("--extra-body: holds a value that is not JSON, such as a date or NaN") from None
    if len(text) > MOST_BYTES:
        raise UsageError(f"--extra-body: is larger than {MOST_BYTES >> 10} KiB")
    return body


def parse_headers(texts: list[str]) -> Mapping[str, str]:
    """Return headers by name, of texts such as "X-Tenant=a" or "X-Tenant: a".

    Raises:
        UsageError: a text is no header, or one that the sweep sets itself. The message quotes no value.
    """
    found: dict[str, str] = {}
    for text in texts:
        match = _HEADER.fullmatch(text)
        if match is None:
            raise UsageError("--header: write NAME=VALUE, as in X-Tenant=a")
        found[match[1]] = match[2]
    return checked_headers(found)


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return `headers` if they can be added to each request.

    Raises:
        UsageError: as `parse_headers`.
    """
    for name, value in headers.items():
        shown = clean(name, 60)
        if (why := _OWN_HEADERS.get(name.lower())) is not None:
            raise UsageError(f"--header: the sweep sets {shown} itself: {why}")
        if _HEADER.fullmatch(f"{name}=") is None:
            raise UsageError(f"--header: {shown} is no name of a header")
        if not (value.isascii() and value.isprintable()) or len(value) > _LONGEST_VALUE:
            raise UsageError(f"--header: the value of {shown} holds what no HTTP header may hold")
    if len(headers) > MOST_HEADERS:
        raise UsageError(f"--header: {len(headers)} headers: at most {MOST_HEADERS}")
    return headers


def without_texts(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with "…" in place of each text, which may be a secret; names of fields stay."""
    if isinstance(value, Mapping):
        return {name: without_texts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_texts(one) for one in value]
    return HIDDEN if isinstance(value, str) else value


def texts_of(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """Yield each text in a JSON value, at any depth; names of fields are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from texts_of(one)


def request_digest(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return the first digits of the SHA-256 of what a user adds to each request; None for nothing.

    They are too few to find a text by trial, and enough to see that two sweeps sent different ones.
    """
    if not body and not headers:
        return None
    names = {name.lower(): value for name, value in headers.items()}
    return sha256(json.dumps([dict(body), names], sort_keys=True).encode()).hexdigest()[:_DIGITS]
