"""The result table of a sweep: one row of values per level; the best values of each column are marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from sparktop.model.sweep_comparison import Value
from sparktop.model.sweep_view import LevelKey, Rank, ResultRow
from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT, main_rate, ratio_of
from sparktop.sweep.result.results import ComparisonResult, LevelResult, SweepResult
from sparktop.sweep.terms.definitions import MAIN_RATES, METRICS
from sparktop.sweep.view.levels import result_key
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.words.conversations import conversation_figures

RANKED = (*MAIN_RATES, "prefill_tps", "peak_tps", "ttft_ms")
"""Metrics whose best value is marked in the table."""


def result_rows(
    result: SweepResult, unfinished: Iterable[LevelKey] = (), comparison: ComparisonResult | None = None
) -> tuple[ResultRow, ...]:
    """Return a row per level, target by target; levels in `unfinished` are marked as incomplete.

    `comparison` is the comparison of the sweep's targets, if it has several.
    """
    more = set(unfinished)
    levels = {
        result_key(target.name, level, result.plan.pp): level
        for target in result.targets
        for level in target.in_order()
    }
    ranks = ranks_of({key: level.figures for key, level in levels.items()}, comparison)
    rate = main_rate([level for level in levels.values() if level.error is None])
    return tuple(
        replace(_row(key, level, more), ranks=ranks[key], rate=rate) for key, level in levels.items()
    )


def _row(key: LevelKey, level: LevelResult, unfinished: set[LevelKey]) -> ResultRow:
    loop, requests = level.open_loop, level.requests
    ttft = level.ttft_ms if loop is None else level.ttft_due_ms
    return ResultRow(
        key=key,
        figures=level.figures,
        conversations=conversation_figures(level),
        error=level.error,
        ttft_p50_ms=None if ttft is None else ttft.p50,
        ttft_p95_ms=None if ttft is None else ttft.p95,
        ttft_growth=None if loop is None else loop.ttft_growth,
        stream_p50_tps=None if level.stream_tps is None else level.stream_tps.p50,
        spec_accept_percent=None if level.server is None else level.server.spec_accept_percent,
        runs=level.runs,
        ok=requests.ok,
        failed=requests.failed,
        cancelled=requests.cancelled,
        marks=marks_of(level),
        complete=key not in unfinished,
    )


def ranks_of(
    figures: Mapping[LevelKey, Mapping[str, Value]], comparison: ComparisonResult | None = None
) -> dict[LevelKey, dict[str, Rank]]:
    """Return the ranks of levels by key, then by metric: the best value, and those not clearly worse.

    Values are ranked among levels of the same prompt length and depth. Whether two targets differ clearly
    under the same load is taken from `comparison`, so that no table says another thing than the comparison.
    """
    ranks: dict[LevelKey, dict[str, Rank]] = {key: {} for key in figures}
    groups: dict[tuple[int | None, int], list[LevelKey]] = {}
    for key in figures:
        groups.setdefault((key.prompt_tokens, key.depth), []).append(key)
    for keys in groups.values():
        for metric in RANKED:
            known = [key for key in keys if metric in figures[key]]
            if len(known) < 2:  # noqa: PLR2004 - the best of one says nothing
                continue
            choose = max if METRICS[metric].more_is_better else min
            best = choose(known, key=lambda key: figures[key][metric].mean)
            for key in known:
                if key == best:
                    ranks[key][metric] = Rank.BEST
                elif _is_clear(key, best, metric, figures, comparison) is False:
                    ranks[key][metric] = Rank.LEVEL
    return ranks


def _is_clear(
    key: LevelKey,
    best: LevelKey,
    metric: str,
    figures: Mapping[LevelKey, Mapping[str, Value]],
    comparison: ComparisonResult | None,
) -> bool | None:
    """Return whether the level `key` is clearly worse than the level `best`; None if not testable."""
    if comparison is not None and key.point == best.point and key.target != best.target:
        row = comparison.row(metric, key.point, key.prompt_tokens, key.depth)
        if row is not None and row.ahead == best.target and row.significant is not None:
            return key.target in row.beats
    ratio = ratio_of(figures[key][metric], figures[best][metric])
    return None if ratio is None else ratio.significant(NOISE_FLOOR_PERCENT)
