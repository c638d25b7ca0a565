"""A sweep that is about to start, as screens show it. Every start of the viewer loads this, but no sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from sparktop.model.load import LoadPoint


class Countdown(Struct, frozen=True):
    """A sweep (load test of servers) whose first request is sent in `left_s` seconds."""

    title: str
    """The preset's name."""
    plan_words: str
    """Prompt and answer length of each request, in words."""
    targets: tuple[str, ...]
    levels: tuple[LoadPoint, ...]
    """The points of all levels on the axis of the sweep; empty for a search."""
    requests: int | None
    """Number of measured requests; None where only a duration limits the sweep."""
    warm_ups: int
    """Number of warm-up requests, in addition to `requests`."""
    left_s: float
    whole_s: float
    simulated: bool = False
    climb_to: int | None = None
    """Highest concurrency to which the sweep goes on while tokens/s rise; None if it does not."""
    at_least: bool = False
    """Whether more than `requests` may be sent."""
    time: str = ""
    """Range of the sweep's duration as text; "" if unknown."""
