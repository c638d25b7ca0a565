"""Sentences on a search for SLO limits: at which concurrencies a target meets the SLO conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparktop.sweep.plan.slo import plain_words
from sparktop.sweep.result.results import Holds, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import METRICS, RATES
from sparktop.sweep.view.marks import drift_words

_NONE_FAILED = " at least: no level failed for sure"
_MORE_RUNS = "more runs narrow this"


def slo_sentences(result: SweepResult, name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield one sentence per target with the concurrencies at which it meets the SLO conditions.

    `name` escapes the names of targets and unknown conditions for the output format. Yield nothing if the
    sweep has no SLO conditions.
    """
    if result.slo is None:
        return
    wanted = " and ".join(_plain(one, name) for one in result.slo.conditions)
    for target, holds in result.slo.holds_to.items():
        found = result.target(target)
        if holds.from_interval is not None:
            answer = _range(holds, *holds.from_interval)
            if holds.concurrency is None and found is not None:
                answer += "".join(_most(found, result.slo.conditions))
        else:
            answer = _up_to(holds)
        verb = "hold" if len(result.slo.conditions) > 1 else "holds"
        drift = drift_words(found) if found is not None else ""
        if drift:
            answer = answer.removesuffix(_NONE_FAILED)
        yield f"{name(target)}: {wanted} {verb} {answer}{drift}"


def _plain(condition: str, name: Callable[[str], str]) -> str:
    """Return a condition in plain words; one that is not known is escaped by `name`."""
    words = plain_words(condition)
    return name(words) if words == condition else words


def _up_to(holds: Holds) -> str:
    """Return the end of a sentence on the highest concurrency that meets the SLO conditions.

    An example is "to c = 16 and no further". Used if no condition requires a minimum concurrency.
    """
    surely, most = holds.concurrency, holds.interval[1]
    if surely is None:
        if most == 0:
            return "at no concurrency"
        bound = "" if most is None else f", and surely not beyond c = {most}"
        return f"at no concurrency for sure{bound} ({_MORE_RUNS})"
    if most is None:
        return f"to c = {surely}{_NONE_FAILED}"
    if most == surely:
        return f"to c = {surely} and no further"
    return f"to c = {surely}, surely not beyond {most} ({_MORE_RUNS})"


def _range(holds: Holds, may_from: int | None, surely_from: int | None) -> str:
    """Return the end of a sentence on the range of concurrencies that meet all SLO conditions.

    An example is "from c = 4 to 16". Used if some conditions require a minimum concurrency: `may_from` is the
    lowest concurrency at which these conditions may hold, `surely_from` the lowest at which they certainly
    hold; None if unknown.
    """
    least, most = may_from or 1, holds.interval[1]
    first, last = holds.from_concurrency, holds.concurrency
    if first is not None and last is not None:
        earlier = f" (perhaps from {least})" if least < first else ""
        if most is None:
            return f"from c = {first}{earlier} to {last}, the largest tried"
        later = f" (perhaps to {most})" if most > last else ""
        return f"from c = {first}{earlier} to {last}{later}"
    if most is not None and most < least:
        return f"never all at once: some need c ≥ {least}, others c ≤ {most}"
    takes = f"c = {least} at least" if surely_from is None else f"c = {least} to {surely_from}"
    bound = "" if most is None else f", and {most} at most"
    return f"at no concurrency for sure: it takes {takes}{bound}"


def _most(target: TargetResult, conditions: tuple[str, ...]) -> Iterator[str]:
    """Yield, for each rate that an SLO condition limits, a text with the highest mean rate of all levels.

    The text also names the concurrency of the level that reached this mean.
    """
    for name in (condition.split()[0] for condition in conditions):
        rates = [
            (rate.mean, level.concurrency)
            for level in target.levels
            if name in RATES and (rate := level.rate(name)) is not None
        ]
        if rates:
            value, concurrency = max(rates)
            metric = METRICS[name]
            yield f"; most {metric.title.lower()}: {metric.text(value)} {metric.unit} at c = {concurrency}"
