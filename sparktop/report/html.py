"""A snapshot as a self-contained web page: the screen as a picture, and all values in tables.

The template escapes all text. In addition, the page's Content-Security-Policy forbids it to load anything
or to run scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.figures import STATE_ROLES, WORD_ROLES
from sparktop.report import backend_tables, balance_tables, fleet_tables, fleets, large, node_tables
from sparktop.report.current import current
from sparktop.report.page import page
from sparktop.report.ranks import ranks_table
from sparktop.report.table import Column, Kind, Table

_EVENTS, _PROCESSES = 500, 25
_OTHER_WORDS = {"critical": "bad", "warning": "warn", "alive": "good"}
"""The roles of words that are no state of a backend and no verdict on a group."""


def render(snapshot: Snapshot, screen: str) -> str:
    """Return the snapshot as an HTML page; `screen` is the picture of the screen, as trusted SVG."""
    from markupsafe import Markup

    snapshot = current(snapshot)
    first = (large.groups_table(snapshot), large.worst_table(snapshot))
    shown = [*first, *_tables(large.narrowed(snapshot))]
    headline = fleet_tables.headline(snapshot)
    return page(
        "snapshot.html",
        title=f"sparktop snapshot, {headline}",
        headline=headline,
        time=fleet_tables.exact_time(snapshot),
        simulated=snapshot.simulated,
        totals=fleet_tables.totals(snapshot),
        screen=Markup(screen.strip()),  # noqa: S704 - a picture of ours
        omission=large.omission(snapshot),
        tables=[_block(one) for one in shown if one.rows],
        rate_windows=backend_tables.rate_windows(snapshot.backends),
        word_roles=_word_roles(),
    )


def _tables(snapshot: Snapshot) -> Iterator[Table]:
    """Yield all tables of the page in order: problems first."""
    backends, nodes = snapshot.backends, snapshot.nodes
    yield fleet_tables.alerts(snapshot)
    yield fleet_tables.troubles(snapshot)
    yield fleet_tables.standstills(snapshot)
    yield backend_tables.backend_load(backends)
    yield backend_tables.limits(backends)
    yield backend_tables.latencies(backends)
    yield backend_tables.backend_work(backends)
    yield backend_tables.also_reported(backends)
    yield ranks_table(backends)
    yield backend_tables.backend_lanes(backends)
    yield backend_tables.backend_servers(backends, detailed=True)
    yield backend_tables.backend_counters(backends)
    yield fleet_tables.routers(snapshot)
    yield fleets.fleets_table(snapshot.fleets)
    yield fleets.groups_table(snapshot.fleets)
    yield balance_tables.balances(snapshot)
    yield balance_tables.shares(snapshot)
    yield balance_tables.reasons(snapshot)
    yield node_tables.machines(nodes)
    yield node_tables.trends(nodes)
    yield node_tables.memory_parts(nodes)
    yield node_tables.gpus(nodes, detailed=True)
    yield node_tables.speeds(nodes)
    yield node_tables.links(nodes)
    yield node_tables.sensors(nodes)
    yield node_tables.rails(nodes)
    yield node_tables.processes(nodes, _PROCESSES)
    yield fleet_tables.events(snapshot, _EVENTS)


def _word_roles() -> list[tuple[str, list[str]]]:
    """Return (role, CSS selectors) of the words that have that role on the screen."""
    roles: dict[str, str] = {**_OTHER_WORDS}
    roles |= {word.value: role for words in (STATE_ROLES, WORD_ROLES) for word, role in words.items()}
    words_of: dict[str, list[str]] = {}
    for word, role in roles.items():
        words_of.setdefault(role, []).append("".join(f".{re.escape(part)}" for part in word.split()))
    return list(words_of.items())


def _block(shown: Table) -> tuple[str, list[tuple[str, str]], list[list[tuple[str, str]]]]:
    """Return the title, headings and rows of a table; each heading and cell is a pair (CSS class, text)."""
    heads = [(column.kind.value, column.title) for column in shown.columns]
    rows = [
        [_cell(column, text) for column, text in zip(shown.columns, row, strict=True)] for row in shown.rows
    ]
    return shown.title, heads, rows


def _cell(column: Column, text: str) -> tuple[str, str]:
    # Words come from sparktop and are few, so each can have a colour in the style sheet.
    return f"word {text}" if column.kind is Kind.WORD else column.kind.value, text
