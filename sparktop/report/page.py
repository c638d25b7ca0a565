"""The frame of a self-contained web page: its head, its style and its tables.

The page's Content-Security-Policy forbids it to load anything or to run scripts.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
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
_STYLE = """\
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
.table { overflow-x: auto; border: 1px solid var(--line); border-radius: .6rem; background: var(--card); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .4rem .9rem; text-align: left; vertical-align: top; }
th { color: var(--muted); font-size: .8rem; font-weight: 600; white-space: nowrap; }
td { border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
footer { margin-top: 2.5rem; color: var(--muted); font-size: .85rem; }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } }
"""


def page(title: str, head: str, body: str, style: str) -> str:
    """Return a page: `title` is text, `head` and `body` are HTML, `style` is CSS beyond the common style."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>\n{COLORS}{_STYLE}{style}</style>\n</head>\n<body>\n"
        f"<header>{head}</header>\n{body}</body>\n</html>\n"
    )


def badge(*, simulated: bool) -> str:
    """Return the HTML of a badge "simulated" if the values of the page are simulated, else ""."""
    return ' <span class="badge">simulated</span>' if simulated else ""


def table(heads: Iterable[tuple[str, str]], rows: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return an HTML table; each heading and each cell of a row is a pair (CSS class, HTML)."""
    lines = "".join(f"<tr>{_cells('td', row)}</tr>\n" for row in rows)
    return (
        f'<div class="table"><table>\n<thead><tr>{_cells("th", heads)}</tr></thead>\n'
        f"<tbody>\n{lines}</tbody>\n</table></div>\n"
    )


def _cells(tag: str, cells: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<{tag} class="{escape(kind)}">{text}</{tag}>' for kind, text in cells)
