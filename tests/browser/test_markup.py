"""Rows as HTML: everything is escaped, and drawing is hidden from screen readers."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from sparktop.browser.drawing import draw
from sparktop.browser.page import WIDTHS, Kind, Page, parse_path, shared_width
from sparktop.browser.picture import row_html
from sparktop.browser.server import AUTO, page_html, static, style_sheet, token_html
from sparktop.colors.palette import shipped_palettes
from tests.browser.conftest import HOSTILE, hostile_snapshot
from tests.export.snapshots import backend, snapshot

ALLOWED = {"b", "i", "p", "a", "h2", "div", "section", "span"}
BIDI = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Elements(HTMLParser):
    """Collects the elements of a document, and the attributes that could run a script."""

    def __init__(self, html: str) -> None:
        """Parse `html`."""
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record one element."""
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_text_is_escaped_and_what_turns_text_is_replaced() -> None:
    """Markup in a name stays text; control characters and bidi marks become visible replacements."""
    html = row_html([(HOSTILE, 'title" onload=x')])
    elements = Elements(html)
    assert elements.names == {"b", "span"}
    assert elements.attributes == {"class"}
    assert "&lt;script&gt;" in html
    assert not BIDI.search(html)


def test_drawing_is_hidden_from_screen_readers_and_words_are_not() -> None:
    """Lines, blocks and braille have aria-hidden; the words between them do not."""
    assert row_html([("···", "bar_empty")]) == '<i class="bar_empty" aria-hidden=true>···</i>'
    html = row_html([("╭─ load ⣿⣿ 45 %", "border")])
    assert html == (
        '<i class="border" aria-hidden=true>╭─</i><b class=border> load </b>'
        '<i class="border dots" aria-hidden=true>⣿⣿</i><b class=border> 45 %</b>'
    )


def test_keys_that_do_nothing_in_a_browser_are_part_of_the_frame() -> None:
    """The digit of a key that hides a box is drawn as part of the frame."""
    html = row_html([("╭─┐", "node_edge"), ("¹", "key"), ("node", "node")])
    assert html == '<i class="node_edge" aria-hidden=true>╭──┐</i><b class=node>node</b>'


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in {Kind.SWEEP, Kind.SWEEPS}])
def test_a_page_of_hostile_names_has_no_element_of_theirs(kind: Kind) -> None:
    """A page of uncleaned hostile names has only our own elements, attributes and addresses."""
    shown = hostile_snapshot()
    first = shown.backends[0]
    names = {Kind.BACKEND: first.name, Kind.NODE: shown.nodes[0].name, Kind.GROUP: first.group}
    picture = draw(Page(kind, names.get(kind, "")), shown, 80)
    elements = Elements(picture.html)
    assert elements.names <= ALLOWED
    assert elements.attributes <= {"class", "href", "aria-label", "aria-hidden", "data-key"}
    assert all(re.fullmatch(r"/[\w/%.~-]*(\?[\w=&%+-]*)?|#filter", link) for link in elements.links)
    html = page_html(picture, Page(kind), theme="spark-dark", themes=("spark-dark",))
    assert not BIDI.search(html)
    assert "<script>" not in html
    assert not Elements(html).attributes & {"style", "onload", "onclick", "onerror", "src"} - {"src"}


def test_links_step_through_servers_and_machines() -> None:
    """Links lead to the previous and next server in the board's order, cyclically; a single one has none."""
    shown = snapshot()
    names = ("a", "b", "c")
    three = replace(shown, backends=tuple(backend(name) for name in names))
    for name, before, after in (("a", "c", "b"), ("c", "b", "a")):
        last = draw(Page(Kind.BACKEND, name), three, 60).bands[-1][0]
        assert [link.path for link in last.links] == [f"/backend/{before}", f"/backend/{after}"]
        assert last.rows[0].index(f"← {before}") < last.rows[0].index(f"{after} →")
    alone = replace(shown, backends=(backend("a"),))
    assert "Before and after" not in draw(Page(Kind.BACKEND, "a"), alone, 60).html


