"""The HTML document around a page: head, landmarks, navigation, and the form for the token."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from sparktop import __version__
from sparktop.browser.address import Kind, Page
from sparktop.browser.choice import MOST_WORDS
from sparktop.browser.picture import Picture
from sparktop.browser.tools import FILTER

_MENU = (
    (Kind.BOARD, "board", "esc"),
    (Kind.BALANCE, "balance", "b"),
    (Kind.EVENTS, "events", "e"),
    (Kind.SWEEPS, "sweeps", "h"),
)
"""The pages of the menu, their words and their keys."""
_KEYS = (
    ("esc", "the board; on it, back to its top"),
    ("b", "how evenly a router loads its backends"),
    ("w", "why this balance verdict"),
    ("e", "alerts and events"),
    ("h", "results of sweeps"),
    ("n", "the findings of a sweep"),
    ("/", "filter servers and machines by words; esc drops it"),
    ("o", "next order of servers and machines"),
    ("l", "on a wall: another list of the worst servers"),
    ("P", "the first machine, with its processes"),
    ("j ↓", "next panel"),
    ("k ↑", "previous panel"),
    ("enter", "the chosen panel alone"),
    ("p", "pause, and go on"),
    ("t", "next theme"),
    ("?", "these keys"),
)
_HEAD = """\
<!doctype html>
<html lang=en{attributes}>
<meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel=icon href="/icon.svg" type="image/svg+xml">
<link rel=stylesheet href="/style.css?{theme}" id=style>
"""
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" '
    'fill="#14181c"/><path d="M2 12h2V8h2v4h2V4h2v8h2V6h2v6" fill="none" stroke="#76b900" '
    'stroke-width="1.6"/></svg>\n'
)


def page_html(picture: Picture, page: Page, *, theme: str, themes: tuple[str, ...]) -> str:
    """Return the document of a page; `themes` are those that a viewer can choose, `theme` is the present."""
    attributes = f' data-themes="{escape(chr(10).join(themes))}"'
    attributes += f' data-columns="{picture.columns}" data-version="{__version__}"'
    head = _head(picture.title, theme, attributes)
    items = "".join(_item(kind, word, key, page) for kind, word, key in _MENU)
    keys = "".join(f"<dt><kbd>{escape(key)}</kbd></dt><dd>{escape(about)}</dd>" for key, about in _KEYS)
    return f"""{head}\
<script src="/board.js" defer></script>
<header>
<h1><a href="/" class=accent>sparktop</a></h1>
<p id=verdict role=status aria-live=polite>{picture.verdict}</p>
<p id=totals>{picture.totals}</p>
</header>
<nav aria-label="Pages"><ul>{items}
<li class=end><span id=state class=warn></span> <time id=time class=muted>{escape(picture.time)}</time></li>
<li><button id=pause type=button hidden>pause</button></li>
<li><button id=theme type=button hidden>theme</button></li>
<li><button id=help type=button hidden aria-label="keys">?</button></li></ul></nav>
{_filter(page)}\
<main id=main class=c{picture.columns} tabindex=-1>{picture.html}</main>
<noscript><p class=muted>Without script this is a still picture: load it again for a new one.</p></noscript>
<dialog id=keys aria-label="Keys"><dl>{keys}</dl><form method=dialog><button>close</button></form></dialog>
</html>
"""


def _filter(page: Page) -> str:
    """Return the form in which the filter of a page is typed; "" for a page without one."""
    if not page.has_choice:
        return ""
    kept = {name: value for name, value in page.choice.fields.items() if name != FILTER}
    hidden = "".join(
        f'<input type=hidden name={name} value="{escape(value)}">' for name, value in kept.items()
    )
    return (
        f'<form role=search id=search action="{escape(page.path)}">{hidden}<input type=search name={FILTER} '
        f'id={FILTER} value="{escape(page.choice.filter)}" maxlength={MOST_WORDS} aria-label="filter" '
        f'placeholder="filter: words in name, model, state …" autocomplete=off></form>\n'
    )


def token_html(*, theme: str, next_path: str, is_wrong: bool) -> str:
    """Return the form that asks for the token, and then leads to `next_path`."""
    wrong = "<p class=bad role=alert>This is not the token.</p>\n" if is_wrong else ""
    return f"""{_head("sparktop: token", theme)}\
<main><form method=post action="/login">
<h1 class=accent>sparktop</h1>
{wrong}<label>The token with which it was started
<input type=password name=token required autofocus autocomplete=current-password></label>
<input type=hidden name=next value="{escape(next_path)}">
<button>show the board</button>
</form></main>
</html>
"""


def _head(title: str, theme: str, attributes: str = "") -> str:
    return _HEAD.format(title=escape(title), theme=quote(theme), attributes=attributes)


def _item(kind: Kind, word: str, key: str, page: Page) -> str:
    current = " aria-current=page" if page.kind is kind else ""
    return f'<li><a href="{Page(kind).path}" data-key="{key}"{current}>{word}</a></li>\n'
