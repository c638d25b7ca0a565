"""Links that choose what a board shows: orders or lists above it, and the words in a wall's lower edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from sparktop.analysis.state import Top
from sparktop.browser.address import Kind, Page
from sparktop.browser.markup import row_html
from sparktop.browser.picture import Link, Section
from sparktop.graphics.cells import cell_width
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.view import Sort
from sparktop.panels.board.wall import FILTER_NOTE, LISTS_NOTE
from sparktop.panels.board.wall_lines import KEY
from sparktop.panels.parts.figures import wrapped
from sparktop.panels.parts.text import Row, row_text

FILTER = "filter"
"""The element of a page in which the filter is typed, which a link with "#" leads to."""
_SORT_KEY = "o"
_GAP = 2
_EACH = 2
"""Rows of a link, so that a finger finds it."""


def tools(page: Page, snapshot: Snapshot, width: int, *, has_lists: bool) -> Section | None:
    """Return the links to the lists of a wall, or to the orders of a board, above what was ignored.

    Return None where there is nothing to choose: fewer than two servers and two machines.
    """
    choice = page.choice
    words = [f"{sentence}." for sentence in choice.ignored]
    if choice.filter and not snapshot.backends and not snapshot.nodes:
        words.append(f"No server or machine matches “{choice.filter}”.")
    rows: list[Row] = []
    links: list[Link] = []
    if has_lists:
        lists = {"groups": None, **{top.value: top for top in Top}}
        pages = {
            word: replace(page, choice=replace(choice, top=top, ignored=())) for word, top in lists.items()
        }
        now = "groups" if choice.top is None else choice.top.value
        rows, links = _choices("lists", pages, now, KEY, width)
    elif page.kind is Kind.BOARD and (choice.fields or max(len(snapshot.backends), len(snapshot.nodes)) > 1):
        pages = {one.value: replace(page, choice=replace(choice, sort=one, ignored=())) for one in Sort}
        rows, links = _choices("sorted", pages, choice.sort.value, _SORT_KEY, width)
    rows += [[(f" {line}", "warn")] for one in words for line in wrapped(one, width - 2)]
    heading = "Lists" if has_lists else "Order"
    return Section(heading, width, tuple(map(row_html, rows)), tuple(links)) if rows else None


def _choices(
    title: str, pages: Mapping[str, Page], now: str, key: str, width: int
) -> tuple[list[Row], list[Link]]:
    """Return the words of `pages` in rows, a link over each; `key` follows the one after `now`."""
    words = list(pages)
    after = words[(words.index(now) + 1) % len(words)]
    rows: list[Row] = [[(f" {title}", "muted")], []]
    links: list[Link] = []
    at = 1 + len(title)
    for word, page in pages.items():
        if at + _GAP + cell_width(word) > width:
            rows += [[], []]
            at = 1 - _GAP
        at += _GAP
        y = len(rows) - _EACH
        rows[y] += [(" " * (at - sum(cell_width(text) for text, _ in rows[y])), "text")]
        rows[y] += [(word, "accent" if word == now else "text")]
        label = f"{title}: {word}" + (" (now)" if word == now else "")
        hot = key if word == after else ""
        links.append(Link(page.address, label, at, y, cell_width(word), _EACH, key=hot))
        at += cell_width(word)
    return rows, links


def edge_links(rows: Sequence[Row], page: Page) -> Iterator[Link]:
    """Yield links over the keys in the lower edge of a wall, which is drawn as `rows`; `page` shows it."""
    edge, lists, filters = (row_text(row) for row in (rows[-1], LISTS_NOTE, FILTER_NOTE))
    left = edge[: -len("─╯")]
    if left.endswith(filters):
        left = left.removesuffix(filters)
        yield Link(f"#{FILTER}", "filter", cell_width(left), len(rows) - 1, cell_width(filters))
    if left.endswith(lists):
        known = [None, *Top]
        following = known[(known.index(page.choice.top) + 1) % len(known)]
        after = replace(page, choice=replace(page.choice, top=following, ignored=()))
        words = "the groups" if following is None else f"the list {following.value}"
        start = cell_width(left.removesuffix(lists))
        yield Link(after.address, f"show {words}", start, len(rows) - 1, cell_width(lists))
