"""The judgement on compared targets: which metrics judge them, and a sentence for each."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.judgement import Name, Outcome, alike_words, metric_sentence, outcome
from sparktop.model.sweep_comparison import ComparedLevel, ComparedMetric
from sparktop.sweep.terms.definitions import DUE_LATENCIES, MAIN_RATES, in_sentence

_JUDGE_RATES = DUE_LATENCIES[:2]
"""Latencies by which requests at a rate are judged."""


def main_metrics(metrics: Sequence[ComparedMetric]) -> list[ComparedMetric]:
    """Return the metrics that judge targets: the main token rate, TTFT and prefill rate, in this order.

    Requests at a rate are judged by their latencies from the due time: token rates follow from the rate.
    """
    known = {one.metric: one for one in metrics if one.levels}
    if due := [known[name] for name in _JUDGE_RATES if name in known]:
        return due
    counts = {name: len(known[name].levels) for name in MAIN_RATES if name in known}
    rate = next((name for name, count in counts.items() if count == max(counts.values())), None)
    return [known[name] for name in (rate, "ttft_ms", "prefill_tps") if name is not None and name in known]


def main_sentences(metrics: Sequence[ComparedMetric], name: Name = str) -> list[str]:
    """Return the judgement on each main metric as a sentence; a single one if no target differs in any.

    `name` escapes the names of targets for the output format.
    """
    main = main_metrics(metrics)
    if main and all(_is_even(level) for one in main for level in one.levels):
        return [alike_words([in_sentence(one.title) for one in main])]
    return [metric_sentence(one.title, one.levels, name) for one in main]


def _is_even(level: ComparedLevel) -> bool:
    return outcome(level) is Outcome.OPEN and not level.beats and not round(level.percent or 0.0)
