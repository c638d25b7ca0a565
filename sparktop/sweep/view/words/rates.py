"""The answer of a sweep over rates in one sentence: with which rate a target keeps up, and with which not."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import LevelResult, TargetResult
from sparktop.sweep.terms.definitions import CUT_SHORT, DRIFT, FEW_RUNS, METRICS
from sparktop.sweep.terms.limits import ERROR_SHARE
from sparktop.sweep.view.marks import drift_words, marks_of


def is_over_rates(target: TargetResult) -> bool:
    """Return whether the levels of a target are rates."""
    return any(level.load is LoadKind.RATE for level in target.levels)


def is_one_trace(targets: Sequence[TargetResult]) -> bool:
    """Return whether all targets replayed the same recorded traffic and kept up with it.

    Then a comparison of their latencies is the answer.
    """
    levels = [level for target in targets for level in target.levels]
    points = {level.point for level in levels}
    whole = not any(_fails(level) or _too_long(level) for level in levels)
    return len(points) == 1 and levels[0].trace is not None and whole


def rate_sentence(target: TargetResult) -> str | None:
    """Return up to which rate a target keeps up, and how it fails beyond; None if nothing was measured.

    For example "keeps up with 2 /s (237 tok/s, TTFT p90 840 ms from due time), not with 4 /s: TTFT grows 0.43
    s per s".
    """
    levels = [one for one in target.in_order() if one.error is None and one.open_loop is not None]
    if not levels:
        return None
    lengths = list(dict.fromkeys(one.pp for one in levels))
    parts = (_of_length([one for one in levels if one.pp == length]) for length in lengths)
    if len(lengths) == 1:
        return next(parts) + drift_words(target)
    named = zip(lengths, parts, strict=True)
    return "; ".join(f"{length or 0:,} tokens in: {words}" for length, words in named) + drift_words(target)


def _of_length(levels: list[LevelResult]) -> str:
    """Return the sentence for the levels of one prompt length, in ascending order of rates."""
    cut = next((one for one in levels if _is_cut(one)), None)
    levels = [one for one in levels if not _is_cut(one)]
    failing = next((one for one in levels if _fails(one)), None)
    kept = [one for one in levels if not _fails(one) and (failing is None or one.point < failing.point)]
    if cut is not None:
        before = _of_length(levels) if levels else ""
        words = f"{cut.point.label} was cut short" + (f": {_why(cut)}" if _fails(cut) else "")
        return f"{before}; {words}" if before else words
    if not kept:
        return "" if failing is None else f"does not keep up with {failing.point.label}: {_why(failing)}"
    best = kept[-1]
    words = f"keeps up with {best.point.label}{_figures(best)}{_doubt(best)}"
    if failing is not None:
        return f"{words}, not with {failing.point.label}: {_why(failing)}"
    return f"{words}, the highest rate measured" if len(levels) > 1 else words


def _is_cut(level: LevelResult) -> bool:
    """Return whether the sweep ended within a level, which then shows no rate that the target can take."""
    return any(mark.code == CUT_SHORT for mark in level.validity)


def _fails(level: LevelResult) -> bool:
    found = level.open_loop
    return found is not None and (found.unstable or found.overloaded or _many_failed(level))


def _many_failed(level: LevelResult) -> bool:
    """Return whether more requests failed than a server may lose that keeps up.

    Requests of a trace that are longer than the server's context say nothing about its speed.
    """
    ended = level.requests.ok + level.requests.failed
    return level.requests.failed - _too_long(level) > ERROR_SHARE * ended


def _too_long(level: LevelResult) -> int:
    """Return how many requests of a level's trace are longer than the server's context, in all runs."""
    return (level.replay.beyond_context or 0) * max(1, level.runs) if level.replay is not None else 0


def _why(level: LevelResult) -> str:
    found = level.open_loop
    if found is None:
        return ""
    if found.growth_words:
        return found.growth_words
    if found.overloaded:
        return f"{found.in_flight_limit} requests in flight, the limit of the client"
    return f"{level.requests.failed} of {level.requests.ok + level.requests.failed} requests failed"


def _figures(level: LevelResult) -> str:
    parts = []
    if level.output_tps is not None:
        parts.append(f"{METRICS['output_tps'].text(level.output_tps.mean)} tok/s")
    if (ttft := level.ttft_due_ms) is not None and ttft.p50 is not None:
        which, value = ("p90", ttft.p90) if ttft.p90 is not None else ("p50", ttft.p50)
        parts.append(f"TTFT {which} {METRICS['ttft_due_ms'].text(value)} ms from due time")
    if level.replay is not None and (cached := level.replay.cached_percent) is not None:
        parts.append(f"{cached:.0f} % of the prompt tokens cached")
    if too_long := _too_long(level):
        ended = level.requests.ok + level.requests.failed
        parts.append(f"{too_long} of {ended} requests beyond its context")
    return f" ({', '.join(parts)})" if parts else ""


def _doubt(level: LevelResult) -> str:
    """Return the first reason to doubt a level, in brackets; "" if there is none.

    That it had few runs is none: the sentence states no interval. A change of the server is its last clause.
    """
    marks = [mark.word for mark in marks_of(level) if mark.doubt and mark.code not in {FEW_RUNS, DRIFT}]
    return f" (warning: {marks[0]})" if marks else ""
