"""The answer of a sweep in one sentence, which every screen and report shows first.

For one target it is the best level: the lowest concurrency that reaches the highest token rate, and up to
which concurrency the first token comes soon enough. For several targets it is which one wins, and where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sparktop.model.sweep_comparison import (
    NO_DIFFERENCE,
    NONE_OF_LEADERS,
    ComparedLevel,
    ComparedMetric,
    Topologies,
)
from sparktop.model.text import names_in_words
from sparktop.sweep.compare.advice import signed
from sparktop.sweep.compare.best_level import best_of, main_rate, rate_ratio
from sparktop.sweep.compare.compare import NOISE_FLOOR_PERCENT
from sparktop.sweep.compare.proof import main_metrics
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.run.slo.judgement import quantile_interval
from sparktop.sweep.terms.definitions import DUE_LATENCIES, METRICS, in_sentence
from sparktop.sweep.terms.doubts import (
    CLIENT_LAG,
    FOREIGN_TRAFFIC,
    LATE_SENDS,
    QUEUE_LIMITED,
    THROTTLED,
)
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.prefix import context_sentences
from sparktop.sweep.view.words.capacity import capacity_sentences
from sparktop.sweep.view.words.conversations import conversation_sentence, has_conversations
from sparktop.sweep.view.words.rates import is_one_trace, is_over_rates, rate_sentence
from sparktop.sweep.view.words.slo import slo_sentences

TTFT_LIMIT_MS = 2000.0
"""The time to first token that the headline holds levels against: longer waits are felt in a conversation."""
_P90 = 0.9
_MOST_FAILED = 0.01
"""A level in which a larger share of the requests failed is not recommended."""
NOT_CERTAIN = "not certain"
_SLOWING = {CLIENT_LAG, LATE_SENDS, THROTTLED, FOREIGN_TRAFFIC, QUEUE_LIMITED}
"""Doubts of a level that may have made it slower than its server is."""


def headline(
    result: SweepResult, compared: Topologies | None, name: Callable[[str], str] = str
) -> str | None:
    """Return the sweep's answer as one sentence; None if nothing was measured.

    `compared` is the comparison of several targets; `name` escapes their names for the output format.
    """
    found = "; ".join([*capacity_sentences(result, name), *slo_sentences(result, name)])
    if found:
        return found
    if found := next(context_sentences(result, name), ""):
        return found
    targets = [one for one in result.targets if any(level.error is None for level in one.levels)]
    if len(targets) == 1:
        return _of_target(result, targets[0])
    over_rates = any(map(is_over_rates, targets)) and not is_one_trace(targets)
    if over_rates or any(map(has_conversations, targets)):
        compared = None  # how much each one takes is the answer
    if compared is not None and (found := _of_comparison(result, compared, name)):
        return found
    found = "; ".join(f"{name(one.name)}: {words}" for one in targets if (words := _of_target(result, one)))
    return found or None


def _of_target(result: SweepResult, target: TargetResult) -> str | None:
    """Return the headline of one target; None if no level has a token rate."""
    if is_over_rates(target):
        return rate_sentence(target)
    if has_conversations(target):
        return conversation_sentence(target)
    levels = [level for level in target.in_order() if level.error is None and level.requests.ok]
    metric = main_rate(levels)
    known = [level for level in levels if metric is not None and level.rate(metric) is not None]
    if metric is None or not known:
        return None
    lengths = list(dict.fromkeys(level.pp for level in known))
    if len(lengths) > 1 and len({level.point for level in known}) == 1:
        ends = (known[0], known[-1])
        parts = (f"{_rate(level, metric)} with {level.pp or 0:,} tokens in" for level in ends)
        return f"{METRICS[metric].title.lower()} at {known[0].point.label}: {', '.join(parts)}"
    among = [(length, [level for level in known if level.pp == length]) for length in lengths]
    return "; ".join(
        (f"{length or 0:,} tokens in: " if len(lengths) > 1 else "")
        + _of_length(result, target, part, metric)
        for length, part in among
    )


def _of_length(result: SweepResult, target: TargetResult, levels: Sequence[LevelResult], metric: str) -> str:
    """Return the headline of one target's levels with the same prompt length, in ascending order.

    The best of the levels without doubts comes first. A level that measured more, but is in doubt, follows.
    """
    good = [one for one in levels if one.requests.failed <= _MOST_FAILED * (one.requests.ok or 1)] or levels
    sure = [one for one in good if not _doubts(one)]
    best, most = best_of(sure or good, metric), best_of(good, metric)
    if most is not best and rate_ratio(most, best, metric) is None:
        most = best
    words = _lead_words(result, sure, levels, best, metric)
    if most is not best:
        words = re.sub(r" with [\w,]+ requests? at once", "", words.replace("best", "best without doubts", 1))
        words += f"; {most.point.label} measured {_rate(most, metric)}, but is in doubt: {_doubts(most)[0]}"
    else:
        words += _end(result, target, good, best, metric)
    holds, first = _first_tokens(levels)
    # What holds comes before what is in doubt.
    parts = (first, words) if holds and len(levels) > 1 and best not in sure else (words, first)
    return "; ".join(filter(None, parts))


def _lead_words(
    result: SweepResult,
    sure: Sequence[LevelResult],
    levels: Sequence[LevelResult],
    best: LevelResult,
    metric: str,
) -> str:
    """Return which level is best and its rate, and how certain that is.

    `sure` are the levels without doubts.
    """
    rate, measured = _rate(best, metric), best.point.label
    if len(levels) == 1:
        return f"{measured}, {rate}{_in_doubt(best)}"
    ended = result.status in {"done", None}
    if best not in sure:
        return f"{'' if ended else 'so far '}most at {measured}: {rate}{_perhaps_more(best)}"
    start = "best: " if ended else "best of what was measured: "
    alike, untested = _alike(sure, best, metric)
    at_once = "1 request" if best.concurrency == 1 else f"{best.concurrency} requests"
    if alike:
        names = " or ".join(str(one.concurrency) for one in (*alike, best))
        return f"{start}c = {names}, up to {rate} ({NO_DIFFERENCE})"
    doubt = f" ({NOT_CERTAIN}: single runs)" if untested else ""
    return f"{start}{measured}, {rate} with {at_once} at once{doubt}"


def _doubts(level: LevelResult) -> list[str]:
    return [mark.word for mark in marks_of(level) if mark.doubt]


def _in_doubt(level: LevelResult) -> str:
    doubts = _doubts(level)
    return f" (doubt: {doubts[0]})" if doubts else ""


def _perhaps_more(level: LevelResult) -> str:
    """Return the first reason to doubt a level, and whether it may have made the level slower."""
    first = next((mark for mark in marks_of(level) if mark.doubt), None)
    if first is None or first.code not in _SLOWING:
        return _in_doubt(level)
    return f" (perhaps more: {first.word})"


def _alike(levels: Sequence[LevelResult], best: LevelResult, metric: str) -> tuple[list[LevelResult], bool]:
    """Return (levels with a rate that is not significantly lower, whether a lower rate was not testable)."""
    ratios = [(one, rate_ratio(best, one, metric)) for one in levels if one is not best]
    beyond = [
        (one, ratio) for one, ratio in ratios if ratio is not None and ratio.beyond(NOISE_FLOOR_PERCENT)
    ]
    tests = [(one, ratio.significant(NOISE_FLOOR_PERCENT)) for one, ratio in beyond]
    return [one for one, test in tests if test is False], any(test is None for _, test in tests)


def _end(
    result: SweepResult, target: TargetResult, levels: Sequence[LevelResult], best: LevelResult, metric: str
) -> str:
    """Return what is known of concurrencies above the best: ", still rising: try c = 64"; "" if nothing."""
    top = levels[-1]
    if top is not best:
        ratio = rate_ratio(top, best, metric)
        return "" if ratio is None else f", {top.point.label} gives {_more(ratio.percent)}{_in_doubt(top)}"
    if len(levels) == 1:
        return ""
    if target.slots is not None and best.concurrency >= target.slots:
        return f", all {target.slots} slots in use"
    ratio = rate_ratio(best, levels[-2], metric)
    if ratio is None or ratio.significant(NOISE_FLOOR_PERCENT) is False:
        return ""
    if best.concurrency == result.plan.climb_to:
        return f", still rising at the limit of {best.concurrency}"
    return f", still rising: try c = {2 * best.concurrency}"


def _more(percent: float) -> str:
    return "no more" if abs(percent) < NOISE_FLOOR_PERCENT else signed(percent)


def _first_tokens(levels: Sequence[LevelResult]) -> tuple[bool, str]:
    """Return (whether any level's p90 of TTFT is within `TTFT_LIMIT_MS`, up to which concurrency, as text).

    The text is "" if that is unknown.
    A level with too few requests for a 90th percentile counts as within if the TTFT of every request is.
    """
    holding: LevelResult | None = None
    limit = f"{TTFT_LIMIT_MS / 1000:g} s"
    for level in levels:
        ttft = level.ttft_ms
        longest = None if ttft is None else ttft.p90 if ttft.p90 is not None else ttft.max
        if ttft is None or longest is None or (ttft.p90 is None and longest > TTFT_LIMIT_MS):
            break
        if longest > TTFT_LIMIT_MS:
            if holding is None:
                return False, f"TTFT p90 is over {limit} from {level.point.label} on"
            break
        holding = level
    if holding is None or holding.ttft_ms is None or all(one.ttft_ms is None for one in levels):
        return False, ""
    if holding.ttft_ms.p90 is None and holding is levels[-1]:
        return True, f"every TTFT under {limit}"
    doubt = "" if _is_sure(holding) else f" ({NOT_CERTAIN})"
    return True, f"TTFT p90 stays under {limit} up to {holding.point.label}{doubt}"


def _is_sure(level: LevelResult) -> bool:
    """Return whether the 95 % interval of the p90 of the level's TTFT is within `TTFT_LIMIT_MS`.

    False if the interval is unknown. True for a level with too few requests for a 90th percentile, because
    the caller has checked that the TTFT of each request is within the limit.
    """
    if level.ttft_ms is None or level.ttft_ms.p90 is None:
        return True
    each = level.each
    if each is None:
        return False
    by_run: dict[int, list[float]] = {}
    for run, ttft_ms in zip(each.run, each.ttft_ms, strict=False):
        if ttft_ms is not None:
            by_run.setdefault(run, []).append(ttft_ms)
    interval = quantile_interval([by_run[run] for run in sorted(by_run)], _P90)
    return interval is not None and interval[1] <= TTFT_LIMIT_MS


def _rate(level: LevelResult, metric: str) -> str:
    rate = level.rate(metric)
    value = None if rate is None else rate.mean
    whole = value is not None and value >= 100  # noqa: PLR2004 - three digits are enough
    return f"{value:,.0f} tok/s" if whole else f"{METRICS[metric].text(value)} tok/s"


def _of_comparison(result: SweepResult, compared: Topologies, name: Callable[[str], str]) -> str:
    """Return which target wins at which levels, by how much; or the largest lead, which may be chance.

    Return "" if the targets have no level in common.
    """
    known = {one.metric: one for one in compared.metrics if one.levels}
    metrics = [known[one] for one in main_metrics(known)]
    if not metrics:
        return ""
    if metrics[0].metric in DUE_LATENCIES:  # neither of them decides alone
        metrics.sort(key=lambda one: all(level.winner is None for level in one.levels))
    first = metrics[0]
    winners = dict.fromkeys(level.winner for level in first.levels if level.winner is not None)
    if not winners:
        return _without_winner(metrics, compared, name)
    beside = [one for one in metrics[1:] if one.metric in {"ttft_ms", "e2e_due_ms"}]
    return "; ".join(
        _win(winner, first, beside, compared, name) + _win_doubt(result, winner, first) for winner in winners
    )


def _win_doubt(result: SweepResult, winner: str, metric: ComparedMetric) -> str:
    """Return why a win is in doubt, and where, " (in doubt at c = 4: hidden tokens)"; "" without a reason."""
    won = {(one.point, one.depth) for one in metric.levels if one.winner == winner}
    levels = [
        level
        for target in result.targets
        if target.name == winner
        for level in target.in_order()
        if (level.point, level.depth) in won and level.error is None
    ]
    doubted = [level for level in levels if _doubts(level)]
    if not doubted:
        return ""
    words = dict.fromkeys(_doubts(level)[0] for level in doubted)
    places = names_in_words(list(dict.fromkeys(level.point.label for level in doubted)))
    where = "" if len(doubted) == len(levels) else f" at {places}"
    return f" (in doubt{where}: {', '.join(words)})"


def _win(
    winner: str,
    first: ComparedMetric,
    beside: Sequence[ComparedMetric],
    compared: Topologies,
    name: Callable[[str], str],
) -> str:
    """Return where one target wins and by how much: "a wins from c4 up: +24 to +28 % decode"."""
    won = [level for level in first.levels if level.winner == winner]
    wanted = {(level.point, level.prompt_tokens) for level in won}
    leads = [_lead(first, won)]
    for metric in beside:
        alike = [one for one in metric.levels if (one.point, one.prompt_tokens) in wanted]
        if alike and all(one.winner == winner for one in alike):
            leads.append(_lead(metric, alike))
    return f"{name(winner)} wins {_where(won, first.levels, compared)}: {', '.join(leads)}"


def _lead(metric: ComparedMetric, levels: Sequence[ComparedLevel]) -> str:
    percents = [level.percent for level in levels if level.percent is not None]
    if not percents:
        return _title(metric)
    low, high = sorted((min(percents), max(percents)), key=abs)
    lowest = "" if signed(low) == signed(high) else f"{signed(low).removesuffix(' %')} to "
    return f"{lowest}{signed(high)} {_title(metric)}"


def _where(won: Sequence[ComparedLevel], levels: Sequence[ComparedLevel], compared: Topologies) -> str:
    if len(levels) == 1 and levels[0].point.trace is not None:
        return f"at {levels[0].point.label}"
    if len(won) == len(levels):
        return "at every level"
    places = [index for index, level in enumerate(levels) if level in won]
    names = [_place(level, compared) for level in won]
    if len(won) > 1 and places == list(range(places[0], len(levels))):
        return f"from {names[0]} up"
    if len(won) > 1 and places == list(range(places[0], places[-1] + 1)):
        return f"at {names[0]} to {names[-1]}"
    return f"at {', '.join(names)}"


def _place(level: ComparedLevel, compared: Topologies) -> str:
    """Return the name of a level: its concurrency, its prompt length where levels differ in it, or both."""
    length = f"{level.prompt_tokens or 0:,} tokens in" if compared.several_lengths else ""
    alone = len({one.point for metric in compared.metrics for one in metric.levels}) == 1
    return length if length and alone else " of ".join(filter(None, (level.point.label, length)))


def _without_winner(
    metrics: Sequence[ComparedMetric], compared: Topologies, name: Callable[[str], str]
) -> str:
    """Return the headline where no target wins in the first of `metrics`, the main token rate.

    It names the targets that lead together, or the largest lead, which is not certain.
    """
    first = metrics[0]
    leading = [level for level in first.levels if level.leaders]
    if leading:
        who = names_in_words([name(one) for one in leading[-1].leaders])
        alike = [level for level in leading if level.leaders == leading[-1].leaders]
        return f"{who} lead {_where(alike, first.levels, compared)}: {NONE_OF_LEADERS}"
    even = [one for one in metrics if all(not level.beats and level.winner is None for level in one.levels)]
    leads = [level for level in first.levels if level.ahead is not None and _percent(level) is not None]
    level = max(leads, key=lambda one: abs(_percent(one) or 0.0), default=None)
    floor = first.noise_floor_percent
    if level is None or level.ahead is None or abs(_percent(level) or 0.0) <= floor:
        none = "" if first in even else f"no target wins in {_title(first)}"
        return "; ".join(filter(None, (none, _no_difference(even))))
    lead = (
        f"{name(level.ahead)} {signed(_percent(level) or 0.0)} {_title(first)} at {_place(level, compared)}"
    )
    if level.significant is None:
        return f"{lead} (single runs: {NOT_CERTAIN})"
    others = _no_difference([one for one in even if one is not first])
    return "; ".join(filter(None, (f"{lead} may be chance: the runs differ too much to decide", others)))


def _no_difference(metrics: Sequence[ComparedMetric]) -> str:
    """Return a text which states that no difference is shown in `metrics`; "" for none."""
    titles = [_title(one) for one in metrics]
    words = " or ".join(filter(None, (", ".join(titles[:-1]), *titles[-1:])))
    return f"no difference between the targets is shown in {words}" if words else ""


def _percent(level: ComparedLevel) -> float | None:
    return level.percent if level.percent is not None else level.lead_percent


def _title(metric: ComparedMetric) -> str:
    return in_sentence(metric.title)
