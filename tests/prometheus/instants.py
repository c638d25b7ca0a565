"""Which poll is compared with which instant of Prometheus'."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparktop.rates import EDGE_SLACK_S
from tests.prometheus.panels import LONG_S, SHORT_S
from tests.prometheus.prometheus_server import Prometheus, RawSeries
from tests.prometheus.recording import Poll

FIRST_AT_S = 75
EVERY_S = 15
FARTHEST_MS = 400
"""A scrape farther than this from a poll is not the one of the same second."""


@dataclass(frozen=True)
class Instant:
    """One poll of ours and when to ask Prometheus."""

    after_s: int
    """The nominal time of this comparison, since recording began."""
    end: int
    """The poll."""
    at_ms: Mapping[int, int]
    """Unix time at which to ask, by the window's length in seconds."""
    apart_tokens: float = 0.0
    """Tokens generated between our readings of the edges and Prometheus', all three together."""
    apart_ms: float = 0.0
    """Time between their stamps, likewise."""


def nominal(polls: Sequence[Poll]) -> Iterator[tuple[int, list[int]]]:
    """Yield each time of comparison with the polls of the seconds before it, the newest first."""
    began_s = polls[0].wall_s
    for after_s in range(FIRST_AT_S, round(polls[-1].wall_s - began_s) + 1, EVERY_S):
        inside = [
            index
            for index, poll in enumerate(polls)
            if after_s - EVERY_S < poll.wall_s - began_s <= after_s + 0.5
        ]
        yield after_s, inside[::-1]


async def matched_instants(name: str, polls: Sequence[Poll], prometheus: Prometheus) -> list[Instant]:
    """Return for each time of comparison the poll whose edges are closest to Prometheus' readings."""
    end_ms = round(polls[-1].wall_s * 1000) + 1000
    # A series does not exist before its first value, so scrapes are located by a counter of every page.
    (scrapes,) = await prometheus.raw(f'vllm:generation_tokens_total{{server="{name}"}}', 300, end_ms)
    chosen: list[Instant] = []
    for after_s, indices in nominal(polls):
        found = [one for index in indices if (one := _match(after_s, index, polls, scrapes)) is not None]
        assert found, f"{name}: no poll before {after_s} s has a window with the edges of one of Prometheus'"
        chosen.append(min(found, key=lambda one: (one.apart_tokens, one.apart_ms)))
    return chosen


def window_start(polls: Sequence[Poll], end: int, window_s: float) -> int:
    """Return the oldest poll in the window that ends at poll `end`, as far back as the store keeps polls.

    After a minute the store keeps about one poll a second; a view shows how far back its latencies reach.
    """
    kept_s = polls[end].view.ttft.window_s
    reach_s = window_s + EDGE_SLACK_S
    since = polls[end].sample.at - (reach_s if kept_s is None else min(reach_s, kept_s + 1e-6))
    return next(index for index, poll in enumerate(polls) if poll.sample.at >= since)


def _match(after_s: int, end: int, polls: Sequence[Poll], scrapes: RawSeries) -> Instant | None:
    """Return when to ask so that Prometheus' windows have the edges of ours; None if no instant does that."""
    last = _scrape_of(polls[end], scrapes)
    if last is None:
        return None
    at_ms: dict[int, int] = {}
    edges = [(polls[end], last)]
    for window_s in (SHORT_S, LONG_S):
        start = polls[window_start(polls, end, window_s)]
        first = _scrape_of(start, scrapes)
        asked = None if first is None else _instant_ms(scrapes.times_ms, first, last, window_s, polls[end])
        if first is None or asked is None:
            return None
        at_ms[window_s] = asked
        edges.append((start, first))
    return Instant(
        after_s,
        end,
        at_ms,
        sum(abs(poll.generated - scrapes.values[scrape]) for poll, scrape in edges),
        sum(abs(poll.wall_s * 1000 - scrapes.times_ms[scrape]) for poll, scrape in edges),
    )


def _scrape_of(poll: Poll, scrapes: RawSeries) -> int | None:
    """Return the index of the scrape nearest to a poll; None if it is not of the same second."""
    wall_ms = poll.wall_s * 1000
    right = bisect_left(scrapes.times_ms, wall_ms)
    nearest = min(
        (index for index in (right - 1, right) if 0 <= index < len(scrapes.times_ms)),
        key=lambda index: abs(scrapes.times_ms[index] - wall_ms),
    )
    return nearest if abs(scrapes.times_ms[nearest] - wall_ms) <= FARTHEST_MS else None


def _instant_ms(times_ms: Sequence[int], first: int, last: int, window_s: int, poll: Poll) -> int | None:
    """Return the instant nearest to a poll whose window has exactly the scrapes `first` to `last`, or None.

    Both edges of a range belong to it (to Prometheus 2).
    """
    window_ms = window_s * 1000
    before = times_ms[first - 1] if first else 0
    after = times_ms[last + 1] if last + 1 < len(times_ms) else times_ms[last] + 1000
    earliest = max(times_ms[last], before + window_ms + 1)
    latest = min(after - 1, times_ms[first] + window_ms)
    return max(earliest, min(latest, round(poll.wall_s * 1000))) if earliest <= latest else None
