"""The answer of a sweep in one sentence, which every screen and report shows first.

For one target it is the best level: the one with the highest token rate, and whether that is clear. For
several targets it is which one wins, and where. All figures are those of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sparktop.model.judgement import (
    NO_DIFFERENCE,
    NOT_TESTED,
    Outcome,
    alike_words,
    largest_lead,
    outcome,
    percents,
    rivals,
    signed,
)
from sparktop.model.sweep_comparison import ComparedLevel, ComparedMetric, Topologies
from sparktop.model.text import names_in_words
from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT, BestLevel, best_level, main_rate, rate_ratio
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import DRIFT, DUE_LATENCIES, FEW_RUNS, METRICS, in_sentence
from sparktop.sweep.view.depth import depth_sentences
from sparktop.sweep.view.marks import drift_words, marks_of
from sparktop.sweep.view.words.capacity import capacity_sentences
from sparktop.sweep.view.words.conversations import conversation_sentence, has_conversations
from sparktop.sweep.view.words.rates import is_one_trace, is_over_rates, rate_sentence
from sparktop.sweep.view.words.slo import slo_sentences
from sparktop.sweep.view.words.targets import main_metrics


def headline(
    result: SweepResult, compared: Topologies | None, name: Callable[[str], str] = str
) -> str | None:
    """Return the sweep's answer as one sentence; None if nothing was measured.

    `compared` is the comparison of several targets; `name` escapes their names for the output format.
    """
    found = "; ".join([*capacity_sentences(result, name), *slo_sentences(result, name)])
    if found:
        return found
    if found := next(depth_sentences(result, name), ""):
        return found
    targets = [one for one in result.targets if any(level.error is None for level in one.levels)]
    if len(targets) == 1:
        return _of_target(result, targets[0], "best: ")
    over_rates = any(map(is_over_rates, targets)) and not is_one_trace(targets)
    if over_rates or any(map(has_conversations, targets)):
        compared = None  # how much each one takes is the answer
    if compared is not None and (found := _of_comparison(result, compared, name)):
        return found
    answers = ((one.name, _of_target(result, one, "at most ")) for one in targets)
    found = "; ".join(f"{name(target)}: {words}" for target, words in answers if words)
    return found or None


def _of_target(result: SweepResult, target: TargetResult, start: str) -> str | None:
    """Return the headline of one target; None if no level has a token rate.

    `start` are the first words for its best level.
    """
    if is_over_rates(target):
        return rate_sentence(target)
    if has_conversations(target):
        return conversation_sentence(target)
    levels = [level for level in target.in_order() if level.error is None and level.requests.ok]
    metric = main_rate(levels)
    known = [level for level in levels if metric is not None and level.rate(metric) is not None]
    known = [level for level in known if not level.has_other_prompt] or known
    if metric is None or not known:
        return None
    lengths = list(dict.fromkeys(level.pp for level in known))
    if len(lengths) > 1 and len({level.point for level in known}) == 1:
        ends = (known[0], known[-1])
        parts = (
            f"{_rate(level, metric)} with {level.pp or 0:,} tokens in{_warning(level)}" for level in ends
        )
        return f"{METRICS[metric].title.lower()} at {known[0].point.label}: {', '.join(parts)}"
    among = [(length, [level for level in known if level.pp == length]) for length in lengths]
    return "; ".join(
        (f"{length or 0:,} tokens in: " if len(lengths) > 1 else "")
        + _of_length(result, target, part, metric, start)
        for length, part in among
    ) + drift_words(target)


def _of_length(
    result: SweepResult, target: TargetResult, levels: Sequence[LevelResult], metric: str, start: str
) -> str:
    """Return the headline of one target's levels with the same prompt length, in ascending order."""
    found = best_level(levels, metric)
    best = found.level
    words = f"{best.point.label}, {_rate(best, metric)}"
    if len(levels) > 1:
        ended = result.status in {"done", None}
        begin = start if ended else f"{start.strip(': ')} of what was measured: "
        words = f"{begin}{words}"
    parts = [words + _warning(best), *_ttft(best), *_certainty(found)]
    return "; ".join(parts) + ("" if len(levels) == 1 else _end(result, target, levels, found))


def _ttft(level: LevelResult) -> Iterator[str]:
    """Yield the mean TTFT of a level, which the table of levels shows, too."""
    if level.ttft_ms is not None:
        yield f"mean TTFT {METRICS['ttft_ms'].text(level.ttft_ms.mean)} ms"


def _warning(level: LevelResult) -> str:
    """Return the gravest warning of a level in brackets; "" if there is none."""
    words = _warnings(level, but=DRIFT)
    return f" (warning: {words[0]})" if words else ""


def _warnings(level: LevelResult, but: str | None = None) -> list[str]:
    return [mark.word for mark in marks_of(level) if mark.doubt and mark.code != but]


def _certainty(found: BestLevel) -> Iterator[str]:
    """Yield which levels are not clearly below the best, and whether some could not be tested."""
    if found.alike:
        others = names_in_words([f"c = {one.concurrency}" for one in found.alike])
        yield f"{NO_DIFFERENCE} from {others}"
    if found.untested:
        yield NOT_TESTED


