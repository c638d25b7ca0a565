"""What a viewer chooses is in the address: cleaned and bounded; unknown values are ignored and reported."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import Top
from sparktop.browser.drawing import Orders, draw
from sparktop.browser.page import MOST_WORDS, Choice, Kind, Page, parse_choice, parse_path
from sparktop.browser.server import page_html
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.view import Sort
from tests.agent.raw_client import ask
from tests.browser.conftest import HOSTILE, TOKEN, StartServer
from tests.browser.test_browser_server import live, post
from tests.export.snapshots import backend, snapshot

BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")


def three() -> Snapshot:
    """Return three servers, the last of which has the most tokens per second."""
    servers = (("s-b", 1.0), ("s-c", 50.0), ("s-a", 900.0))
    return replace(
        snapshot(),
        nodes=(),
        backends=tuple(replace(backend(name), generation_tps=tps) for name, tps in servers),
    )


def servers_of(page: Page, shown: Snapshot, orders: Orders | None = None) -> list[str]:
    """Return the names of the servers on a board, from top to bottom."""
    picture = draw(page, shown, 80, orders)
    links = [link.path for band in picture.bands for section in band for link in section.links]
    return list(dict.fromkeys(path[-1] for path in links if re.fullmatch("/backend/s-[abc]", path)))


@pytest.mark.parametrize(
    "choice", [Choice(), Choice(Sort.TOKENS, "a b&c=d?é", Top.KV), Choice(top=Top.CLOCK), Choice(Sort.NAME)]
)
def test_an_address_has_the_choice(choice: Choice) -> None:
    """The choice is read from the address."""
    path, _, query = Page(Kind.BOARD, "", choice).address.partition("?")
    assert parse_path(path, dict(parse_qsl(query))) == Page(Kind.BOARD, "", choice)


def test_a_value_that_is_not_known_is_ignored_and_named() -> None:
    """Each unknown value is reported in one line; unknown fields are not mentioned."""
    found = parse_choice({"sort": f"banana{HOSTILE}", "list": "worst", "filter": "x", "utm": "1"})
    assert (found.sort, found.top, found.filter) == (Sort.CONFIG, None, "x")
    assert [sentence.split(" is not known")[0][:12] for sentence in found.ignored] == [
        "sort “banana",
        "list “worst”",
    ]
    assert not any(char < " " or BIDI.search(char) for sentence in found.ignored for char in sentence)
    html = draw(Page(choice=found), three(), 80).html
    assert "list “worst” is not known" in html
    assert "<script>" not in html


def test_a_filter_is_cleaned_cut_and_escaped() -> None:
    """The filter is cleaned, cut and escaped, on the board and in the form."""
    found = parse_choice({"filter": HOSTILE * 20})
    assert len(found.filter) <= MOST_WORDS
    assert not BIDI.search(found.filter)
    page = Page(choice=found)
    html = page_html(draw(page, three(), 80), page, theme="spark-dark", themes=("spark-dark",))
    assert "<script>alert" not in html
    assert "No server or machine matches" in html


def test_a_board_is_ordered_and_filtered_as_chosen() -> None:
    """Servers have the configured order by default; an order by live values is kept for some seconds."""
    shown, orders = three(), Orders()
    assert servers_of(Page(), shown) == ["b", "c", "a"]
    assert servers_of(Page(choice=Choice(Sort.NAME)), shown) == ["a", "b", "c"]
    assert servers_of(Page(choice=Choice(filter="s-c")), shown) == ["c"]
    tokens = Page(choice=Choice(Sort.TOKENS))
    assert servers_of(tokens, shown, orders) == ["a", "c", "b"]
    swapped = tuple(
        replace(one, generation_tps=9000.0 if one.name == "s-b" else 1.0) for one in shown.backends
    )
    assert servers_of(tokens, replace(shown, at=shown.at + 1, backends=swapped), orders) == ["a", "c", "b"]


def test_pages_without_a_choice_ignore_the_query() -> None:
    """Pages without a choice, such as that of a server, ignore the query."""
    assert parse_path("/backend/a", {"filter": "x", "sort": "name"}) == Page(Kind.BACKEND, "a")


async def test_the_page_and_its_changes_have_the_choice_of_the_address(start_server: StartServer) -> None:
    """The live page uses the same choice as the page."""
    served = await start_server(shown=three())
    answer = await ask(served.port, "/?filter=s-c&sort=nothing")
    assert answer.status == 200
    assert b'value="s-c"' in answer.body
    assert "sort “nothing” is not known".encode() in answer.body
    assert b'href="/backend/s-a"' not in answer.body
    viewer = await live(served.port, "/live/?filter=s-c&columns=80")
    data = await viewer.reader.readline()
    viewer.close()
    assert b"/backend/s-c" in data
    assert b"/backend/s-a" not in data


async def test_the_form_for_the_token_keeps_the_choice(start_server: StartServer) -> None:
    """The form for the token keeps the choice, cleaned and without unknown fields."""
    served = await start_server(TOKEN)
    form = await ask(served.port, "/?filter=a%20b&evil=1")
    assert (form.status, b'name=next value="/?filter=a+b"' in form.body) == (401, True)
    opened = await post(served.port, f"token={TOKEN}&next=/%3Ffilter=a%2Bb%26evil=1")
    assert opened.headers["location"] == "/?filter=a+b"
