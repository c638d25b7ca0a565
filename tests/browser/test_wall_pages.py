"""The wall in a browser: its lines link to groups, machines and servers, whose pages show all lines."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import Top
from sparktop.browser.drawing import draw
from sparktop.browser.page import Choice, Kind, Page, parse_path
from sparktop.browser.picture import Picture
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView
from sparktop.model.snapshot import Snapshot
from stage.fleet import RehearsedFleet


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    """Return 120 servers and 30 machines, and a Prometheus with 300 more."""
    servers = tuple(FleetServer(f"s{n}", f"http://s{n}", f"far-{n % 5}", 100.0) for n in range(300))
    nodes = (FleetNode("far-node", 100.0, state="busy"),)
    shown = RehearsedFleet(120, 30).play(14).snapshot()
    return replace(
        shown, fleets=(FleetView("main", "http://p", Fleet(100.0, 15.0, servers, nodes=nodes), age_s=1.0),)
    )


def paths(picture: Picture) -> set[str]:
    """Return the paths of all links of a page."""
    return {link.path for band in picture.bands for section in band for link in section.links}


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_board_of_many_servers_leads_to_groups_and_machines(fleet: Snapshot, width: int) -> None:
    """At any width, a board of many servers links to groups, machines and the Prometheus."""
    found = paths(draw(Page(), fleet, width))
    assert "/group" not in found
    assert {"/group/llama-70b", "/machines", "/prometheus/main"} <= found


def test_the_lists_beside_the_groups_lead_to_servers_and_machines(fleet: Snapshot) -> None:
    """On a wide page, the lists beside the groups link to servers and machines."""
    found = paths(draw(Page(), fleet, 200))
    assert {"/backend/llama-001", "/node/gpu-006"} <= found


def test_the_page_of_a_group_has_all_its_servers(fleet: Snapshot) -> None:
    """The page of a group shows all its servers, as a page scrolls."""
    members = {f"/backend/{one.name}" for one in fleet.backends if one.group == "gpt-oss"}
    assert members | {"#filter"} == paths(draw(Page(Kind.GROUP, "gpt-oss"), fleet, 80))


def test_the_groups_of_a_prometheus_have_pages(fleet: Snapshot) -> None:
    """The wall links to the groups of a Prometheus; their servers have no pages."""
    assert {"/group/far-3", "/machines/main"} <= paths(draw(Page(Kind.PROMETHEUS, "main"), fleet, 80))
    assert "far-node" in draw(Page(Kind.MACHINES, "main"), fleet, 80).html
    picture = draw(Page(Kind.GROUP, "far-3"), fleet, 80)
    assert picture.is_found
    assert "s298" in picture.html


def test_what_is_gone_is_said(fleet: Snapshot) -> None:
    """A group or Prometheus that is gone is not found; without machines, their page says so."""
    assert not draw(Page(Kind.GROUP, "gone"), fleet, 80).is_found
    assert not draw(Page(Kind.PROMETHEUS, "gone"), fleet, 80).is_found
    bare = replace(fleet, nodes=())
    assert "No machine is watched." in draw(Page(Kind.MACHINES), bare, 80).html


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_words_in_the_frame_are_links(fleet: Snapshot, width: int) -> None:
    """The words in the frame are links: to the next list, and from the last one back to the groups."""
    page = Page()
    seen: list[str] = []
    for _ in range(len(Top) + 1):
        panel = draw(page, replace(fleet, fleets=()), width).bands[1][0]
        lists = next(link for link in panel.links if link.label.startswith("show "))
        words = next(link for link in panel.links if link.path == "#filter")
        text = re.sub("<[^>]*>", "", panel.rows[-1])
        assert text[lists.x : lists.x + lists.width].strip() == "lists"
        assert text[words.x : words.x + words.width].strip() == "/ filter"
        assert {lists.y, words.y} == {len(panel.rows) - 1}
        seen.append(lists.path)
        path, _, query = lists.path.partition("?")
        page = parse_path(path, dict(parse_qsl(query))) or page
    assert seen == ["/?list=waiting", "/?list=kv", "/?list=ttft", "/?list=clock", "/"]


def test_a_prometheus_beside_the_board_leads_to_its_own_lists(fleet: Snapshot) -> None:
    """The lists of a Prometheus are on its own page, to which its frame on the board links."""
    assert "/prometheus/main?list=waiting" in paths(draw(Page(), fleet, 80))
    page = Page(Kind.PROMETHEUS, "main", Choice(filter="far-3", top=Top.KV))
    picture = draw(page, fleet, 80)
    assert "/prometheus/main?filter=far-3&list=ttft" in paths(picture)
    assert "far-2" not in picture.html


def test_the_filter_of_a_group_leaves_the_servers_that_match(fleet: Snapshot) -> None:
    """A filter on the page of a group leaves only matching servers and is shown in the frame."""
    picture = draw(Page(Kind.GROUP, "llama-70b", Choice(filter="llama-001")), fleet, 80)
    assert paths(picture) == {"/backend/llama-001", "#filter"}
    assert "filter: llama-001" in picture.html


@pytest.mark.parametrize(
    ("apart_ms", "words"), [(496.0, "samples up to 496 ms apart"), (60.0, None), (None, None)]
)
def test_a_group_whose_polls_are_spread_says_so(
    fleet: Snapshot, apart_ms: float | None, words: str | None
) -> None:
    """Pages of a group and its balance say how far its polls are apart, unless they coincide."""
    one = fleet.balance[0]
    assert len(one.backends) > 1
    spread = replace(one, looks_apart_ms=apart_ms)
    shown = replace(fleet, balance=(spread, *fleet.balance[1:]))
    for kind in (Kind.GROUP, Kind.BALANCE):
        text = re.sub("<[^>]*>", "", draw(Page(kind, one.group), shown, 80).html)
        assert ("samples up to" in text) == (words is not None)
        assert words is None or words in text
