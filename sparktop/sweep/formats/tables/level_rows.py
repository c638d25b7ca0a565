"""Builds the tables of a target in a sweep's report: throughput, latencies, and runs and marks by level.

A mark is a reason to doubt a level's metrics, or a reason why the level is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.document.grid import Cell, Grid
from sparktop.report.markdown import code
from sparktop.sweep.formats.tables.conversation_cells import AGENTS
from sparktop.sweep.formats.tables.figure_cells import load_of_level, load_words
from sparktop.sweep.result.results import LevelResult, TargetResult
from sparktop.sweep.terms.definitions import CALL_LATENCIES, METRICS
from sparktop.sweep.view.marks import PADDING, REFUSED, marks_of
from sparktop.values import dataclass

_WITH_SPREAD = ("decode_tps", "sustained_tps")
_RATES = (
    "prefill_tps",
    "decode_tps",
    "sustained_tps",
    "pure_decode_tps",
    "peak_tps",
    "output_tps",
    "total_tps",
)
_COARSE_FROM = 100
_MOST_MARKS = 2
"""Maximum number of marks named in a row; further marks are only counted."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table with one row per level."""

    head: str
    cell: Callable[[LevelResult], str]
    """Returns the text of the column's cell for a level; "–" if the value is unknown."""
    metric: str | None = None
    """Name of the metric whose definition the report must include."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The definition of a table with one row per level; columns without any known value are left out."""

    title: str
    columns: tuple[Column, ...]
    notes: bool = False
    """True to put the server's messages about refused prompt lengths, and the roofline, below the table."""

    def grid(self, target: TargetResult, title: str) -> Grid:
        """Return the table of a target's levels under the heading `title`.

        The table has no rows if no value of any column is known.
        """
        shown = self._shown(target)
        levels = target.in_order() if shown else ()
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (_load(level, target), *(column.cell(level) for column in shown)) for level in levels
        )
        notes = (*_refusals(levels), *_rooflines(levels)) if self.notes else ()
        left = {number for number, column in enumerate(shown, start=1) if column.head == "Warnings"}
        return Grid(title, ("Load", *(column.head for column in shown)), rows, frozenset({0, *left}), notes)

    def metrics(self, targets: Iterable[TargetResult]) -> set[str]:
        """Return the names of the metrics that this table shows for at least one of `targets`."""
        return {
            column.metric for target in targets for column in self._shown(target) if column.metric is not None
        }

    def _shown(self, target: TargetResult) -> list[Column]:
        return [
            column for column in self.columns if any(column.cell(level) != UNKNOWN for level in target.levels)
        ]


def level_words(level: LevelResult, target: TargetResult) -> str:
    """Return a level's load as text such as "c16"; with its lengths if the concurrency alone is ambiguous."""
    several = len({(one.point, one.depth) for one in target.levels}) < len(target.levels)
    return load_words(load_of_level(level), lengths=several)


def _load(level: LevelResult, target: TargetResult) -> str:
    """Return a level's load as text, after "❌" if the server refused this load."""
    words = level_words(level, target)
    return words if level.error is None else f"❌ {words}"


def _refusals(levels: Sequence[LevelResult]) -> Iterator[str]:
    """Yield one line of Markdown per refused prompt length, with the server's error message."""
    refused = {(level.pp, level.error) for level in levels if level.error is not None}
    for pp, words in sorted(refused, key=str):
        length = "" if pp is None else f" {pp:,} in:"
        yield f"❌{length} {code(words or '')}"


def _rooflines(levels: Sequence[LevelResult]) -> Iterator[str]:
    """Yield a line on the roofline: the tokens/s that the memory bandwidth allows a single request.

    Yield nothing if the roofline is unknown.
    """
    known = [
        (level.decode_tps.mean, level.roofline_percent)
        for level in levels
        if level.decode_tps is not None and level.roofline_percent
    ]
    if known:
        decode, percent = known[0]
        yield f"Roofline: {100 * decode / percent:.0f} tok/s for one request alone"


def _rate(name: str) -> Column:
    metric = METRICS[name]

    def cell(level: LevelResult) -> str:
        rate = level.rate(name)
        if rate is not None and rate.std is not None and name in _WITH_SPREAD:
            return f"{metric.text(rate.mean)} ± {metric.text(rate.std)}"
        return metric.text(rate.mean if rate else None)

    return Column(metric.title, cell, name)


def _latency(name: str, part: str) -> Column:
    metric = METRICS[name]

    def cell(level: LevelResult) -> str:
        latency = level.latency(name)
        return metric.text(getattr(latency, part) if latency else None)

    return Column(metric.title if part == "mean" else f"{metric.title} {part}", cell, name)


def _open_loop(head: str, name: str, digits: int = 2) -> Column:
    def cell(level: LevelResult) -> str:
        value = getattr(level.open_loop, name) if level.open_loop is not None else None
        return UNKNOWN if value is None else f"{value:,.{digits if value < _COARSE_FROM else 0}f}"

    return Column(head, cell)


def _growth(level: LevelResult) -> str:
    return UNKNOWN if level.open_loop is None else level.open_loop.growth_words or UNKNOWN


