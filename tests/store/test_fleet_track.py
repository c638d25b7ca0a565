"""What stays of a Prometheus' answer as time passes."""

from __future__ import annotations

import pytest

from sparktop.model.router import Fleet, FleetNode, FleetServer
from sparktop.model.targets import PrometheusTarget
from sparktop.store.tracks import FleetTrack

NODE = FleetNode("n", 90.0, state="busy", gpu_percent=96.0)


def answer(at: float, newest: float | None) -> Fleet:
    """Return an answer with one server, which is down without a newest sample."""
    return Fleet(at, 15.0, (FleetServer("a", "http://a", "g", newest, newest is None),), nodes=(NODE,))


@pytest.mark.parametrize(("shown_at", "percent"), [(125.0, 96.0), (170.0, None)])
def test_machines_keep_their_figures_where_all_servers_are_down(
    shown_at: float, percent: float | None
) -> None:
    """The age of what the servers sent last says nothing of an answer; without a further one, it gets old."""
    track = FleetTrack(PrometheusTarget("main", "http://p"))
    track.accept_fleet(answer(80.0, 79.0))
    track.accept_fleet(answer(110.0, None))
    fleet = track.view(shown_at).fleet
    assert fleet is not None
    assert [one.gpu_percent for one in fleet.nodes] == [percent]
    assert track.view(shown_at).age_s == shown_at - 79.0
