"""Columns of the table of levels: which value of a level stands in which, and how it is written."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.capacity_view import ConditionBar
from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import Value
from sparktop.model.sweep_view import ResultRow, SweepView


class Column(Struct, frozen=True):
    """One column of values in the table of levels."""

    heading: str
    width: int
    metric: str | None
    """Key of the column's rank in `ResultRow.ranks`; None for a column without ranks."""
    text: Callable[[ResultRow], str]


def _rate(name: str) -> Callable[[ResultRow], str]:
    def text(row: ResultRow) -> str:
        figure = row.figures.get(name)
        return rate_text(None if figure is None else figure.mean)

    return text


def rate_text(value: float | None) -> str:
    """Format a rate with at most six digits: "56.2", "408", "11,466", "123k"; "–" if unknown."""
    return numbers.rate(value, 6).strip()


def _ms(value: float | None) -> str:
    return numbers.duration(None if value is None else value / 1000, 7).strip()


def _spread(row: ResultRow) -> str:
    return interval_text(row.figures.get(row.rate or ""))


def interval_text(figure: Value | None) -> str:
    """Format a 95 % confidence interval as its half-width in percent of the mean, such as "±2.1 %".

    "–" without an interval.
    """
    if figure is None or figure.low is None or figure.high is None or figure.mean <= 0:
        return numbers.UNKNOWN
    half = 100 * (figure.high - figure.low) / 2 / figure.mean
    return f"±{half:.1f} %" if half < 9.95 else f"±{half:.0f} %"


def _failed(row: ResultRow) -> str:
    ended = row.ok + row.failed
    # Files of other tools may lack the number of requests.
    return f"{row.failed}/{ended}" if ended or row.cancelled else numbers.UNKNOWN


def _growth(row: ResultRow) -> str:
    """Return by how much the TTFT grows each second, such as "+0.43 s/s"; "" for a level that keeps up."""
    return "" if row.ttft_growth is None else f"{row.ttft_growth:+.2f} s/s"


def _per_s(row: ResultRow) -> str:
    known = row.figures.get("requests_per_s")
    return numbers.UNKNOWN if known is None else f"{known.mean:.2f}"


def _number(name: str, digits: int, unit: str = "") -> Callable[[ResultRow], str]:
    """Return the text of a figure of agents."""

    def text(row: ResultRow) -> str:
        value = row.conversations.get(name)
        return numbers.UNKNOWN if value is None else f"{value:,.{digits}f}{unit}"

    return text


def _mean_ms(name: str) -> Callable[[ResultRow], str]:
    """Return the text of the mean of a latency, as curves and comparisons show it, too."""

    def text(row: ResultRow) -> str:
        known = row.figures.get(name)
        return _ms(None if known is None else known.mean)

    return text


def _main_rate(row: ResultRow) -> str:
    figure = row.figures.get(row.rate or "")
    return rate_text(None if figure is None else figure.mean)


def _accepted(row: ResultRow) -> str:
    share = row.spec_accept_percent
    return numbers.UNKNOWN if share is None else f"{share:.0f} %"


