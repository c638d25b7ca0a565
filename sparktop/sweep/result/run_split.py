"""How a router distributed the requests of a level over its backends, run by run.

Totals over the level hide a router that sends all requests of one run to one backend and those of the next
run to another: the totals are even.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from sparktop.sweep.result.results import EachRequest, LevelResult, UncountedRequests
from sparktop.sweep.result.trace import RequestTrace

Split = Mapping[str, int]
"""Number of requests by backend, in one run."""
_PERCENT = 100.0
_PAIR = 2


def split_by_run(traces: Iterable[RequestTrace]) -> tuple[dict[str, int], ...]:
    """Return the number of requests by backend for each run, in order; empty if no answer named a backend."""
    return _by_run((one.run, one.served_by) for one in traces)


def level_split(level: LevelResult) -> tuple[Split, ...]:
    """Return the number of requests by backend for each run of a stored level; empty if unknown.

    For files of older versions without `runs_split`, the requests that are stored individually are counted.
    """
    if level.runs_split:
        return level.runs_split
    columns = [part for part in (level.each, level.uncounted) if part is not None]
    return _by_run(pair for part in columns for pair in _served(part))


def run_shares(runs: Sequence[Split]) -> tuple[float, ...]:
    """Return, for each run, the percentage of its requests that went to its most used backend.

    Runs with fewer than two requests are left out.
    """
    totals = [(max(one.values(), default=0), sum(one.values())) for one in runs]
    return tuple(_PERCENT * most / total for most, total in totals if total >= _PAIR)


def largest_run_share(level: LevelResult) -> float | None:
    """Return the largest percentage of a run's requests that went to one backend, over all runs of a level.

    Return None if no run has two requests with known backends.
    """
    return max(run_shares(level_split(level)), default=None)


def split_words(level: LevelResult) -> str | None:
    """Return how unevenly requests were distributed: "50 to 100 % of each run on one server".

    Return None for a single server, for runs of a single request, or if no answer named a backend.
    """
    runs = level_split(level)
    shares = run_shares(runs)
    servers = {*level.backends, *(name for one in runs for name in one)}
    if not shares or len(servers) < _PAIR:
        return None
    low, high = round(min(shares)), round(max(shares))
    span = f"{high} %" if low == high else f"{low} to {high} %"
    return f"{span} of {'the' if len(runs) == 1 else 'each'} run on one server"


def _by_run(pairs: Iterable[tuple[int, str | None]]) -> tuple[dict[str, int], ...]:
    runs: dict[int, Counter[str]] = {}
    for run, name in pairs:
        counts = runs.setdefault(run, Counter())
        if name is not None:
            counts[name] += 1
    split = tuple(dict(sorted(runs[run].items())) for run in sorted(runs))
    return split if any(split) else ()


def _served(part: EachRequest | UncountedRequests) -> Iterable[tuple[int, str | None]]:
    places = part.served_by or repeat(None)
    names = part.backends
    for run, place in zip(part.run, places, strict=False):
        yield run, names[place] if place is not None and 0 <= place < len(names) else None
