"""Rows as HTML: everything is escaped; lines lead to pages; an address has what a viewer chose."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from sparktop.browser.drawing import draw
from sparktop.browser.page import (
    MOST_WORDS,
    PageKind,
    WebPage,
    parse_path,
    shared_width,
    with_choice,
)
from sparktop.browser.picture import Picture, row_html
from sparktop.browser.server import page_html
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView
from sparktop.model.snapshot import Snapshot
from stage.fleet import RehearsedFleet
from tests.agent.raw_client import ask
from tests.browser.conftest import HOSTILE, StartServer, hostile_snapshot
from tests.browser.test_server import live
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


@pytest.mark.parametrize("kind", [kind for kind in PageKind if kind not in {PageKind.SWEEP, PageKind.SWEEPS}])
def test_a_page_of_hostile_names_has_no_element_of_theirs(kind: PageKind) -> None:
    """A page of uncleaned hostile names has only our own elements, attributes and addresses."""
    shown = hostile_snapshot()
    first = shown.backends[0]
    names = {PageKind.BACKEND: first.name, PageKind.NODE: shown.nodes[0].name, PageKind.GROUP: first.group}
    picture = draw(WebPage(kind, names.get(kind, "")), shown, 80)
    elements = Elements(picture.html)
    assert elements.names <= ALLOWED
    assert elements.attributes <= {"class", "href", "aria-label", "aria-hidden", "data-key"}
    assert all(re.fullmatch(r"/[\w/%.~-]*(\?[\w=&%+-]*)?", link) for link in elements.links)
    html = page_html(picture, WebPage(kind), theme="spark-dark", themes=("spark-dark",))
    assert not BIDI.search(html)
    assert "<script>" not in html
    assert not Elements(html).attributes & {"style", "onload", "onclick", "onerror", "src"} - {"src"}


@pytest.mark.parametrize(
    "page", [WebPage(), WebPage(PageKind.NODE, "a/b %é漢"), WebPage(PageKind.SWEEP, "imports/x.json")]
)
def test_an_address_leads_back_to_its_page(page: WebPage) -> None:
    """Names with any characters are quoted in the path of their page, and read back."""
    assert parse_path(page.path) == page


@pytest.mark.parametrize(
    "path",
    [
        *("", "x", "//evil.example", "/nothing", "/node", "/node/", "/node/a/b"),
        *("/events/x", "/sweeps/0", "/sweeps/x"),
    ],
)
def test_no_other_path_is_a_page(path: str) -> None:
    """A path is a page only if its kind is known and it has a name where one is needed."""
    assert parse_path(path) is None


def test_the_picture_is_as_wide_as_the_browser_allows_in_steps() -> None:
    """The picture has the largest of a few widths that fits; an invalid width gives the default."""
    assert [shared_width(text) for text in ("1", "79", "80", "150", "99999")] == [60, 72, 80, 144, 240]
    assert {shared_width(text) for text in (None, "", "-5", "1e3", "9" * 400, "\uff18\uff10")} == {120}


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    """Return 120 servers and 30 machines, and a Prometheus with 300 more."""
    servers = tuple(FleetServer(f"s{n}", f"http://s{n}", f"far-{n % 5}", 100.0) for n in range(300))
    far = Fleet(100.0, 15.0, servers, nodes=(FleetNode("far-node", 100.0, state="busy"),))
    shown = RehearsedFleet(120, 30).play(6).snapshot()
    return replace(shown, fleets=(FleetView("main", "http://p", far, age_s=1.0),))


def paths(picture: Picture) -> list[str]:
    """Return the paths of all links of a page."""
    return [link.path for band in picture.bands for section in band for link in section.links]


@pytest.mark.parametrize("width", [60, 200])
def test_the_board_of_many_servers_leads_to_groups_and_machines(fleet: Snapshot, width: int) -> None:
    """At any width, a board of many servers links to groups, machines and the Prometheus."""
    found = set(paths(draw(WebPage(), fleet, width)))
    assert "/group" not in found
    assert {"/group/llama-70b", "/machines", "/prometheus/main"} <= found


def test_the_page_of_a_group_has_all_its_servers(fleet: Snapshot) -> None:
    """The page of a group shows all its servers, as a page scrolls."""
    members = {f"/backend/{one.name}" for one in fleet.backends if one.group == "gpt-oss"}
    assert members == set(paths(draw(WebPage(PageKind.GROUP, "gpt-oss"), fleet, 80)))


def test_the_groups_of_a_prometheus_have_pages(fleet: Snapshot) -> None:
    """The wall links to the groups of a Prometheus; their servers have no pages."""
    wall = paths(draw(WebPage(PageKind.PROMETHEUS, "main"), fleet, 80))
    assert {"/group/far-3", "/machines/main"} <= set(wall)
    assert "far-node" in draw(WebPage(PageKind.MACHINES, "main"), fleet, 80).html
    picture = draw(WebPage(PageKind.GROUP, "far-3"), fleet, 80)
    assert picture.is_found
    assert "s298" in picture.html


def test_eight_sparks_fit_a_monitor() -> None:
    """In 240 columns, of 1920 pixels, two servers stand abreast, and the board has 58 rows; 80 have one."""
    shown = snapshot()
    names = [f"s-{number}" for number in range(8)]
    nodes = tuple(replace(shown.nodes[0], name=name) for name in names)
    shown = replace(shown, nodes=nodes, backends=tuple(map(backend, names)), routers=(), balance=())
    for width, abreast in ((240, 2), (80, 1)):
        bands = draw(WebPage(), shown, width).bands
        servers = [
            [one.heading for one in band if "s-" in one.heading and "Server" in one.heading] for band in bands
        ]
        assert {len(band) for band in servers if band} == {abreast}
        if abreast > 1:
            assert sum(len(band[0].rows) for band in bands) <= 58 + 2 + 3


def three() -> Snapshot:
    """Return three servers, the last of which has the most tokens per second."""
    servers = (("s-b", 1.0), ("s-c", 50.0), ("s-a", 900.0))
    return replace(
        snapshot(),
        nodes=(),
        backends=tuple(replace(backend(name), generation_tps=tps) for name, tps in servers),
    )


def test_a_value_that_is_not_known_is_ignored() -> None:
    """Unknown values and fields leave what is usual."""
    found = with_choice(WebPage(), {"sort": f"banana{HOSTILE}", "list": "worst", "filter": "x", "utm": "1"})
    assert found == WebPage(filter="x")


def test_a_filter_is_cleaned_cut_and_escaped() -> None:
    """The filter is cleaned, cut and escaped, on the board and in the form."""
    found = with_choice(WebPage(), {"filter": HOSTILE * 20})
    assert len(found.filter) <= MOST_WORDS
    assert not BIDI.search(found.filter)
    html = page_html(draw(found, three(), 80), found, theme="spark-dark", themes=("spark-dark",))
    assert "<script>alert" not in html
    assert "No server or machine matches" in html


async def test_the_page_and_its_changes_have_the_choice_of_the_address(start_server: StartServer) -> None:
    """The live page uses the same choice as the page."""
    served = await start_server(shown=three())
    answer = await ask(served.port, "/?filter=s-c&sort=nothing")
    assert answer.status == 200
    assert b'value="s-c"' in answer.body
    assert b'href="/backend/s-a"' not in answer.body
    viewer = await live(served.port, "/live/?filter=s-c&columns=80")
    data = await viewer.reader.readline()
    viewer.close()
    assert b"/backend/s-c" in data
    assert b"/backend/s-a" not in data
