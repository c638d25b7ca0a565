"""The upper bound of a router's token rate: the sum of the rates of its engines, each measured alone.

N engines that share c concurrent requests evenly achieve N times the rate of a single engine at c / N. A
router loses some of that because it distributes requests unevenly. If another target exceeds this bound, no
router over the same engines can match it at that concurrency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from sparktop.model.sweep_comparison import Value
from sparktop.model.text import names_in_words
from sparktop.sweep.compare.ratio import ERROR_RATE, NOISE_FLOOR_PERCENT, Ratio, ratio_of
from sparktop.sweep.compare.series import Series, SeriesLevel
from sparktop.sweep.result.results import EnginesLevel, IndependentEngines
from sparktop.sweep.terms.definitions import MAIN_RATES, METRICS
from sparktop.sweep.terms.statistics import value_of


def independent_engines(series: Sequence[Series]) -> Iterator[IndependentEngines]:
    """Compare the token rate of each router among `series` with the highest rate that its engines allow.

    A router is left out if neither one of its engines nor a similar engine was measured alone. Series of the
    router's own source come first; others stand in where these have no level that fits.
    """
    for routed in series:
        elsewhere = [one for one in series if one.source != routed.source]
        for alone in (_alone(routed, series), _alone(routed, elsewhere)):
            known = routed.metrics() & {name for one in alone for name in one.metrics()}
            metric = next((name for name in MAIN_RATES if name in known), None)
            if metric is not None and (levels := tuple(_levels(routed, alone, series, metric))):
                names = tuple(one.name for one in alone)
                yield IndependentEngines(metric=metric, routed=routed.name, alone=names, levels=levels)
                break


def engines_sentences(found: Sequence[IndependentEngines]) -> Iterator[str]:
    """Yield one sentence per set of engines with their upper bound, then one per target that exceeds it."""
    for group in by_engines(found):
        yield engines_sentence(group)
    yield from dict.fromkeys(line for one in found for line in beyond_sentences(one))


def by_engines(found: Sequence[IndependentEngines]) -> list[list[IndependentEngines]]:
    """Return the routers' comparisons grouped by metric and engines, in order of first appearance."""
    groups: dict[tuple[str, tuple[str, ...]], list[IndependentEngines]] = {}
    for one in found:
        groups.setdefault((one.metric, one.alone), []).append(one)
    return list(groups.values())


def engines_sentence(found: Sequence[IndependentEngines]) -> str:
    """Return a sentence with the token rate that a set of engines allows, and the share that routers achieve.

    `found` are the comparisons of routers over the same engines, at least one.
    """
    first = found[0]
    metric = METRICS[first.metric]
    levels = ", ".join(f"{metric.text(level.bound)} at c{level.concurrency}" for level in first.levels)
    routers = names_in_words([f"{one.routed} reached {_share(one)}" for one in found])
    return (
        f"{len(first.alone)} independent engines at best = {made_of(first)}: {metric.title.lower()} in "
        f"{metric.unit} {levels}; of this best, {routers}"
    )


def _share(found: IndependentEngines) -> str:
    percents = [level.percent for level in found.levels if level.percent is not None]
    if not percents:
        return "an unknown share"
    low, high = min(percents), max(percents)
    return f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"


def made_of(found: IndependentEngines) -> str:
    """Return as text how the upper bound is computed from the engines' rates, such as "2 × solo at c/2"."""
    names = dict.fromkeys(found.alone)
    count = len(found.alone)
    parts = (f"{found.alone.count(name)} × {name}" if found.alone.count(name) > 1 else name for name in names)
    return f"{' + '.join(parts)} at c/{count}"


def beyond_sentences(found: IndependentEngines) -> Iterator[str]:
    """Yield a sentence for each target that exceeds the engines' upper bound, with the concurrencies."""
    for name in dict.fromkeys(name for level in found.levels for name in level.beyond):
        where = names_in_words([f"c{level.concurrency}" for level in found.levels if name in level.beyond])
        best = f"the best of {len(found.alone)} independent engines"
        yield f"{name} exceeds {best} at {where}: no routing over them can match it there"


