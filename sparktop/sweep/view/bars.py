"""Timelines of the requests of a level: one bar per request with start, first token, end and backend.

A level is one load on one target, and a run is one repetition of this load. Timelines are assembled while
a run executes, or read from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat

from msgspec import Struct, field

from sparktop.model.load import FirstToken, LoadEvent, RequestEnded, RequestStarted
from sparktop.model.sweep_view import LevelKey, RequestBar, Timeline
from sparktop.sweep.result.results import EachRequest, LevelResult, UncountedRequests

MOST_BARS = 5000
"""Maximum number of bars of a run: more would not be legible."""


class _Open(Struct, eq=False):
    """The known part of a request; times in seconds: monotonic in a live sweep, else from the run's start."""

    start: float
    first_token: float | None = None
    end: float | None = None
    backend: str | None = None
    ok: bool = True
    due: float | None = None
    """Open loop: when the request was due."""


class BarLedger(Struct, eq=False):
    """The requests of a running sweep, collected from the events of measured runs, by level and run."""

    _runs: dict[LevelKey, dict[int, dict[str, _Open]]] = field(default_factory=dict)

    def take(self, key: LevelKey, event: LoadEvent, only: str | None) -> float | None:
        """Add a load event of the level `key`; return the TTFT in ms if it is a first token, else None.

        `only` is the only backend that can have answered, used if the answer does not name a backend; None
        if there are several or it is unknown.
        """
        runs = self._runs.setdefault(key, {})
        match event:
            case RequestStarted():
                bars = runs.setdefault(event.run, {})
                if len(bars) < MOST_BARS:
                    bars[event.request_id] = _Open(event.at, backend=only, due=event.due)
            case FirstToken():
                bar = self._find(runs, event.request_id)
                if bar is not None and bar.first_token is None:
                    bar.first_token = event.at
                    return 1000 * (event.at - (bar.start if bar.due is None else bar.due))
            case RequestEnded():
                bar = self._find(runs, event.request_id)
                if bar is not None:
                    bar.end, bar.ok = event.at, event.ok
                    bar.backend = event.served_by or bar.backend
            case _:
                pass
        return None

    def _find(self, runs: dict[int, dict[str, _Open]], request_id: str) -> _Open | None:
        for bars in reversed(runs.values()):  # newest first: most requests in progress belong to that run
            if request_id in bars:
                return bars[request_id]
        return None

    def timelines(
        self, key: LevelKey, now: float | None, prefill_s: Mapping[str, float]
    ) -> tuple[Timeline, ...]:
        """Return a timeline for each run of the level `key`; requests that still run are drawn up to `now`.

        `prefill_s` has the mean prefill time in seconds that each server reports. The part of a request's
        time to first token that exceeds its server's mean is shown as waiting.
        """
        runs = self._runs.get(key, {})
        # The names of all runs are used, so that each server has the same letter in all timelines.
        served = {one.backend for bars in runs.values() for one in bars.values() if one.backend is not None}
        named = tuple(sorted(served | set(prefill_s)))
        return tuple(
            _timeline(key, run, list(bars.values()), now, prefill_s, named)
            for run, bars in sorted(runs.items())
            if bars
        )


def _timeline(
    key: LevelKey,
    run: int,
    requests: list[_Open],
    now: float | None,
    prefill_s: Mapping[str, float],
    named: tuple[str, ...],
) -> Timeline:
    requests.sort(key=lambda one: one.start)
    began = requests[0].start
    running = any(one.end is None for one in requests)
    ends = [one.end for one in requests if one.end is not None]
    until = now if running and now is not None else max(ends, default=requests[-1].start)
    bars = tuple(_bar(one, began, prefill_s) for one in requests)
    notes = []
    if prefill_s:
        means = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in sorted(prefill_s.items()))
        notes.append(
            "waiting is estimated: what the time to first token has beyond the server's mean prefill "
            f"({means})"
        )
    else:
        notes.append("no server reports its prefill time: waiting and prefill are drawn as one")
    if len(requests) >= MOST_BARS:
        notes.append(f"the first {MOST_BARS} requests of the run")
    return Timeline(key, run, bars, max(0.0, until - began), named, tuple(notes))


def _bar(one: _Open, began: float, prefill_s: Mapping[str, float]) -> RequestBar:
    prefill = prefill_s.get(one.backend) if one.backend is not None else None
    queue = None
    if prefill is not None and one.first_token is not None:
        queue = max(0.0, one.first_token - one.start - prefill)
    return RequestBar(
        start_s=one.start - began,
        first_token_s=None if one.first_token is None else one.first_token - began,
        end_s=None if one.end is None else one.end - began,
        queue_s=queue,
        backend=one.backend,
        ok=one.ok,
    )


def stored_prefill_s(level: LevelResult) -> dict[str, float]:
    """Return the mean prefill time in seconds by server; servers that do not report it are left out."""
    sides = level.backends.items()
    return {name: side.prefill_ms / 1000 for name, side in sides if side.prefill_ms is not None}


def stored_timelines(
    key: LevelKey, level: LevelResult, *, only: str | None = None, burst: bool = True
) -> tuple[Timeline, ...]:
    """Return a timeline for each run of a stored level.

    `only` is the only backend that can have answered a request, used if the answer named none. If the file
    has no start times, all requests of a burst begin with the run; without a burst (`burst` is False) the
    result is then empty.
    """
    runs: dict[int, list[_Open]] = {}
    for part in (level.each, level.uncounted):
        for run, one in () if part is None else _stored(part, only):
            runs.setdefault(run, []).append(one)
    if not runs:
        return _bursts(key, level.each) if burst and level.each is not None else ()
    prefill_s = stored_prefill_s(level)
    served = {one.backend for requests in runs.values() for one in requests if one.backend is not None}
    named = tuple(sorted(served | set(prefill_s)))
    return tuple(
        _timeline(key, run, requests, None, prefill_s, named) for run, requests in sorted(runs.items())
    )


def _stored(part: EachRequest | UncountedRequests, only: str | None) -> Iterator[tuple[int, _Open]]:
    """Yield (run number, request) for each stored request; times are in seconds from the start of its run.

    `only` is the only backend that can have answered, used if the file names none.
    """
    oks = part.ok if isinstance(part, UncountedRequests) else (True,) * len(part.run)
    places = part.served_by or repeat(None)
    requests = zip(part.run, part.start_ms, part.ttft_ms, part.e2e_ms, places, oks, strict=False)
    for run, start_ms, ttft_ms, e2e_ms, place, ok in requests:
        if start_ms is None:
            continue
        start = start_ms / 1000
        named = part.backends[place] if place is not None and 0 <= place < len(part.backends) else only
        first = None if ttft_ms is None else start + ttft_ms / 1000
        yield run, _Open(start, first, None if e2e_ms is None else start + e2e_ms / 1000, named, ok)


def _bursts(key: LevelKey, each: EachRequest) -> tuple[Timeline, ...]:
    """Return the timelines of a level's runs, all bursts, from a file without start times and backends."""
    note = "the file keeps no starts: every request is drawn from the burst's beginning"
    runs: dict[int, list[RequestBar]] = {}
    for run, ttft, e2e in zip(each.run, each.ttft_ms, each.e2e_ms, strict=False):
        bar = RequestBar(0.0, None if ttft is None else ttft / 1000, None if e2e is None else e2e / 1000)
        runs.setdefault(run, []).append(bar)
    return tuple(
        Timeline(key, run, tuple(bars), max((bar.end_s or 0.0 for bar in bars), default=0.0), (), (note,))
        for run, bars in sorted(runs.items())
    )
