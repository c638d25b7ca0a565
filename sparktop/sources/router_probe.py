"""Is this server a router? Asked on the one route that LiteLLM answers without work and without a key."""

from __future__ import annotations

LIVELINESS = "/health/liveliness"
"""Never `/health`, which sends completions to every deployment."""


def is_litellm(body: bytes) -> bool:
    """Return True for what LiteLLM answers there: "I'm alive!"."""
    return b"alive" in body.lower()