_ACCEPTED = Column("accepted", 8, None, _accepted)
"""The share of drafted tokens that was accepted; known only of servers with speculative decoding."""
COLUMNS = (
    Column("decode", 8, None, _main_rate),
    Column("TTFT mean", 10, "ttft_ms", _mean_ms("ttft_ms")),
    _ACCEPTED,
    Column("prefill", 8, "prefill_tps", _rate("prefill_tps")),
    Column("95 %", 7, None, _spread),
    Column("peak", 8, "peak_tps", _rate("peak_tps")),
    Column("p95", 8, None, lambda row: _ms(row.ttft_p95_ms)),
    Column("failed", 7, None, _failed),
    Column("tok/s each", 10, None, lambda row: rate_text(row.stream_p50_tps)),
    Column("runs", 5, None, lambda row: str(row.runs) if row.runs else numbers.UNKNOWN),
    Column("p50", 8, None, lambda row: _ms(row.ttft_p50_ms)),
)
"""Columns in order of importance: narrow screens show only the first ones."""
RATE_COLUMNS = (
    Column("TTFT due", 9, "ttft_due_ms", lambda row: _growth(row) or _mean_ms("ttft_due_ms")(row)),
    Column("done /s", 8, None, _per_s),
    Column("output", 8, "output_tps", _rate("output_tps")),
    _ACCEPTED,
    Column("p95", 8, None, lambda row: _ms(row.ttft_p95_ms)),
    Column("E2E due", 8, "e2e_due_ms", _mean_ms("e2e_due_ms")),
    Column("failed", 7, None, _failed),
    Column("tok/s each", 10, None, lambda row: rate_text(row.stream_p50_tps)),
    Column("runs", 5, None, lambda row: str(row.runs) if row.runs else numbers.UNKNOWN),
)
"""The columns for requests at a rate, in order of importance."""
AGENT_COLUMNS = (
    Column("tool p50", 8, None, lambda row: _ms(row.conversations.get("tool_p50_ms"))),
    Column("tool p90", 8, None, lambda row: _ms(row.conversations.get("tool_p90_ms"))),
    Column("human p50", 9, None, lambda row: _ms(row.conversations.get("human_p50_ms"))),
    Column("cached", 6, None, _number("cached_percent", 0, " %")),
    Column("output", 8, "output_tps", _rate("output_tps")),
    _ACCEPTED,
    Column("fit KV", 6, None, _number("fit", 0)),
    Column("human p90", 9, None, lambda row: _ms(row.conversations.get("human_p90_ms"))),
    Column("answer p50", 10, None, lambda row: _ms(row.conversations.get("request_p50_ms"))),
    Column("tok/s each", 10, None, lambda row: rate_text(row.stream_p50_tps)),
    Column("calls", 6, None, _number("calls", 0)),
    Column("failed", 7, None, _failed),
)
"""The columns for agents: TTFT after a tool and after a person, model time of a person's whole request."""
SHOWN = (
    "tool p50",
    "tool p90",
    "human p50",
    "human p90",
    "answer p50",
    "cached",
    "done /s",
    "output",
    "total",
    "TTFT due",
    "E2E due",
    "waits",
    "in flight",
    "fit KV",
    "calls",
    "prefill",
    "decode",
    "accepted",
    "95 %",
    "peak",
    "TTFT mean",
    "p50",
    "p90",
    "p95",
    "tok/s each",
    "failed",
    "runs",
)
"""Headings in the order in which columns stand in the table."""
_COLUMNS_OF = {
    LoadKind.CONCURRENCY: COLUMNS,
    LoadKind.RATE: RATE_COLUMNS,
    LoadKind.AGENTS: AGENT_COLUMNS,
}
_RATE_HEADINGS = {"output_tps": "output", "total_tps": "total"}


def columns_of(view: SweepView, kind: LoadKind) -> tuple[Column, ...]:
    """Return the columns for a kind of load; the first token rate is the one that judges the levels."""
    if kind is not LoadKind.CONCURRENCY:
        return _COLUMNS_OF[kind]
    rate = next((row.rate for row in view.rows if row.rate is not None), None)
    first = replace(COLUMNS[0], heading=_RATE_HEADINGS.get(rate or "", "decode"), metric=rate)
    return (first, *COLUMNS[1:])


_LEAST_CONDITION, _MOST_CONDITION = 6, 12


def search_columns(view: SweepView) -> tuple[Column, ...]:
    """Return the columns of a capacity search: probability that a level holds, then each condition.

    The condition that decides is the first one. Empty for other sweeps.
    """
    tried = {(search.target, one.point): one for search in view.searches for one in search.tried if one.point}
    names = next(([bar.name for bar in one.bars] for one in tried.values() if one.bars), [])

    def holds(row: ResultRow) -> str:
        one = tried.get((row.key.target, row.key.point))
        return numbers.UNKNOWN if one is None or one.holds_percent is None else _chance(one.holds_percent)

    def value(index: int) -> Callable[[ResultRow], str]:
        def text(row: ResultRow) -> str:
            one = tried.get((row.key.target, row.key.point))
            return numbers.UNKNOWN if one is None or len(one.bars) <= index else _bare(one.bars[index])

        return text

    conditions = (
        Column(name := _short(full), max(_LEAST_CONDITION, len(name)), None, value(index))
        for index, full in enumerate(names)
    )
    return (Column("holds", 6, None, holds), *conditions) if tried else ()


def _chance(percent: float) -> str:
    """Return a probability, at the ends as "< 1 %" and "> 99 %": nothing measured is quite certain."""
    return "< 1 %" if percent < 1 else "> 99 %" if percent > 99 else f"{percent:.0f} %"


def _bare(bar: ConditionBar) -> str:
    """Return the value of a condition without its rate's unit; "> 2 s" where hardly any request has one."""
    value = bar.value.removesuffix(" tok/s")
    return value if len(value) <= _MOST_CONDITION else f"> {bar.limit}"


def _short(name: str) -> str:
    """Return the name of a condition as a heading: "p90 TTFT after a tool" is "p90 tool"."""
    quantile, _, rest = name.partition(" TTFT after a ")
    return f"{quantile} {rest}" if rest else name