def _context(head: str, name: str) -> Column:
    """Return the column of a rate or latency of the runs that sent contexts alone."""
    metric = METRICS[name]

    def cell(level: LevelResult) -> str:
        found = None if level.context is None or not level.depth else level.context.figure(name)
        return metric.text(None if found is None else found.mean)

    return Column(head, cell, name)


def _found_percent(level: LevelResult) -> float | None:
    return None if level.context is None or not level.depth else level.context.found_percent


def _percent(head: str, value: Callable[[LevelResult], float | None]) -> Column:
    def cell(level: LevelResult) -> str:
        known = value(level)
        return UNKNOWN if known is None else f"{known:.0f} %"

    return Column(head, cell)


def _marks(level: LevelResult) -> str:
    """Return the names of a level's most serious marks, and how many others there are; "–" without marks.

    A mark is a reason to doubt the level's metrics, or a reason why it is slow. At most `_MOST_MARKS` are
    named, among them a reason why the level is slow if there is one; the report's list of marks has all.
    Padding and refusals are left out, because the table shows them elsewhere.
    """
    marks = [mark for mark in marks_of(level) if mark.code not in {PADDING, REFUSED}]
    named, left = marks[:_MOST_MARKS], marks[_MOST_MARKS:]
    if left and not left[-1].doubt and all(mark.doubt for mark in named):
        named[-1] = left[-1]
    more = f", {len(left)} more" if left else ""
    return ", ".join(mark.word for mark in named) + more or UNKNOWN


def _energy(level: LevelResult) -> str:
    joules = level.joules_per_token
    return UNKNOWN if joules is None else f"{joules:.3f}" if joules < 1 else f"{joules:,.2f}"


def _count(level: LevelResult, count: int) -> str:
    return f"{count:,}" if level.error is None else UNKNOWN


def _replayed(head: str, name: str) -> Column:
    """Return a column with a number of requests of recorded traffic; "–" for none, and if it is unknown."""

    def cell(level: LevelResult) -> str:
        count = getattr(level.replay, name) if level.replay is not None else None
        return f"{count:,}" if count else UNKNOWN

    return Column(head, cell)


def _failed(level: LevelResult) -> str:
    return str(level.requests.failed) if level.requests.failed else UNKNOWN


THROUGHPUT = Columns(
    "Throughput (tok/s)",
    (
        *(_rate(name) for name in _RATES),
        _percent("Accepted", lambda level: level.server.spec_accept_percent if level.server else None),
    ),
)
LATENCY = Columns(
    "Latency (ms)",
    (
        *(_latency("ttft_ms", part) for part in ("mean", "p50", "p90", "p99")),
        _latency("itl_ms", "mean"),
        _latency("e2e_ms", "mean"),
        _latency("e2e_ms", "p90"),
    ),
)
OPEN_LOOP = Columns(
    "Requests at a rate (latencies in ms)",
    (
        _open_loop("Arrived (/s)", "arrived_per_s"),
        _open_loop("Completed (/s)", "completed_per_s"),
        _open_loop("In flight", "in_flight_mean", 1),
        _open_loop("Most", "in_flight_max", 0),
        *(_latency("ttft_due_ms", part) for part in ("mean", "p50", "p90", "p99")),
        _latency("e2e_due_ms", "mean"),
        _latency("e2e_due_ms", "p90"),
        _latency("client_wait_ms", "mean"),
        Column("Growth", _growth),
    ),
)
CALLS = Columns(
    "Agents (latencies in ms)",
    (
        *(_latency(name, part) for name in CALL_LATENCIES for part in ("p50", "p90")),
        *(Column(*cell) for cell in AGENTS),
    ),
)
REPLAY = Columns(
    "Recorded traffic",
    (
        _percent("Cached", lambda level: level.replay.cached_percent if level.replay else None),
        _percent("Repeated", lambda level: level.replay.repeated_percent if level.replay else None),
        _replayed("Beyond context", "beyond_context"),
        _replayed("Not due", "not_due"),
    ),
)
CONTEXT = Columns(
    "Context",
    (
        _context("Prefill (tok/s)", "prefill_tps"),
        _context("Decode (tok/s)", "decode_tps"),
        _context("TTFT (ms)", "ttft_ms"),
        _percent("In the cache", _found_percent),
    ),
)
"""The runs that sent the context of levels with depth, and how much of it the prompts found in the cache."""
LEVELS = Columns(
    "Levels",
    (
        Column("Runs", lambda level: _count(level, level.runs)),
        Column("Requests", lambda level: _count(level, level.requests.ok)),
        Column("Failed", _failed),
        _percent("Padding", lambda level: level.padding_percent),
        _percent("Roofline", lambda level: level.roofline_percent),
        Column("J/token", _energy),
        Column("Warnings", _marks),
    ),
    notes=True,
)
TABLES: Sequence[Columns] = (
    THROUGHPUT,
    CALLS,
    OPEN_LOOP,
    REPLAY,
    LATENCY,
    CONTEXT,
    LEVELS,
)
