"""Detection of routers by routes that need no key and start no work."""

from __future__ import annotations

LIVELINESS = "/health/liveliness"
"""LiteLLM's route to request. Never `/health`, which sends completions to every deployment."""
WORKERS = "/workers"
"""The list of workers of vllm-router and SGLang's gateway."""
RUNNING = "/running"
"""The list of loaded models of llama-swap."""
_LONGEST = 64
"""Bytes of that answer, at most: a metrics page, which exporters send on any route, has such words, too."""


def is_litellm(body: bytes) -> bool:
    """Return whether `body` is LiteLLM's answer on the route `LIVELINESS`, "I'm alive!"."""
    return len(body) <= _LONGEST and b"alive" in body.lower()
