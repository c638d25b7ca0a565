"""A snapshot as a self-contained web page: the screen as a picture, and all values in tables.

All text from outside is escaped. In addition, the page's Content-Security-Policy forbids it to load anything
or to run scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.roles import STATE_ROLES, WORD_ROLES
from sparktop.report import backend_tables, balance_tables, fleet_tables, fleets, large, node_tables
from sparktop.report.current import current
from sparktop.report.page import badge, page, table
from sparktop.report.ranks import ranks_table
from sparktop.report.table import Column, Kind, Table

_EVENTS, _PROCESSES = 500, 25
_STYLE = """\
.totals { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; }
.totals div { min-width: 8.5rem; padding: .6rem 1rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--card); }
.totals dt { color: var(--muted); font-size: .8rem; }
.totals dd { margin: 0; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.screen { margin: 1.25rem 0; overflow-x: auto; }
.screen svg { display: block; width: 100%; min-width: 44rem; height: auto; }
td.name { min-width: 8rem; }
td.word { white-space: nowrap; }
tr:has(td.unreachable) .figure { color: var(--muted); }
"""
_OTHER_WORDS = {"critical": "bad", "warning": "warn", "alive": "good"}
"""The roles of words that are no state of a backend and no verdict on a group."""
_FOOTER = (
    "latencies of the time in column 'last'. – is unknown, &lt;, &gt; and &quot;to&quot; are bounds: the "
    "histogram shows no more. "
    "The tables leave out the figures of a source that does not answer."
)


def render(snapshot: Snapshot, screen: str) -> str:
    """Return the snapshot as an HTML page; `screen` is the picture of the screen, as trusted SVG."""
    snapshot = current(snapshot)
    first = (large.groups_table(snapshot), large.worst_table(snapshot))
    shown = [*first, *_tables(large.narrowed(snapshot))]
    omission = f"<p>{escape(words)}</p>\n" if (words := large.omission(snapshot)) else ""
    blocks = omission + "".join(_block(one) for one in shown if one.rows)
    totals = "".join(
        f"<div><dt>{escape(title)}</dt><dd>{escape(figure)}</dd></div>"
        for title, figure in fleet_tables.totals(snapshot)
    )
    rates = f"Token rates are {backend_tables.rate_windows(snapshot.backends)}"
    head, time = fleet_tables.headline(snapshot), fleet_tables.exact_time(snapshot)
    return page(
        f"sparktop snapshot, {head}",
        f"<h1>sparktop snapshot</h1>{badge(simulated=snapshot.simulated)}"
        f'<p><time datetime="{time}">{escape(head)}</time></p>',
        f'<dl class="totals">{totals}</dl>\n'
        f'<div class="screen" role="img" aria-label="The screen; its figures are in the tables below">\n'
        f"{screen.strip()}\n</div>\n{blocks}<footer>{rates}, {_FOOTER}</footer>\n",
        _STYLE + _word_style(),
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


def _word_style() -> str:
    """Return the CSS rules that give each word the role it has on the screen."""
    roles: dict[str, str] = {**_OTHER_WORDS}
    roles |= {word.value: role for words in (STATE_ROLES, WORD_ROLES) for word, role in words.items()}
    words_of: dict[str, list[str]] = {}
    for word, role in roles.items():
        words_of.setdefault(role, []).append("".join(f".{re.escape(part)}" for part in word.split()))
    return "".join(
        f"{', '.join(words)} {{ color: var(--{role});{'' if role == 'muted' else ' font-weight: 600;'} }}\n"
        for role, words in words_of.items()
    )


def _block(shown: Table) -> str:
    heads = ((column.kind.value, escape(column.title)) for column in shown.columns)
    rows = (
        (_cell(column, text) for column, text in zip(shown.columns, row, strict=True)) for row in shown.rows
    )
    return f"<h2>{escape(shown.title)}</h2>\n{table(heads, rows)}"


def _cell(column: Column, text: str) -> tuple[str, str]:
    # Words come from sparktop and are few, so each can have a colour in the style sheet.
    return f"word {text}" if column.kind is Kind.WORD else column.kind.value, escape(text)
