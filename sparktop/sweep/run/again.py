"""What the levels of a stored result say under other limits, by the judgement of a search, without any load.

A level is judged by its single requests, which the file holds. Nothing is read off between levels beyond what
the search itself concludes from levels on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, repeat

from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.load import CallStart, ConversationCall, EndReason, LoadKind, RequestEnded
from sparktop.model.text import clean, names_in_words
from sparktop.sweep.plan.capacity import AFTER_HUMAN, AFTER_TOOL
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.plan.slo import parts_of
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import (
    CapacityAnswer,
    LevelResult,
    RequestColumns,
    SweepResult,
    TargetResult,
)
from sparktop.sweep.run.capacity import capacity_answer, unstable_words
from sparktop.sweep.run.judgement import LoadVerdict, judge
from sparktop.sweep.run.result_builder import capacity_result
from sparktop.sweep.run.search import CapacitySearch
from sparktop.sweep.terms.definitions import (
    CACHE_HITS,
    CLIENT_LAG,
    CLOCK_SHIFT,
    CUT_SHORT,
    DRIFT,
    ERROR_SHARE,
    FOREIGN_TRAFFIC,
    LATE_SENDS,
    LONG_OUTPUT,
    MOST_CONCURRENCY,
    RESTARTED,
    SHORT_OUTPUT,
    SHORT_PROMPT,
    SPEED_CHANGED,
    THROTTLED,
    WARNINGS,
)

_NOT_OF_THE_LOAD = frozenset(
    (
        *(CACHE_HITS, CLIENT_LAG, CLOCK_SHIFT, CUT_SHORT, DRIFT, FOREIGN_TRAFFIC),
        *(LATE_SENDS, LONG_OUTPUT, RESTARTED, SHORT_OUTPUT, SHORT_PROMPT, SPEED_CHANGED, THROTTLED),
    )
)
"""Marks of a level whose latencies are not those of this server under this load alone."""
_HIDDEN_TOKENS = 1_000_000_000
"""Before a first token of unknown time: `RequestTrace` then knows no TTFT."""
_MISSED = {"error": EndReason.ERROR, "unanswered": EndReason.ABORT}
"""How a measured request without a figure ended, by the word of a result file."""
_MS = 1000.0
_CALLS = {
    "first": (0, CallStart.HUMAN, False),
    "human": (1, CallStart.HUMAN, False),
    "tool": (1, CallStart.TOOL, False),
    "compacted": (1, CallStart.TOOL, True),
}
"""(Turn, what it follows, whether the context was compacted) by the words of a result file."""


def answer_from_levels(
    result: SweepResult, capacity: Capacity, pp: int | None = None, max_error_share: float = ERROR_SHARE
) -> SweepResult:
    """Return a stored result with the answers of its levels of `pp` prompt tokens to other limits.

    `pp` may be None if all levels have the same prompts. A level fails if more than `max_error_share` (0 to
    1) of its requests failed.

    Raises:
        UsageError: the result has no levels of this kind of load, or of several prompt lengths, or lacks
            what a condition limits.
    """
    levels = {target.name: _searchable_levels(target, capacity.kind) for target in result.targets}
    lengths = {level.pp for of_target in levels.values() for level in of_target}
    if not lengths:
        kinds = sorted({level.load.value for target in result.targets for level in target.levels})
        problem = f"no level of {capacity.kind.value} that a search would make"
        raise UsageError(f"{problem}: the result has levels of {names_in_words(kinds) or 'nothing'}")
    if (pp is None and len(lengths) > 1) or (pp is not None and pp not in lengths):
        words = names_in_words([f"{length:,}" for length in sorted(filter(None, lengths))])
        raise UsageError(f"the levels have prompts of {words} tokens: choose one length with --pp")
    chosen = {
        name: [level for level in of_target if pp is None or level.pp == pp]
        for name, of_target in levels.items()
        if of_target
    }
    _check_conditions(capacity, list(chain(*chosen.values())))
    answers = {
        name: _answer_of_target(capacity, of_target, max_error_share)
        for name, of_target in chosen.items()
        if of_target
    }
    highest = max(level.point.value for of_target in chosen.values() for level in of_target)
    answer = capacity_result(replace(capacity, most=highest), answers).model_copy(update={"stored": True})
    return result.model_copy(update={"capacity": answer, "slo": None})


def _searchable_levels(target: TargetResult, kind: LoadKind) -> list[LevelResult]:
    """Return the levels that a search could have made: steady ones, without context and of no trace."""
    usable = [
        level
        for level in target.levels
        if (level.load, level.error, level.rises_to, level.trace) == (kind, None, None, None)
        and not level.depth
        and 0 < level.point.value <= MOST_CONCURRENCY
    ]
    return sorted(usable, key=lambda level: level.point.value)


def _check_conditions(capacity: Capacity, levels: Sequence[LevelResult]) -> None:
    """Check that the single requests have what the conditions limit.

    Raises:
        UsageError: they have not.
    """
    for condition in capacity.conditions:
        name = parts_of(condition.figure)[0]
        if name == "first_answer":
            raise UsageError(f"--slo: result files hold no {clean(condition.figure, 40)} of single requests")
        if name in {AFTER_TOOL, AFTER_HUMAN} and not any(level.each and level.each.call for level in levels):
            raise UsageError(
                "--slo: the file does not say what each request followed, which "
                f"{clean(condition.figure, 40)} needs: it was written by an earlier version"
            )


def _answer_of_target(
    capacity: Capacity, levels: Sequence[LevelResult], max_error_share: float
) -> CapacityAnswer:
    """Return the answer of the levels of one target."""
    usable: dict[float, LevelResult] = {}
    verdicts: dict[float, LoadVerdict] = {}
    left_out: list[str] = []
    for level in levels:
        unstable = unstable_words(level)
        verdict, without_lag = (
            judge(capacity, traces, max_error_share=max_error_share, unstable=unstable)
            for traces in (stored_traces(level), stored_traces(level, _lag_ms(level)))
        )
        if reason := _why_unusable(level, lag_matters=verdict.holds is not without_lag.holds):
            left_out.append(f"{level.point.label}: {reason}")
        else:
            usable[level.point.value], verdicts[level.point.value] = level, verdict
    if not usable:
        return CapacityAnswer(left_out=tuple(left_out))
    search = CapacitySearch(replace(capacity, most=max(usable)), min(usable))
    for value, level in usable.items():
        search.add(value, verdicts[value], max(1, level.runs))
    is_least = capacity.kind is not LoadKind.RATE and search.fails == 1
    answer = capacity_answer(search, usable, complete=search.holds is not None or is_least)
    return answer.model_copy(update={"left_out": tuple(left_out)})


def _lag_ms(level: LevelResult) -> float:
    """Return by how many ms the load generator may have been late; the whole TTFT where that is unknown."""
    lags = [None if mark.itl else mark.ttft_percent for mark in level.validity if mark.code == CLIENT_LAG]
    percent = max((100.0 if lag is None else lag for lag in lags), default=0.0)
    return percent / 100 * (0.0 if level.ttft_ms is None else level.ttft_ms.mean)


def _why_unusable(level: LevelResult, *, lag_matters: bool) -> str:
    """Return why a level cannot be judged; "" if it can.

    It lacks some of its requests, or their latencies are not those of this load alone. A late load generator
    counts where `lag_matters` for the judgement.
    """
    missing = level.requests.failed + level.requests.cancelled
    if level.each is None or (missing and (level.uncounted is None or not level.uncounted.missed)):
        return "its single requests are not stored"
    reasons = (
        f"{WARNINGS[mark.code].word}: {mark.message}"
        for mark in level.validity
        if mark.code in _NOT_OF_THE_LOAD and (lag_matters or mark.code != CLIENT_LAG)
    )
    return next(reasons, "")


def stored_traces(level: LevelResult, lag_ms: float = 0.0) -> list[RequestTrace]:
    """Return the measured requests of a stored level, with the times that a judgement needs.

    Their latencies are shorter than measured by `lag_ms`.
    """
    each, others = level.each or RequestColumns(), level.uncounted or RequestColumns()
    missed = [None if word is None else _MISSED[word] for word in others.missed]
    return [
        *_traces_of_part(level.load, each, each.stream_tps, repeat(EndReason.STOP), lag_ms),
        *_traces_of_part(level.load, others, repeat(None), missed, lag_ms),
    ]


def _traces_of_part(
    kind: LoadKind,
    part: RequestColumns,
    rates: Iterable[float | None],
    ends: Iterable[EndReason | None],
    lag_ms: float,
) -> Iterator[RequestTrace]:
    """Yield the requests of a part that have an end in `ends`; `rates` has the token rate of each.

    They were sent later than stored by `lag_ms`.
    """
    # Files of early versions have no starts: then only the order is known.
    starts = part.start_ms or map(float, count())
    waits, firsts, calls = part.wait_ms or repeat(None), part.ttfr_ms or repeat(None), part.call or repeat("")
    rows = zip(part.run, starts, waits, firsts, part.ttft_ms, part.e2e_ms, calls, rates, ends, strict=False)
    for number, (run, start_ms, wait_ms, ttfr_ms, ttft_ms, e2e_ms, call, tps, end) in enumerate(rows):
        if end is None or start_ms is None:
            continue
        sent, name = start_ms / _MS, str(number)
        first_token_s = sent + (ttft_ms or 0.0) / _MS
        step_s = 1 / tps if tps is not None and tps > 0 else None
        hidden = 0 if ttft_ms is not None else _HIDDEN_TOKENS
        trace = RequestTrace(name, sent + lag_ms / _MS, run)
        if kind is LoadKind.RATE:
            trace.due = sent + (lag_ms - (wait_ms or 0.0)) / _MS
        if kind is LoadKind.AGENTS:
            turn, call_start, compacted = _CALLS.get(call, (1, CallStart.TOOL, True))
            trace.call = ConversationCall(0, 0, turn, 0, call_start, None, 0, 0, compacted=compacted)
        if ttfr_ms is not None:
            trace.first_event = sent + ttfr_ms / _MS
        if ttft_ms is not None or step_s is not None:
            trace.arrivals.append((first_token_s, 1))
        if step_s is not None:
            trace.arrivals.append((first_token_s + step_s, 1))
        if e2e_ms is not None:
            trace.ended = RequestEnded(name, sent + e2e_ms / _MS, end, hidden_before=hidden)
        yield trace
