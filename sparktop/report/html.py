"""A snapshot as a self-contained web page: the screen as a picture, and all values in tables.

The template escapes all text. In addition, the page's Content-Security-Policy forbids it to load anything
or to run scripts.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from sparktop.model.plain import json_time
from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.figures import STATE_ROLES, WORD_ROLES
from sparktop.report import tables
from sparktop.report.tables import CellKind, Table, without_stale

if TYPE_CHECKING:
    from jinja2 import Environment


COLORS = """\
:root { color-scheme: light dark; --page: #f7f8fa; --card: #ffffff; --text: #1c232c; --muted: #5b6673;
  --line: #d9dee5; --good: #2d7a3e; --warn: #9a5b00; --bad: #b3261e; --info: #0a5cc0;
  --badge: #9a5b00; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #0e1217; --card: #161c24; --text: #d7dde5; --muted: #93a0b0; --line: #2a333f;
    --good: #7bd88f; --warn: #f5b83d; --bad: #ff7b72; --info: #6cb2ff; --badge: #f5b83d; }
}
"""
"""The colours by role, as CSS variables of a page or of an SVG file."""


@cache
def templates(package: str) -> Environment:
    """Return the templates of a package, which escape all values that are not `Markup`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # late: most starts write no page

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page(name: str, **values: object) -> str:
    """Return a self-contained page from the template `name` and its values."""
    from markupsafe import Markup

    return templates("sparktop.report").get_template(name).render(colors=Markup(COLORS), **values)  # noqa: S704 - text of this package


_OTHER_WORDS = {"critical": "bad", "warning": "warn", "alive": "good"}
"""The roles of words that are no state of a backend and no verdict on a group."""


def render(snapshot: Snapshot, screen: str) -> str:
    """Return the snapshot as an HTML page; `screen` is the picture of the screen, as trusted SVG."""
    from markupsafe import Markup

    snapshot = without_stale(snapshot)
    headline = tables.headline(snapshot)
    return page(
        "snapshot.html",
        title=f"sparktop snapshot, {headline}",
        headline=headline,
        time=json_time(snapshot.taken_at),
        simulated=snapshot.simulated,
        totals=tables.totals(snapshot),
        screen=Markup(screen.strip()),  # noqa: S704 - a picture of ours
        omission=tables.omission(snapshot),
        tables=[_table_values(table) for table, _ in tables.snapshot_tables(snapshot, detailed=True)],
        rate_windows=tables.rate_windows(snapshot.backends),
        word_roles=_word_roles(),
    )


def _word_roles() -> list[tuple[str, list[str]]]:
    """Return (role, CSS selectors) of the words that have that role on the screen."""
    roles = _OTHER_WORDS | {word.value: role for word, role in STATE_ROLES.items()}
    roles |= {word.said: role for word, role in WORD_ROLES.items()}
    words_of: dict[str, list[str]] = {}
    for word, role in roles.items():
        words_of.setdefault(role, []).append("".join(f".{re.escape(part)}" for part in word.split()))
    return list(words_of.items())


def _table_values(a_table: Table) -> tuple[str, list[tuple[str, str]], list[list[tuple[str, str]]]]:
    """Return the title, headings and rows of a table; each heading and cell is a pair (CSS class, text)."""
    heads = [(column.kind.value, column.title) for column in a_table.columns]
    kinds = [column.kind for column in a_table.columns]
    # Words come from sparktop and are few, so each can have a colour in the style sheet.
    rows = [
        [
            (f"word {text}" if kind is CellKind.WORD else kind.value, text)
            for kind, text in zip(kinds, row, strict=True)
        ]
        for row in a_table.rows
    ]
    return a_table.title, heads, rows