def _end(result: SweepResult, target: TargetResult, levels: Sequence[LevelResult], found: BestLevel) -> str:
    """Return what is known of loads above the best: ", still rising: try c = 64"; "" if nothing."""
    best, top, metric = found.level, levels[-1], found.metric
    if top is not best:
        ratio = None if top in found.alike else rate_ratio(top, best, metric)
        return "" if ratio is None else f"; {top.point.label} gives {signed(ratio.percent)}{_warning(top)}"
    if target.slots is not None and best.concurrency >= target.slots:
        return f"; all {target.slots} slots in use"
    ratio = rate_ratio(best, levels[-2], metric)
    if ratio is None or not ratio.beyond(NOISE_FLOOR_PERCENT) or levels[-2] in found.alike:
        return ""
    if best.concurrency == result.plan.climb_to:
        return f"; still rising at the limit of {best.concurrency}"
    return f"; still rising: try c = {2 * best.concurrency}"


def _rate(level: LevelResult, metric: str) -> str:
    rate = level.rate(metric)
    return f"{METRICS[metric].text(None if rate is None else rate.mean)} tok/s"


def _of_comparison(result: SweepResult, compared: Topologies, name: Callable[[str], str]) -> str:
    """Return which target wins at which levels, by how much; or the largest lead, which is not clear.

    Return "" if the targets have no level in common.
    """
    metrics = main_metrics(compared.metrics)
    if not metrics:
        return ""
    if metrics[0].metric in DUE_LATENCIES:  # neither of them decides alone
        metrics.sort(key=lambda one: all(level.winner is None for level in one.levels))
    first = metrics[0]
    winners = dict.fromkeys(level.winner for level in first.levels if level.winner is not None)
    if not winners:
        return _without_winner(result, metrics, compared, name)
    beside = [one for one in metrics[1:] if one.metric in {"ttft_ms", "e2e_due_ms"}]
    return "; ".join(
        _win(winner, first, beside, compared, name)
        + _level_warnings(result, winner, [level for level in first.levels if level.winner == winner], name)
        for winner in winners
    )


def _level_warnings(
    result: SweepResult, winner: str, won: Sequence[ComparedLevel], name: Callable[[str], str]
) -> str:
    """Return the warnings of what one target shows, " (warning at c = 4: hidden tokens)"; "" without one.

    `won` are the levels. Those of the target that it is compared with count, too, with its name. Few runs
    are none: whether a difference was tested is said with it.
    """
    levels = {
        (target.name, level.point, level.depth): level
        for target in result.targets
        for level in target.in_order()
        if level.error is None
    }
    places: dict[str, list[str]] = {}
    for one in won:
        for target in dict.fromkeys((winner, one.against)):
            level = levels.get((target or "", one.point, one.depth))
            for word in [] if level is None else _warnings(level, but=FEW_RUNS)[:1]:
                whose = "" if target == winner else f" of {name(target or '')}"
                places.setdefault(f"{word}{whose}", []).append(one.point.label)
    if not places:
        return ""
    everywhere = all(len(where) == len(won) for where in places.values())
    points = dict.fromkeys(point for where in places.values() for point in where)
    where = "" if everywhere else f" at {names_in_words(list(points))}"
    return f" (warning{where}: {', '.join(places)})"


def _win(
    winner: str,
    first: ComparedMetric,
    beside: Sequence[ComparedMetric],
    compared: Topologies,
    name: Callable[[str], str],
) -> str:
    """Return where one target wins and by how much: "a wins from c = 4 up: +24 to +28 % decode against b"."""
    won = [level for level in first.levels if level.winner == winner]
    wanted = {(level.point, level.prompt_tokens) for level in won}
    leads = [(first, won)]
    for metric in beside:
        alike = [one for one in metric.levels if (one.point, one.prompt_tokens) in wanted]
        if alike and all(one.winner == winner for one in alike):
            leads.append((metric, alike))
    against = [rivals(levels, name) for _, levels in leads]
    if len(set(against)) == 1:
        against[:-1] = [""] * (len(leads) - 1)
    words = [
        " ".join(filter(None, (percents(levels), _title(metric), whom)))
        for (metric, levels), whom in zip(leads, against, strict=True)
    ]
    return f"{name(winner)} wins {_where(won, first.levels, compared)}: {', '.join(words)}"


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
    result: SweepResult, metrics: Sequence[ComparedMetric], compared: Topologies, name: Callable[[str], str]
) -> str:
    """Return the headline where no target wins in the first of `metrics`, the main token rate.

    It names the largest lead, and the metrics in which the targets do not differ clearly.
    """
    first = metrics[0]
    ahead = [level for level in first.levels if outcome(level) is Outcome.AHEAD]
    level = max(ahead, key=lambda one: abs(one.percent or 0.0), default=None)
    if level is not None and abs(level.percent or 0.0) > first.noise_floor_percent:
        lead = f"{percents([level])} {_title(first)} {rivals([level], name)}"
        where = f"at {_place(level, compared)} ({NOT_TESTED})"
        warning = _level_warnings(result, level.ahead or "", [level], name)
        return f"{name(level.ahead or '')} {lead} {where}{warning}"
    even = [one for one in metrics if all(level.winner is None for level in one.levels)]
    levels = [level for one in even for level in one.levels]
    return alike_words([_title(one) for one in even], levels) + largest_lead(first.levels, name)


def _title(metric: ComparedMetric) -> str:
    return in_sentence(metric.title)
