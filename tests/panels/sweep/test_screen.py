"""Screens of a sweep at every size: whole rows, and signs beside every colour."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.colors.palette import shipped_palettes
from sparktop.model.sweep import LevelKey, Mark, SweepStatus, SweepView
from sparktop.panels.parts.text import Row, row_text, row_width
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.history import history_screen
from sparktop.panels.sweep.live import GUTTER, live_rows
from sparktop.panels.sweep.screen import curves_screen, status_run, sweep_band, sweep_screen
from sparktop.panels.sweep.table import columns_for, marks_words, table_rows
from sparktop.panels.sweep.topology import difference_screen, topology_screen
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.history import stored_row
from sparktop.sweep.result.results import Validity
from sparktop.sweep.result.store import StoredSweep
from sparktop.sweep.view.difference import difference
from sparktop.sweep.view.result import result_view
from tests.panels.sweep_views import (
    done,
    evidence,
    finished,
    published,
    renamed,
    result,
    running,
    starting,
    with_servers,
)
from tests.sweep.made_results import made_level, made_sweep

Draw = Callable[[int, int], list[Row]]
WIDTHS, HEIGHTS = st.integers(60, 200), st.integers(16, 50)


def _difference(width: int, height: int) -> list[Row]:
    before, after = series_of(result())
    return difference_screen(difference(before, after), width, height)


def _history(width: int, height: int) -> list[Row]:
    rows = [stored_row(StoredSweep(Path("1.json"), result()))] * 60
    return history_screen(rows, width, height, chosen="1.json")


WHOLE: dict[str, Draw] = {
    "running": lambda w, h: sweep_screen(running(), w, h),
    "done": lambda w, h: sweep_screen(done(), w, h),
    "finished": lambda w, h: sweep_screen(finished(), w, h),
    "tracks after the end": lambda w, h: sweep_screen(finished(), w, h, curves=False),
    "band": lambda w, h: sweep_band(running(), w, h),
    "band of a file": lambda w, h: sweep_band(done(), w, h),
    "history": _history,
    "before anything": lambda w, h: sweep_screen(starting(), w, h),
    "band before anything": lambda w, h: sweep_band(starting(), w, h),
    "four servers": lambda w, h: sweep_screen(with_servers(running(), 4), w, h),
    "wide name": lambda w, h: sweep_screen(renamed(running(), "東京の計算機・とても長い名前です"), w, h),
}
LONG: dict[str, Draw] = {
    "curves": lambda w, h: curves_screen(done(), w, h),
    "topologies": lambda w, h: topology_screen(published(), w, h),
    "evidence": lambda w, h: evidence_screen(evidence(), w, h),
    "difference": _difference,
}


@pytest.mark.parametrize("name", WHOLE)
@given(width=WIDTHS, height=HEIGHTS)
@settings(max_examples=15, deadline=None)
def test_a_screen_fills_its_place_exactly(name: str, width: int, height: int) -> None:
    """Whatever the terminal's size, there are `height` rows of `width` cells."""
    rows = WHOLE[name](width, height)
    assert [row_width(row) for row in rows] == [width] * height


@pytest.mark.parametrize("name", LONG)
@given(width=WIDTHS, height=HEIGHTS)
@settings(max_examples=10, deadline=None)
def test_a_long_screen_has_whole_rows_and_at_least_the_height(name: str, width: int, height: int) -> None:
    """More than fits becomes more rows, never wider or broken ones."""
    rows = LONG[name](width, height)
    assert len(rows) >= height
    assert {row_width(row) for row in rows} == {width}


@pytest.mark.parametrize("name", [*WHOLE, *LONG])
def test_every_role_is_one_that_themes_have(name: str) -> None:
    """No panel asks a theme for a colour that it does not know."""
    palette = shipped_palettes()["spark-dark"]
    rows = (WHOLE | LONG)[name](120, 40)
    for role in {role for row in rows for _, role in row}:
        assert palette.color(role)


def text(rows: Sequence[Row]) -> str:
    return "\n".join(row_text(row) for row in rows)


def lines(rows: Sequence[Row], word: str) -> list[str]:
    return [row_text(row) for row in rows if word in row_text(row)]


@pytest.mark.parametrize("name", ["running", "done", "band", "curves"])
def test_simulated_figures_are_called_so(name: str) -> None:
    """A picture of the simulation cannot be mistaken for a measurement."""
    assert "simulated" in text((WHOLE | LONG)[name](80, 24))


def test_a_running_level_has_a_bar_and_the_ones_ahead_say_so() -> None:
    """The table fills from the top; what is not made has no figures."""
    rows = table_rows(running(), 100, 20)
    (now,) = lines(rows, "running")
    assert "█" in now
    assert "1/3 runs" in now
    assert len(lines(rows, "ahead")) == 3


def test_the_best_has_a_sign_and_those_alike_another() -> None:
    """Without colour one sees which figure is best in its column."""
    rows = table_rows(done(), 120, 12)
    best = [row for row in lines(rows, "◆") if "best" not in row]
    assert best
    assert all("c" in row for row in best)
    assert lines(rows, "◇")


def test_a_long_table_keeps_the_chosen_level_in_sight() -> None:
    """With room for three levels the cursor is on one of them, and the others are counted."""
    rows = table_rows(done(), 80, 5, chosen=LevelKey("proxy", 4, 100))
    assert "▶" in lines(rows, "c4")[0]
    assert "3 more" in text(rows)


