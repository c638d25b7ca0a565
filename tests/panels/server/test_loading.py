"""A server that loads, on the screen and in reports."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendState, BackendView, Loading, Snapshot
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.parts.text import row_text, row_width
from sparktop.report.json_snapshot import to_json
from sparktop.report.markdown import render as markdown
from sparktop.report.text_snapshot import render as text

GIB = 2**30
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
REFUSED = "vLLM refuses connections while it loads (process 4001 on spark-a)"
LOADING = Loading(
    190.0,
    "weights",
    3,
    6,
    40.0,
    90.0,
    280.0,
    "last time",
    warm=True,
    memory_bytes=40 * GIB,
    node="spark-a",
    pid=4001,
)
VIEW = BackendView(
    "spark-a",
    "http://127.0.0.1:8000",
    "g",
    state=BackendState.LOADING,
    state_rule=REFUSED,
    loading=LOADING,
    failure=Failure(FailureKind.LOADING, REFUSED, 1.0),
    failing_since=NOON,
    age_s=200.0,
    engine="vllm",
)
WORDS = "weights, phase 3 of 6, 3:10 of ~4:40 last time"


def snapshot(*views: BackendView) -> Snapshot:
    return Snapshot(NOON, 2.0, 1.0, 2.0, backends=views)


def screen(width: int, height: int, *views: BackendView) -> str:
    rows = flatten(Scene(snapshot(*views), width, height).draw(), width, height)
    assert {row_width(row) for row in rows} == {width}
    return "\n".join(row_text(row) for row in rows)


@pytest.mark.parametrize(("width", "height"), [(80, 22), (120, 34), (200, 48)])
def test_phase_and_times_are_on_the_panel(width: int, height: int) -> None:
    """The panel has the phase and its times; its lower edge says why the port is closed."""
    drawn = screen(width, height, VIEW)
    assert "loading" in drawn
    assert "refuses connections while it loads" in drawn
    assert "weights, phase 3 of 6" in drawn
    assert "3:10 of ~4:40 last time" in drawn


def test_five_servers_in_a_list_show_it_too() -> None:
    """Each row of a list has the phase and its times in short form."""
    others = [replace(VIEW, name=f"spark-{letter}") for letter in "bcde"]
    assert screen(80, 22, VIEW, *others).count("3/6 3:10/~4:40") == 5


def test_reports_have_phase_and_times() -> None:
    """Reports as text, Markdown and JSON have the phase and its times."""
    shot = snapshot(VIEW)
    assert f"loading: {WORDS}" in " ".join(text(shot, 200).split())
    assert WORDS in markdown(shot)
    body = to_json(shot)["backends"][0]["loading"]  # type: ignore[index]  # values as json gives them
    assert (body["phase"], body["step"], body["left_s"], body["words"]) == ("weights", 3, 90.0, WORDS)


def test_the_edge_of_a_panel_is_whole_while_a_server_loads() -> None:
    """At 80 columns too, the edge is not cut: it leaves out the process, which the panel names."""
    edge = next(line for line in screen(80, 24, VIEW).splitlines() if "refuses connections" in line)
    assert "refuses connections while it loads ─" in edge
    assert "…" not in edge.partition("… since")[2]
