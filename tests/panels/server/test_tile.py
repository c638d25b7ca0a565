"""Tiles of backends: every figure is whole or absent, and a title keeps its name."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import BackendState, BackendView, Snapshot
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.server.panel import tile_panel

WINDOW = TimeWindow(130.0, 60.0)


def tile(view: BackendView, width: int, height: int = 3) -> list[str]:
    rows = tile_panel(view, width, height, WINDOW, 40.0)
    assert {row_width(row) for row in rows} == {width}
    return [row_text(row) for row in rows]


@pytest.mark.parametrize("width", range(26, 50))
@pytest.mark.parametrize(
    ("tps", "run", "wait", "kv"),
    [(0.0, 0, 0, 0.0), (165.0, 16, 13, 100.0), (1670.0, 128, 117, 52.0), (None, None, None, None)],
)
def test_figures_are_whole_or_absent(
    playing: Snapshot, width: int, tps: float | None, run: float | None, wait: float | None, kv: float | None
) -> None:
    """At every width a tile has tokens, running and waiting requests in full; the KV cache may be missing."""
    view = replace(playing.backends[0], generation_tps=tps, running=run, waiting=wait, kv_cache_percent=kv)
    inside = tile(view, width)[1].strip("│")
    assert "…" not in inside
    counts = re.search(r"(\S+) (?:tok/s (?:10 s )?)?(?:run (\S+) wait (\S+)|(\d+|–)\+(\d+|–))", inside)
    assert counts is not None
    known = [part for part in counts.groups() if part is not None]
    shown = [0.0 if part == "–" else float(part.replace(",", "")) for part in known]
    assert shown == [tps or 0.0, run or 0.0, wait or 0.0]
    assert "KV" not in inside or re.search(r"KV (\d+ %|–)", inside)


def test_usual_figures_have_their_words(playing: Snapshot) -> None:
    """Sixteen running and thirteen waiting requests keep unit and words at the least width of a tile."""
    view = replace(playing.backends[0], generation_tps=195.0, running=16, waiting=13)
    assert "195 tok/s run 16 wait 13" in tile(view, 26)[1]


@pytest.mark.parametrize("state", BackendState)
def test_a_title_keeps_the_name_and_a_word_for_the_state(playing: Snapshot, state: BackendState) -> None:
    """The state loses its window, then letters, before the name of the backend is cut."""
    view = replace(playing.backends[0], state=state, state_window_s=10.0)
    top = tile(view, 26)[0]
    assert "spark-a" in top
    assert "…" not in top
