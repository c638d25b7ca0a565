"""Requests by server for each run of a level.

Totals over a level cannot reveal a router that sends one run to one server and the next run to another: they
come out even. So a split is stated run by run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from sparktop.sweep.result.results import EachRequest, LevelResult, UncountedRequests
from sparktop.sweep.result.trace import RequestTrace

Split = Mapping[str, int]
"""Requests by backend."""
_PERCENT = 100.0
_PAIR = 2


def split_by_run(traces: Iterable[RequestTrace]) -> tuple[dict[str, int], ...]:
    """Return the requests of each run by backend; empty if no backend was named."""
    return _by_run((one.run, one.served_by) for one in traces)


def level_split(level: LevelResult) -> tuple[Split, ...]:
    """Return the requests of each run by backend; for files without `runs_split`, from single requests."""
    if level.runs_split:
        return level.runs_split
    columns = [part for part in (level.each, level.uncounted) if part is not None]
    return _by_run(pair for part in columns for pair in _served(part))


def run_shares(runs: Sequence[Split]) -> tuple[float, ...]:
    """Return the largest share of one backend in percent, for each run with at least two requests."""
    totals = [(max(one.values(), default=0), sum(one.values())) for one in runs]
    return tuple(_PERCENT * most / total for most, total in totals if total >= _PAIR)


def largest_run_share(level: LevelResult) -> float | None:
    """Return the largest share in percent that one backend had in any run; None where it is unknown."""
    return max(run_shares(level_split(level)), default=None)


def split_words(level: LevelResult) -> str | None:
    """Return how uneven the runs were, as text: "50 to 100 % of each run on one server".

    None for a single server, for single requests per run, or if no backend was named.
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
