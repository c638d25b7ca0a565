"""Machines read through a Prometheus that has died: no figure of theirs looks current anywhere."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.analysis.wall import wall_of
from sparktop.demo.machine import SimulatedMachine, node_sample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Scrape
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import NodeTarget, PrometheusTarget, Watch
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.machine.panel import line_shape, node_line, short_node
from sparktop.panels.parts.text import Row
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from sparktop.store import SourceKey
from tests.known import known
from tests.panels.drawn import board
from tests.store.conftest import World

EVERY_S, STALE_S = 15.0, 37.5
REFUSED = "http://p:9090: nothing listens there"
NODE, MAIN = SourceKey.node("spark-1"), SourceKey.prometheus("main")
CURRENT = frozenset({"text", "good", "live", "gpu", "memory", "cpu", "generation", "prompt"})


class Watched(World):
    """A store with a machine read through a Prometheus that answered until 30 s and fails from then on."""

    def __init__(self) -> None:
        node = NodeTarget("spark-1", "prometheus", scrape=Scrape("main", EVERY_S))
        main = PrometheusTarget("main", "http://p:9090")
        super().__init__(Watch(nodes=(node,), prometheus=(main,), source="test"), at=0.0)
        for at in (0.0, 15.0, 30.0):
            self.sample(at)

    def sample(self, at: float) -> None:
        """Deliver a sample taken at second `at`."""
        self.at = max(self.at, at)
        self.store.accept(NODE, replace(node_sample(at, 1.0, SimulatedMachine()), at=at), 1.0)
        self.store.judge()

    def fail_until(self, at: float) -> Snapshot:
        """Report a failure of the Prometheus each second until `at`; return the picture then."""
        while self.at < at:
            self.at += 1.0
            self.store.accept(MAIN, Failure(FailureKind.REFUSED, REFUSED, self.at))
            self.store.judge()
        return self.store.snapshot()


@pytest.fixture
def stale() -> Snapshot:
    """Return the picture just after the newest sample became too old."""
    return Watched().fail_until(30 + STALE_S + 1)


def drawn(shown: Snapshot, zoomed: PanelKey | None = None) -> list[Row]:
    """Return the board of 80×24."""
    return board(shown, (80, 22), zoomed=zoomed)


def bright(rows: list[Row]) -> str:
    """Return the digits in roles of figures that are current."""
    runs = (text for row in rows for text, role in row if role.partition(".")[0] in CURRENT)
    return "".join(digit for text in runs for digit in text if digit.isdigit())


def test_a_machine_is_stale_as_soon_as_its_server_would_be() -> None:
    """Its failure is named, its alerts end, and derived figures are unknown until the next sample."""
    watched = Watched()
    assert watched.fail_until(67.0).nodes[0].ok
    shown = watched.fail_until(68.0)
    (node,) = shown.nodes
    assert known(node.failure).message == f"no new sample through main: {REFUSED}"
    assert (node.speed.word, node.headroom.slope_bytes_per_s, node.throttled_percent) == ("unknown", None, {})
    assert [alert.subject for alert in shown.alerts] == ["main"]
    assert verdict(replace(shown, alerts=())).words == "spark-1 is stale"
    watched.sample(69.0)
    assert watched.store.snapshot().nodes[0].ok


def test_no_figure_is_bright(stale: Snapshot) -> None:
    """Figures are dim on the 80×24 board, the machine's page and in lists; "stale" is a warning there."""
    fresh = Watched().fail_until(31.0)
    assert bright(drawn(fresh))
    page = PanelKey("node", "spark-1")
    for rows in (drawn(stale), drawn(stale, page)):
        text = "\n".join(part for row in rows for part, _ in row)
        assert "stale" in text
        assert "no new sample through main" in text
        assert not bright([row for row in rows if "╭" not in row[0][0]])
    (node,) = stale.nodes
    lines = [node_line(node, line_shape([node], 60)), short_node(node, line_shape([node], 29))]
    assert {role for line in lines for text, role in line if "…" in text or "stale" in text} == {"warn"}


def test_no_figure_is_in_reports_or_on_the_wall(stale: Snapshot) -> None:
    """Its figures are null in JSON, a dash in text, and its state is unknown on a wall."""
    found = json.loads(json.dumps(to_json(stale)))["nodes"][0]
    assert (found["ok"], found["gpus"], found["memory"]["used_bytes"]) == (False, [], None)
    line = next(line for line in render(stale, 120).splitlines() if line.startswith("spark-1"))
    assert not any(digit.isdigit() for digit in line.removeprefix("spark-1"))
    (node,) = wall_of(stale).nodes
    assert (node.state, node.down, node.gpu_percent, node.power_w) == ("unknown", False, None, None)
