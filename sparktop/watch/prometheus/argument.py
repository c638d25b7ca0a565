"""Parses a TARGET argument that names a Prometheus."""

from __future__ import annotations

from sparktop.errors import UsageError
from sparktop.model.targets import BackendTarget, PrometheusTarget
from sparktop.model.text import clean
from sparktop.watch.discovery import parse_target

_SCHEME = "prometheus+"


def parse_prometheus(text: str) -> PrometheusTarget | None:
    """Return the Prometheus that a TARGET argument names, as in prometheus+http://host:9090; None for others.

    Raises:
        UsageError: what follows is not an http(s) address.
    """
    word = text.strip()
    if not word.startswith(_SCHEME):
        return None
    url = word.removeprefix(_SCHEME).rstrip("/").removesuffix("/api/v1")
    target = parse_target(url) if "://" in url else None
    if not isinstance(target, BackendTarget):
        raise UsageError(f"{clean(text, 60)}: no Prometheus; write prometheus+http://host:9090")
    return PrometheusTarget(target.name, target.url)