@pytest.mark.parametrize("status", [one for one in SweepStatus if one.over])
def test_every_end_is_a_word(status: SweepStatus) -> None:
    """How a sweep ended stands on the frame."""
    assert status.value in text(sweep_screen(replace(done(), status=status), 80, 24)[:1])


def test_tracks_share_one_axis() -> None:
    """Where a level begins, its edge stands in the same cell of every big track."""
    live = running().live
    assert live is not None
    rows = [row_text(row) for row in live_rows(live, {"spark-a": "A", "proxy": "B"}, 100, 24)]
    edge = rows[0].index("▏", rows[0].index("▏") + 1)
    below = [row[edge] for row in rows[1:14]]
    assert below.count("┊") >= 5
    assert "A c1" in rows[0]


def test_a_live_screen_shows_servers_and_machines() -> None:
    """Load, cache, power, temperature and clock of each have a row where there is room."""
    live = running().live
    assert live is not None
    shown = text(live_rows(live, {}, 120, 40))
    for word in ("tok/s", "in flight", "TTFT", "60 W", "61 °C", "2400 MHz", "25 % KV"):
        assert word in shown


def test_points_and_median_are_both_on_the_ttft_track() -> None:
    """Single requests are dots, their median is a line."""
    live = finished().live
    assert live is not None
    rows = [row_text(row) for row in live_rows(live, {}, 150, 24)]
    first = next(index for index, row in enumerate(rows) if row.startswith("TTFT"))
    track = "".join(rows[first : first + 4])
    assert "─" in track
    assert any("\u2801" <= char <= "\u28ff" for char in track)
    assert rows[first].startswith("TTFT ─ p50 ")
    assert rows[first + 2].startswith(" ⠂ each request")


def test_each_server_has_a_row_of_its_load_on_one_scale() -> None:
    """Waiting requests are above running ones as on the board; no letters are in the cells."""
    live = with_servers(running(), 4).live
    assert live is not None
    rows = live_rows(live, {}, 120, 40)
    loads = [row for row in rows if " run " in row_text(row)[:GUTTER]]
    assert len(loads) == 4
    drawn = "".join(row_text(row)[GUTTER:] for row in loads)
    assert set(drawn) <= {" ", "↑", *map(chr, range(0x2800, 0x2900))}
    assert "share" not in text(rows)


def test_requests_and_runs_that_no_file_tells_have_no_column() -> None:
    """The levels of other tools have unknown counts: "0 of 0 failed" would be a claim."""
    view = done()
    untold = replace(view, rows=tuple(replace(row, ok=0, failed=0, cancelled=0, runs=0) for row in view.rows))
    assert {"failed", "runs"} <= {column.heading for column in columns_for(view, 118)}
    assert not {"failed", "runs"} & {column.heading for column in columns_for(untold, 118)}


@pytest.mark.parametrize(
    ("room", "shown"), [(40, "!too short, !few runs, ▾bunched"), (23, "!too short +2"), (3, "!▾")]
)
def test_marks_that_have_no_room_are_counted(room: int, shown: str) -> None:
    """No word is cut: marks without room are a number; if no word fits, the signs stand alone."""
    marks = (
        Mark("too_short", "too short", "…"),
        Mark("few_runs", "few runs", "…"),
        Mark("bunched", "bunched", "…", doubt=False),
    )
    row = replace(done().rows[0], marks=marks)
    assert row_text(marks_words(row, room)) == shown


def swept(*concurrency: int) -> SweepView:
    """Return a finished sweep of one server; the level before the last is the best, the last is in doubt."""
    levels = [made_level(one, step=1 / one) for one in concurrency]
    doubt = Validity(code="throttled", message="…")
    levels[-1] = levels[-1].model_copy(update={"validity": (doubt,)})
    return result_view(made_sweep(("spark-a", levels)))


@pytest.mark.parametrize("size", [(60, 6), (80, 8), (120, 13), (200, 18)])
@pytest.mark.parametrize("most", [3, 6, 8])
def test_the_board_shows_all_levels_of_a_finished_sweep(size: tuple[int, int], most: int) -> None:
    """Columns go before levels, from six levels at 80×24 on: the best one is there at every size."""
    view = swept(*(2**power for power in range(most)))
    rows = [row_text(row) for row in sweep_band(view, *size)]
    assert all(len(row) == size[0] for row in rows)
    shown = [level for level in view.levels if re.search(rf"\bc{level.key.concurrency}\b", "\n".join(rows))]
    assert len(shown) == most or size == (60, 6) or (size, most) == ((80, 8), 8)
    assert len(shown) >= 4 or most < 4
    assert "◆" in "\n".join(rows[2:])
    assert not any("…" in row for row in rows[1:-1])
    assert "! warning" in rows[-1]


def test_failed_requests_stand_in_the_frame_of_the_sweep() -> None:
    """Their number is amber beside the status, while the sweep runs and after it."""
    for view in (running(), done()):
        rows = tuple(replace(row, failed=3) for row in view.rows)
        moment = None if view.moment is None else replace(view.moment, key=view.rows[0].key, failed=5)
        failing = replace(view, rows=rows, moment=moment)
        assert failing.failed == 3 * len(rows) + (0 if moment is None else 2)
        assert (f"{failing.failed} failed ", "warn") in status_run(failing)
        assert not [
            text for text, _ in status_run(replace(failing, rows=(), moment=None)) if "failed" in text
        ]
