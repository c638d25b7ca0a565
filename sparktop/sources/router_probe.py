"""Router detection: the LiteLLM route that needs neither work nor a key."""

from __future__ import annotations

LIVELINESS = "/health/liveliness"
"""Never `/health`, which sends completions to every deployment."""


def is_litellm(body: bytes) -> bool:
    """Return True for LiteLLM's answer on that route, "I'm alive!"."""
    return b"alive" in body.lower()
