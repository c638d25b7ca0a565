"""A sweep that is about to start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Countdown:
    """The last seconds before a sweep's first request."""

    title: str
    """The preset's name."""
    plan_words: str
    """What each request asks for, in words."""
    targets: tuple[str, ...]
    concurrency: tuple[int, ...]
    requests: int | None
    """Number of measured requests; None where only time decides."""
    warm_ups: int
    """Number of warm-up requests, in addition to `requests`."""
    left_s: float
    whole_s: float
    simulated: bool = False
