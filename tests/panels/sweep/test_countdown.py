"""What stands over the board while there is a sweep: its countdown, its place, its notices."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.load import concurrency_point
from sparktop.model.sweep import Countdown
from sparktop.panels.board.layout import SWEEP_HEIGHT, Boxes, arrange, below_band, sweep_height
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.sweep.screen import countdown_band, notices_screen
from tests.panels.sweep_views import done, running, starting

LEVELS = tuple(concurrency_point(one) for one in (1, 4, 16))
COUNTDOWN = Countdown("quick", "128 → 64 tokens", ("proxy (router)",), LEVELS, 63, 21, 3.0, 3.0)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(60, 220),
    st.integers(SWEEP_HEIGHT, 20),
    st.floats(-1.0, 3.0),
    st.lists(st.text("ab-界", min_size=1, max_size=40), max_size=6),
)
def test_the_countdown_has_its_size_and_says_how_to_stop_it(
    width: int, height: int, left_s: float, names: list[str]
) -> None:
    """Whatever is about to start, the band is as large as asked, and its keys are never cut off below."""
    countdown = replace(COUNTDOWN, left_s=left_s, targets=tuple(names))
    rows = countdown_band(countdown, width, height)
    assert len(rows) == height
    assert {row_width(row) for row in rows} == {width}
    assert any("esc stops it" in row_text(row) for row in rows)


def test_a_sweep_bounded_by_time_tells_no_number_of_requests() -> None:
    """If only a duration bounds the sweep, no number of requests is made up."""
    text = "\n".join(row_text(row) for row in countdown_band(replace(COUNTDOWN, requests=None), 100, 7))
    assert "warm-up" not in text
    assert "63" not in text


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 220), st.integers(14, 60), st.integers(0, 4), st.integers(0, 8))
def test_everything_else_lies_below_the_band(width: int, height: int, nodes: int, backends: int) -> None:
    """The band is at the top, as wide as the board; nothing overlaps it, and all else keeps its shape."""
    band = sweep_height(height)
    inner = arrange(width, height - band, nodes, backends, Boxes(events=True))
    whole = below_band(inner, "sweep", width, band)
    first, *others = whole.places
    assert (first.kind, first.x, first.y, first.width, first.height) == ("sweep", 0, 0, width, band)
    assert SWEEP_HEIGHT <= band <= height // 2
    assert whole.height == inner.height + band
    assert [replace(place, y=place.y - band) for place in others] == list(inner.places)


def test_the_notices_hold_verdict_and_what_was_said() -> None:
    """The page has the verdict of a finished sweep, and all notices; without any it says so."""
    view = replace(running(), notices=("one thing", "another thing"))
    text = "\n".join(row_text(row) for row in notices_screen(view, 80, 24))
    assert text.index("another thing") < text.index("one thing")
    found = " ".join(row_text(row).strip("│ ") for row in notices_screen(done(), 200, 24))
    assert all(sentence in found for sentence in done().verdict)
    assert "nothing was said" in row_text(notices_screen(starting(), 80, 24)[1])