def _is_router(series: Series) -> bool:
    return len(series.engines) > 1


def _alone(routed: Series, series: Sequence[Series]) -> list[Series]:
    """Return one series for each engine behind the router `routed`, measured without the router.

    For an engine that was not measured alone, use the series of another engine of the router, or else that of
    a single engine in a published table. Return an empty list if there is no series to use, or if `routed` is
    not a router.
    """
    if not _is_router(routed):
        return []
    single = [one for one in series if len(one.engines) == 1 and one.model == routed.model]
    own = {one.engines[0]: one for one in reversed(single) if one.source == routed.source}
    by_name = {one.engines[0]: one for one in reversed(single)} | own
    like = next((by_name[name] for name in routed.engines if name in by_name), None)
    like = like or next((one for one in single if one.published), None)
    return [] if like is None else [by_name.get(name, like) for name in routed.engines]


def _levels(
    routed: Series, alone: Sequence[Series], series: Sequence[Series], metric: str
) -> Iterator[EnginesLevel]:
    count = len(alone)
    others = [one for one in series if one not in alone and one is not routed and not _is_router(one)]
    for level in routed.levels:
        if level.load.position is not None:
            continue  # its load is not divided into numbers of requests
        each, left = divmod(level.load.concurrency, count)
        parts = [_figure(one, each, level) for one in alone]
        known = [part for part in parts if part is not None and metric in part.figures]
        if left or not each or len(known) < count:
            continue
        bound = _sum([part.figures[metric] for part in known])
        reached = level.figures.get(metric)
        ratio = None if reached is None else ratio_of(reached, bound)
        yield EnginesLevel(
            concurrency=level.load.concurrency,
            each=each,
            bound=bound.mean,
            routed=None if reached is None else reached.mean,
            percent=None if reached is None else 100 * reached.mean / bound.mean,
            significant=None if ratio is None or ratio.p is None else _is_shown(ratio, len(routed.levels)),
            beyond=tuple(
                one.name
                for one in others
                if (beside := _figure(one, level.load.concurrency, level)) is not None
                and metric in beside.figures
                and _exceeds(
                    beside.figures[metric],
                    bound,
                    tests=len(routed.levels) * len(others),
                    stated=all(part.published for part in (one, *alone)),
                )
            ),
        )


def _figure(series: Series, concurrency: int, like: SeriesLevel) -> SeriesLevel | None:
    """Return the level of a series at a concurrency and with the prompt and output lengths of level `like`.

    Return None if the series has no such level.
    """
    return next(
        (level for level in series.levels if level.load == replace(like.load, concurrency=concurrency)),
        None,
    )


def _sum(figures: Sequence[Value]) -> Value:
    """Return the sum of several values of a metric.

    Its mean is the sum of their means; its first run is the sum of their first runs, and so on.
    """
    runs = [sum(values) for values in zip(*(figure.runs for figure in figures), strict=False)]
    return value_of(sum(figure.mean for figure in figures), runs)


def _exceeds(figure: Value, bound: Value, *, tests: int, stated: bool) -> bool:
    """Return whether a target's value exceeds the upper bound significantly and beyond the noise floor.

    `tests` is the number of such tests, for a Bonferroni correction. Where single runs allow no test, return
    `stated`, which is True if all values are from published tables.
    """
    ratio = ratio_of(figure, bound)
    if ratio is None or ratio.ratio <= 1 or not ratio.beyond(NOISE_FLOOR_PERCENT):
        return False
    return stated if ratio.p is None else _is_shown(ratio, tests)


def _is_shown(ratio: Ratio, tests: int) -> bool:
    """Return whether a ratio with a p-value differs from 1 significantly and beyond the noise floor.

    `tests` is the number of such tests, for a Bonferroni correction.
    """
    return (ratio.p or 0.0) <= ERROR_RATE / max(1, tests) and ratio.beyond(NOISE_FLOOR_PERCENT)
