"""Detection of a LiteLLM router by a route that needs no key and starts no work."""

from __future__ import annotations

LIVELINESS = "/health/liveliness"
"""The route to request. Never `/health`, which sends completions to every deployment."""
_LONGEST = 64
"""Bytes of that answer, at most: a metrics page, which exporters send on any route, has such words, too."""


def is_litellm(body: bytes) -> bool:
    """Return whether `body` is LiteLLM's answer on the route `LIVELINESS`, "I'm alive!"."""
    return len(body) <= _LONGEST and b"alive" in body.lower()
