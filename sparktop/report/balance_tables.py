"""The balance of each group: tables for HTML and Markdown, and lines for plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table

_LONG = 500


def balances(snapshot: Snapshot) -> Table:
    """Return a table with the balance of each group: announced verdict and metrics, one row per group.

    The metrics are those of the newest judged time window. If any group's verdict on that window differs from
    the announced verdict, a column with the newer verdicts replaces the lead changes per minute.
    """
    differ = any(balance.word is not balance.word_now for balance in snapshot.balance)
    columns = (
        Column("group", Kind.NAME),
        Column("router", Kind.NAME),
        Column("balance", Kind.WORD),
        Column("now", Kind.WORD) if differ else Column("lead changes/min"),
        Column("since"),
        Column("period"),
        Column("lost"),
    )
    rows = (
        (
            cell.name(one.group),
            "none" if one.router is None else cell.name(one.router),
            UNKNOWN if _not_announced(one) else one.word.value,
            one.word_now.value if differ else _flips(one),
            UNKNOWN if one.since is None or _not_announced(one) else cell.time_of(one.since),
            cell.duration(one.period_s),
            cell.percent(one.lost_percent),
        )
        for one in snapshot.balance
    )
    return Table("Balance", columns, tuple(rows))


def shares(snapshot: Snapshot) -> Table:
    """Return a table of each backend: its load, its time nearly empty and its part of the requests."""
    columns = (
        Column("group", Kind.NAME),
        Column("backend", Kind.NAME),
        *(Column(title) for title in ("mean load", "nearly empty", "requests")),
    )
    rows = (
        (
            cell.name(one.group),
            cell.name(name),
            cell.rate(one.mean_load.get(name)),
            cell.percent(one.starved_percent.get(name)),
            UNKNOWN if (share := one.requests_share.get(name)) is None else cell.percent(100 * share),
        )
        for one in snapshot.balance
        for name in dict.fromkeys((*one.backends, *one.requests_share))
    )
    return Table("Balance by backend", columns, tuple(rows))


def _flips(balance: Balance) -> str:
    return UNKNOWN if balance.lead_changes_per_min is None else f"{balance.lead_changes_per_min:.1f}"


def reasons(snapshot: Snapshot) -> Table:
    """Return a table of the reasons, the cause and the hint of each group's verdict, one row each."""
    columns = (Column("group", Kind.NAME), Column("why", Kind.NAME))
    rows = [(cell.name(one.group), cell.name(text, _LONG)) for one in snapshot.balance for text in _said(one)]
    return Table("Why this balance", columns, tuple(rows))


def balance_lines(balances: Sequence[Balance], width: int) -> Iterator[str]:
    """Yield the balance of each group as lines of at most `width` cells.

    Each group has its verdict and metrics first, then the reasons, the cause and the hint.
    """
    for one in balances:
        figures = (
            f"{clean(one.group)}: {_words(one)}",
            "no router known" if one.router is None else "",
            f"since {one.since:%H:%M:%S} UTC" if one.since and one.bad else "",
            f"period {numbers.duration(one.period_s, 7).strip()}" if one.period_s else "",
            f"polled {one.sample_hz:.0f} times a second" if one.sample_hz and one.sample_hz >= 1.5 else "",  # noqa: PLR2004 - more than once
            f"strategy {clean(one.strategy)}" if one.strategy else "",
        )
        head = " · ".join(filter(None, figures))
        yield from wrap(f"balance of {head}", width, subsequent_indent="    ", break_on_hyphens=False)
        for text in _said(one):
            lines = wrap(clean(text, _LONG), width - 4, break_on_hyphens=False)
            yield from (f"{'    ' if number else '  '}{line}" for number, line in enumerate(lines))


def _not_announced(one: Balance) -> bool:
    """Return whether there is a verdict on the newest time window, but no announced verdict yet.

    A verdict is announced once two evaluations in a row agree on it.
    """
    return one.word is BalanceWord.UNKNOWN and one.word_now is not BalanceWord.UNKNOWN


def _words(one: Balance) -> str:
    """Return the announced verdict as text, with the verdict on the newest time window if that differs.

    If no verdict is announced yet, return the verdict on the newest time window.
    """
    if _not_announced(one):
        return f"{one.word_now.value} in the newest window, not announced yet"
    if one.word is one.word_now:
        return one.title
    return f"{one.word.value} (newest window: {one.word_now.value})"


def _said(one: Balance) -> Iterator[str]:
    yield from one.reasons
    if one.cause is not None:
        yield f"cause: {one.cause}"
    if one.hint is not None:
        yield f"hint: {one.hint}"
