"""The wall in a browser: its lines lead to groups, machines and servers, whose pages have all lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparktop.browser.address import Kind, Page
from sparktop.browser.drawing import draw
from sparktop.browser.picture import Picture
from sparktop.model.fleet import Fleet, FleetNode, FleetServer, FleetView
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
    """It is a wall, whatever the width, and begins with the wall of the Prometheus."""
    found = paths(draw(Page(), fleet, width))
    assert {"/group/llama-70b", "/machines", "/prometheus/main"} <= found


def test_the_lists_beside_the_groups_lead_to_servers_and_machines(fleet: Snapshot) -> None:
    """On a wide page; a slow clock is one of a machine."""
    found = paths(draw(Page(), fleet, 200))
    assert {"/backend/llama-001", "/node/gpu-006"} <= found


def test_the_page_of_a_group_has_all_its_servers(fleet: Snapshot) -> None:
    """A page scrolls: no line is left out."""
    members = {f"/backend/{one.name}" for one in fleet.backends if one.group == "gpt-oss"}
    assert members == paths(draw(Page(Kind.GROUP, "gpt-oss"), fleet, 80))


def test_the_groups_of_a_prometheus_have_pages(fleet: Snapshot) -> None:
    """The wall leads to them; their servers have no pages of their own."""
    assert {"/group/far-3", "/machines/main"} <= paths(draw(Page(Kind.PROMETHEUS, "main"), fleet, 80))
    assert "far-node" in draw(Page(Kind.MACHINES, "main"), fleet, 80).html
    picture = draw(Page(Kind.GROUP, "far-3"), fleet, 80)
    assert picture.is_found
    assert "s298" in picture.html


def test_what_is_gone_is_said(fleet: Snapshot) -> None:
    """A group or a Prometheus that is not there any more, and no machines."""
    assert not draw(Page(Kind.GROUP, "gone"), fleet, 80).is_found
    assert not draw(Page(Kind.PROMETHEUS, "gone"), fleet, 80).is_found
    bare = replace(fleet, nodes=())
    assert "No machine is watched." in draw(Page(Kind.MACHINES), bare, 80).html
