"""Who may see the pages: those with the token, or with a signed cookie that stands for it."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

VALID_S = 30 * 86_400
"""Seconds for which a cookie is valid."""
_MOST_COOKIE = 200


class Sessions:
    """Cookies that stand for the token: an end time with a signature that only the token's owner can make.

    They hold until their end, or until the server is started with another token; nothing is stored.
    """

    def __init__(self, token: str, port: int, *, wall: Callable[[], float] = time.time) -> None:
        """Sign with `token`; `port` is part of the cookie's name, as ports of one host share cookies."""
        self.name = f"sparktop_{port}"
        self._token = token.encode()
        self._key = hashlib.sha256(b"sparktop serve cookie\0" + self._token).digest()
        self._wall = wall

    def is_token(self, text: str) -> bool:
        """Return whether `text` is the token; the comparison takes the same time for every wrong one."""
        given, own = (hashlib.sha256(one).digest() for one in (text.strip().encode(), self._token))
        return hmac.compare_digest(given, own)

    def new_cookie(self) -> str:
        """Return the value of a new cookie."""
        end = f"{int(self._wall()) + VALID_S}"
        return f"{end}.{self._signature(end)}"

    def admits(self, header: str | None) -> bool:
        """Return whether a Cookie header has a valid cookie of this server."""
        end, _, signature = cookie(header, self.name).partition(".")
        if not (end.isascii() and end.isdecimal() and len(end) <= 12):  # noqa: PLR2004 - digits of a time
            return False
        same = hmac.compare_digest(signature.encode(), self._signature(end).encode())
        return same and self._wall() < int(end)

    def _signature(self, end: str) -> str:
        return hmac.new(self._key, end.encode(), hashlib.sha256).hexdigest()


def cookie(header: str | None, name: str) -> str:
    """Return the value of the cookie `name` in a Cookie header; "" if it has none."""
    try:
        found = SimpleCookie(header or "").get(name)
    except CookieError:
        return ""
    return "" if found is None or len(found.value) > _MOST_COOKIE else found.value
