"""The HTML document around a page: head, landmarks, navigation, and the form for the token."""

from __future__ import annotations

from urllib.parse import quote

from sparktop import __version__
from sparktop.browser.address import Kind, Page
from sparktop.browser.choice import MOST_WORDS
from sparktop.browser.picture import Picture
from sparktop.browser.tools import FILTER
from sparktop.report.page import templates

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
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" '
    'fill="#14181c"/><path d="M2 12h2V8h2v4h2V4h2v8h2V6h2v6" fill="none" stroke="#76b900" '
    'stroke-width="1.6"/></svg>\n'
)


def page_html(picture: Picture, page: Page, *, theme: str, themes: tuple[str, ...]) -> str:
    """Return the document of a page; `themes` are those that a viewer can choose, `theme` is the present."""
    return _written(
        "board.html",
        title=picture.title,
        theme=theme,
        themes=themes,
        version=__version__,
        picture=picture,
        page=page,
        menu=[(Page(kind).path, word, key, page.kind is kind) for kind, word, key in _MENU],
        keys=_KEYS,
        filter=FILTER,
        most_words=MOST_WORDS,
    )


def token_html(*, theme: str, next_path: str, is_wrong: bool) -> str:
    """Return the form that asks for the token, and then leads to `next_path`."""
    return _written(
        "token.html", title="sparktop: token", theme=theme, next_path=next_path, is_wrong=is_wrong
    )


def _written(name: str, *, theme: str, **values: object) -> str:
    return templates("sparktop.browser").get_template(name).render(theme=quote(theme), **values)
