"""Notes for the user on a comparison: differing definitions and loads, missing tests, doubtful levels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from sparktop.model.load import LoadPoint
from sparktop.sweep.compare.alignment import length_notes
from sparktop.sweep.compare.series import Series, SeriesLevel, TableRule
from sparktop.sweep.result.comparison import ComparisonRow
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.terms.doubts import WORDS

UNLIKE_LENGTHS = "not alike: prompt / output tokens"
"""Beginning of the note on series that were measured with other lengths."""
NO_TEST = "no test possible (*): single runs, or published means"
CLOCK_SHIFT_PERCENT = 3.0
"""Clock difference between compared levels beyond which the machine was not in the same state."""


def definitions_of(series: Sequence[Series], metrics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the definition of each metric in each series: by metric, then by name of the series.

    The result has only the metrics in `metrics` that at least one series defines differently from sparktop.
    """
    own = {name for one in series for name in one.definitions if name in metrics}
    return {
        name: {
            one.name: one.definitions.get(name, METRICS[name].definition)
            for one in series
            if name in one.metrics()
        }
        for name in METRICS
        if name in own
    }


def notes_of(
    series: Sequence[Series],
    rows: Sequence[ComparisonRow],
    pair: tuple[str, str] | None,
    table: TableRule | None,
) -> Iterator[str]:
    """Yield the notes on a comparison, each at most a sentence.

    `pair` names two series of the same server, whose difference is taken for noise. `table` states what the
    percentages of a published table refer to; it is None unless a single published table is compared.
    """
    if any(row.significant is None for row in rows):
        yield _untested(rows)
    if any(row.winner_vs == "table" for row in rows) and table is not None:
        rule = f"winner against {table.first} up to the crossover, against {table.then} after it"
        yield f"percent as the table states it: {rule}"
    if pair is not None:
        yield f"{pair[0]} and {pair[1]} are the same server: what they differ by is taken for noise"
    yield from _other_windows(series, rows)
    yield from _differing("requests came", series, lambda one: one.shape and one.shape.value)
    yield from _differing("model", series, lambda one: one.model)
    own = any(one.prompts for one in series)
    yield from _differing("prompts", series, lambda one: (one.prompts or "made ones") if own else None)
    more = any(one.requests for one in series)
    yield from _differing("requests", series, lambda one: (one.requests or "nothing added") if more else None)
    yield from _other_lengths(series, rows)
    yield from length_notes(series)
    yield from _ranges(rows)
    simulated = [one.name for one in series if one.simulated]
    if simulated:
        yield f"simulated: {', '.join(simulated)}"
    yield from _clock_shifts(series)
    yield from _refused(series)
    yield from _in_doubt(series)
    yield from _own_notes(series)


def _ranges(rows: Sequence[ComparisonRow]) -> Iterator[str]:
    names = dict.fromkeys(name for row in rows for name in row.ranges)
    if names:
        yield f"given as ranges, compared by their nearest end: {', '.join(names)}"


def _untested(rows: Sequence[ComparisonRow]) -> str:
    """Return the note that no test was possible; it names the metrics, unless it applies to all of them."""
    if all(row.significant is None for row in rows):
        return NO_TEST
    titles = dict.fromkeys(METRICS[row.metric].title for row in rows if row.significant is None)
    return f"{NO_TEST}, in rows of {', '.join(titles)}"


def _other_windows(series: Sequence[Series], rows: Sequence[ComparisonRow]) -> Iterator[str]:
    metrics = {row.metric for row in rows}
    means = definitions_of(series, metrics).items()
    unlike = [METRICS[metric].title for metric, texts in means if len(set(texts.values())) > 1]
    if unlike:
        yield f"not the same window everywhere, see the definitions: {', '.join(unlike)}"


def _differing(what: str, series: Iterable[Series], of: Callable[[Series], str | None]) -> Iterator[str]:
    by_value: dict[str, list[str]] = {}
    for one in series:
        value = of(one)
        if value is not None:
            by_value.setdefault(value, []).append(one.name)
    if len(by_value) > 1:
        parts = (f"{value} ({', '.join(names)})" for value, names in by_value.items())
        yield f"not alike: {what}: {'; '.join(parts)}"


def _other_lengths(series: Sequence[Series], rows: Sequence[ComparisonRow]) -> Iterator[str]:
    if any(row.pp is not None or row.tg is not None for row in rows):
        return
    yield from _differing("prompt / output tokens", series, _lengths)


def _lengths(series: Series) -> str | None:
    known = {(level.load.pp, level.load.tg) for level in series.levels}
    if len(known) != 1:
        return None
    pp, tg = known.pop()
    return None if pp is None and tg is None else f"{'?' if pp is None else pp} / {'?' if tg is None else tg}"


def _clock_shifts(series: Sequence[Series]) -> Iterator[str]:
    clocks: dict[tuple[LoadPoint, str], list[float]] = {}
    for level in (level for one in series for level in one.levels):
        for node, clock in level.sm_clock_mhz.items():
            clocks.setdefault((level.load.point, node), []).append(clock)
    for (point, node), values in sorted(clocks.items()):
        low, high = min(values), max(values)
        if low > 0 and 100 * (high / low - 1) > CLOCK_SHIFT_PERCENT:
            yield f"clock_shift: {point.short}: SM clock of {node} {low:.0f} to {high:.0f} MHz"


def _refused(series: Sequence[Series]) -> Iterator[str]:
    for one in series:
        lengths: dict[str, list[str]] = {}
        for load, words in one.refused.items():
            length = "own prompts" if load.pp is None else f"{load.pp:,} tokens in"
            lengths.setdefault(words, []).append(length)
        for words, refused in lengths.items():
            yield f"{one.name}: ❌ {', '.join(dict.fromkeys(refused))}: {words}"


def _in_doubt(series: Sequence[Series]) -> Iterator[str]:
    for one in series:
        places: dict[str, list[str]] = {}
        for level in one.levels:
            for mark in level.validity:
                places.setdefault(WORDS.get(mark, mark), []).append(_where(level, one))
        doubts = (
            f"{word} at {'all' if len(where) == len(one.levels) > 1 else ', '.join(where)}"
            for word, where in places.items()
        )
        if places:
            yield f"{one.name}: warnings: {'; '.join(doubts)}"


def _where(level: SeriesLevel, series: Series) -> str:
    load = level.load
    return load.point.short + (f" {load.pp:,} in" if series.has_lengths and load.pp is not None else "")


def _own_notes(series: Sequence[Series]) -> Iterator[str]:
    by_note: dict[str, list[Series]] = {}
    for one in series:
        for note in one.notes:
            by_note.setdefault(note, []).append(one)
    for note, ones in by_note.items():
        sources = {one.source for one in ones}
        whole = len(ones) > 1 and len(sources) == 1
        yield f"{sources.pop() if whole else ', '.join(one.name for one in ones)}: {note}"
