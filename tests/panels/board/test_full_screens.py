"""Every view of the whole screen at four sizes: no large empty area, no cut sentence where a row is free."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.event import Event, Severity
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.events import events_screen
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.group.panel import balance_screen, evidence_screen
from sparktop.panels.parts.text import Row, row_text, row_width
from stage.rehearsal import Outage, Rehearsal
from tests.panels.board.test_every_size import SIZES, largest_blank

pytestmark = pytest.mark.long

KINDS = ("backend", "node", "router", "balance", "why", "events")
DEAD = Outage(1, 40)


@pytest.fixture(scope="module")
def shown() -> list[Snapshot]:
    """Return two servers behind a router that swings, and the same with one that is dead."""
    scenario = SCENARIOS["oscillation"]
    return [
        Rehearsal(nodes=2, scenario=scenario, outage=outage).play(70).snapshot() for outage in (None, DEAD)
    ]


def drawn(snapshot: Snapshot, kind: str, size: tuple[int, int]) -> list[Row]:
    """Return one view of the whole screen; what scrolls is longer than the screen."""
    if kind == "events":
        at = snapshot.taken_at
        message = "queue of 12 requests: " + "the first one waits for a free slot of the server, " * 3
        events = tuple(
            Event(at + timedelta(seconds=index), Severity.WARNING, "spark-a", message) for index in range(30)
        )
        return events_screen(Snapshot(at, snapshot.at, 1.0, 1.0, events=events), *size)
    if kind in {"balance", "why"}:
        draw = balance_screen if kind == "balance" else evidence_screen
        return draw(snapshot.balance[0], snapshot, *size)
    names = {
        "backend": [view.name for view in snapshot.backends],
        "node": [view.name for view in snapshot.nodes],
        "router": [view.name for view in snapshot.routers],
    }[kind]
    scene = Scene(snapshot, *size, zoomed=PanelKey(kind, names[-1]))
    return flatten(scene.draw(), size[0], scene.layout.height)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_view_uses_its_room_and_cuts_no_sentence(
    shown: list[Snapshot], kind: str, size: tuple[int, int]
) -> None:
    """At most a quarter of the screen is empty in one place; a line that is cut has no free row below it.

    A router of two deployments has no more to show on the smallest screen, nor has a group without samples.
    """
    for snapshot in shown:
        rows = drawn(snapshot, kind, size)
        assert {row_width(row) for row in rows} <= {size[0]}
        lines = [row_text(row) for row in rows][: size[1]]
        if (kind, size) != ("router", SIZES[0]) and (kind != "why" or snapshot.balance[0].swing is not None):
            assert largest_blank(lines) <= size[0] * size[1] / 4
        cut = [line for line in lines if line.rstrip("│ ").endswith("…")]
        assert not cut or all(line.strip("│ ") for line in lines), cut