def test_the_form_for_the_token_escapes_where_it_leads() -> None:
    """The address in the form for the token is escaped."""
    assert 'value="/&#34;&gt;&lt;x"' in token_html(theme="spark-dark", next_path='/"><x', is_wrong=True)


@pytest.mark.parametrize("page", [Page(), Page(Kind.NODE, "a/b %é漢"), Page(Kind.SWEEP, "imports/x.json")])
def test_an_address_leads_back_to_its_page(page: Page) -> None:
    """Names with any characters are quoted in the path of their page, and read back."""
    assert parse_path(page.path) == page


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x",
        "//evil.example",
        "/nothing",
        "/node",
        "/node/",
        "/node/a/b",
        "/events/x",
        "/sweeps/0",
        "/sweeps/x",
    ],
)
def test_no_other_path_is_a_page(path: str) -> None:
    """A path is a page only if its kind is known and it has a name where one is needed."""
    assert parse_path(path) is None


def test_the_picture_is_as_wide_as_the_browser_allows_in_steps() -> None:
    """The picture has the largest of a few widths that fits; an invalid width gives the default."""
    assert [shared_width(text) for text in ("1", "79", "80", "150", "99999")] == [60, 72, 80, 144, 240]
    assert {shared_width(text) for text in (None, "", "-5", "1e3", "9" * 400, "\uff18\uff10")} == {120}


@pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[-1]])
def test_sections_side_by_side_are_as_wide_as_the_page(width: int) -> None:
    """Each band fills the width, and every panel that has a page links to it."""
    picture = draw(Page(), snapshot(), width)
    assert {sum(section.width for section in band) for band in picture.bands} == {width}
    paths = {link.path for band in picture.bands for section in band for link in section.links}
    assert {f"/backend/{one.name}" for one in snapshot().backends} <= paths
    group = snapshot().balance[0].group
    assert Page(Kind.WHY, group).path in paths
    alone = draw(Page(Kind.WHY, group), snapshot(), width)
    (links,) = [section.links for band in alone.bands for section in band]
    assert [link.path for link in links] == [Page(Kind.BALANCE, group).path]
    assert links[0].y + links[0].height == len(list(alone.rows))


@pytest.mark.parametrize("theme", shipped_palettes())
def test_every_theme_has_a_colour_for_each_role(theme: str) -> None:
    """Every theme has a colour for each role, also those with terminal colours; printed pages are light."""
    sheet = style_sheet(theme)
    assert set(re.findall(r"color:([^;}]+)", sheet.partition("body,dialog")[2])) <= set(
        re.findall(r"color:(#[0-9a-f]{6})", sheet)
    ) | {"light", "dark"}
    for name in ("title", "gpu-7", "balance_edge", "part_c", "load-15"):
        assert f".{name}{{color:#" in sheet
    assert "@media print {" in sheet


def test_without_a_configured_theme_the_colours_follow_the_browser() -> None:
    """Without a configured theme, the colours are dark or light as the browser prefers."""
    assert "@media print, (prefers-color-scheme: light) {" in style_sheet(AUTO)


def test_a_phone_begins_with_few_columns() -> None:
    """A browser that has not reported its width gets a board of a desk's window, on a phone a narrow one."""
    assert shared_width(None) == 120
    assert shared_width(None, on_a_phone=True) == 60
    assert shared_width("100", on_a_phone=True) == 96


def test_letters_are_bounded() -> None:
    """However wide the window, letters have 16 pixels at most; 120 columns fit into 1000 pixels."""
    assert "font-size: min(16px," in static("board.css")
    (least,) = re.findall(r"LEAST_FONT = ([0-9.]+)", static("board.js"))
    assert 120 * float(least) * 0.602 <= 1000 - 32
