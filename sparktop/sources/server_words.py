"""Extracts a short message for the user from the error body of an HTTP server."""

from __future__ import annotations

import json

from sparktop.model.text import clean

WORDS_LIMIT = 90
"""Most characters quoted from a server's own words."""


def server_words(body: bytes, secret: str | None, limit: int = WORDS_LIMIT) -> str:
    """Return the server's message from an error body, cleaned and cut to `limit` characters.

    Return "" for HTML or an empty body. From JSON as inference servers write it (`{"error": {"message": …}}`,
    `{"detail": …}`) only the message is returned. Where the server repeats `secret`, "…" replaces it.
    """
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return ""
    if text.startswith("{"):
        text = _json_message(text)
    if secret:
        text = text.replace(secret, "…")
    return clean(text, limit)


def _json_message(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found if isinstance(found, str) else text
