"""A snapshot as a self-contained web page: the screen as a picture, and all values in tables.

All text from outside is escaped. In addition, the page's Content-Security-Policy forbids it to load anything
or to run scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sparktop.model.snapshot import Snapshot
from sparktop.report import backend_tables, balance_tables, fleet_tables, node_tables
from sparktop.report.current import current
from sparktop.report.table import Column, Kind, Table

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_EVENTS, _PROCESSES = 500, 25
_STYLE = """\
:root { color-scheme: light dark; --page: #f7f8fa; --card: #ffffff; --text: #1c232c; --muted: #5b6673;
  --line: #d9dee5; --good: #2d7a3e; --warn: #9a5b00; --bad: #b3261e; --badge: #9a5b00; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0e1217; --card: #161c24; --text: #d7dde5; --muted: #93a0b0; --line: #2a333f;
    --good: #7bd88f; --warn: #f5b83d; --bad: #ff7b72; --badge: #f5b83d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 92rem;
  background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 .9rem; }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -.01em; }
h2 { margin: 2rem 0 .6rem; font-size: 1.05rem; }
p { margin: .2rem 0; color: var(--muted); }
.badge { padding: .05rem .6rem; border: 1px solid var(--badge); border-radius: 1rem; color: var(--badge);
  font-size: .8rem; font-weight: 600; text-transform: uppercase; letter-spacing: .06em; }
.totals { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; }
.totals div { min-width: 8.5rem; padding: .6rem 1rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--card); }
.totals dt { color: var(--muted); font-size: .8rem; }
.totals dd { margin: 0; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.screen { margin: 1.25rem 0; overflow-x: auto; }
.screen svg { display: block; width: 100%; min-width: 44rem; height: auto; }
.table { overflow-x: auto; border: 1px solid var(--line); border-radius: .6rem; background: var(--card); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .4rem .9rem; text-align: left; vertical-align: top; }
th { color: var(--muted); font-size: .8rem; font-weight: 600; white-space: nowrap; }
td { border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.name { min-width: 8rem; }
td.word { white-space: nowrap; }
.critical, .unreachable { color: var(--bad); font-weight: 600; }
.warning, .loading, .preempting, .KV-full, .queueing,
.oscillating, .starved, .uneven { color: var(--warn); font-weight: 600; }
.busy, .bored, .alive, .balanced { color: var(--good); font-weight: 600; }
footer { margin-top: 2.5rem; color: var(--muted); font-size: .85rem; }
tr:has(td.unreachable) .figure { color: var(--muted); }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } }
"""
_FOOTER = (
    "latencies over the window named. – is unknown, &lt; and &gt; are bounds: the histogram says no more. "
    "The tables leave out the figures of a source that does not answer."
)


def render(snapshot: Snapshot, screen: str) -> str:
    """Return the snapshot as an HTML page; `screen` is the picture of the screen, as trusted SVG."""
    snapshot = current(snapshot)
    badge = ' <span class="badge">simulated</span>' if snapshot.simulated else ""
    blocks = "".join(_block(table) for table in _tables(snapshot) if table.rows)
    totals = "".join(
        f"<div><dt>{escape(title)}</dt><dd>{escape(figure)}</dd></div>"
        for title, figure in fleet_tables.totals(snapshot)
    )
    rates = f"Token rates are {backend_tables.rate_windows(snapshot.backends)}"
    head, time = escape(fleet_tables.headline(snapshot)), fleet_tables.exact_time(snapshot)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>sparktop snapshot, {head}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>sparktop snapshot</h1>{badge}<p><time datetime="{time}">{head}</time></p></header>\n'
        f'<dl class="totals">{totals}</dl>\n'
        f'<div class="screen" role="img" aria-label="The screen; its figures are in the tables below">\n'
        f"{screen.strip()}\n</div>\n{blocks}<footer>{rates}, {_FOOTER}</footer>\n</body>\n</html>\n"
    )


def _tables(snapshot: Snapshot) -> Iterator[Table]:
    """Yield all tables of the page in order: problems first."""
    backends, nodes = snapshot.backends, snapshot.nodes
    yield fleet_tables.alerts(snapshot)
    yield fleet_tables.troubles(snapshot)
    yield backend_tables.backend_load(backends)
    yield backend_tables.latencies(backends)
    yield backend_tables.backend_work(backends)
    yield backend_tables.backend_lanes(backends)
    yield backend_tables.backend_servers(backends, detailed=True)
    yield backend_tables.backend_counters(backends)
    yield fleet_tables.routers(snapshot)
    yield balance_tables.balances(snapshot)
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


def _block(table: Table) -> str:
    heads = "".join(
        f'<th class="{column.kind.value}">{escape(column.title)}</th>' for column in table.columns
    )
    rows = "".join(
        f"<tr>{''.join(_cell(column, text) for column, text in zip(table.columns, row, strict=True))}</tr>\n"
        for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="table"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody>\n</table></div>\n"
    )


def _cell(column: Column, text: str) -> str:
    # Words come from sparktop and are few, so each can have a colour in the style sheet.
    classes = f"word {text}" if column.kind is Kind.WORD else column.kind.value
    return f'<td class="{escape(classes)}">{escape(text)}</td>'
