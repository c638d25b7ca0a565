"""What an error body of an HTTP server says, in a few words."""

from __future__ import annotations

import json

from sparktop.model.text import clean

WORDS_LIMIT = 90
"""Characters quoted from a server's own words."""


def server_words(body: bytes, secret: str | None, limit: int = WORDS_LIMIT) -> str:
    """Give what an error body says, in a few clean words; "" for HTML and for nothing.

    JSON as inference servers write it (`{"error": {"message": …}}`, `{"detail": …}`) is reduced to its
    message. `secret` is blotted out should the server repeat it. Words beyond `limit` characters are cut.
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
    except (ValueError, RecursionError):  # thousands of brackets: "nested too deep" is no fault of ours
        return text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found if isinstance(found, str) else text
