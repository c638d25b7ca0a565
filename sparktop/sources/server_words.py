"""Extracts a short message for the user from the error body of an HTTP server."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from urllib.parse import quote, quote_plus

from sparktop.model.text import clean

_SHORTEST_FORM = 6
"""Fewer characters of a secret than these are not searched: they stand in any text."""
_STATUS_WORDS = frozenset({"unauthorized", "forbidden", "not found", "404 page not found", "404 not found"})
"""Messages of web frameworks that repeat the status and say no more."""
WORDS_LIMIT = 90
"""Most characters quoted from a server's own words."""


def server_words(body: bytes, secret: str | Sequence[str] | None, limit: int = WORDS_LIMIT) -> str:
    """Return the server's message from an error body, cleaned and cut to `limit` characters.

    Return "" for HTML, an empty body, or a mere name of the status. From JSON as inference servers write it
    (`{"error": {"message": …}}`, `{"detail": …}`) only the message is returned. Where the server repeats
    `secret`, also encoded or backwards, "…" replaces it; there may be several.
    """
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return ""
    if text.startswith("{"):
        text = _json_message(text)
    for one in (secret,) if isinstance(secret, str) else secret or ():
        text = without_secret(text, one)
    words = clean(text, limit)
    return "" if words.strip(" .!").lower() in _STATUS_WORDS else words


def without_secret(text: str, secret: str | None) -> str:
    """Return `text` with "…" for a secret that it repeats, also percent-encoded, in base64 or backwards."""
    if not secret:
        return text
    raw = secret.encode()
    # Of base64, the characters that depend on the secret alone, whatever stands before and after it.
    inside = [
        encode(b"\0" * shift + raw).decode()[-(-shift * 8 // 6) :].rstrip("=")[: len(raw) * 8 // 6 - 1]
        for shift in range(3)
        for encode in (b64encode, urlsafe_b64encode)
    ]
    forms = {secret, secret[::-1], quote(secret, safe=""), quote(secret), quote_plus(secret), *inside}
    percent = "".join(f"%{byte:02x}" for byte in raw)
    for form in sorted({*forms, percent, raw.hex()}, key=len, reverse=True):
        if len(form) >= min(len(secret), _SHORTEST_FORM):
            text = re.sub(re.escape(form), "…", text, flags=re.IGNORECASE)
    return text


def _json_message(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found if isinstance(found, str) else text
